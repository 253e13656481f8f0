"""Recorded tables: restarts of real servers really measured, kept as CSV with their space beside them.

Decides the file format and which recorded rows mean which server. Replaying a search on one is `replay.py`.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from optimizer.engines.base import Config, FlagValue
from optimizer.errors import BadInput, Problem
from optimizer.search import spec_space
from optimizer.search.canonical import Candidate, CanonicalSpace
from optimizer.search.space import Parameter, Space
from optimizer.spec import did_you_mean, load_yaml, read_text

NUMBERS = ("tok_s", "accept_len", "step_ms", "ready_s", "bench_s")
MAX_PROBLEMS = 20
ON, OFF = frozenset({"true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off"})
SPELLED = frozenset({"yes", "no", "on", "off"})
"""Texts that YAML reads as true and false when nobody quotes them."""
EMPTY = frozenset({"", "nan", "none", "null", "na", "n/a"})
"""Cells that say nothing, unless the parameter has such a value."""


@dataclass(frozen=True)
class Restart:
    """One recorded start: its numbers, or the label of its failure."""

    tok_s: float | None
    accept_len: float | None = None
    step_ms: float | None = None
    ready_s: float | None = None
    bench_s: float | None = None
    failed: str = ""


@dataclass(frozen=True)
class Table:
    """A recorded table. `restarts` holds every start by canonical key, `truth` the mean speed of those that ran."""

    name: str
    space: CanonicalSpace
    restarts: dict[str, tuple[Restart, ...]]
    baseline: Candidate | None
    complete: bool
    """Every valid configuration of the space is recorded."""
    rows_outside: int = 0
    """Rows whose configuration the space rejects."""
    truth: dict[str, float] = field(default_factory=dict)

    def draw(self, candidate: Candidate, rng: np.random.Generator) -> Restart:
        """Return one of the recorded restarts of a configuration."""
        recorded = self.restarts[candidate.key]
        return recorded[int(rng.integers(len(recorded)))]

    def true_speed(self, candidate: Candidate) -> float:
        """Return the mean of the restarts that ran; 0 when none did."""
        return self.truth.get(candidate.key, 0.0)

    @property
    def servers(self) -> int:
        """How many configurations are recorded."""
        return len(self.restarts)

    @property
    def best(self) -> float:
        """The true speed of the best configuration."""
        return max(self.truth.values())


def load(path: Path) -> Table:
    """Read `TABLE.csv` with `TABLE.space.yaml` beside it.

    Raises:
        BadInput: a file is missing, or the rows do not fit the space; every problem is listed.
    """
    beside = path.with_name(path.name.removesuffix(".csv") + ".space.yaml")
    section = load_yaml(read_text(beside, "the table's space"), "the table's space")
    if not isinstance(section, Mapping):
        raise BadInput(f"{beside} must be a mapping with parameters, conditions and rules")
    if isinstance(section.get("space"), Mapping):
        section = {**section, **section["space"]}
    rows = list(csv.DictReader(io.StringIO(read_text(path, "the table").removeprefix("\ufeff"))))
    spelling = _spelling(section.get("parameters"), rows)
    space = spec_space.parse(_space_section(section, spelling), presets={})
    return build(path.name, space, rows, _baseline(section.get("baseline"), space, spelling))


def _space_section(section: Mapping[str, Any], spelling: Mapping[str, Mapping[bool, str]]) -> dict[str, Any]:
    """Return what declares the space; other fields describe the recording, unless one is a misspelt field."""
    fields = spec_space.SECTION_FIELDS
    found = {k: v for k, v in section.items() if k in fields or did_you_mean(str(k), fields).startswith("did you mean")}
    parameters = section.get("parameters")
    if isinstance(parameters, Mapping):
        found["parameters"] = {n: _without_booleans(v, spelling.get(n)) for n, v in parameters.items()}
    return found


def _choices(parameter: Any) -> list[Any]:
    given = parameter.get("choice") if isinstance(parameter, Mapping) else parameter
    return given if isinstance(given, list) else []


def _spelling(parameters: Any, rows: Sequence[Mapping[str, str]]) -> dict[str, dict[bool, str]]:
    """How the rows write true and false where the YAML lists booleans and the recorded values are words (on, off)."""
    found: dict[str, dict[bool, str]] = {}
    for name, parameter in parameters.items() if isinstance(parameters, Mapping) else ():
        choices = _choices(parameter)
        if not any(isinstance(c, bool) for c in choices):
            continue
        cells = {(row.get(f"p.{name}") or "").strip() for row in rows}
        words = [c for c in sorted(cells) if c.lower() in (SPELLED if _only_booleans(choices) else ON | OFF)]
        if words:
            found[name] = {word.lower() in ON: word for word in words}
    return found


def _only_booleans(choices: Sequence[Any]) -> bool:
    return all(isinstance(c, bool) for c in choices)


def _without_booleans(parameter: Any, spelling: Mapping[bool, str] | None) -> Any:
    """A choice of true and false is a flag; among other values they are the words that the rows have for them."""
    choices = _choices(parameter)
    if not any(isinstance(c, bool) for c in choices):
        return parameter
    if _only_booleans(choices) and spelling is None:
        return {"flag": True}
    words = spelling or {}
    return {"choice": [words.get(c, str(c).lower()) if isinstance(c, bool) else c for c in choices]}


def _baseline(data: Any, space: Space, spelling: Mapping[str, Mapping[bool, str]]) -> Config | None:
    """Read the baseline: values by parameter, or a specification's `{flags: ..., env: ...}`."""
    if not isinstance(data, Mapping):
        return None
    if "flags" not in space.names() and isinstance(data.get("flags"), Mapping):
        env = data.get("env")
        data = {**data["flags"], **{f"env.{k}": v for k, v in (env if isinstance(env, Mapping) else {}).items()}}
    found: dict[str, FlagValue] = {}
    for parameter in space.parameters:
        given = data.get(parameter.name)
        if given is not None:
            text = spelling.get(parameter.name, {}).get(given, str(given)) if isinstance(given, bool) else str(given)
            value = _value(parameter, text)
            found |= {} if value is None else {parameter.name: value}
    return found


def build(name: str, space: Space, rows: Sequence[Mapping[str, str]], baseline: Config | None) -> Table:
    """Make a table of rows as read from CSV. Raises BadInput with every problem."""
    problems = _column_problems(space, rows)
    if problems:
        raise BadInput(f"{name} does not fit its space", problems)
    whole = CanonicalSpace(space)
    restarts: dict[str, list[Restart]] = {}
    requests: list[Config] = []
    outside = 0
    for line, row in enumerate(rows, start=2):
        params = _params(whole, row, line, problems)
        candidate = whole.check(params).candidate
        if candidate is None:
            outside += 1
            continue
        if candidate.key not in restarts:
            requests.append(params)
        restarts.setdefault(candidate.key, []).append(_restart(row, line, problems))
    if problems:
        raise BadInput(f"{name} has rows that cannot be read", problems[:MAX_PROBLEMS])
    truth = {key: sum(v) / len(v) for key, r in restarts.items() if (v := [x.tok_s for x in r if x.tok_s])}
    if not truth:
        raise BadInput(f"{name} records no configuration of its space that ran")
    listed = whole.enumerate()
    complete = listed is not None and all(c.key in restarts for c in listed)
    first = whole.check(baseline).candidate if baseline is not None else None
    if first is None or first.key not in restarts:
        first = None  # it was never recorded, so that no start of it could be replayed
    else:
        space = replace(space, defaults=(first.params, *space.defaults))
    used = CanonicalSpace(space, pool=None if complete else requests)
    return Table(name, used, {k: tuple(v) for k, v in restarts.items()}, first, complete, outside, truth)


def _column_problems(space: Space, rows: Sequence[Mapping[str, str]]) -> list[Problem]:
    if not rows:
        return [Problem("(rows)", "the table has no rows")]
    columns = list(rows[0])
    problems = [] if "tok_s" in columns else [Problem("tok_s", "the column is missing")]
    recorded = {c.removeprefix("p.") for c in columns if c.startswith("p.")}
    for name in sorted(set(space.names()) - recorded):
        problems.append(Problem(f"p.{name}", "the space has this parameter, the table no such column"))
    for name in sorted(recorded - set(space.names())):
        if len({row[f"p.{name}"] for row in rows}) > 1:
            problems.append(Problem(f"p.{name}", "the column varies, and the space has no such parameter"))
    return problems


def _params(space: CanonicalSpace, row: Mapping[str, str], line: int, problems: list[Problem]) -> dict[str, FlagValue]:
    params: dict[str, FlagValue] = {}
    for name, parameter in space.parameters.items():
        text = (row.get(f"p.{name}") or "").strip()
        value = _value(parameter, text)
        if value is not None:
            params[name] = value
        elif text.lower() not in EMPTY and not (parameter.kind == "flag" and text.lower() in OFF):
            problems.append(Problem(f"line {line}, p.{name}", "the space does not allow this value", text))
    return params


def _value(parameter: Parameter, text: str) -> FlagValue | None:
    """Read a cell as one of the parameter's values; None for an empty or impossible one."""
    if not text:
        return None
    if parameter.kind == "flag":
        return True if text.lower() in ON or text == parameter.name else None
    values = (*parameter.ladder, *parameter.special)
    number = _float(text)
    alike = [v for v in values if str(v) == text] or [v for v in values if _close(v, number)]
    alike = alike or [v for v in values if str(v).lower() == text.lower()]
    if alike:
        return alike[0]
    if number is None or parameter.low is None or parameter.high is None:
        return None
    if not parameter.low <= number <= parameter.high:
        return None
    return number if parameter.kind != "int" else int(number) if number.is_integer() else None


def _close(value: FlagValue, number: float | None) -> bool:
    """A number however it is written: 16, 16.0, 1e-3 (which YAML reads as a text)."""
    own = None if number is None or isinstance(value, bool) else _float(str(value))
    return own is not None and number is not None and math.isclose(own, number, rel_tol=1e-9)


def _restart(row: Mapping[str, str], line: int, problems: list[Problem]) -> Restart:
    numbers: dict[str, Any] = {}
    for column in NUMBERS:
        text = (row.get(column) or "").strip()
        numbers[column] = _float(text)
        if numbers[column] is None and text.lower() not in EMPTY:
            problems.append(Problem(f"line {line}, {column}", "is not a number", text))
    label = (row.get("failed") or "").strip()
    failed = "" if label.lower() in EMPTY | OFF else label
    speed = numbers.pop("tok_s")
    if speed is None or speed <= 0 or failed:
        return Restart(None, failed=failed or "unknown")
    return Restart(speed, **numbers)


def _float(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def write(path: Path, space_section: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a table and its space; the inverse of `load` (used by recorders and synthetic landscapes)."""
    import yaml

    names = list(space_section["parameters"])
    extra = [c for c in (*NUMBERS, "failed") if any(row.get(c) not in (None, "") for row in rows) or c == "tok_s"]
    more = sorted({c for row in rows for c in row if c.startswith("tok_s.")})
    with path.open("w", newline="", encoding="utf-8") as file:
        columns = [*(f"p.{n}" for n in names), "restart", *extra, *more]
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows({c: row.get(c, "") for c in columns} for row in rows)
    beside = path.with_name(path.name.removesuffix(".csv") + ".space.yaml")
    beside.write_text(yaml.safe_dump(dict(space_section), sort_keys=False, width=110), encoding="utf-8")
