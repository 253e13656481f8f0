"""Ratchet killed with SIGKILL while it stops, launches, waits, measures or restores, over a real sshd, not restarted.

The guard has home serving within its grace and ten seconds; a Ratchet that is started again agrees with what it finds.

The server is a double of SGLang (`tests/replica`); everything else is the real program.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from optimizer.remote import guard, process
from optimizer.remote.local import LocalLink
from storage import events, studies
from storage.engine import open_database
from storage.errors import StorageError
from storage.migrate import upgrade
from tests.integration.remote.conftest import pids_of
from tests.integration.remote.sshservers import Sshd, free_port, start_sshd, wait_for_port

pytestmark = [pytest.mark.needs("sshd"), pytest.mark.slow]

REPLICA = [sys.executable, str(Path(__file__).parents[1] / "replica" / "__main__.py"), "--model-path", "m"]
GRACE_S = 6.0
PROMISE_S = 10.0
OVERLOADED_S = 120.0
"""Five Ratchets and ten servers on an overloaded machine: there the order of events is still checked, not the time."""
MOMENTS: dict[str, tuple[str, dict[str, str]]] = {
    "stop": ("home", {"state": "stopping"}),
    "launch": ("phase", {"phase": "launch"}),
    "readiness": ("phase", {"phase": "load"}),
    "benchmark": ("phase", {"phase": "measure"}),
    "restore": ("home", {"state": "starting"}),
}
"""The event after which Ratchet is killed."""


class Case:
    """One host directory with its own home, study and Ratchet."""

    def __init__(self, moment: str, folder: Path, sshd: Sshd) -> None:
        self.moment, self.folder, self.port = moment, folder, free_port()
        folder.mkdir()
        self.run_dir, self.url = str(folder / "run"), f"sqlite:///{folder}/r.db"
        self.home = subprocess.Popen(
            [*REPLICA, "--port", str(self.port), "--served-model-name", f"home of {moment}", "--replica-load-s", "0.5"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self.spec = folder / "spec.yaml"
        self.spec.write_text(yaml.safe_dump(self._spec(sshd)))
        self.link = LocalLink(moment)
        self.db = open_database(self.url)
        upgrade(self.db)

    def _spec(self, sshd: Sshd) -> dict[str, Any]:
        host = sshd.entry(self.moment).model_dump(mode="json", exclude_none=True)
        host |= {"run_dir": self.run_dir, "takeover": True, "guard": {"grace_s": GRACE_S}}
        return {
            "name": self.moment, "host": host, "engine": "sglang",
            "launch": {
                "command": REPLICA[:2], "flags": {"model-path": "m", "port": self.port},
                "extra_args": ["--replica-escape", "--replica-load-s", "2", "--replica-speed", "5"],
            },
            "space": {"parameters": {"schedule-policy": {"choice": ["fcfs", "lpm"]}}},
            "workload": {"preset": "five-prompts", "max_tokens": 128},
        }  # fmt: skip

    def start(self) -> subprocess.Popen[bytes]:
        """Start Ratchet on the study."""
        env = {"RATCHET_LEASE_TTL_S": "5", "RATCHET_LEASE_RENEW_S": "1", "RATCHET_DATA_DIR": str(self.folder)}
        with (self.folder / "ratchet.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "api.cli.main", "run", str(self.spec), "--db", self.url, "--json"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **env}, start_new_session=True,
            )  # fmt: skip

    def wait_for(self, kind: str, data: dict[str, str], ratchet: subprocess.Popen[bytes], after: int = 0) -> None:
        """Wait for an event of the study that is newer than `after`."""
        end = time.monotonic() + 120
        while True:
            assert ratchet.poll() is None and time.monotonic() < end, (self.folder / "ratchet.log").read_text()[-2000:]
            if any(e.kind == kind and data.items() <= e.data.items() for e in self.events(after)):
                return
            time.sleep(0.02)

    def events(self, after: int = 0) -> list[Any]:
        try:
            with self.db.read() as conn:
                return list(events.since(conn, after, limit=10_000))
        except StorageError:
            return []

    def kill_at_its_moment(self) -> float:
        """Run Ratchet up to the moment and kill it; returns when."""
        ratchet = self.start()
        try:
            if self.moment == "restore":
                self.wait_for("phase", {"phase": "launch"}, ratchet)
                ratchet.send_signal(signal.SIGINT)
            self.wait_for(*MOMENTS[self.moment], ratchet)
        finally:
            ratchet.kill()
            ratchet.wait()
        return time.monotonic()

    def answers(self) -> str:
        """Return the model that generates on the port, empty when none does."""
        body = json.dumps({"text": "x", "sampling_params": {"max_new_tokens": 2}}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/generate", body)
        try:
            with urllib.request.urlopen(request, timeout=10):
                pass
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/models", timeout=10) as answer:
                return str(json.load(answer)["data"][0]["id"])
        except OSError:
            return ""

    def guard_events(self) -> list[dict[str, Any]]:
        return guard.history(self.link, run_dir=self.run_dir)

    def end(self) -> None:
        self.db.close()
        for pid in pids_of(Path(self.run_dir)):
            os.kill(pid, signal.SIGKILL)
        if self.home.poll() is None:
            os.killpg(self.home.pid, signal.SIGKILL)
        self.home.wait()


@pytest.fixture
def cases(tmp_path: Path) -> Iterator[list[Case]]:
    sshd = start_sshd(tmp_path / "sshd", extra="MaxStartups 100")
    made = [Case(moment, tmp_path / moment, sshd) for moment in MOMENTS]
    try:
        for case in made:
            wait_for_port(case.port, timeout_s=60)
        yield made
    finally:
        for case in made:
            case.end()
        sshd.stop()


def test_killed_at_any_moment_home_serves_again_by_itself_and_a_new_ratchet_agrees(cases: list[Case]) -> None:
    with ThreadPoolExecutor(len(cases)) as pool:
        overloaded = os.getloadavg()[0] > 2 * (os.cpu_count() or 1)
        killed_at = list(pool.map(Case.kill_at_its_moment, cases))
        list(pool.map(home_is_back, cases, killed_at, [OVERLOADED_S if overloaded else PROMISE_S] * len(cases)))
        list(pool.map(a_new_ratchet_agrees, cases))


def home_is_back(case: Case, killed_at: float, promise_s: float) -> None:
    """Wait until the guard is done, and check what it did and how long that took."""
    end = killed_at + GRACE_S + OVERLOADED_S
    while "done" not in [e["event"] for e in case.guard_events()]:
        assert time.monotonic() < end, (case.moment, case.guard_events())
        time.sleep(0.2)
    at = {e["event"]: e["uptime_s"] for e in case.guard_events()}
    assert at["home_serving"] - at["fired"] <= promise_s, (case.moment, case.guard_events())
    assert case.answers() == f"home of {case.moment}"
    assert [r.kind for r in process.find_runs(case.link, run_dir=case.run_dir)] in (["home"], [])


def a_new_ratchet_agrees(case: Case) -> None:
    """Start Ratchet again: it tells what the guard did, takes home over again, goes on, and puts it back when asked."""
    with case.db.read() as conn:
        before = events.last_id(conn)
        known = studies.list_studies(conn)[0].home
    ratchet = case.start()
    try:
        case.wait_for("phase", {"phase": "load"}, ratchet, after=before)
        ratchet.send_signal(signal.SIGINT)
        ratchet.wait(120)
    finally:
        ratchet.kill()
        ratchet.wait()
    told = [e.data for e in case.events(before) if e.kind == "guard"]
    assert "fired" in [t.get("event") for t in told], told
    with case.db.read() as conn:
        study = studies.list_studies(conn)[0]
    assert study.state == "paused" and study.home == known
    assert case.answers() == f"home of {case.moment}"
    assert [r.kind for r in process.find_runs(case.link, run_dir=case.run_dir)] == ["home"]
    assert guard.state(case.link, run_dir=case.run_dir) == guard.GuardState(False, False, "")
