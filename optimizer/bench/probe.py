"""Samples of the machine while a level runs: clocks, power, memory, as far as the caller can read them.

Decides how often, and what is kept of each quantity. Where the numbers come from (`nvidia-smi` over SSH) is the
caller's: this package knows no host.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from optimizer.errors import RatchetError

INTERVAL_S = 1.0
JOIN_TIMEOUT_S = 10.0

Read = Callable[[], Mapping[str, float]]
"""Returns quantities under names with units, e.g. `gpu0_power_w`; may take a second, may fail."""


class Probe:
    """Calls `read` in a thread until it is left; a failed read is left out, never an error of the measurement."""

    def __init__(self, read: Read | None, interval_s: float = INTERVAL_S) -> None:
        self._read = read
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._values: defaultdict[str, list[float]] = defaultdict(list)

    def __enter__(self) -> Self:
        """Start sampling."""
        if self._read is not None:
            self._thread = threading.Thread(target=self._run, args=(self._read,), name="probe", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop sampling; waits for a read that is under way."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(JOIN_TIMEOUT_S)

    def _run(self, read: Read) -> None:
        while not self._stop.is_set():
            try:
                for name, value in read().items():
                    self._values[name].append(float(value))
            except (RatchetError, OSError, ValueError):
                pass  # the next second may answer
            self._stop.wait(self._interval_s)

    def metrics(self) -> dict[str, float]:
        """Return mean, least and most of every quantity: `gpu0_power_w_mean`, `gpu0_power_w_min`, ..."""
        found: dict[str, float] = {}
        for name, values in list(self._values.items()):
            found |= {
                f"{name}_mean": sum(values) / len(values),
                f"{name}_min": min(values),
                f"{name}_max": max(values),
            }
        return found
