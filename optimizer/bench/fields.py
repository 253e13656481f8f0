"""Reads a mapping field by field and collects every mistake; used for the workload section.

Decides how a mistake is told (path, message, value, hint). Which fields exist is the caller's.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from optimizer.errors import Problem


class Reader:
    """One pass over a mapping: typed reads that return a usable value and note a problem instead of raising."""

    def __init__(self, data: Mapping[str, Any], *, prefix: str = "", problems: list[Problem] | None = None) -> None:
        self._data = data
        self._prefix = prefix
        self._read: set[str] = set()
        self.problems: list[Problem] = [] if problems is None else problems

    def add(self, name: str, message: str, value: Any = None, hint: str = "") -> None:
        """Note one problem at `name`."""
        self.problems.append(Problem(f"{self._prefix}{name}", message, value, hint))

    def check(self, good: bool, name: str, message: str) -> None:
        """Note a problem at `name` unless `good`."""
        if not good:
            self.add(name, message)

    def claim(self, *names: str) -> None:
        """Say that these names exist although they are read elsewhere."""
        self._read.update(names)

    def given(self, name: str) -> Any:
        """Return the raw value, None when absent."""
        self._read.add(name)
        return self._data.get(name)

    def integer(self, name: str, default: int, *, low: int, high: int | None = None) -> int:
        """Read a whole number within bounds."""
        value = self.given(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            self.add(name, "must be a whole number", value)
            return default
        return value if self._within(name, value, low, high) else default

    def optional_integer(self, name: str, *, low: int) -> int | None:
        """Read a whole number of at least `low`, or None."""
        return None if self.given(name) is None else self.integer(name, low, low=low)

    def integers(self, name: str, default: tuple[int, ...], *, low: int, high: int) -> tuple[int, ...]:
        """Read one whole number or a list of different ones."""
        value = self.given(name)
        if value is None:
            return default
        values = value if isinstance(value, list | tuple) else [value]
        if not values or any(isinstance(v, bool) or not isinstance(v, int) for v in values):
            self.add(name, "must be a whole number or a list of them", value, "for example [1, 8]")
            return default
        if any(not low <= v <= high for v in values):
            self.add(name, f"must be between {low} and {high}", value)
            return default
        if len(set(values)) != len(values):
            self.add(name, "names a level twice", value)
            return default
        return tuple(values)

    def number(
        self,
        name: str,
        default: float,
        *,
        low: float | None = None,
        high: float | None = None,
        above: float | None = None,
    ) -> float:
        """Read a finite number within bounds (`above` is exclusive)."""
        value = self.given(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            self.add(name, "must be a number", value)
            return default
        if above is not None and value <= above:
            self.add(name, f"must be above {above:g}", value)
            return default
        return float(value) if self._within(name, value, low, high) else default

    def optional_number(self, name: str, *, above: float) -> float | None:
        """Read a number above `above`, or None."""
        return None if self.given(name) is None else self.number(name, above + 1.0, above=above)

    def boolean(self, name: str, default: bool) -> bool:
        """Read true or false."""
        value = self.given(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.add(name, "must be true or false", value)
            return default
        return value

    def text(self, name: str, default: str) -> str:
        """Read a text that is not empty."""
        value = self.given(name)
        if value is None:
            return default
        if not isinstance(value, str) or not value.strip():
            self.add(name, "must be a text", value)
            return default
        return value

    def choice(self, name: str, default: str, choices: Sequence[str]) -> str:
        """Read one of `choices`."""
        value = self.given(name)
        if value is None:
            return default
        if value not in choices:
            self.add(name, "is not known", value, suggestion(str(value), choices))
            return default
        return str(value)

    def mapping(self, name: str) -> Mapping[str, Any]:
        """Read a mapping, empty when absent."""
        value = self.given(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.add(name, "must be a mapping of fields", value)
            return {}
        return value

    def refuse_unknown(self) -> None:
        """Note every name that nobody read."""
        for name in self._data:
            if name not in self._read:
                self.add(str(name), "no such field", None, suggestion(str(name), sorted(self._read)))

    def _within(self, name: str, value: float, low: float | None, high: float | None) -> bool:
        if low is not None and value < low:
            self.add(name, f"must be at least {low:g}", value)
            return False
        if high is not None and value > high:
            self.add(name, f"must be at most {high:g}", value)
            return False
        return True


def suggestion(word: str, known: Sequence[str]) -> str:
    """Return `did you mean X?` for the nearest known name, else the list of all."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else f"one of {', '.join(known)}"
