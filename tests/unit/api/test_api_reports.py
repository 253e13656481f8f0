"""Sentences, launch commands and importance: what every report shares."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.reports import launch, plots
from api.reports.build import StudyReportData
from api.reports.export import finite
from api.reports.importance import importance
from api.reports.sentences import duration, flag_text, gain, verdict_sentence
from storage.records import StudyRecord, TrialRecord, VerdictRecord

NOW = datetime(2026, 3, 2, tzinfo=UTC)
WIN = {"outcome": "win", "ratio": 1.2, "ci_low": 1.18, "ci_high": 1.23, "restarts": 8}


@pytest.mark.parametrize(
    ("verdict", "state", "beginning", "contains"),
    [
        (WIN, "finished", "Proven faster: +20.0 %", "95 % interval +18.0 % to +23.0 %"),
        (WIN | {"confidence": 0.9}, "finished", "Proven faster", "90 % interval"),
        (WIN | {"outcome": "worse", "ratio": 0.9}, "finished", "The original is faster", "-10.0 %"),
        (WIN | {"outcome": "no_significant_win", "ratio": 1.01}, "finished", "No proven win", "the original stays"),
        ({"outcome": "no_significant_win"}, "finished", "No proven win", "the original"),
        (WIN | {"outcome": "undecided"}, "finished", "Undecided", "not enough evidence"),
        ({"outcome": "undecided", "ratio": None}, "finished", "Undecided", ""),
        (WIN | {"ci_high": float("inf")}, "finished", "Proven faster", "8 fresh restarts"),
        (None, "running", "No verdict yet", "running"),
        (None, "finished", "No verdict", "original stays"),
        (None, "needs_attention", "No verdict", "human"),
    ],
)
def test_the_verdict_in_one_sentence(verdict: Any, state: str, beginning: str, contains: str) -> None:
    text = verdict_sentence(verdict, baseline_tok_s=90.0, best_tok_s=108.0, state=state)
    assert text.startswith(beginning)
    assert contains in text
    assert text.endswith(".") and "inf" not in text and "None" not in text


def test_a_study_stopped_before_its_winner_was_held_under_load_has_proved_nothing() -> None:
    study = StudyRecord("s", "s", "finished", "box", "sglang", {}, NOW, state_reason="stopped by the user")
    look = VerdictRecord("s", "key", "win", 1.2, 1.18, 1.23, 8, {}, NOW)
    verdict = StudyReportData(study, [], verdicts=[look]).verdict
    assert verdict is not None and verdict["outcome"] == "undecided"
    text = verdict_sentence(verdict)
    assert text.startswith("Undecided: +20.0 % so far") and "speed under load judged as well" in text


def test_a_sentence_names_speeds_only_when_both_are_known() -> None:
    assert "90.0 to 108.0 tok/s" in verdict_sentence(WIN, baseline_tok_s=90.0, best_tok_s=108.0)
    assert verdict_sentence({**WIN, "caveats": ["one prompt makes it"]}).endswith("; but one prompt makes it.")
    assert "tok/s" not in verdict_sentence(WIN, baseline_tok_s=None, best_tok_s=108.0)


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "-"), (4.25, "4.2 s"), (48, "48 s"), (750, "12 min 30 s"), (25_500, "7 h 05 min")]
)
def test_durations_as_a_person_says_them(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_flags_in_words() -> None:
    assert [flag_text("x", v) for v in (True, None, False, 4, "a")] == ["x", "no x", "no x", "x=4", "x=a"]


def test_the_difference_of_two_commands() -> None:
    before = "A=1 B=2 python3 -m server --port 1 --steps 3 --bare --alias own --equal=1 --negative -1"
    after = "A=1 C=3 python3 -m server --port 2 --steps 5 --other 'two words' --alias new --equal=2 --negative -1"
    changed = {c.name: (c.before, c.after) for c in launch.diff(before, after)}
    assert changed == {
        "B": ("2", None),
        "C": (None, "3"),
        "--bare": ("", None),
        "--steps": ("3", "5"),
        "--other": (None, "two words"),
        "--equal": ("1", "2"),
    }


def test_what_each_change_brought_is_found_by_its_parameter() -> None:
    changes = launch.diff("serve --steps 3", "NCCL_PROTO=LL serve --steps 5 --topk 2")
    parts = [
        {"name": "steps", "gain": 0.081, "sd": 0.009, "sure": True},
        {"name": "env.NCCL_PROTO", "gain": 0.002, "sd": 0.01, "sure": False},
    ]
    told = {c.name: gain(c.gain, c.gain_sd, c.sure) for c in launch.with_gains(changes, parts)}
    assert told == {"--steps": "+8.1 % ± 0.9", "NCCL_PROTO": "+0.2 % ± 1.0 ?", "--topk": "-"}


def test_a_command_with_an_open_quote_is_still_read() -> None:
    assert launch.read("server --text 'open --port 1")["--port"] == "1"


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00\n"), max_size=12)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9-]{0,10}", fullmatch=True), WORDS, min_size=1, max_size=8))
def test_a_wrapped_command_is_the_same_command(flags: dict[str, str]) -> None:
    words = ["NAME=value with space", "python3", "-m", "server"]
    for name, value in flags.items():
        words += [f"--{name}", value]
    command = " ".join(shlex.quote(w) if "=" not in w else f"NAME={shlex.quote(w[5:])}" for w in words)
    assert shlex.split(launch.wrap(command, width=10).replace(" \\\n", " ")) == shlex.split(command)


def trial(number: int, speed: float | None, **params: Any) -> TrialRecord:
    return TrialRecord("s", number, "explore", "complete", "k", params, NOW, output_tok_s=speed)


def test_importance_finds_the_parameter_that_matters() -> None:
    found = importance([trial(i, 100.0 + 10 * (i % 4), matters=i % 4, noise=i % 3) for i in range(40)])
    shares = found["importance"]
    assert shares["matters"] > 0.9
    assert sum(shares.values()) == pytest.approx(1.0, abs=0.01)
    assert found["trials"] == 40


def test_importance_of_noise_is_not_inflated_by_many_values() -> None:
    speeds = [100, 103, 98, 101, 99, 102, 97, 100, 103, 98, 101, 99]
    found = importance([trial(i, float(s), half=i % 2, unique=float(i)) for i, s in enumerate(speeds)])
    assert found["importance"].get("unique", 0.0) < 1.0 or found["importance"] == {}


def test_importance_says_when_there_are_too_few() -> None:
    found = importance([trial(0, 1.0, a=1)])
    assert found["importance"] == {} and "1 of 8" in found["note"]


def test_numbers_that_json_cannot_write_become_null() -> None:
    assert finite({"a": [float("nan"), 1.0, (float("inf"), "x")], "b": {"c": -float("inf")}}) == {
        "a": [None, 1.0, [None, "x"]],
        "b": {"c": None},
    }


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20))
def test_axes_hold_every_value_and_have_round_ticks(values: list[float]) -> None:
    axis = plots.axis(values, 0, 100)
    assert all(-1e-6 <= axis.at(v) <= 100 + 1e-6 for v in values)
    assert 2 <= len(axis.ticks) <= 12
    assert list(axis.ticks) == sorted(axis.ticks)


def test_home_is_shown_without_the_values_of_its_variables() -> None:
    shown = launch.shown_home({"argv": ["a"], "env": {"HF_TOKEN": "secret"}, "port": 1})
    assert shown == {"argv": ["a"], "port": 1, "env_names": ["HF_TOKEN"]}
    assert launch.home_line({"argv": ["a", "b c"]}) == "a 'b c'"
    assert launch.home_line({"systemd_unit": "llm"}) == "llm"
    assert launch.home_line(None) == ""
