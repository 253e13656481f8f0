"""Reads the `space` section of a specification (and of a recorded table) into a `Space`.

Decides how parameters, conditions, rules and known results are written, and tells every mistake at once with its path,
the value and a hint. What the values mean to an engine is not known here; presets come from the engines.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from optimizer.engines.base import Config, FlagValue
from optimizer.errors import BadInput, Problem
from optimizer.search.grammar import compile_expression
from optimizer.search.grammar_tokens import GrammarError
from optimizer.search.parameters import parse_parameter
from optimizer.search.space import Condition, KnownResult, Parameter, Space
from optimizer.spec import did_you_mean

SECTION_FIELDS = ("preset", "parameters", "conditions", "rules", "known")
KNOWN_FIELDS = ("flags", "output_tok_s")
NAME = re.compile(r"^(env\.[A-Za-z_][A-Za-z0-9_]*|(?!env\.)[A-Za-z][A-Za-z0-9_.-]*)$")


def parse(data: Mapping[str, Any], *, presets: Mapping[str, Space], fixed: Collection[str] | None = None) -> Space:
    """Read a space section; `fixed` are launch flags outside the space that expressions may name as well.

    Raises:
        BadInput: carries every problem, each with its path within the section.
    """
    problems: list[Problem] = []
    for name in data:
        if name not in SECTION_FIELDS:
            problems.append(Problem(str(name), "no such field", None, did_you_mean(str(name), SECTION_FIELDS)))
    base = _merged_presets(data.get("preset"), presets, problems)
    parameters = _parameters(data.get("parameters"), base, problems)
    names = {p.name for p in parameters}
    vocabulary = names | {n for space in presets.values() for n in space.names()} | set(fixed or ())
    reader = _Expressions(vocabulary, fixed is not None, problems)
    conditions = _conditions(data.get("conditions"), reader, names, problems)
    rules = _rules(data.get("rules"), reader, problems)
    known = _known(data.get("known"), problems)
    if problems:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise BadInput(f"the space has {count}", problems)
    return replace(
        base,
        parameters=tuple(parameters),
        conditions=(*base.conditions, *conditions),
        rules=(*base.rules, *rules),
        known=(*base.known, *known),
    )


def _merged_presets(wanted: Any, presets: Mapping[str, Space], problems: list[Problem]) -> Space:
    names = [wanted] if isinstance(wanted, str) else wanted if isinstance(wanted, list) else []
    if wanted is not None and not isinstance(wanted, str | list):
        problems.append(Problem("preset", "must be a name or a list of names", wanted))
    merged = Space(parameters=())
    for i, name in enumerate(names):
        if not isinstance(name, str) or name not in presets:
            path = "preset" if isinstance(wanted, str) else f"preset.{i}"
            problems.append(Problem(path, "no such preset", name, did_you_mean(str(name), presets)))
            continue
        part = presets[name]
        taken = set(merged.names())
        merged = Space(
            parameters=merged.parameters + tuple(p for p in part.parameters if p.name not in taken),
            conditions=merged.conditions + tuple(c for c in part.conditions if c not in merged.conditions),
            rules=merged.rules + tuple(r for r in part.rules if r not in merged.rules),
            defaults=merged.defaults + part.defaults,
            dropped={**merged.dropped, **part.dropped},
            known=merged.known + part.known,
        )
    return merged


def _parameters(data: Any, base: Space, problems: list[Problem]) -> list[Parameter]:
    """Preset parameters in their order, overridden or removed (null) by the section's, then the new ones."""
    found = {p.name: p for p in base.parameters}
    if data is None:
        data = {}
    if not isinstance(data, Mapping):
        problems.append(Problem("parameters", "must map names to their values", type(data).__name__))
        return list(found.values())
    for name, value in data.items():
        path = f"parameters.{name}"
        if not isinstance(name, str) or not NAME.match(name):
            hint = str(name).lstrip("-") if isinstance(name, str) else ""
            problems.append(
                Problem(path, "not a flag name", name, f"write it without dashes in front: {hint}" if hint else "")
            )
        elif value is None:
            if found.pop(name, None) is None:
                hint = did_you_mean(name, base.names())
                problems.append(Problem(path, "null removes a preset's parameter, and none has this name", None, hint))
        elif (parameter := parse_parameter(name, value, path, problems)) is not None:
            found[name] = parameter
    return list(found.values())


class _Expressions:
    """Compiles expressions, collecting problems; notices names that nothing has."""

    def __init__(self, names: Collection[str], strict: bool, problems: list[Problem]) -> None:
        self.names = names
        self.strict = strict
        self.problems = problems

    def check(self, text: Any, path: str) -> bool:
        if not isinstance(text, str):
            self.problems.append(Problem(path, "must be an expression", text, 'quote it: "a == b"'))
            return False
        try:
            expression = compile_expression(text, self.names)
        except GrammarError as error:
            self.problems.append(Problem(path, str(error), text))
            return False
        for name in sorted(expression.names):
            hint = did_you_mean(name, self.names)
            unknown = name not in self.names and not name.startswith("env.")
            if unknown and (self.strict or hint.startswith("did you mean")):
                self.problems.append(Problem(path, f"no parameter is called {name}", text, hint))
        return True


def _conditions(data: Any, reader: _Expressions, names: set[str], problems: list[Problem]) -> list[Condition]:
    found: list[Condition] = []
    for i, entry in enumerate(_entries(data, "conditions", problems)):
        path = f"conditions.{i}"
        if not isinstance(entry, Mapping):
            problems.append(Problem(path, "must have `if` and `then_absent`", entry))
            continue
        for field in entry:
            if field not in {"if", "then_absent"}:
                hint = did_you_mean(str(field), ("if", "then_absent"))
                problems.append(Problem(f"{path}.{field}", "no such field", None, hint))
        missing = [field for field in ("if", "then_absent") if field not in entry]
        problems += [Problem(f"{path}.{field}", "is missing") for field in missing]
        if missing:
            continue
        readable = reader.check(entry["if"], f"{path}.if")
        then = entry["then_absent"]
        then = [then] if isinstance(then, str) else then
        if not isinstance(then, list) or not then:
            problems.append(Problem(f"{path}.then_absent", "must list parameters", then))
            continue
        for name in then:
            if name not in names:
                hint = did_you_mean(str(name), names)
                problems.append(Problem(f"{path}.then_absent", "no such parameter", name, hint))
        if readable:
            found.append(Condition(entry["if"], tuple(str(n) for n in then)))
    return found


def _rules(data: Any, reader: _Expressions, problems: list[Problem]) -> list[str]:
    return [r for i, r in enumerate(_entries(data, "rules", problems)) if reader.check(r, f"rules.{i}")]


def _known(data: Any, problems: list[Problem]) -> list[KnownResult]:
    found: list[KnownResult] = []
    for i, entry in enumerate(_entries(data, "known", problems)):
        path = f"known.{i}"
        if not isinstance(entry, Mapping) or not isinstance(entry.get("flags"), Mapping):
            problems.append(Problem(path, "must have `flags` (and `output_tok_s` when it was measured)", None))
            continue
        for field in entry:
            if field not in KNOWN_FIELDS:
                hint = did_you_mean(str(field), KNOWN_FIELDS)
                problems.append(Problem(f"{path}.{field}", "no such field", None, hint))
        speed = entry.get("output_tok_s")
        if speed is not None and (isinstance(speed, bool) or not isinstance(speed, int | float) or speed <= 0):
            problems.append(Problem(f"{path}.output_tok_s", "must be a number above 0", speed))
            continue
        found.append(KnownResult(_flags(entry["flags"], f"{path}.flags", problems), speed))
    return found


def _flags(data: Mapping[Any, Any], path: str, problems: list[Problem]) -> Config:
    flags: dict[str, FlagValue] = {}
    for name, value in data.items():
        if not isinstance(name, str) or not NAME.match(name):
            problems.append(Problem(f"{path}.{name}", "not a flag name", name))
        elif value is None or value is False:
            continue
        elif isinstance(value, bool | int | float | str):
            flags[name] = value
        else:
            problems.append(Problem(f"{path}.{name}", "must be one value", type(value).__name__))
    return flags


def _entries(data: Any, path: str, problems: list[Problem]) -> list[Any]:
    if data is None:
        return []
    if not isinstance(data, list):
        problems.append(Problem(path, "must be a list", type(data).__name__))
        return []
    return data
