"""The search of a study: asking, telling, going on after a kill, and what plain Optuna sees."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from optimizer.engines.base import canonical_key
from optimizer.errors import BadInput, NotFound
from optimizer.search.canonical import CanonicalSpace
from optimizer.search.policy import Options, SpaceExhausted
from optimizer.search.space import KnownResult
from optimizer.search.spec_space import parse
from optimizer.search.study import Outcome, Result, SearchStudy, open_study
from tests.unit.search import landscape


@dataclass
class Record:
    """What reconciling reads of a trial record."""

    number: int
    state: str
    params: dict[str, Any]
    optuna_number: int | None
    output_tok_s: float | None = None
    accept_len: float | None = None
    step_ms: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    failure: dict[str, Any] | None = None
    timings: dict[str, float] = field(default_factory=dict)
    host: str = ""
    launch_command: str = ""


def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'optuna.db'}"


def study(where: str = "memory", *, sampler: str = "ratchet", seed: int = 0) -> SearchStudy:
    return open_study(where, "night", space=landscape.canonical(), sampler=sampler, seed=seed)


@pytest.mark.parametrize("sampler", ["ratchet", "tpe", "random"])
def test_every_suggestion_is_valid_and_new(sampler: str) -> None:
    search = study(sampler=sampler)
    keys = [canonical_key(params) for params in landscape.drive(search, 25)]
    assert len(set(keys)) == 25
    assert all(search.space.check(o.params).candidate is not None for o in search.history())


def test_finds_the_best_in_few_starts() -> None:
    found = 0
    for seed in range(5):
        asked = landscape.drive(study(seed=seed), 30)
        best = max(landscape.speed(p) for p in asked if not landscape.crashes(p))
        found += best >= 0.98 * landscape.speed(landscape.BEST)
    assert found == 5


def test_the_same_history_and_seed_suggest_the_same_after_a_restart(tmp_path: Path) -> None:
    landscape.drive(study(url(tmp_path)), 12)
    reopened = study(url(tmp_path))
    in_one_go = study()
    landscape.drive(in_one_go, 12)
    assert reopened.ask().params == in_one_go.ask().params


def test_plain_optuna_reads_the_same_numbers(tmp_path: Path) -> None:
    search = study(url(tmp_path))
    asked = landscape.drive(search, 15)
    plain = optuna.load_study(study_name="night", storage=url(tmp_path))
    assert plain.direction is optuna.study.StudyDirection.MAXIMIZE
    for params, trial in zip(asked, plain.trials, strict=True):
        shown = {k: v for k, v in trial.params.items() if v is not False}
        assert shown == params
        assert trial.user_attrs["canonical_key"] == canonical_key(params)
        if landscape.crashes(params):
            assert trial.state is TrialState.PRUNED
            assert trial.user_attrs["failure"] == "oom_cuda_graph_capture"
        else:
            assert trial.value == landscape.speed(params)
            assert trial.user_attrs["accept_len"] == landscape.accept_len(params)


def test_infrastructure_failures_teach_nothing_and_may_come_again() -> None:
    search = study()
    landscape.drive(search, 6)
    first = search.ask()
    search.tell(first.number, Result(None, Outcome.INFRASTRUCTURE, failure="disk_or_shm_full"))
    assert search.ask().params == first.params
    trial = search.study.trials[first.number]
    assert trial.state is TrialState.FAIL
    assert trial.user_attrs["failure"] == "disk_or_shm_full"


def test_a_pruned_trial_counts_with_what_was_measured_but_cannot_be_best() -> None:
    search = study()
    landscape.drive(search, 6)
    s = search.ask()
    search.tell(s.number, Result(999.0, Outcome.PRUNED))
    assert search.history()[-1].kind == "partial"
    assert search.history()[-1].value == 999.0
    best = search.best()
    assert best is not None
    assert best.canonical_key != s.canonical_key


def test_queued_configurations_come_first_and_bad_ones_leave_nothing_behind() -> None:
    search = study()
    with pytest.raises(BadInput) as caught:
        search.enqueue({"algorithm": "eagle3", "steps": 6, "topk": 4, "memory": 0.8})
    assert "steps * topk <= 12" in caught.value.problems[0].message
    with pytest.raises(BadInput):
        search.enqueue({"algorithm": "eagle9", "steps": 1, "topk": 1, "memory": 0.8})
    assert search.study.trials == []
    search.enqueue(landscape.BEST)
    assert search.ask().params == landscape.BEST
    assert search.ask().params != landscape.BEST


def test_what_plain_optuna_enqueued_is_asked_and_remembered(tmp_path: Path) -> None:
    plain = optuna.create_study(storage=url(tmp_path), study_name="night", direction="maximize")
    plain.enqueue_trial({**landscape.BEST})
    search = study(url(tmp_path))
    s = search.ask()
    assert s.params == landscape.BEST
    search.tell(s.number, Result(88.0))
    assert search.history()[0].key == canonical_key(landscape.BEST)
    search.close()


def test_telling_twice_is_harmless_and_an_unknown_number_is_an_error() -> None:
    search = study()
    s = search.ask()
    search.tell(s.number, Result(10.0))
    search.tell(s.number, Result(20.0))
    assert search.study.trials[s.number].value == 10.0
    with pytest.raises(NotFound):
        search.tell(99, Result(1.0))


def test_reconcile_tells_what_was_recorded_and_queues_what_was_interrupted(tmp_path: Path) -> None:
    search = study(url(tmp_path))
    landscape.drive(search, 3)
    recorded, interrupted = search.ask(), search.ask()
    again = study(url(tmp_path))
    records = [
        Record(10, "complete", recorded.params, recorded.number, output_tok_s=77.0, accept_len=2.0),
        Record(11, "measuring", interrupted.params, interrupted.number),
    ]
    done = again.reconcile(records)
    assert done.told == (recorded.number,)
    assert again.study.trials[recorded.number].value == 77.0
    assert again.study.trials[recorded.number].user_attrs["trial_number"] == 10
    assert again.study.trials[interrupted.number].state is TrialState.FAIL
    assert again.ask().params == interrupted.params
    assert again.reconcile(records, alive=[done.requeued[0]]).requeued == ()


def test_a_killed_study_suggests_what_it_would_have_suggested(tmp_path: Path) -> None:
    search = study(url(tmp_path))
    landscape.drive(search, 9)
    search.ask()  # killed before anything was told
    again = study(url(tmp_path))
    again.reconcile([])
    landscape.drive(again, 3)
    straight = study()
    landscape.drive(straight, 12)
    assert again.ask().params == straight.ask().params


def test_a_lost_optuna_file_is_rebuilt_from_records() -> None:
    search = study()
    search.reconcile([Record(0, "complete", landscape.BEST, 0, output_tok_s=90.0)])
    assert [o.value for o in search.history()] == [90.0]
    assert search.ask().params != landscape.BEST


def test_the_end_of_the_space_is_said() -> None:
    tiny = CanonicalSpace(parse({"parameters": {"a": {"choice": ["x", "y"]}}}, presets={}))
    search = open_study("memory", "tiny", space=tiny)
    for value in (1.0, 2.0):
        search.tell(search.ask().number, Result(value))
    with pytest.raises(SpaceExhausted):
        search.ask()
    assert all(t.state.is_finished() for t in search.study.trials)


@pytest.mark.parametrize("sampler", ["ratchet", "tpe"])
def test_a_study_goes_on_after_an_upgrade_that_changed_its_presets(tmp_path: Path, sampler: str) -> None:
    before = study(url(tmp_path), sampler=sampler)
    landscape.drive(before, 6)
    cut_off = before.ask()
    section = {**landscape.SECTION["parameters"], "algorithm": ["none", "eagle3", "ngram", "mtp"]}
    changed = CanonicalSpace(parse({**landscape.SECTION, "parameters": section}, presets={}))
    after = open_study(url(tmp_path), "night", space=changed, sampler=sampler)
    assert after.other_space
    after.reconcile([])
    assert after.ask().params == cut_off.params
    assert len(after.history()) == 7
    keys = [canonical_key(params) for params in landscape.drive(after, 6)]
    assert not set(keys) & {o.key for o in before.history()[:7]}
    again = open_study(url(tmp_path), "night", space=changed, sampler=sampler)
    assert not again.other_space
    assert [o.key for o in again.history()][7:] == keys


def test_another_explanation_of_a_parameter_is_no_other_space(tmp_path: Path) -> None:
    study(url(tmp_path))
    parameters = tuple(replace(p, why="told better") for p in landscape.space().parameters)
    told = CanonicalSpace(replace(landscape.space(), parameters=parameters))
    assert not open_study(url(tmp_path), "night", space=told).other_space


def test_an_unknown_sampler_is_bad_input() -> None:
    with pytest.raises(BadInput):
        study(sampler="magic")


def test_the_baseline_may_lie_outside_the_space() -> None:
    search = study()
    home = {"algorithm": "none", "memory": 0.5}
    search.add_observation(home, Result(90.0))
    assert search.history()[0].params == home
    assert search.ask().params["memory"] >= 0.7


def test_importance_sees_what_matters() -> None:
    search = study()
    landscape.drive(search, 25)
    shares = search.importance()
    assert sum(shares["output_tok_s"].values()) == pytest.approx(1.0)
    assert shares["output_tok_s"]["algorithm"] > shares["output_tok_s"]["memory"]
    assert shares["accept_len"]["graphs"] < 0.05


def test_stops_when_nothing_is_left_to_gain() -> None:
    search = study()
    landscape.drive(search, 5)
    assert not search.should_stop(0.01)
    landscape.drive(search, 45)
    assert search.should_stop(0.01)


def test_exploring_goes_on_while_nothing_keeps_the_limits_yet() -> None:
    limited = Options(limits={"ttft_p99_ms": (None, 800.0)})
    search = open_study("memory", "night", space=landscape.canonical(), options=limited)
    for _ in range(11):
        search.tell(search.ask().number, Result(50.0, metrics={"ttft_p99_ms": 2000.0}))
    assert search.expected_gain() is None
    assert not search.should_stop(0.01)


def test_a_metric_that_is_no_number_counts_as_not_measured(tmp_path: Path) -> None:
    limited = Options(limits={"ttft_p99_ms": (None, 800.0)})
    search = open_study(url(tmp_path), "night", space=landscape.canonical(), options=limited)
    for value in (700.0, float("nan"), None, 650.0):
        search.tell(search.ask().number, Result(50.0, metrics={"ttft_p99_ms": value}))  # type: ignore[dict-item]
    assert [o.metrics for o in search.history()] == [{"ttft_p99_ms": 700.0}, {}, {}, {"ttft_p99_ms": 650.0}]
    assert search.ask().params


@pytest.mark.parametrize("result", [Result(0.0), Result(0.0, Outcome.PRUNED), Result(None, Outcome.PRUNED)])
def test_a_server_that_gave_no_speed_is_not_started_again_and_again(result: Result) -> None:
    search = study()
    landscape.drive(search, 5)
    first = search.ask()
    search.tell(first.number, result)
    assert search.ask().params != first.params


def test_a_study_with_nothing_to_search_ends_after_its_baseline() -> None:
    search = open_study("memory", "night", space=CanonicalSpace(parse({}, presets={})))
    search.add_observation({}, Result(90.0, accept_len=2.0))
    with pytest.raises(SpaceExhausted):
        search.ask()
    best = search.best()
    assert best is not None
    assert best.mean == pytest.approx(90.0)
    for value in (91.0, 89.0, 90.5, 90.2):
        search.add_observation({}, Result(value, accept_len=2.0))
    assert search.importance()["output_tok_s"] == {}
    assert search.explain({}, {}).contributions == ()


def test_what_was_found_elsewhere_is_not_tried_outside_of_this_space() -> None:
    known = tuple(
        KnownResult({**landscape.BEST, "memory": memory}, speed)
        for memory, speed in ((0.95, 99.0), (0.72, 98.0), (0.8, 90.0))
    )
    search = open_study("memory", "night", space=CanonicalSpace(replace(landscape.space(), known=known)))
    assert search.ask().params == landscape.BEST
    assert 0.7 <= float(search.ask().params["memory"]) <= 0.9
