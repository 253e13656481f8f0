"""Explaining a winner: what each flag brought, what does nothing, where the space ends."""

from __future__ import annotations

import math

from optimizer.engines.base import FlagValue
from optimizer.search.explain import edges
from optimizer.search.study import Result, open_study
from tests.unit.search import landscape

HOME: dict[str, FlagValue] = {"algorithm": "none", "memory": 0.8}


def test_undoing_one_flag_shows_what_it_brought() -> None:
    search = open_study("memory", "n", space=landscape.canonical())
    search.enqueue(HOME)
    search.enqueue(landscape.BEST)
    landscape.drive(search, 45)
    account = search.explain(landscape.BEST, HOME)
    by_name = {c.name: c for c in account.contributions}
    truth = landscape.speed(landscape.BEST) / landscape.speed(
        {k: v for k, v in landscape.BEST.items() if k != "graphs"}
    )
    assert math.isclose(by_name["graphs"].gain, truth - 1, abs_tol=0.05)
    assert by_name["graphs"].sure
    assert account.contributions[0].gain == max(c.gain for c in account.contributions)
    assert "memory" not in by_name


def test_flags_without_effect_are_named() -> None:
    section = {
        "parameters": {
            "good": {"choice": ["a", "b"]},
            "idle": {"choice": ["x", "y", "z"]},
            "steps": {"int": [1, 6]},
        }
    }
    from optimizer.search.canonical import CanonicalSpace
    from optimizer.search.spec_space import parse

    search = open_study("memory", "n", space=CanonicalSpace(parse(section, presets={})))
    for _ in range(30):
        s = search.ask()
        search.tell(
            s.number, Result(100.0 * (1.2 if s.params["good"] == "b" else 1.0) * (1 + 0.03 * float(s.params["steps"])))
        )
    best = search.best()
    assert best is not None
    account = search.explain(best.params, {"good": "a", "idle": "x", "steps": 1})
    assert account.no_effect == ("idle",)
    assert [(e.name, e.side) for e in account.edges] == [("steps", "highest")]


def test_the_edge_of_the_space_is_advice() -> None:
    found = edges(landscape.canonical(), {**landscape.BEST, "steps": 6, "topk": 1, "memory": 0.7})
    assert [(e.name, e.side) for e in found] == [("steps", "highest"), ("topk", "lowest"), ("memory", "lowest")]
    assert "raise the limit of steps above 6" in found[0].advice
