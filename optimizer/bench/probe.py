"""Numbers over time while a level runs: gauges of the engine, and clocks, power and memory as far as they can be read.

Decides how often, and what is kept of each quantity. Where the machine's numbers come from (`nvidia-smi` over SSH) is
the caller's: this package knows no host.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from optimizer.bench.base import Series
from optimizer.errors import RatchetError

INTERVAL_S = 2.0
"""Often enough for a short level, and too seldom to disturb what is measured."""
JOIN_TIMEOUT_S = 10.0

Reading = Mapping[tuple[str, str], float]
"""Quantities by source (`engine`, `gpu0`) and name with its unit (`power_w`)."""
Read = Callable[[], Reading]
"""May take a second, may fail."""


class Machine(Protocol):
    """The host behind the server, as far as the caller lets it be watched."""

    def read(self) -> Reading:
        """Return what it shows now."""

    def mark(self) -> None:
        """Take note that a measured window begins or ends."""


class Probe:
    """Calls every reader in a thread until it is left; a failed read is left out, never an error of the measurement.

    `zero_s` is the `time.perf_counter()` that counts as 0 in the series.
    """

    def __init__(self, reads: Sequence[Read], *, zero_s: float = 0.0, interval_s: float = INTERVAL_S) -> None:
        self._reads = reads
        self._zero_s = zero_s
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True) if reads else None
        self._points: defaultdict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)

    def __enter__(self) -> Self:
        """Start sampling."""
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop sampling; waits for a read that is under way."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(JOIN_TIMEOUT_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            for read in self._reads:
                try:
                    found = read()
                except (RatchetError, OSError, ValueError):
                    continue  # the next time it may answer
                at = time.perf_counter() - self._zero_s
                for key, value in found.items():
                    self._points[key].append((at, float(value)))
            self._stop.wait(self._interval_s)

    def series(self) -> list[Series]:
        """Return every quantity over time."""
        return [
            Series(source, name, tuple(t for t, _ in points), tuple(v for _, v in points))
            for (source, name), points in list(self._points.items())
        ]


def summary(series: Sequence[Series]) -> dict[str, float]:
    """Return mean, least and most of every quantity: `gpu0_power_w_mean`, `gpu0_power_w_min`, ..."""
    found: dict[str, float] = {}
    for one in series:
        name = f"{one.source}_{one.name}"
        found |= {
            f"{name}_mean": sum(one.values) / len(one.values),
            f"{name}_min": min(one.values),
            f"{name}_max": max(one.values),
        }
    return found


def joined(parts: Sequence[Series]) -> tuple[Series, ...]:
    """Put the parts of one quantity (from several levels) together, in the order given."""
    whole: dict[tuple[str, str], Series] = {}
    for part in parts:
        key = (part.source, part.name)
        before = whole.get(key)
        if before is not None:
            part = Series(*key, before.times_s + part.times_s, before.values + part.values)
        whole[key] = part
    return tuple(whole.values())
