"""`ratchet verdict`: the statistics alone, over restarts recorded by anybody."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import click

from api.cli.output import print_json, say
from optimizer.errors import BadInput, Problem

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
    from optimizer.bench.verdict import judge  # after reading: numerical libraries take a while to load

    prompts = data.get("prompts") or _all_prompts(data["restarts"])
    result = judge(
        prompts,
        data["restarts"],
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
    }
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
    text = sys.stdin.read()
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise BadInput(
            "stdin is not JSON", [Problem(where, error.msg)], remedy="ratchet verdict < pairs.json"
        ) from error
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
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 0):
        problems.append(Problem("max_restarts", "must be a whole number", most))
    if problems:
        raise BadInput("the restarts cannot be judged", problems)
    return data


def _all_prompts(restarts: list[Any]) -> list[str]:
    names: dict[str, None] = {}
    for restart in restarts:
        tok_s = restart.get("tok_s") if isinstance(restart, dict) else None
        if isinstance(tok_s, dict):
            names |= dict.fromkeys(str(p) for p in tok_s)
    return list(names)
