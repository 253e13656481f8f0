"""Short ways to write parameters of presets.

Decides nothing about any engine: only how ladders, choices and present-or-absent flags become `Parameter`s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from optimizer.engines.base import Config, FlagValue
from optimizer.search.space import Condition, Parameter, Space


def ints(name: str, *values: int, why: str = "", absent: bool = False, log: bool = False) -> Parameter:
    """Whole numbers in order; `log` when steps are factors."""
    return Parameter(
        name=name,
        kind="int",
        ladder=values,
        low=min(values),
        high=max(values),
        ordered=True,
        log=log,
        may_be_absent=absent,
        why=why,
    )


def floats(name: str, *values: float, why: str = "", absent: bool = False) -> Parameter:
    """Real numbers on a ladder, in order."""
    return Parameter(
        name=name,
        kind="float",
        ladder=values,
        low=min(values),
        high=max(values),
        ordered=True,
        may_be_absent=absent,
        why=why,
    )


def choice(name: str, *values: FlagValue, why: str = "", absent: bool = False) -> Parameter:
    """Named values without an order."""
    return Parameter(name=name, kind="choice", ladder=values, may_be_absent=absent, why=why)


def bare(name: str, *, why: str = "") -> Parameter:
    """A flag that is present or absent."""
    return Parameter(name=name, kind="flag", ladder=(True,), may_be_absent=True, why=why)


def only_when(when_not: str, *names: str) -> Condition:
    """The named parameters are absent when `when_not` holds."""
    return Condition(when=when_not, then_absent=names)


def merge(*spaces: Space, defaults: Sequence[Config] = ()) -> Space:
    """Join spaces; a parameter that several have is taken once, the first."""
    parameters: dict[str, Parameter] = {}
    for space in spaces:
        for parameter in space.parameters:
            parameters.setdefault(parameter.name, parameter)
    dropped: dict[str, str] = {}
    for space in spaces:
        dropped |= space.dropped
    return Space(
        parameters=tuple(parameters.values()),
        conditions=_once(c for s in spaces for c in s.conditions),
        rules=_once(r for s in spaces for r in s.rules),
        defaults=tuple(defaults) or _once_configs(d for s in spaces for d in s.defaults),
        dropped=dropped,
    )


def _once(items: Iterable[object]) -> tuple:  # type: ignore[type-arg]
    return tuple(dict.fromkeys(items))


def _once_configs(items: Iterable[Config]) -> tuple[Config, ...]:
    kept: list[Config] = []
    for item in items:
        if item not in kept:
            kept.append(item)
    return tuple(kept)
