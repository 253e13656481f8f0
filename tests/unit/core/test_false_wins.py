"""What may look like a win and is none: a study must not be taken in."""

from __future__ import annotations

import random
from typing import Any

import pytest

from optimizer import confirm, evidence, finalists, phases
from optimizer.run import StudyRun
from optimizer.run_trial import Proposal
from storage import events
from storage.engine import Database
from tests.unit.core.synthetic import World
from tests.unit.core.test_phases import faster_with_threads, play, study_run


def steady(config: Any) -> float:
    return 90.0


def without_limits(db: Database) -> StudyRun:
    return study_run(db, more={"objective": {"maximize": "output_tok_s"}})


def warnings_of(run: StudyRun) -> list[str]:
    with run.db.read() as conn:
        found = events.since(conn, 0, study_id=run.study.id, limit=10_000)
    return [e.data["text"] for e in found if e.kind == "warning"]


def test_a_baseline_measured_on_a_bad_day_wins_nothing_for_the_others(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cold caches, or other clients, while the baseline was measured: all that is explored seems 30 % faster."""
    world = World(steady, pace=lambda proposal: 0.7 if proposal.kind == "baseline" else 1.0)
    verdict = play(study_run(db), world, monkeypatch)
    assert verdict["outcome"] in {"no_significant_win", "undecided"}
    assert any(p.kind == "confirm" for p in world.started), "it had to be tried"


def test_a_host_that_becomes_faster_all_night_makes_no_winner(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(steady, noise=0.003)
    world.pace = lambda proposal: 1.01 ** len(world.started)
    run = study_run(db)
    verdict = play(run, world, monkeypatch)
    assert verdict["outcome"] != "win"


def test_starts_that_are_fast_or_slow_by_chance_make_no_winner(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    coin = random.Random(5)
    world = World(steady, noise=0.002, pace=lambda proposal: coin.choice([0.9, 1.1]))
    assert play(study_run(db), world, monkeypatch)["outcome"] != "win"


def test_requests_that_fail_do_not_make_a_candidate_faster(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(
        faster_with_threads, metrics=lambda p, config: {"error_rate": 0.2} if config.get("threads") in (3, 4) else {}
    )
    verdict = play(without_limits(db), world, monkeypatch)
    assert verdict["outcome"] != "win"


def test_errors_that_home_has_too_are_not_held_against_a_candidate(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(faster_with_threads, metrics=lambda proposal, config: {"error_rate": 0.2})
    assert play(without_limits(db), world, monkeypatch)["outcome"] == "win"


def test_a_candidate_that_is_fast_only_when_fresh_does_not_win(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def tiring(proposal: Proposal, config: Any) -> dict[str, float]:
        return {"soak_first_tok_s": 100.0, "soak_last_tok_s": 60.0} if proposal.soak_s else {}

    verdict = play(study_run(db, soak_s=5, candidates=1), World(faster_with_threads, metrics=tiring), monkeypatch)
    assert verdict["outcome"] != "win"
    assert "lost 40.0% under load" in " ".join(verdict["excluded"].values())


def test_a_candidate_that_stays_ahead_under_load_wins(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def warm(proposal: Proposal, config: Any) -> dict[str, float]:
        return {"soak_first_tok_s": 100.0, "soak_last_tok_s": 88.0} if proposal.soak_s else {}

    verdict = play(study_run(db, soak_s=5, candidates=1), World(faster_with_threads, metrics=warm), monkeypatch)
    assert verdict["outcome"] == "win", "a gain of 30 % outlasts a loss of 12 %"


def test_a_candidate_that_breaks_now_and_then_does_not_win_by_its_good_starts(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    broke: list[str] = []

    def now_and_then(proposal: Proposal, config: Any) -> dict[str, Any] | None:
        if proposal.kind == "confirm" and config["threads"] == 4 and not broke:
            broke.append(proposal.arm)
            return {"blame": "engine", "summary": "3 of 5 requests stalled"}
        return None

    verdict = play(study_run(db, candidates=1), World(faster_with_threads, broken=now_and_then), monkeypatch)
    assert broke and verdict["outcome"] != "win"
    assert "3 of 5 requests stalled" in verdict["excluded"][broke[0]]


def test_a_gain_on_one_prompt_alone_is_said(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(steady, prompt_pace={"json": lambda config: 2.0 if config["threads"] == 4 else 1.0})
    verdict = play(study_run(db), world, monkeypatch)
    assert verdict["outcome"] == "win"
    assert verdict["by_prompt"]["json"] == pytest.approx(2.0, rel=0.1)
    assert verdict["by_prompt"]["prose"] == pytest.approx(1.0, abs=0.05)
    assert "one prompt (json: +" in verdict["caveats"][0]


def test_a_gain_that_prompts_share_needs_no_caveat(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    assert play(study_run(db), World(faster_with_threads), monkeypatch)["caveats"] == []


def test_drift_is_told(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    run, world = study_run(db), World(steady, noise=0.002, hours_each=1.0)
    world.pace = lambda proposal: 0.97 ** len(world.started)
    monkeypatch.setattr(phases, "run_trial", world.trial)
    for _ in range(6):
        phases.measure_baseline_once(run)
    phases.warn_of_drift(run)
    assert any("the baseline drifted by -14" in text for text in warnings_of(run))


def test_the_mark_for_early_ends_goes_with_the_host(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that slows down by a third must not end every later measurement by the figures of the evening."""
    run, world = study_run(db), World(faster_with_threads, noise=0.001)
    monkeypatch.setattr(phases, "run_trial", world.trial)
    for _ in range(2):
        phases.measure_baseline_once(run)
    best = {"threads": 4, "flash-attn": "on", "batch-size": 512}
    phases.attempt(run, Proposal("explore", "best", best))
    mark = finalists.incumbent(run, evidence.read(run))
    assert mark is not None and mark["code"] == pytest.approx(90 * 1.3, rel=0.01)
    world.pace = lambda proposal: 0.67
    for _ in range(2):
        phases.measure_baseline_once(run)
    later = finalists.incumbent(run, evidence.read(run))
    assert later is not None and later["code"] == pytest.approx(0.67 * mark["code"], rel=0.01)


def test_what_cannot_win_is_no_mark_for_early_ends(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fast but beyond a limit: what is slower than that and keeps it must be measured to its end, it may win."""
    run = study_run(db, more={"objective": {"subject_to": {"ttft_p99_ms": {"max": 800}}}})
    world = World(faster_with_threads, noise=0.001)
    world.metrics = lambda proposal, config: {"ttft_p99_ms": 2000.0 if config["threads"] == 4 else 10.0}
    monkeypatch.setattr(phases, "run_trial", world.trial)
    phases.measure_baseline_once(run)
    phases.attempt(run, Proposal("explore", "beyond", {"threads": 4, "flash-attn": "on", "batch-size": 512}))
    mark = finalists.incumbent(run, evidence.read(run))
    assert mark is not None and mark["code"] == pytest.approx(90, rel=0.02)


def test_limits_of_the_objective_replace_the_rule_for_errors(db: Database) -> None:
    run = study_run(db)
    limit = type(run.spec.objective).model_validate({"subject_to": {"error_rate": {"max": 0.5}}})
    run.spec = run.spec.model_copy(update={"objective": limit})
    assert confirm.broken_limits(run, evidence.read(run), {"error_rate": 0.3}) == []
    assert confirm.broken_limits(run, evidence.read(run), {"error_rate": 0.6})
