"""One request on its way to the server that would really run.

Decides how values are read, forced, filled in and refused, and how the canonical form is written. The rules that do
the forcing are each engine's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from optimizer.engines.base import ENV_PREFIX, Adjustment, Config, Effective, FlagValue, Verdict, split_env
from optimizer.engines.flagtable import Flag, FlagSet, FlagTable


@dataclass
class Resolution:
    """A request being resolved: `values` by canonical name (switches as True/False), `given` what was asked for."""

    flags: FlagSet
    asked_version: str | None = None
    values: dict[str, FlagValue] = field(default_factory=dict)
    given: dict[str, FlagValue] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    adjustments: list[Adjustment] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    no_effect: dict[str, str] = field(default_factory=dict)

    def get(self, name: str) -> FlagValue | None:
        """Return the value now, or the parser's default."""
        if name in self.values:
            return self.values[name]
        return self.flags[name].default if name in self.flags else None

    def number(self, name: str) -> int | None:
        """Return a whole number, or None when there is no such value."""
        value = self.get(name)
        return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def text(self, name: str) -> str | None:
        """Return the value as text, or None when there is none."""
        value = self.get(name)
        return None if value is None else str(value)

    def on(self, name: str) -> bool:
        """Say whether a bare flag or switch is on."""
        return self.get(name) is True

    def fill(self, name: str, value: FlagValue) -> None:
        """Give a value that nobody asked for; what was asked for stays."""
        self.values.setdefault(name, value)

    def force(self, name: str, value: FlagValue | None, why: str) -> None:
        """Replace the value as the engine does (None: remove it); recorded when something else was asked for."""
        if name in self.given and self.values.get(name) != value:
            self.adjustments = [a for a in self.adjustments if a.flag != name]
            self.adjustments.append(Adjustment(name, self.given[name], value, why))
        if value is None:
            self.values.pop(name, None)
        else:
            self.values[name] = value

    def ignore(self, name: str, why: str) -> None:
        """Drop a value that this server never reads; reported when it was asked for."""
        self.values.pop(name, None)
        if name in self.given:
            self.no_effect[name] = why

    def fill_defaults(self, idle: Callable[[str], bool]) -> None:
        """Give every searchable flag the parser's default, so that absence and default are one server.

        `idle` says which flags nothing reads under these circumstances.
        """
        for flag in self.flags.flags:
            wanted = flag.searchable and flag.takes_value and flag.default is not None and not flag.removed
            if wanted and flag.name not in self.values and not idle(flag.name):
                self.values[flag.name] = read_value(flag, flag.default)  # type: ignore[arg-type]

    def reject(self, reason: str) -> None:
        """Refuse the request; the same reason is told once."""
        if reason not in self.reasons:
            self.reasons.append(reason)

    def finish(self) -> Effective:
        """Return the outcome with its canonical configuration."""
        self.adjustments = [a for a in self.adjustments if a.becomes != a.asked]
        verdict = Verdict.ACCEPTED
        if self.reasons or self.unknown:
            verdict = Verdict.REJECTED
        elif self.adjustments:
            verdict = Verdict.ADJUSTED
        return Effective(
            verdict=verdict,
            config=canonical(self),
            adjustments=tuple(self.adjustments),
            reasons=tuple(self.reasons),
            unknown_flags=tuple(self.unknown),
            no_effect=tuple(self.no_effect),
        )


def canonical(state: Resolution) -> dict[str, FlagValue]:
    """Write the values so that equal servers are equal: no cosmetics, no untouched defaults outside the search."""
    config: dict[str, FlagValue] = {}
    for name in sorted(state.values):
        value = state.values[name]
        if name not in state.flags or state.flags[name].cosmetic:
            continue
        flag = state.flags[name]
        if flag.kind == "switch":
            if value != flag.default:
                config[name if value else flag.negative[0]] = True
        elif flag.kind == "bare":
            if value is True:
                config[name] = True
        elif flag.searchable or value != flag.default:
            config[name] = value
    config |= {f"{ENV_PREFIX}{k}": v for k, v in sorted(state.env.items())}
    return config


def start(config: Config, table: FlagTable, version: str | None) -> Resolution:
    """Read a request: spellings to canonical names, values to their types; unknown names and bad values noted."""
    flags, env = split_env(config)
    state = Resolution(table.at(version), version)
    for variable, text in env.items():
        flag = state.flags.by_env.get(variable)
        if flag is None:
            state.env[variable] = text
        elif not any(state.flags.find(name) == (flag, False) for name in flags):
            _read(state, flag, text, negated=False, spelled=variable)
    for name, value in flags.items():
        found = state.flags.find(name)
        if found is None:
            _unknown(state, table, name, version)
        elif found[0].removed:
            state.reject(f"{name}: removed from this version; {found[0].removed}")
        elif value is False and found[0].kind in {"bare", "switch"}:
            continue
        else:
            _read(state, found[0], value, negated=found[1], spelled=name)
    return state


def _unknown(state: Resolution, table: FlagTable, name: str, version: str | None) -> None:
    state.unknown.append(name)
    if len(begun := state.flags.begun(name)) > 1:
        state.reject(f"{name}: ambiguous, it begins {', '.join(begun[:4])}; write the whole name")
        return
    near = state.flags.suggest(name)
    gone = table.gone(name.lstrip("-"), version)
    hint = f"; {gone}" if gone else (f"; did you mean {near}?" if near else "")
    state.reject(f"{name}: {state.flags.engine} {version or state.flags.version} has no such flag{hint}")


def _read(state: Resolution, flag: Flag, value: FlagValue, *, negated: bool, spelled: str) -> None:
    try:
        read = read_value(flag, value, negated=negated)
    except ValueError as error:
        state.reject(f"{spelled}: {error}")
        return
    name = flag.name
    if flag.sets and read is True:
        name, _, read = flag.sets.partition("=")
    state.values[name] = read
    state.given[name] = read


def read_value(flag: Flag, value: FlagValue, *, negated: bool = False) -> FlagValue:
    """Return a value in the flag's own type.

    Raises:
        ValueError: in our words, without the flag's name.
    """
    if not flag.takes_value:
        if value is True or (isinstance(value, str) and value.lower() in {"true", "1", "on", "enabled"}):
            return not negated
        if value is False or (isinstance(value, str) and value.lower() in {"false", "0", "off", "disabled"}):
            return negated
        raise ValueError("takes no value")
    if isinstance(value, bool):
        value = _on_off(flag, value)
    if flag.kind == "int":
        return _bounded(flag, _whole(value))
    if flag.kind == "size":
        return _size(value)
    if flag.kind == "float":
        return _bounded(flag, _real(value))
    text = " ".join(str(value).split()) if flag.kind == "list" else str(value)
    if flag.kind == "list" and flag.item in {"int", "float"}:
        for word in text.split():
            _whole(word) if flag.item == "int" else _real(word)
    if flag.kind == "choice" and text not in flag.choices:
        raise ValueError(f"{text!r} is not one of {', '.join(flag.choices)}")
    return text


def _on_off(flag: Flag, value: bool) -> FlagValue:
    """YAML reads a bare `on` as true: take it for the word where the flag has that choice."""
    word = "on" if value else "off"
    if word in flag.choices:
        return word
    if value and flag.optional_value:
        return True
    raise ValueError("needs a value")


def _whole(value: FlagValue) -> int:
    try:
        return int(str(value).strip())
    except ValueError:
        raise ValueError(f"{value!r} is not a whole number") from None


SIZE = re.compile(r"^(\d+(?:\.\d+)?)([kKmMgG])$")
SIZE_FACTORS = {"k": 1000, "m": 1000**2, "g": 1000**3, "K": 1024, "M": 1024**2, "G": 1024**3}
"""Small letters count in thousands, capitals in powers of two."""


def _size(value: FlagValue) -> FlagValue:
    text = str(value).strip()
    if match := SIZE.match(text):
        return int(float(match.group(1)) * SIZE_FACTORS[match.group(2)])
    return text if text == "auto" else _whole(value)


def _real(value: FlagValue) -> float:
    try:
        return float(str(value).strip())
    except ValueError:
        raise ValueError(f"{value!r} is not a number") from None


def _bounded(flag: Flag, value: FlagValue) -> FlagValue:
    number = float(value)
    if flag.minimum is not None and number < flag.minimum:
        raise ValueError(f"{value} is below the least allowed, {flag.minimum:g}")
    if flag.maximum is not None and number > flag.maximum:
        raise ValueError(f"{value} is above the most allowed, {flag.maximum:g}")
    return value


def mapping_or_empty(value: object) -> Mapping[str, object]:
    """Return the value when it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}
