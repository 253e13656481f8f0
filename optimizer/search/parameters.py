"""How one parameter is written (`{int: [1, 8]}`, `{choice: [...]}`, ...), and which values it may take.

Decides the forms, the ladder of each, and how a long range is thinned for searching.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from optimizer.engines.base import FlagValue
from optimizer.errors import Problem
from optimizer.search.space import Parameter
from optimizer.spec import did_you_mean

FORMS = ("int", "float", "choice", "ladder", "flag")
OPTIONS: dict[str, tuple[str, ...]] = {
    "int": ("step", "log", "special", "absent", "why"),
    "float": ("step", "log", "special", "absent", "why"),
    "choice": ("ordered", "absent", "why"),
    "ladder": ("special", "absent", "why"),
    "flag": ("why",),
}
MAX_LADDER = 4096
"""A stepped range with more values is treated like a continuous one."""
MAX_RUNGS = 16
"""Rungs of a range that are searched; finer ladders bury the few values that matter (LlamaTune, VLDB 2022)."""


def parse_parameter(name: str, value: Any, path: str, problems: list[Problem]) -> Parameter | None:
    """Read one parameter; problems are appended, and None returned when it cannot be used."""
    if isinstance(value, list):
        value = {"choice": value}
    if not isinstance(value, Mapping):
        hint = "like {int: [1, 8]}, {float: [0.7, 0.9], step: 0.01}, {choice: [a, b]} or {flag: true}"
        problems.append(Problem(path, "must say which values it may take", value, hint))
        return None
    forms = [f for f in FORMS if f in value]
    if len(forms) != 1:
        unknown = [k for k in value if k not in FORMS]
        hint = did_you_mean(str(unknown[0]), FORMS) if not forms and unknown else f"one of {', '.join(FORMS)}"
        problems.append(Problem(path, "needs exactly one kind", None, hint))
        return None
    before = len(problems)
    form = forms[0]
    for option in value:
        if option != form and option not in OPTIONS[form]:
            hint = did_you_mean(str(option), OPTIONS[form])
            problems.append(Problem(f"{path}.{option}", f"no such option of {form}", None, hint))
    reader = {"int": _range, "float": _range, "choice": _choice, "ladder": _ladder, "flag": _flag}[form]
    parameter = reader(name, form, value, path, problems)
    return parameter if len(problems) == before else None


def allows(parameter: Parameter, value: FlagValue) -> bool:
    """Say whether a value is one that the parameter may take: of its ladder, or anywhere in a continuous range."""
    if parameter.ladder or parameter.low is None or parameter.high is None:
        return value in parameter.ladder
    if value in parameter.special:
        return True
    return _is_number(value, int if parameter.kind == "int" else float) and parameter.low <= value <= parameter.high  # type: ignore[operator]


def rungs(parameter: Parameter) -> tuple[FlagValue | None, ...]:
    """Return the values that are searched: at most MAX_RUNGS of a range, all others whole, None for absence."""
    absent: tuple[None, ...] = (None,) if parameter.may_be_absent else ()
    if parameter.low is None or parameter.high is None:
        return (*parameter.ladder, *absent)
    plain = tuple(v for v in parameter.ladder if v not in parameter.special)
    if plain and len(plain) <= MAX_RUNGS:
        return (*plain, *parameter.special, *absent)
    return (*_spread(parameter, plain), *parameter.special, *absent)


def _spread(parameter: Parameter, plain: tuple[FlagValue, ...]) -> tuple[FlagValue, ...]:
    """Spread MAX_RUNGS values over a range, evenly or evenly in the logarithm, ends included."""
    low, high = float(parameter.low or 0.0), float(parameter.high or 0.0)
    values: list[FlagValue]
    shares = [i / (MAX_RUNGS - 1) for i in range(MAX_RUNGS)]
    if parameter.log and low > 0:
        wanted = [math.exp(math.log(low) + s * (math.log(high) - math.log(low))) for s in shares]
    else:
        wanted = [low + s * (high - low) for s in shares]
    if plain:
        values = [min(plain, key=lambda v, w=w: abs(float(v) - w)) for w in wanted]  # type: ignore[misc]
    elif parameter.kind == "int":
        step = int(parameter.step or 1)
        last = int((high - low) // step)
        values = [int(low) + min(round((w - low) / step), last) * step for w in wanted]
    elif parameter.step:
        values = [_tidy(low + round((w - low) / parameter.step) * parameter.step) for w in wanted]
    else:
        values = [_tidy(w) for w in wanted]
    return tuple(dict.fromkeys(values))


def _tidy(value: float) -> float:
    """Drop the noise of binary fractions: 0.7000000000000001 is written 0.7."""
    return float(f"{value:.10g}")


def _range(name: str, form: str, data: Mapping[str, Any], path: str, problems: list[Problem]) -> Parameter | None:
    kind: type = int if form == "int" else float
    ends = data[form]
    if not isinstance(ends, list) or len(ends) != 2 or not all(_is_number(e, kind) for e in ends):
        hint = f"like {{{form}: [1, 8]}}; for single values use choice or ladder"
        problems.append(Problem(f"{path}.{form}", "must be two numbers, lowest and highest", ends, hint))
        return None
    low, high = ends
    step = data.get("step", 1 if form == "int" else None)
    log = data.get("log", False)
    if low >= high:
        problems.append(Problem(f"{path}.{form}", "the lowest value must be below the highest", ends))
    if step is not None and (not _is_number(step, kind) or step <= 0 or step > high - low):
        problems.append(Problem(f"{path}.step", "must be above 0 and fit into the range", step))
        return None
    if not isinstance(log, bool):
        problems.append(Problem(f"{path}.log", "must be true or false", log))
    elif log and low <= 0:
        problems.append(Problem(f"{path}.log", "needs a lowest value above 0", low))
    special, absent, why = _common(data, path, problems)
    count = 0 if step is None else math.floor((high - low) / step + 1e-9) + 1
    ladder: tuple[FlagValue, ...] = ()
    if 0 < count <= MAX_LADDER:
        ladder = tuple(low + i * step if form == "int" else _tidy(low + i * step) for i in range(count))
        ladder = (*(v for v in ladder if v not in special), *special)
    return Parameter(name, form, ladder, low, high, step, bool(log), True, absent, special, why)


def _choice(name: str, form: str, data: Mapping[str, Any], path: str, problems: list[Problem]) -> Parameter | None:
    values = _values(data[form], f"{path}.{form}", problems)
    if not values:
        return None
    numbers = all(_is_number(v, float) for v in values)
    ordered = data.get("ordered", numbers)
    if not isinstance(ordered, bool):
        problems.append(Problem(f"{path}.ordered", "must be true or false", ordered))
        return None
    _, absent, why = _common(data, path, problems)
    absent = absent or None in data[form]
    return Parameter(name, "choice", values, ordered=ordered, may_be_absent=absent, why=why)


def _ladder(name: str, form: str, data: Mapping[str, Any], path: str, problems: list[Problem]) -> Parameter | None:
    values = _values(data[form], f"{path}.{form}", problems)
    if not values:
        return None
    special, absent, why = _common(data, path, problems)
    absent = absent or None in data[form]
    plain = tuple(v for v in values if v not in special)
    return Parameter(name, "choice", (*plain, *special), ordered=True, may_be_absent=absent, special=special, why=why)


def _flag(name: str, form: str, data: Mapping[str, Any], path: str, problems: list[Problem]) -> Parameter | None:
    if data[form] is not True:
        hint = "{flag: true} searches present and absent; leave the parameter out to fix it"
        problems.append(Problem(f"{path}.flag", "must be true", data[form], hint))
        return None
    why = _common(data, path, problems)[2]
    return Parameter(name, "flag", (True,), may_be_absent=True, why=why)


def _values(data: Any, path: str, problems: list[Problem]) -> tuple[FlagValue, ...] | None:
    """Read a list of values; null among them means absence and is left out."""
    if not isinstance(data, list) or not data:
        problems.append(Problem(path, "must be a list of values", data))
        return None
    data = [value for value in data if value is not None]
    if not data:
        problems.append(Problem(path, "needs a value besides null", None, "leave the parameter out to fix it"))
    for value in data:
        if isinstance(value, bool):
            hint = 'YAML reads on, off, yes and no as true and false: quote them ("on"), or use {flag: true}'
            problems.append(Problem(path, "a value must be a text or a number", value, hint))
            return None
        if not isinstance(value, int | float | str) or (isinstance(value, float) and not math.isfinite(value)):
            problems.append(Problem(path, "a value must be a text or a number", value))
            return None
    if len(set(map(str, data))) < len(data):
        problems.append(Problem(path, "has a value twice", data))
        return None
    return tuple(data)


def _common(data: Mapping[str, Any], path: str, problems: list[Problem]) -> tuple[tuple[FlagValue, ...], bool, str]:
    special: tuple[FlagValue, ...] = ()
    if "special" in data:
        given = data["special"]
        special = _values(given if isinstance(given, list) else [given], f"{path}.special", problems) or ()
    absent = data.get("absent", False)
    if not isinstance(absent, bool):
        problems.append(Problem(f"{path}.absent", "must be true or false", absent))
        absent = False
    return special, absent, str(data.get("why", ""))


def _is_number(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) if kind is int else isinstance(value, int | float) and math.isfinite(value)
