"""`ratchet verdict`: the statistics alone, over restarts recorded by anybody."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import click

from api.cli.output import print_json, say
from optimizer.errors import BadInput, Problem

MOST_RESTARTS = 10_000
FIELDS = ("alpha", "min_effect", "prompts", "restarts", "max_restarts")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
def verdict(as_json: bool) -> None:
    """Judge recorded restarts, read as JSON from stdin: is the candidate a win?

    \b
    {"alpha": 0.05, "min_effect": 0.01, "prompts": ["code", "prose"],
     "restarts": [{"arm": "baseline", "tok_s": {"code": [90.1], "prose": [84.0]}},
                  {"arm": "candidate", "tok_s": {"code": [99.0], "prose": [91.2]}}, ...]}

    Each restart is one fresh start of a server; the order is the order of measuring. "max_restarts" (optional) is the
    budget over both arms, fixed in advance.
    """
    data = _read()
    from optimizer.bench.judging import common_prompts, judge, read_restarts  # slow to load: numerical libraries

    restarts = read_restarts(data["restarts"])
    prompts = data.get("prompts") or list(dict.fromkeys(p for r in restarts for p in r.tok_s))
    judged = common_prompts(prompts, restarts)
    result = judge(
        prompts,
        restarts,
        alpha=data.get("alpha", 0.05),
        min_effect=data.get("min_effect", 0.01),
        max_restarts=data.get("max_restarts"),
    )
    document = {
        "outcome": result.outcome.value,
        "ratio": result.ratio,
        "ci_low": result.ci_low,
        "ci_high": result.ci_high if math.isfinite(result.ci_high) else None,
        "restarts": result.restarts,
        "next": result.next,
        "confidence": result.confidence,
        "prompts": judged,
    }
    if left_out := [p for p in prompts if p not in judged]:
        say(f"left out: {', '.join(left_out)} (not every restart has a speed above 0 there)")
    if as_json:
        print_json(document)
        return
    high = f"{result.ci_high - 1:+.1%}" if math.isfinite(result.ci_high) else "open"
    click.echo(f"{result.outcome.value}: {result.ratio - 1:+.2%} ({result.ci_low - 1:+.1%} to {high}, ", nl=False)
    click.echo(f"{result.confidence:.0%} over all looks, {result.restarts} restarts); next: {result.next}")


def _read() -> dict[str, Any]:
    """Read and check the shape of stdin. Raises BadInput with every problem."""
    if sys.stdin.isatty():
        say("reading JSON from stdin ...")
    data = _document()
    if not isinstance(data, dict):
        raise BadInput("stdin must hold one JSON object", remedy="see ratchet verdict --help")
    problems = [
        Problem(str(name), "no such field", None, f"one of {', '.join(FIELDS)}") for name in data if name not in FIELDS
    ]
    if not isinstance(data.get("restarts"), list):
        problems.append(Problem("restarts", "must be a list of restarts", data.get("restarts")))
    prompts = data.get("prompts")
    if prompts is not None and not (isinstance(prompts, list) and all(isinstance(p, str) for p in prompts)):
        problems.append(Problem("prompts", "must be a list of names", prompts))
    for name in ("alpha", "min_effect"):
        value = data.get(name, 0.05)
        if isinstance(value, bool) or not isinstance(value, int | float):
            problems.append(Problem(name, "must be a number", value))
    most = data.get("max_restarts")
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or not 0 <= most <= MOST_RESTARTS):
        problems.append(Problem("max_restarts", f"must be a whole number up to {MOST_RESTARTS}", most))
    if problems:
        raise BadInput("the restarts cannot be judged", problems)
    return data


def _document() -> Any:
    """Return the JSON on stdin. Raises BadInput when there is none, or when a name stands twice in one object."""
    remedy = "ratchet verdict < pairs.json"
    try:
        return json.loads(sys.stdin.read(), object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise BadInput("stdin is not JSON", [Problem(where, error.msg)], remedy=remedy) from error
    except (UnicodeDecodeError, RecursionError, ValueError) as error:  # the last: a number of too many digits
        raise BadInput("stdin is not JSON", [Problem("stdin", str(error))], remedy=remedy) from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadInput("the restarts cannot be judged", [Problem(twice, "is given twice in one object")])
    return found
