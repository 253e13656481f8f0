"""One study over several hosts: one search, a baseline and a confirmation of each, and one end."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
import yaml

from optimizer import confirm, finalists, home_server, hosts, phases, selftest, share, studies, worker
from optimizer.clock import SystemClock
from optimizer.errors import BadInput, Unreachable
from optimizer.lease import LeaseKeeper
from optimizer.run import StudyRun
from optimizer.run_trial import Proposal
from optimizer.settings import Settings
from optimizer.share import Ending
from optimizer.spec import HostEntry, parse_study
from optimizer.studies import StudyState as S
from storage import leases, shares, trials
from storage import studies as rows
from storage.engine import Database
from storage.records import StudyRecord, TrialRecord
from tests.unit.core.synthetic import World, open_synthetic
from tests.unit.core.test_phases import faster_with_threads
from tests.unit.core.test_studies import DEMO, NOW

HOSTS = ["left", "right"]
SLOWER = {"left": 1.0, "right": 0.7}
"""Two machines are never equally fast: this must not look like an effect of a flag."""


def document(**changes: Any) -> dict[str, Any]:
    data = yaml.safe_load(DEMO.read_text())
    entry = data.pop("host")
    data["hosts"] = [entry | {"name": name} for name in HOSTS]
    data["space"] = {"parameters": {"threads": {"choice": [1, 2, 3, 4]}, "batch-size": {"choice": [256, 512, 1024]}}}
    data["launch"]["flags"] |= {"threads": 2, "batch-size": 512}
    data["budget"] = {"trials": 8, "confirm_restarts": 12, "candidates": 1, "soak_s": 0}
    return data | changes


def created(db: Database, *, state: S = S.RUNNING, **changes: Any) -> StudyRecord:
    record = studies.create(db, parse_study(document(**changes)), now=NOW)
    for step in (S.QUEUED, state):
        studies.move(db, record.id, set(S), step, "", NOW)
    return studies.get(db, record.id)


def parts(db: Database, study: StudyRecord) -> dict[str, tuple[str, bool]]:
    with db.read() as conn:
        return {p.host: (p.ending, p.taken) for p in shares.for_study(conn, study.id)}


class TwoHosts:
    """Both hosts of a study at work side by side, each in a thread of its own."""

    def __init__(self, db: Database, study: StudyRecord, speed: Any = faster_with_threads, **world: Any) -> None:
        self.db, self.study = db, study
        spec = studies.load_spec(study)
        self.runs = [
            open_synthetic(db, spec, study.id, host=host, optuna_url=db.optuna_url)  # type: ignore[arg-type]
            for host in spec.all_hosts
        ]
        self.worlds = {
            run.host.name: World(lambda c, s=SLOWER[run.host.name]: s * speed(c), seed=i, **world)
            for i, run in enumerate(self.runs)
        }
        self.errors: list[BaseException] = []

    def trial(self, run: StudyRun, proposal: Proposal) -> TrialRecord:
        return self.worlds[run.host.name].trial(run, proposal)

    def play(self) -> dict[str, Any]:
        threads = [threading.Thread(target=self._one, args=(run,)) for run in self.runs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        for run in self.runs:
            run.search.close()
        assert self.errors == []
        return studies.get(self.db, self.study.id).verdict or {}

    def _one(self, run: StudyRun) -> None:
        try:
            phases.run_study(run)
            share.end(self.db, self.study.id, run.host.name, Ending(S.FINISHED), run.clock.now())
        except BaseException as error:
            self.errors.append(error)


def test_two_hosts_share_one_search_and_each_confirms_against_its_own_baseline(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = TwoHosts(db, created(db))
    monkeypatch.setattr(phases, "run_trial", two.trial)
    monkeypatch.setattr(phases.home_server, "take_over", lambda run: None)
    verdict = two.play()
    with db.read() as conn:
        found = trials.list_trials(conn, two.study.id)
    explored = [t.canonical_key for t in found if t.kind == "explore"]
    assert len(explored) == len(set(explored)), "nothing is started on both"
    assert len(explored) <= 9, "the budget is the study's, but for one that was under way"
    assert {t.host for t in found if t.kind == "explore"} == set(HOSTS)
    for kind in ("baseline", "confirm"):
        assert {t.host for t in found if t.kind == kind} == set(HOSTS)
    for host in HOSTS:
        arms = Counter(t.arm for t in found if t.kind == "confirm" and t.host == host)
        assert abs(arms["baseline"] - arms[verdict["candidate_key"]]) <= 1, "interleaved on each host"
    assert (verdict["outcome"], verdict["params"]["threads"]) == ("win", 4)
    assert set(verdict["hosts"]) == set(HOSTS)
    assert verdict["ratio"] == min(found["ratio"] for found in verdict["hosts"].values())
    assert studies.get(db, two.study.id).state == S.FINISHED


def test_what_wins_on_one_host_only_has_not_won(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    two = TwoHosts(db, created(db))
    two.worlds["right"].speed = lambda config: 50.0
    monkeypatch.setattr(phases, "run_trial", two.trial)
    monkeypatch.setattr(phases.home_server, "take_over", lambda run: None)
    verdict = two.play()
    assert verdict["outcome"] != "win"
    assert verdict["hosts"]["right"]["outcome"] != "win"


def test_a_study_whose_host_is_lost_for_good_gets_its_verdict_from_the_others(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = created(db)
    two = TwoHosts(db, study)
    monkeypatch.setattr(phases, "run_trial", two.trial)
    monkeypatch.setattr(phases.home_server, "take_over", lambda run: None)
    left, right = two.runs
    with db.write() as conn:
        under_way = TrialRecord(study.id, -1, "explore", "measuring", "k", {}, NOW)
        number = trials.add(conn, under_way, host="right", fence=right.lease.fence)
        leases.release(conn, "right", "synthetic", right.lease.fence)
    share.end(db, study.id, "right", Ending(S.NEEDS_ATTENTION, "no route"), NOW)
    two._one(left)
    ended = studies.get(db, study.id)
    assert (ended.state, (ended.verdict or {})["outcome"]) == (S.NEEDS_ATTENTION, "undecided"), "right is not convinced"
    hosts.remove(db, "right", now=NOW)
    studies.resume(db, study.id, now=NOW)
    studies.move(db, study.id, {S.QUEUED}, S.RUNNING, "", NOW)
    started = len(two.worlds["left"].started)
    two._one(left)
    assert two.errors == []
    ended = studies.get(db, study.id)
    assert (ended.state, (ended.verdict or {})["outcome"]) == (S.FINISHED, "win")
    assert len(two.worlds["left"].started) == started, "what is confirmed is not confirmed again"
    with db.read() as conn:
        assert trials.get(conn, study.id, number).state == "interrupted"


def test_each_host_is_judged_by_its_own_home(db: Database) -> None:
    """Whoever looks: errors that a host's own home has too exclude nothing, and starts of two hosts are not one."""
    study = created(db, objective={"maximize": "output_tok_s"}, workload={"preset": "five-prompts"})
    two = TwoHosts(db, study)
    two.worlds["right"].metrics = lambda proposal, config: {"error_rate": 0.2}
    best = {"threads": 4, "batch-size": 512}
    for run in two.runs:
        for proposal in (Proposal("baseline", "baseline", as_home=True), Proposal("confirm", "best", best)) * 2:
            two.trial(run, proposal)
    chosen = [finalists.Finalist("best", best, 117.0, 0)]
    assert [confirm.excluded(run, chosen) for run in two.runs] == [{}, {}]
    noise = selftest.noise_report(db, study.id, studies.load_spec(study))
    assert noise is not None and noise["restarts"] == 4, "the four starts of one host"


def test_finalists_of_another_host_stand(db: Database) -> None:
    two = TwoHosts(db, created(db))
    first, second = (finalists.Finalist(key, {}, 1.0, 0) for key in ("first", "second"))
    left, right = two.runs
    assert finalists.remember(left, [first]) == [first]
    assert finalists.remember(right, [second]) == [first]
    assert finalists.agreed(right) == [first]


def test_a_study_ends_with_its_last_host_by_the_gravest_ending(db: Database) -> None:
    study = created(db)
    share.end(db, study.id, "left", Ending(S.FINISHED), NOW)
    assert studies.get(db, study.id).state == S.RUNNING
    assert share.due_hosts(db, study) == ["right"]
    share.end(db, study.id, "right", Ending(S.PAUSED, "the host cannot be reached"), NOW)
    ended = studies.get(db, study.id)
    assert (ended.state, ended.state_reason) == (S.PAUSED, "right: the host cannot be reached")
    again = studies.resume(db, study.id, now=NOW)
    assert share.due_hosts(db, again) == ["right"], "what is finished is not done again"


def test_while_a_study_stops_only_hosts_without_their_server_are_visited(db: Database) -> None:
    study = created(db)
    for host in HOSTS:
        with db.write() as conn:
            shares.update(conn, study.id, host, taken=True)
    studies.pause(db, study.id, now=NOW)
    study = studies.get(db, study.id)
    assert share.due_hosts(db, study) == HOSTS
    share.end(db, study.id, "left", Ending(S.PAUSED, "paused by the user"), NOW)
    assert share.due_hosts(db, study) == ["right"]
    assert studies.get(db, study.id).state == S.STOPPING
    share.end(db, study.id, "right", Ending(S.PAUSED, "paused by the user"), NOW)
    assert studies.get(db, study.id).state == S.PAUSED


def test_a_stop_reaches_a_host_whose_work_has_just_begun(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its worker has the lease and has touched nothing yet: were the study over, it would work on and never hear."""
    study = created(db)
    with db.write() as conn:
        now = SystemClock().now()
        fence = leases.claim(conn, "right", "at work", ttl_s=600, now=now, study_id=study.id)
        assert fence is not None
        shares.update(conn, study.id, "left", taken=True)
    studies.stop(db, study.id, now=NOW)
    share.end(db, study.id, "left", Ending(S.FINISHED, "stopped by the user"), now)
    assert studies.get(db, study.id).state == S.STOPPING
    with db.write() as conn:
        leases.release(conn, "right", "at work", fence)
    monkeypatch.setattr(worker, "open_run", lambda *_: pytest.fail("there is nothing to put back"))
    worker.advance(db, study.id, owner="t", settings=Settings(), host="right")
    assert studies.get(db, study.id).state == S.FINISHED


class FakeRun:
    """What `open_run` returns, with nothing behind it."""

    def __init__(self, db: Database, study: StudyRecord, keeper: LeaseKeeper) -> None:
        self.db, self.study, self.lease, self.clock = db, study, keeper, SystemClock()
        self.host = next(
            h for h in studies.load_spec(study).all_hosts if isinstance(h, HostEntry) and h.name == keeper.host
        )

    def close(self) -> None: ...


def test_home_comes_back_on_every_host(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    study = created(db, state=S.QUEUED)
    seen: list[tuple[str, str]] = []

    def open_run(db: Database, study: StudyRecord, spec: Any, keeper: LeaseKeeper, clock: Any) -> FakeRun:
        if keeper.host == "right":
            raise Unreachable("right", "no route to right", remedy="look")
        return FakeRun(db, study, keeper)

    monkeypatch.setattr(worker, "open_run", open_run)
    monkeypatch.setattr(worker.phases, "run_study", lambda run: seen.append(("ran", run.host.name)))
    monkeypatch.setattr(home_server, "finish", lambda run, finished: seen.append(("home", run.host.name)))
    worker.advance_everywhere(db, study, owner="t", settings=Settings())
    assert seen == [("ran", "left"), ("home", "left")]
    assert parts(db, study) == {"left": ("finished", False), "right": ("paused", False)}
    assert studies.get(db, study.id).state_reason.startswith("right: no route to right")
    monkeypatch.setattr(worker, "open_run", lambda db, study, spec, keeper, clock: FakeRun(db, study, keeper))
    studies.resume(db, study.id, now=NOW)
    worker.advance_everywhere(db, studies.get(db, study.id), owner="t", settings=Settings())
    assert seen[2:] == [("ran", "right"), ("home", "right")]
    assert studies.get(db, study.id).state == S.FINISHED


def test_a_host_is_in_use_by_every_study_that_works_on_it(db: Database) -> None:
    study = created(db)
    with db.read() as conn:
        assert [s.id for s in rows.list_studies(conn, host="right")] == [study.id]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"hosts": ["a", "a"]}, "named twice"),
        ({"host": "b", "hosts": ["a", "b"]}, "either host or hosts"),
        ({"hosts": []}, "missing"),
    ],
)
def test_hosts_that_make_no_sense_are_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadInput) as told:
        parse_study(document() | changes)
    assert any(complaint in p.message for p in told.value.problems)
    assert parse_study(parse_study(document()).model_dump(mode="json")).host_name == "left"
