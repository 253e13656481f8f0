"""Studies over several hosts and nights, in any order of asking, dying and switching: no home is lost, all ends.

The worker is the real one (`worker.advance` over `dispatch.workable`), its hosts are not: a world that remembers which
of them serve what they served before. The invariants are 9 to 11 of docs/design/states.md.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from optimizer import host_care, studies, windowing, worker
from optimizer import hosts as host_verbs
from optimizer.dispatch.workable import workable
from optimizer.errors import BadInput, Conflict, NeedsAttention, RatchetError, Stopped, Unreachable
from optimizer.lease import LeaseKeeper
from optimizer.search import study as search_study
from optimizer.settings import Settings
from optimizer.spec import HostEntry, parse_host, parse_study
from optimizer.studies import StudyState as S
from storage import hosts, shares
from storage import studies as rows
from storage import windows as window_rows
from storage.engine import Database
from storage.records import ShareRecord, StudyRecord, WindowRecord
from tests.integration.storage.test_storage_states import run_on
from tests.unit.core.test_studies import DEMO, change

NOON = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
SETTINGS = Settings()
SPEC = {key: value for key, value in yaml.safe_load(DEMO.read_text()).items() if key != "host"}
HOSTS = ("a", "b")
STUDIES = {"one": ["a"], "both": ["a", "b"]}
NIGHTS = {"early": "0 20 * * *", "late": "0 22 * * *"}
NIGHT_MIN = 480
IDLE = {S.CREATED, S.PAUSED, S.FAILED, S.FINISHED}
MISHAPS = ["start", "pause", "stop", "stop", "cut off", "cut off", "look", "attach", "detach", "window goes"]
UNDONE = (S.QUEUED, S.RUNNING, S.STOPPING, S.WAITING_WINDOW)
VERBS: dict[str, Callable[..., StudyRecord]] = {
    "start": studies.start,
    "resume": studies.resume,
    "pause": studies.pause,
    "stop": studies.stop,
}
study_names, host_names, window_names = (st.sampled_from(sorted(names)) for names in (STUDIES, HOSTS, NIGHTS))


class Killed(BaseException):
    """The worker's process died: nothing of it runs any more."""


class WorldClock:
    """Time as the world has it."""

    def __init__(self) -> None:
        self.at = NOON

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()

    def sleep(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


class FakeRun:
    """What `open_run` returns: a host of the world, taken for a study."""

    def __init__(self, db: Database, study: StudyRecord, keeper: LeaseKeeper) -> None:
        self.db, self.study, self.lease = db, study, keeper
        self.host = parse_host(entry(keeper.host))

    def close(self) -> None: ...


def entry(name: str) -> dict[str, Any]:
    return {"name": name, "connection": "local"}


class Courses(RuleBasedStateMachine):
    """Two studies, two hosts, two windows, one owner, and workers that die."""

    db: Database

    def __init__(self) -> None:
        super().__init__()
        self.patched = pytest.MonkeyPatch()
        self.patched.setattr(worker, "open_run", self.open_run)
        self.patched.setattr(worker.phases, "run_study", self.work)
        self.patched.setattr(worker.home_server, "finish", self.put_home_back)
        self.patched.setattr(search_study, "delete_study", lambda url, name: None)
        self.patched.setattr(host_care.connect, "open_link", lambda host, **_: self.link(host))
        self.patched.setattr(host_care, "known_home", lambda *_: None)
        self.patched.setattr(host_care, "_put_back", lambda link, host, *_: self.serves(host.name))

    @initialize()
    def begin(self) -> None:
        self.clock = WorldClock()
        self.serving, self.reachable = set(HOSTS), set(HOSTS)
        self.outcome, self.meanwhile = "through", ""
        for host in HOSTS:
            host_verbs.register(self.db, parse_host(entry(host)), replace=False, now=NOON)
        self.window: dict[str, str] = {}
        for name in NIGHTS:
            self.deletes_or_adds_a_window(name)
        for name in STUDIES:
            self.create(name)

    def create(self, name: str) -> None:
        spec = {**SPEC, "name": name, "hosts": [entry(host) for host in STUDIES[name]]}
        studies.create(self.db, parse_study(spec), now=self.clock.now())
        self.window[name] = ""

    # --- the owner ---

    @rule(name=study_names, verb=st.sampled_from(sorted(VERBS)))
    def asks(self, name: str, verb: str) -> None:
        with suppress(Conflict):
            VERBS[verb](self.db, name, now=self.clock.now())

    @rule(name=study_names, window=st.sampled_from(["", *NIGHTS]))
    def attaches(self, name: str, window: str) -> None:
        with suppress(RatchetError):
            change(self.db, name, window=window, now=self.clock.now())
            self.window[name] = window

    @rule(name=window_names)
    def deletes_or_adds_a_window(self, name: str) -> None:
        with self.db.write() as conn:
            if window_rows.find(conn, name) is not None:
                window_rows.delete(conn, name)
            else:
                window_rows.put(conn, WindowRecord(name, name, NIGHTS[name], "UTC", NOON, duration_min=NIGHT_MIN))

    @rule(name=host_names, what=st.sampled_from(["restore", "remove", "register", "cut", "cut", "mend"]))
    def happens_to_a_host(self, name: str, what: str) -> None:
        with suppress(RatchetError):
            if what == "restore":
                host_care.restore(self.db, name, clock=self.clock)
            elif what == "remove":
                host_verbs.remove(self.db, name, now=self.clock.now())
                self.serves(name)  # from here on its owner's business
            elif what == "register":
                host_verbs.register(self.db, parse_host(entry(name)), replace=False, now=self.clock.now())
        {"cut": self.reachable.discard, "mend": self.reachable.add}.get(what, lambda _: None)(name)

    @rule(minutes=st.sampled_from([2, 30, 300, 700]))
    def time_passes(self, minutes: int) -> None:
        self.clock.at += timedelta(minutes=minutes)

    # --- workers ---

    @rule(outcome=st.sampled_from(["through", "too_late", "stuck"]), meanwhile=st.sampled_from(["", "pause", "stop"]))
    def workers_look(self, outcome: str, meanwhile: str) -> None:
        self.outcome, self.meanwhile = outcome, meanwhile
        for job in workable(self.db, self.clock):
            with suppress(Killed):
                worker.advance(self.db, job.study_id, owner="w", settings=SETTINGS, host=job.host, clock=self.clock)

    @rule(name=study_names, then=st.lists(st.sampled_from(MISHAPS), min_size=1, max_size=5))
    def a_worker_dies(self, name: str, then: list[str]) -> None:
        """While it has home away, and things happen before the next one comes."""
        if studies.get(self.db, name).state == S.FINISHED:
            studies.delete(self.db, name)
            self.create(name)
        self.attaches(name, "")
        self.mend_all()
        self.asks(name, "start")
        self.workers_look("dies", "")
        for what in then:
            if what in VERBS:
                self.asks(name, what)
            elif what in {"cut off", "look"}:
                if what == "cut off":
                    self.happens_to_a_host(STUDIES[name][0], "cut")
                self.time_passes(2)
                self.workers_look("through", "")
            elif what == "detach":
                self.attaches(name, "")
            else:
                self.attaches(name, "late")
                if what == "window goes":
                    self.deletes_or_adds_a_window("late")

    def open_run(self, db: Database, study: StudyRecord, spec: Any, keeper: LeaseKeeper, clock: Any) -> FakeRun:
        with db.read() as conn:
            if hosts.find(conn, keeper.host) is None:
                raise BadInput(f"host {keeper.host} is not registered any more")
        self.link(parse_host(entry(keeper.host)))
        return FakeRun(db, study, keeper)

    def link(self, host: HostEntry) -> Any:
        if host.name not in self.reachable:
            raise Unreachable(host.name, "no route", remedy="look")
        return SimpleNamespace(close=lambda: None)

    def work(self, run: FakeRun) -> None:
        """Take home away, then what the draw says; an owner's word in between reaches the worker."""
        host = run.host.name
        with self.db.write() as conn:
            shares.update(conn, run.study.id, host, taken=True)
        self.serving.discard(host)
        if self.meanwhile:
            self.asks(run.study.id, self.meanwhile)
        run.lease._watch()
        run.lease.check()
        if self.outcome == "dies":
            run.lease.owner = "dead"  # its lease is given back by nobody
            raise Killed
        if self.outcome == "stuck":
            raise NeedsAttention(host, "it does not die", remedy="look")
        if self.outcome == "too_late" and run.lease.ends_at is not None:
            raise Stopped("the window leaves too little")

    def serves(self, name: str) -> str:
        self.serving.add(name)
        return ""

    def put_home_back(self, run: FakeRun, *, finished: bool) -> str:
        return self.serves(run.host.name)

    # --- what always holds ---

    @invariant()
    def no_home_is_lost(self) -> None:
        away = {part.host for study, part in self.parts() if part.taken}
        assert set(HOSTS) - self.serving <= away, "what does not serve is known to be away"
        left = [(s.name, s.state, p.host) for s, p in self.parts() if p.taken and s.state in IDLE]
        assert not left, "nobody would go there any more"

    @invariant()
    def who_has_no_window_may_always_work(self) -> None:
        for study, _ in self.parts():
            if not self.window[study.name]:
                assert windowing.look(self.db, study, self.clock.now()).open

    def teardown(self) -> None:
        try:
            if hasattr(self, "clock"):
                self.comes_to_rest()
        finally:
            self.patched.undo()

    def comes_to_rest(self) -> None:
        """With every host there and workers that live, all that was asked for is done in the next two nights."""
        self.mend_all()
        with self.db.read() as conn:
            late = window_rows.find(conn, "late")
        for name, window in zip(STUDIES, ("late" if late else "", ""), strict=True):
            self.attaches(name, window)
            self.asks(name, "start")
        self.drain()
        assert not self.states(S.STOPPING)
        free = [name for name, window in self.window.items() if not window]
        assert not {f"{name} is {state}" for name in free for state in UNDONE} & set(self.states(*UNDONE))
        for hour in (20, 22, 20, 22):
            tonight = self.clock.at.replace(hour=hour, minute=1)
            self.clock.at = tonight if tonight > self.clock.at else tonight + timedelta(days=1)
            for name in STUDIES:
                with suppress(Conflict):
                    change(self.db, name, priority=hour, now=self.clock.now())
            self.drain()
        assert not self.states(*UNDONE)
        self.no_home_is_lost()

    def mend_all(self) -> None:
        for host in HOSTS:
            self.happens_to_a_host(host, "mend")
            self.happens_to_a_host(host, "register")

    def drain(self) -> None:
        for _ in range(12):
            self.clock.sleep(61)  # leases of the dead run out
            if not workable(self.db, self.clock):
                return
            self.workers_look("through", "")
        raise AssertionError(f"there is always more to do: {workable(self.db, self.clock)}")

    def states(self, *wanted: S) -> list[str]:
        with self.db.read() as conn:
            return [f"{s.name} is {s.state}" for s in rows.list_studies(conn) if s.state in wanted]

    def parts(self) -> list[tuple[StudyRecord, ShareRecord]]:
        with self.db.read() as conn:
            return [(study, part) for study in rows.list_studies(conn) for part in shares.for_study(conn, study.id)]


@pytest.mark.parametrize(
    ("backend", "examples"), [("sqlite", 12), pytest.param("postgres", 2, marks=pytest.mark.needs("postgres"))]
)
def test_no_home_is_lost_and_all_comes_to_rest_in_any_order(
    backend: str, examples: int, request: pytest.FixtureRequest, sqlite_template: Path, tmp_path: Path
) -> None:
    run_on(Courses, backend, request, sqlite_template, tmp_path, examples=examples)
