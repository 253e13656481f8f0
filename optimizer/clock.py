"""Time as an argument: aware UTC for facts, monotonic seconds for waits.

Everything that can wait takes a `Deadline`; everything that records takes a `Clock`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Where the time comes from."""

    def now(self) -> datetime:
        """Return the aware UTC time."""

    def monotonic(self) -> float:
        """Return monotonic seconds."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> datetime:
        """Return the aware UTC time."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


@dataclass(frozen=True)
class Deadline:
    """A point in monotonic time. `Deadline.after(30)` ends in 30 seconds."""

    at_s: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Return the deadline that many seconds from now."""
        return cls(time.monotonic() + seconds)

    @property
    def left_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.at_s - time.monotonic())

    @property
    def passed(self) -> bool:
        """Say whether the time is over."""
        return time.monotonic() >= self.at_s

    def sooner(self, seconds: float) -> Deadline:
        """Return the earlier of this deadline and `seconds` from now."""
        return Deadline(min(self.at_s, time.monotonic() + seconds))
