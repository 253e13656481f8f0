"""The language of conditions and rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.search.grammar import MAX_LENGTH, compile_expression
from optimizer.search.grammar_tokens import GrammarError

TREE = "draft-tokens <= 1 + k + (s-1)*k*k where k=eagle-topk, s=num-steps"


@pytest.mark.parametrize(
    ("text", "config", "value"),
    [
        ("spec-type == none", {"spec-type": "none"}, True),
        ("spec-type != ngram or spec-max in [4, 8]", {"spec-type": "ngram", "spec-max": 2}, False),
        ("spec-max not in [4, 8]", {"spec-max": 2}, True),
        ("algorithm is absent", {}, True),
        ("algorithm is not absent", {"algorithm": "EAGLE3"}, True),
        ("graphs is present and not (tp > 2)", {"graphs": True, "tp": 2}, True),
        ("graphs and tp == 8", {"graphs": True, "tp": 8}, True),
        ("graphs == false", {}, True),
        ("env.NCCL_PROTO == LL128", {"env.NCCL_PROTO": "LL128"}, True),
        ("model == /data/eagle3/4", {"model": "/data/eagle3/4"}, True),
        ("dtype == 'fp8 e4m3'", {"dtype": "fp8 e4m3"}, True),
        ("size % 2 == 0 and size // 2 >= 3", {"size": 6}, True),
        ("max(a, b) - min(a, b) <= 1", {"a": 3, "b": 5}, False),
        ("-a < 0", {"a": 1}, True),
        ("size == 4", {"size": "4"}, True),
        (TREE, {"draft-tokens": 8, "eagle-topk": 2, "num-steps": 3}, True),
        (TREE, {"draft-tokens": 13, "eagle-topk": 2, "num-steps": 3}, False),
    ],
)
def test_means_what_it_says(text: str, config: dict[str, Any], value: bool) -> None:
    assert compile_expression(text).evaluate(config) is value


def test_an_absent_flag_neither_fires_a_condition_nor_breaks_a_rule() -> None:
    ordering = compile_expression("batch >= 4")
    assert not ordering.holds({})
    assert not ordering.violated({})
    assert not compile_expression(TREE).violated({"draft-tokens": 64})
    assert compile_expression("not batch >= 4").evaluate({}) is None
    assert compile_expression("1 / batch > 0").evaluate({"batch": 0}) is None
    assert compile_expression(f"1{'0' * 400} / 3 > 0").evaluate({}) is None


def test_known_names_decide_what_a_word_means() -> None:
    assert compile_expression("a == b").names == {"a"}
    assert compile_expression("a == b", ["a", "b"]).names == {"a", "b"}
    assert compile_expression("a == b", ["a", "b"]).evaluate({"a": 1, "b": 1}) is True
    assert compile_expression("tp-1 >= dp-size", ["tp", "dp-size"]).evaluate({"tp": 3, "dp-size": 2}) is True
    assert compile_expression("tp-1 == 7", ["tp", "tp-1"]).names == {"tp-1"}


@pytest.mark.parametrize(
    "text",
    [
        "", "a ==", "a in 3", "(a", "a is big", "a b", "a == 1 where", "a == 1 where k", "k == 1 where k=1, k=2",
        "__import__('os')", "a.__class__()", "a == [1]", "lambda: 1", "a; b", "a @ b", "max(a)",
        "(" * 100 + "a" + ")" * 100, "not " * 200 + "a", "-" * 200 + "a > 1", "a" * (MAX_LENGTH + 1),
    ],
)  # fmt: skip
def test_everything_else_is_an_error_with_a_place(text: str) -> None:
    with pytest.raises(GrammarError) as caught:
        compile_expression(text)
    assert str(caught.value)


@given(st.text(alphabet="abk12 ()<>=!+-*/%,[]'\".|&andornotiswhe", max_size=60))
def test_any_text_compiles_or_says_why_and_never_does_anything_else(text: str) -> None:
    try:
        expression = compile_expression(text)
    except GrammarError:
        return
    expression.evaluate({"a": 1, "b": "x", "k": True})
    expression.evaluate({})
