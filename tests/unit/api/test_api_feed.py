"""Events in words, and the phases of the start that is running."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from api.pages.feed import feed_line, stage_of, trial_steps
from storage.records import EventRecord

NOW = datetime(2026, 3, 2, 21, tzinfo=UTC)


def event(kind: str, after_s: float = 0.0, **data: Any) -> EventRecord:
    return EventRecord(1, "s", kind, data, NOW + timedelta(seconds=after_s))


def test_the_phases_of_a_start_that_is_loading() -> None:
    told = [
        event("phase", 0, number=3, phase="stop"),
        event("phase", 1, number=4, phase="preflight"),
        event("phase", 3, number=4, phase="launch"),
        event("phase", 4, number=4, phase="load"),
        event("stage", 9, number=4, stage="Capture cuda graph"),
    ]
    steps = trial_steps(told, 4)
    assert [(s.name, s.mark) for s in steps] == [
        ("preflight", "done"), ("launch", "done"), ("load", "now"), ("measure", ""), ("stop", ""),
    ]  # fmt: skip
    assert [s.seconds for s in steps[:3]] == [2.0, 1.0, None]
    assert steps[2].since == NOW + timedelta(seconds=4)
    assert stage_of(told, 4) == "Capture cuda graph" and stage_of(told, 3) == ""


def test_a_start_without_events_has_its_phases_before_it() -> None:
    assert [s.mark for s in trial_steps([], 0)] == [""] * 5


def test_a_phase_that_not_every_start_has_is_followed_by_the_stop() -> None:
    assert [s.name for s in trial_steps([event("phase", number=0, phase="soak")], 0)] == ["soak", "stop"]


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (event("study", state="waiting_window", reason="opens at 22:00"), "waiting window opens at 22:00"),
        (event("trial", number=2, state="complete", output_tok_s=91.25), "start 2 complete, 91.2 tok/s"),
        (event("trial", number=2, state="infeasible", failure="no memory"), "start 2 infeasible: no memory"),
        (event("stopped", number=2, killed=True), "start 2: server stopped by SIGKILL"),
        (event("home", state="restored"), "original server restored"),
        (event("note", text="hello"), "hello"),
        (event("verdict_final", outcome="no_significant_win"), "verdict: no significant win"),
    ],
)
def test_events_in_words(told: EventRecord, text: str) -> None:
    found = feed_line(told)
    assert found is not None and found.text == text
