"""Counters about Ratchet itself, fed by the worker and read by `/metrics`; no I/O here."""

from __future__ import annotations

from collections import defaultdict
from threading import Lock

_values: defaultdict[tuple[str, tuple[tuple[str, str], ...]], float] = defaultdict(float)
_lock = Lock()


def add(name: str, amount: float = 1.0, **labels: str) -> None:
    """Add to a counter, e.g. `add("ssh_errors_total", host="gpu-box")`."""
    with _lock:
        _values[(name, tuple(sorted(labels.items())))] += amount


def snapshot() -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return a copy of all counters by name and labels."""
    with _lock:
        return dict(_values)
