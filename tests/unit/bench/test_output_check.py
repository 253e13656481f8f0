"""Outputs: differences within the baseline's own are fine, degeneration is not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from optimizer.bench.base import RequestSample
from optimizer.bench.output_check import check, common_prefix_share, holds_json
from tests.unit.bench.fakes import FakeEngine, sample

PROSE = (
    "The keeper climbed the stairs before sunrise and trimmed the lamp. Below him the harbour woke slowly: first the "
    "bakers, then the pilots, and at last the children who ran along the quay with their satchels open. By noon a fog "
    "had come in from the west, and nobody could say any more which of the bells belonged to which of the ships."
)


def samples(texts: Sequence[str], *, letters_a_token: int = 4) -> list[RequestSample]:
    return [
        sample(f"p{i}", text=t, kind="prose", output_tokens=max(1, len(t) // letters_a_token))
        for i, t in enumerate(texts)
    ]


def test_the_same_answers_are_fine() -> None:
    result = check(samples([PROSE]), [samples([PROSE])], engine=FakeEngine(), config={})
    assert result.ok and result.agreement == 1 and result.self_agreement == 1 and result.problems == ()


def test_answers_that_part_late_are_fine() -> None:
    other = PROSE[:200] + " and then something else happened that nobody had foreseen at all."
    assert check(samples([other]), [samples([PROSE])], engine=FakeEngine(), config={}).ok


def test_answers_that_part_at_once_are_suspect() -> None:
    other = "A quite different beginning. " + PROSE
    result = check(samples([other]), [samples([PROSE]), samples([PROSE])], engine=FakeEngine(), config={})
    assert not result.ok and "0%" in result.problems[0]


def test_a_baseline_that_differs_from_itself_allows_as_much() -> None:
    first, second = PROSE, PROSE[:60] + "!" + PROSE[61:]
    third = PROSE[:40] + "?" + PROSE[41:]
    result = check(samples([third]), [samples([first]), samples([second])], engine=FakeEngine(), config={})
    assert result.self_agreement < 0.25
    assert result.ok


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        ("the the the " * 60, "repeats itself"),
        ("   \n", "blank"),
        ("Это совсем другой язык, которого никто не просил.", "another script"),
        ("broken \ufffd\ufffd characters", "broken characters"),
    ],
)
def test_degeneration_is_named(text: str, sign: str) -> None:
    result = check(samples([text]), [samples([text + " "])], engine=FakeEngine(), config={})
    assert result.ok, "what the baseline shows too is not held against the candidate"
    result = check(samples([text]), [samples([PROSE])], engine=FakeEngine(), config={})
    assert not result.ok and any(sign in p for p in result.problems)


def test_json_must_be_json_where_it_was_asked() -> None:
    good = [sample("json", kind="json", text='```json\n[{"id": 1}]\n```', finish_reason="stop")]
    bad = [sample("json", kind="json", text='```json\n[{"id": 1]\n```', finish_reason="stop")]
    cut = [sample("json", kind="json", text='```json\n[{"id": 1', finish_reason="length")]
    assert check(good, [good], engine=FakeEngine(), config={}).ok
    assert any("JSON" in p for p in check(bad, [good], engine=FakeEngine(), config={}).problems)
    assert not any("JSON" in p for p in check(cut, [good], engine=FakeEngine(), config={}).problems)
    assert holds_json("[1, 2]") and not holds_json("no brackets")


def test_an_answer_that_breaks_off_is_named() -> None:
    short = [sample("p0", text="The keeper", finish_reason="stop")]
    result = check(short, [samples([PROSE])], engine=FakeEngine(), config={})
    assert any("breaks off" in p for p in result.problems)


def test_an_empty_answer_is_named() -> None:
    empty = [sample("p0", text="", error="empty: the answer has no tokens")]
    result = check(empty, [samples([PROSE])], engine=FakeEngine(), config={})
    assert not result.ok and result.problems == ("p0: the answer is empty",)


def test_answers_of_another_length_are_other_work() -> None:
    whole, cut = samples([PROSE] * 3), samples([PROSE, PROSE, PROSE[: len(PROSE) // 10]])
    assert not (result := check(cut, [whole], engine=FakeEngine(), config={})).ok
    assert any("tokens against the baseline's" in p for p in result.problems)
    assert not check(whole, [cut], engine=FakeEngine(), config={}).ok, "longer answers as well"
    assert check(cut, [whole, cut], engine=FakeEngine(), config={}).ok, "the baseline itself ends now here, now there"
    late = samples([PROSE, PROSE, PROSE[: int(len(PROSE) * 0.8)]])
    assert check(late, [whole], engine=FakeEngine(), config={}).ok


def test_a_server_that_counts_more_tokens_for_the_same_text_is_found() -> None:
    """Usage that counts rejected drafts would make a candidate look half as fast again."""
    inflated = samples([PROSE] * 3, letters_a_token=3)
    result = check(inflated, [samples([PROSE] * 3)], engine=FakeEngine(), config={})
    assert not result.ok and any("counts otherwise" in p for p in result.problems)


def test_lossy_settings_are_named_and_do_not_fail_by_themselves() -> None:
    result = check(samples([PROSE]), [samples([PROSE])], engine=FakeEngine(), config={"cache-type-k": "q8_0"})
    assert result.ok and result.lossy == ("cache-type-k",)


def test_prefix_shares() -> None:
    assert common_prefix_share("", "") == 1
    assert common_prefix_share("abcd", "abxx") == 0.5
    assert common_prefix_share("ab", "abcd") == 0.5
    assert common_prefix_share("", "abcd") == 0
