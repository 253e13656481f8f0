"""Reading the space section: what it becomes, and every mistake at once."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from optimizer.errors import BadInput, Problem
from optimizer.search.parameters import MAX_RUNGS, rungs
from optimizer.search.space import Condition, Parameter, Space
from optimizer.search.spec_space import parse

PRESET = Space(
    parameters=(
        Parameter("steps", "int", (1, 2, 3), 1, 3, 1, ordered=True),
        Parameter("graphs", "flag", (True,), may_be_absent=True),
    ),
    conditions=(Condition("algorithm is absent", ("steps",)),),
    rules=("steps <= 3",),
    defaults=({"steps": 2},),
)


def problems(text: str) -> list[Problem]:
    with pytest.raises(BadInput) as caught:
        parse(yaml.safe_load(text), presets={"eagle3": PRESET})
    return list(caught.value.problems)


def one(section: dict[str, Any]) -> Parameter:
    return parse({"parameters": {"x": section}}, presets={}).parameters[0]


def test_the_forms_of_a_parameter() -> None:
    assert one({"int": [1, 8], "step": 3}).ladder == (1, 4, 7)
    assert one({"float": [0.7, 0.9], "step": 0.1}).ladder == (0.7, 0.8, 0.9)
    assert one({"choice": ["a", "b"]}).ordered is False
    assert one({"choice": [1, 2, 4]}).ordered is True
    assert one({"flag": True}).may_be_absent is True
    special = one({"int": [0, 4], "special": [0], "absent": True})
    assert rungs(special) == (1, 2, 3, 4, 0, None)
    assert special.special == (0,)


def test_long_ranges_are_thinned_and_keep_their_ends() -> None:
    for section in ({"int": [1, 4096], "log": True}, {"int": [1, 1_000_000]}, {"float": [0.5, 0.9]}):
        values = rungs(one(section))
        low, high = next(iter(v for v in section.values() if isinstance(v, list)))
        assert len(values) <= MAX_RUNGS
        assert values[0] == low
        assert values[-1] == high


def test_a_preset_is_overridden_extended_and_trimmed() -> None:
    space = parse(
        {"preset": "eagle3", "parameters": {"steps": {"int": [1, 8]}, "graphs": None, "env.A": {"choice": ["x", "y"]}}},
        presets={"eagle3": PRESET},
    )
    assert space.names() == ("steps", "env.A")
    assert space.parameters[0].high == 8
    assert (space.conditions, space.rules, space.defaults) == (PRESET.conditions, PRESET.rules, PRESET.defaults)


def test_known_results_are_kept() -> None:
    space = parse({"known": [{"flags": {"steps": 2, "graphs": False}, "output_tok_s": 82.3}]}, presets={})
    assert space.known[0].config == {"steps": 2}
    assert space.known[0].output_tok_s == 82.3


def test_every_mistake_is_told_at_once_with_path_and_hint() -> None:
    found = {
        p.path: p
        for p in problems("""
            preset: eagle4
            parametrs: {}
            parameters:
              --tp: {int: [1, 2]}
              a: {int: [3, 1]}
              b: {choice: [on, off]}
              c: {chioce: [x]}
              d: {float: [0.7, 0.9], stpe: 0.1}
              e: 3
              f: {flag: false}
              g: {int: [0, 8], log: true}
              h: {choice: [1, 1]}
              gone: null
              spec-type: [none, x]
            conditions: [{if: "spec-tpye == none", then_absent: [sepc-type]}, {iff: a}, 7]
            rules: ["a ==", 3]
            known: [{flags: {a: [1]}, output_toks: 3}, {}]
        """)
    }
    expected = [
        "preset", "parametrs", "parameters.--tp", "parameters.a.int", "parameters.b.choice", "parameters.c",
        "parameters.d.stpe", "parameters.e", "parameters.f.flag", "parameters.g.log", "parameters.h.choice",
        "parameters.gone", "conditions.0.if", "conditions.0.then_absent", "conditions.1.iff", "conditions.1.if",
        "conditions.2", "rules.0", "rules.1", "known.0.output_toks", "known.0.flags.a", "known.1",
    ]  # fmt: skip
    assert set(expected) <= set(found)
    assert found["preset"].hint == "did you mean eagle3?"
    assert found["parametrs"].hint == "did you mean parameters?"
    assert "tp" in found["parameters.--tp"].hint
    assert "quote them" in found["parameters.b.choice"].hint
    assert found["parameters.c"].hint == "did you mean choice?"
    assert found["conditions.0.if"].hint == "did you mean spec-type?"


def test_with_the_fixed_flags_known_every_other_name_is_a_mistake() -> None:
    section = {"parameters": {"steps": {"int": [1, 3]}}, "rules": ["tp-size == 8 or steps <= 2", "quantum == 1"]}
    parse(section, presets={})
    with pytest.raises(BadInput) as caught:
        parse(section, presets={}, fixed=["tp-size"])
    assert [p.path for p in caught.value.problems] == ["rules.1"]


@pytest.mark.parametrize("form", ["choice", "ladder"])
def test_a_parameter_that_can_only_be_absent_is_a_mistake(form: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse({"parameters": {"a": {form: [None]}}}, presets={})
    assert [p.path for p in caught.value.problems] == [f"parameters.a.{form}"]
