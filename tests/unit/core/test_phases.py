"""The phases of a study on a synthetic host: what is started, what is proven, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from optimizer import confirm, evidence, finalists, phases, studies
from optimizer.engines.base import Hardware
from optimizer.errors import Stopped
from optimizer.finalists import Finalist
from optimizer.phases import StudyFailed
from optimizer.plan import argv_to_keep
from optimizer.run import StudyRun
from optimizer.run_trial import Proposal
from optimizer.spec import parse_study
from optimizer.studies import StudyState
from storage import events
from storage.engine import Database
from tests.unit.core.synthetic import World, open_synthetic
from tests.unit.core.test_studies import DEMO, NOW


def study_run(db: Database, *, more: dict[str, Any] | None = None, **budget: Any) -> StudyRun:
    data = yaml.safe_load(DEMO.read_text()) | (more or {})
    data["space"] = {
        "parameters": {
            "threads": {"choice": [1, 2, 3, 4]},
            "flash-attn": {"choice": ["on", "off"]},
            "batch-size": {"choice": [256, 512, 1024, 2048]},
        }
    }
    data["launch"]["flags"] |= {"threads": 2, "flash-attn": "on", "batch-size": 512}
    data["budget"] = {"trials": 14, "confirm_restarts": 16, "candidates": 2, "soak_s": 0, **budget}
    spec = parse_study(data)
    record = studies.create(db, spec, now=NOW)
    for state in (StudyState.QUEUED, StudyState.RUNNING):
        studies.move(db, record.id, set(StudyState), state, "", NOW)
    return open_synthetic(db, spec, record.id)


def play(run: StudyRun, world: World, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(phases, "run_trial", world.trial)
    monkeypatch.setattr(phases.home_server, "take_over", lambda run: None)
    phases.run_study(run)
    with run.db.read() as conn:
        from storage import studies as rows

        return rows.get(conn, run.study.id).verdict or {}


def faster_with_threads(config: Any) -> float:
    return 90.0 * {1: 0.6, 2: 1.0, 3: 1.05, 4: 1.3}[int(config["threads"])]


def test_a_truly_faster_configuration_is_proven(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    run, world = study_run(db), World(faster_with_threads)
    verdict = play(run, world, monkeypatch)
    assert verdict["outcome"] == "win"
    assert verdict["params"]["threads"] == 4
    assert 1.2 < verdict["ratio"] < 1.4
    kinds = [p.kind for p in world.started]
    assert kinds[:2] == ["baseline", "baseline"] and kinds.count("explore") <= 14
    arms = [p.arm for p in world.started if p.kind == "confirm"]
    assert abs(arms.count("baseline") - arms.count(verdict["candidate_key"])) <= 1
    assert any(c["name"] == "threads" for c in verdict["changes"]["contributions"])


def test_what_was_learnt_and_what_it_costs_is_told(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    run = study_run(db)
    verdict = play(run, World(faster_with_threads), monkeypatch)
    assert verdict["importance"]["output_tok_s"]["threads"] > 0.8
    assert verdict["importance"]["output_tok_s"]["flash-attn"] < 0.1
    assert any(e["name"] == "threads" for e in verdict["changes"]["edges"])
    with db.read() as conn:
        notes = [e.data["text"] for e in events.since(conn, 0, study_id=run.study.id, limit=1000) if e.kind == "note"]
    assert [n for n in notes if "this space has 32 servers; 14 starts are about" in n] == [notes[0]]


def test_weighed_levels_of_concurrency_decide_together(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    more = {
        "workload": {"preset": "five-prompts", "concurrency": [1, 8]},
        "objective": {"levels": {1: 0.5, 8: 0.5}},
    }
    run = study_run(db, more=more)
    alone, loaded = {1: 60, 2: 90, 3: 100, 4: 130}, {1: 50, 2: 40, 3: 60, 4: 20}
    world = World(lambda c: alone[int(c["threads"])], under_load=lambda c: loaded[int(c["threads"])])
    verdict = play(run, world, monkeypatch)
    assert verdict["outcome"] == "win"
    assert verdict["params"]["threads"] == 3
    assert verdict["ratio"] == pytest.approx((100 * 60 / (90 * 40)) ** 0.5, rel=0.05)
    assert verdict["best_by_level"]["1"]["params"]["threads"] == 4
    assert verdict["best_by_level"]["8"]["params"]["threads"] == 3


def test_one_weighed_level_alone_decides(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it is not the first one: what is searched must be what is judged."""
    more = {"workload": {"preset": "five-prompts", "concurrency": [1, 8]}, "objective": {"levels": {8: 1}}}
    alone, loaded = {1: 20, 2: 10, 3: 8, 4: 5}, {1: 20, 2: 40, 3: 50, 4: 60}
    world = World(lambda c: alone[int(c["threads"])])
    world.under_load = lambda c: loaded[int(c["threads"])] / alone[int(c["threads"])]
    run = study_run(db, more=more, trials=10)
    verdict = play(run, world, monkeypatch)
    assert (verdict["outcome"], verdict["params"]["threads"]) == ("win", 4)
    assert verdict["ratio"] == pytest.approx(60 / 40, rel=0.05)
    assert all(f["mean_tok_s"] > 40 for f in verdict["finalists"]), "in the units of the level"


def test_where_the_default_is_best_the_answer_is_no_win(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(
        lambda config: 90.0 if config == {**config, "threads": 2, "flash-attn": "on", "batch-size": 512} else 70
    )
    verdict = play(study_run(db), world, monkeypatch)
    assert verdict["outcome"] == "no_significant_win"
    assert verdict["reason"].startswith("nothing that was explored is faster than home")


def test_no_effective_configuration_is_started_twice_while_exploring(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, world = study_run(db, trials=40), World(faster_with_threads)
    play(run, world, monkeypatch)
    keys = [p.arm for p in world.started if p.kind == "explore"]
    assert len(keys) == len(set(keys))
    baseline = evidence.read(run).complete("baseline")[0].canonical_key
    explored = [t.canonical_key for t in evidence.read(run).explored]
    assert baseline not in explored


def test_wrong_output_cannot_win(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(faster_with_threads, wrong_output=lambda config: config["threads"] == 4)
    verdict = play(study_run(db), world, monkeypatch)
    assert verdict.get("params", {}).get("threads") != 4 or verdict["outcome"] != "win"


def test_a_missed_limit_cannot_win(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    run = study_run(db)
    limit = type(run.spec.objective).model_validate({"subject_to": {"ttft_p99_ms": {"max": 5}}})
    run.spec = run.spec.model_copy(update={"objective": limit})
    verdict = play(run, World(faster_with_threads), monkeypatch)
    assert verdict["outcome"] == "no_significant_win"


def test_faults_of_the_infrastructure_are_asked_again_and_teach_nothing(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    broke: list[str] = []

    def once(proposal: Proposal, config: Any) -> dict[str, Any] | None:
        if proposal.kind == "explore" and proposal.attempt == 1 and len(broke) < 3:
            broke.append(proposal.arm)
            return {"blame": "infrastructure"}
        return None

    run, world = study_run(db), World(faster_with_threads, broken=once)
    assert play(run, world, monkeypatch)["outcome"] == "win"
    again = [p.arm for p in world.started if p.attempt == 2]
    assert again == broke
    assert len(evidence.read(run).explored) == len({t.canonical_key for t in evidence.read(run).explored})


def test_a_fault_that_stays_stops_the_study_with_its_reason(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(faster_with_threads, broken=lambda p, c: {"blame": "host", "summary": "the disk is full"})
    with pytest.raises(StudyFailed, match=r"interrupted 3 times.*the disk is full"):
        play(study_run(db), world, monkeypatch)
    assert len(world.started) == phases.ATTEMPTS


def test_a_baseline_that_cannot_run_fails_the_study_at_once(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(faster_with_threads, broken=lambda p, c: {"blame": "config", "summary": "no such model"})
    with pytest.raises(StudyFailed, match="baseline cannot be measured: no such model"):
        play(study_run(db), world, monkeypatch)


def test_a_baseline_that_no_longer_starts_ends_the_confirmation(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """It must not be started again and again for ever."""
    refused: list[Proposal] = []

    def later(proposal: Proposal, config: Any) -> dict[str, Any] | None:
        if (proposal.kind, proposal.arm) != ("confirm", "baseline"):
            return None
        refused.append(proposal)
        assert len(refused) < 5, "the same start again and again"
        return {"blame": "config", "summary": "out of memory"}

    run = study_run(db)
    finalists.remember(run, [Finalist("best", {"threads": 4, "flash-attn": "on", "batch-size": 512}, 117.0, 0)])
    with pytest.raises(StudyFailed, match="the baseline cannot be measured: out of memory"):
        play(run, World(faster_with_threads, broken=later), monkeypatch)


def test_a_failure_that_dooms_all_trials_stops_the_study(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def doom(proposal: Proposal, config: Any) -> dict[str, Any] | None:
        return {"blame": "host", "stop_study": True, "summary": "driver gone"} if proposal.kind == "explore" else None

    world = World(faster_with_threads, broken=doom)
    with pytest.raises(StudyFailed, match="driver gone"):
        play(study_run(db), world, monkeypatch)
    assert sum(p.kind == "explore" for p in world.started) == 1


def test_a_winner_is_soaked_and_one_that_breaks_under_load_does_not_win(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(proposal: Proposal, config: Any) -> dict[str, Any] | None:
        soaked = proposal.arm.startswith(confirm.SOAK) and config["threads"] == 4
        return {"blame": "config", "summary": "it died under load"} if soaked else None

    world = World(faster_with_threads, broken=breaks)
    verdict = play(study_run(db, soak_s=5, candidates=1), world, monkeypatch)
    assert [p.soak_s for p in world.started if p.arm.startswith(confirm.SOAK)] == [5]
    assert verdict["outcome"] != "win"
    assert any("died under load" in why for why in verdict["excluded"].values())


def test_a_stop_between_trials_loses_nothing_and_resuming_ends_the_same(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, world = study_run(db), World(faster_with_threads)
    real = run.lease.check
    count = [0]

    def check() -> None:
        count[0] += 1
        if count[0] == 12:
            raise Stopped("pause asked")
        real()

    monkeypatch.setattr(run.lease, "check", check)
    with pytest.raises(Stopped):
        play(run, world, monkeypatch)
    before = len(world.started)
    verdict = play(run, world, monkeypatch)
    assert verdict["outcome"] == "win"
    assert [p.kind for p in world.started].count("baseline") == 2 + len(
        evidence.read(run).explored
    ) // phases.BASELINE_EVERY
    assert len(world.started) > before


def test_a_suggestion_without_any_parameter_is_not_the_baseline(db: Database) -> None:
    from optimizer.plan import full_config

    run = study_run(db)
    assert full_config(run, None)["threads"] == 2
    assert "threads" not in full_config(run, {})


@pytest.mark.parametrize(("given", "kept"), [(None, False), ("my-model", True)])
def test_a_server_that_stays_has_no_name_of_ours(db: Database, given: str | None, kept: bool) -> None:
    run = study_run(db)
    config = run.spec.baseline_config() | ({"alias": given} if given else {})
    effective = run.engine.effective(config, None, Hardware())
    plan = run.engine.launch_plan(["llama-server"], config, None, effective, given or f"ratchet-{run.study.id}")
    words = argv_to_keep(plan, run)
    assert ("--alias" in words) is kept
    assert not any("ratchet-" in word for word in words)
    assert [w for w in plan.argv if w not in words] == ([] if kept else ["--alias", f"ratchet-{run.study.id}"])
