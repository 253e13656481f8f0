"""Start, pause, stop, crash, loss of the lease and the end of a window, in any order: the invariants hold.

The invariants are those of docs/design/states.md. Users move a study by the functions of `optimizer.studies`; two
workers claim its host, run trials and crash, as `worker.advance` and `run_trial` would; time only goes forward.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from optimizer import studies as moves
from optimizer.errors import Conflict
from optimizer.studies import ALLOWED, StudyState
from storage import events, hosts, leases, measurements, studies, trials
from storage.columns import LIVE_TRIAL_STATES
from storage.engine import Database, open_database
from storage.errors import StaleFence
from storage.records import HostRecord
from tests.contract.storage import samples
from tests.contract.storage.samples import HOST, NOW

TTL_S = 60.0
WORKABLE = {StudyState.QUEUED, StudyState.RUNNING, StudyState.STOPPING, StudyState.WAITING_WINDOW}
ENDINGS = [StudyState.PAUSED, StudyState.FINISHED, StudyState.FAILED, StudyState.WAITING_WINDOW]
EXAMPLES = [("sqlite", 6), pytest.param("postgres", 3, marks=pytest.mark.needs("postgres"))]
"""Fewer than `test_storage_courses.py` plays: that one finds more, and both together take no longer than one did."""
names = st.sampled_from(["w1", "w2"])


class WorkerModel:
    """What one worker believes: its fence and the trial it runs."""

    def __init__(self) -> None:
        self.fence: int | None = None
        self.trial: int | None = None


class Studies(RuleBasedStateMachine):
    """One study, one host, two workers, a user."""

    db: Database

    @initialize()
    def begin(self) -> None:
        self.now = NOW
        self.workers = {"w1": WorkerModel(), "w2": WorkerModel()}
        self.newest_fence = 0
        self.holder: str | None = None
        self.until = NOW
        self.finished: dict[int, float] = {}
        self.state = StudyState.CREATED
        self.last_event = 0
        with self.db.write() as conn:
            hosts.put(conn, HostRecord(HOST, {}, NOW))
            studies.create(conn, samples.study(state="created"))

    # --- the user ---

    @rule(ask=st.sampled_from([moves.start, moves.resume, moves.pause, moves.stop]))
    def user_asks(self, ask: object) -> None:
        assert callable(ask)
        with suppress(Conflict):
            ask(self.db, "s1", now=self.now)

    # --- time ---

    @rule(seconds=st.sampled_from([1, 30, 61, 600]))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    # --- workers ---

    @rule(name=names)
    def worker_claims(self, name: str) -> None:
        me = self.workers[name]
        if me.fence is not None or StudyState(self.stored().state) not in WORKABLE:
            return
        free = self.holder is None or self.until <= self.now
        with self.db.write() as conn:
            fence = leases.claim(conn, HOST, name, ttl_s=TTL_S, now=self.now, study_id="s1")
        assert (fence is not None) == free, "a lease is given exactly when nobody holds one"
        if fence is None:
            return
        assert fence > self.newest_fence
        me.fence, me.trial = fence, None
        self.newest_fence, self.holder, self.until = fence, name, self.now + timedelta(seconds=TTL_S)
        moves.move(self.db, "s1", {StudyState.QUEUED, StudyState.WAITING_WINDOW}, StudyState.RUNNING, "", self.now)
        with self.db.write() as conn:
            for left in trials.live(conn, "s1"):
                trials.update(conn, "s1", left.number, host=HOST, fence=fence, state="interrupted")

    @rule(name=names)
    def worker_renews(self, name: str) -> None:
        me = self.workers[name]
        if me.fence is None:
            return
        with self.db.write() as conn:
            kept = leases.renew(conn, HOST, name, me.fence, ttl_s=TTL_S, now=self.now)
        assert kept == (me.fence == self.newest_fence)
        if kept:
            self.until = self.now + timedelta(seconds=TTL_S)

    @rule(name=names)
    def worker_starts_a_trial(self, name: str) -> None:
        me = self.workers[name]
        if me.fence is None or me.trial is not None:
            return
        try:
            with self.db.write() as conn:
                record = samples.trial(state="proposed", told=False, finished_at=None, output_tok_s=None)
                me.trial = trials.add(conn, record, host=HOST, fence=me.fence)
                events.append(conn, "s1", "trial", {"number": me.trial}, self.now)
        except StaleFence:
            self.lost(me)
        else:
            assert me.fence == self.newest_fence, "nobody but the newest owner writes"

    @rule(name=names, speed=st.floats(1, 200))
    def worker_finishes_the_trial(self, name: str, speed: float) -> None:
        me = self.workers[name]
        if me.fence is None or me.trial is None:
            return
        try:
            with self.db.write() as conn:
                trials.update(conn, "s1", me.trial, host=HOST, fence=me.fence, state="complete", output_tok_s=speed)
                record = samples.measurement(trial_number=me.trial)
                measurements.add(conn, record, [], host=HOST, fence=me.fence)
        except StaleFence:
            self.lost(me)
        else:
            assert me.fence == self.newest_fence, "nobody but the newest owner writes"
            self.finished[me.trial] = speed
            me.trial = None

    @rule(name=names, ending=st.sampled_from(ENDINGS))
    def worker_ends(self, name: str, ending: StudyState) -> None:
        """The study's work ends: asked to, done, failed, or the window closed; the lease is given back."""
        me = self.workers[name]
        if me.fence is None:
            return
        with self.db.write() as conn:
            held = leases.renew(conn, HOST, name, me.fence, ttl_s=TTL_S, now=self.now)
            if held and me.trial is not None:
                trials.update(conn, "s1", me.trial, host=HOST, fence=me.fence, state="interrupted")
        if held:
            moves.move(self.db, "s1", {StudyState.RUNNING, StudyState.STOPPING}, ending, "work ended", self.now)
            with self.db.write() as conn:
                assert leases.release(conn, HOST, name, me.fence)
            self.holder = None
        self.lost(me)

    @precondition(lambda self: any(w.fence is not None for w in self.workers.values()))
    @rule(name=names)
    def worker_crashes(self, name: str) -> None:
        """It forgets everything; its lease stays until it runs out."""
        self.lost(self.workers[name])

    def lost(self, me: WorkerModel) -> None:
        me.fence = me.trial = None

    def stored(self) -> object:
        with self.db.read() as conn:
            return studies.get(conn, "s1")

    # --- what always holds ---

    @invariant()
    def moves_are_those_of_the_table(self) -> None:
        with self.db.read() as conn:
            fresh = events.since(conn, self.last_event, study_id="s1", limit=10_000)
            now_state = StudyState(studies.get(conn, "s1").state)
        for event in fresh:
            assert event.id > self.last_event
            self.last_event = event.id
            if event.kind == "study":
                to = StudyState(event.data["state"])
                assert to in ALLOWED[self.state] or to == self.state, f"{self.state} -> {to}"
                self.state = to
        assert now_state == self.state, "every move has its event"

    @invariant()
    def what_was_recorded_stays(self) -> None:
        with self.db.read() as conn:
            found = {t.number: t for t in trials.list_trials(conn, "s1")}
            measured = [m.trial_number for m in measurements.for_study(conn, "s1")]
        assert sorted(found) == list(range(len(found))), "numbers have no gaps"
        assert sorted(measured) == sorted(self.finished), "measured once, never twice"
        for number, speed in self.finished.items():
            assert (found[number].state, found[number].output_tok_s) == ("complete", speed)

    @invariant()
    def at_most_one_trial_is_live(self) -> None:
        with self.db.read() as conn:
            live = [t.number for t in trials.live(conn, "s1")]
            assert len(live) <= 1
            assert live == [t.number for t in trials.list_trials(conn, "s1", states=LIVE_TRIAL_STATES)]

    @invariant()
    def fences_only_grow(self) -> None:
        with self.db.read() as conn:
            lease = leases.get(conn, HOST)
        assert (lease is None) == (self.holder is None)
        if lease is not None:
            assert (lease.owner, lease.fence) == (self.holder, self.newest_fence)


def run_on(
    machine: type[Any], backend: str, request: pytest.FixtureRequest, template: Path, folder: Path, *, examples: int
) -> None:
    """Run a state machine whose `db` is a fresh database for each example, the same examples every time."""
    fresh = iter(range(1_000_000))
    if backend == "postgres":
        shared: Database = request.getfixturevalue("postgres_db")

    class OnFresh(machine):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            if backend == "postgres":
                self.db = shared
                with shared.write() as conn:
                    for name in ("studies", "hosts", "leases", "windows"):
                        conn.execute(sa.text(f"DELETE FROM {name}"))
                return
            path = folder / f"{next(fresh)}.db"
            shutil.copy(template, path)
            self.db = open_database(f"sqlite:///{path}")

        def teardown(self) -> None:
            super().teardown()
            if backend == "sqlite":
                self.db.close()

    run_state_machine_as_test(
        OnFresh,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            phases=(Phase.generate,),  # making a failure shorter takes minutes, and 25 steps can be read
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize(("backend", "examples"), EXAMPLES)
def test_the_invariants_hold_in_any_order(
    backend: str, examples: int, request: pytest.FixtureRequest, sqlite_template: Path, tmp_path: Path
) -> None:
    run_on(Studies, backend, request, sqlite_template, tmp_path, examples=examples)
