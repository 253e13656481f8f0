"""Real studies whose database or worker fails them: a locked file, a restart, a full disk, a paused process.

The server is the test double of SGLang, everything else is the real thing (see benchmarks/chaos/stage.py).
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from benchmarks.chaos.stage import ROOT, Stage, set_stage, verdict_on, wrong_on_host
from optimizer import studies
from optimizer.clock import Deadline, SystemClock
from optimizer.dispatch.inline import InlineWorker
from optimizer.engines.base import LaunchPlan
from optimizer.errors import FenceRefused, PortTaken
from optimizer.remote import connect, guard, home, process
from optimizer.remote.base import HomeServer
from optimizer.settings import Settings
from optimizer.spec import HostEntry
from storage import hosts, trials
from storage.errors import StorageError
from storage.records import TrialRecord
from tests.integration.remote.sshservers import start_sshd
from tests.integration.storage.test_storage_chaos import url
from tests.integration.storage.test_storage_faults import restart, writer

__all__ = ["url"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
SETTINGS = Settings(worker_poll_s=0.2)
PATIENCE_S = 240
MIB = 1 << 20


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def found(stage: Stage) -> list[TrialRecord]:
    with stage.db.read() as conn:
        return trials.list_trials(conn, stage.study_id)


def has_state(stage: Stage, *states: str) -> bool:
    with suppress(StorageError):
        return studies.get(stage.db, stage.study_id).state in states
    return False


def is_measuring(stage: Stage, *, after: int = 0) -> bool:
    return any(t.state == "measuring" and t.number >= after for t in found(stage))


@contextmanager
def standing(url: str | None, reach: dict[str, Any] | None = None) -> Iterator[Stage]:
    stage = set_stage(url, reach)
    try:
        yield stage
    finally:
        stage.close()


@contextmanager
def working(stage: Stage) -> Iterator[None]:
    worker = InlineWorker(stage.db, settings=SETTINGS)
    worker.start()
    try:
        yield
    finally:
        assert worker.stop(PATIENCE_S)


def test_a_file_locked_for_20_s_by_another_process_only_costs_time() -> None:
    with standing(None) as stage:
        with working(stage):
            wait_until(lambda: is_measuring(stage))
            with writer("hold", stage.db, "20") as (holder, _):
                holder.wait(60)
            wait_until(lambda: has_state(stage, "finished", "failed", "paused"))
        assert verdict_on(stage) == []


@pytest.mark.needs("postgres")
@pytest.mark.filterwarnings("ignore:.*was deleted while still open:ResourceWarning")
@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_postgres_is_restarted_in_the_middle_of_a_study(url: str) -> None:
    if os.environ.get("RATCHET_TEST_POSTGRES_URL"):
        pytest.skip("only a server of the tests' own can be restarted")
    with standing(url) as stage:
        with working(stage):
            for after, how in enumerate(["fast", "immediate"]):
                wait_until(lambda after=after: is_measuring(stage, after=after))  # type: ignore[misc]
                restart(stage.db, how)
            wait_until(lambda: has_state(stage, "finished", "failed", "paused"))
            while has_state(stage, "paused"):  # it broke in the middle of a transaction
                assert "database failed" in studies.get(stage.db, stage.study_id).state_reason
                studies.resume(stage.db, stage.study_id, now=SystemClock().now())
                wait_until(lambda: has_state(stage, "finished", "failed", "paused"))
        assert verdict_on(stage) == []
    gc.collect()  # SQLAlchemy leaves connections open that broke while they were set up


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(path: Path) -> None:
    """Take every byte that is left."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\0" * 4096)


@pytest.mark.needs("root")
def test_a_full_disk_pauses_the_study_with_home_back(disk: Path) -> None:
    ballast = disk / "ballast"
    with standing(f"sqlite:///{disk / 'ratchet.db'}") as stage:
        with working(stage):
            wait_until(lambda: is_measuring(stage))
            fill(ballast)
            wait_until(lambda: serves_home(stage))
            ballast.unlink()
            wait_until(lambda: has_state(stage, "paused", "finished", "failed", "needs_attention"))
            paused = studies.get(stage.db, stage.study_id)
            assert (paused.state, "no room" in paused.state_reason) == ("paused", True)
            studies.resume(stage.db, stage.study_id, now=SystemClock().now())
            wait_until(lambda: has_state(stage, "finished", "failed", "needs_attention"))
        assert verdict_on(stage) == []


def serves_home(stage: Stage) -> bool:
    with suppress(urllib.error.URLError):
        return not wrong_on_host(stage)
    return False


@pytest.fixture
def reach(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A host behind a real sshd."""
    folder = tmp_path / "sshd"
    folder.mkdir()
    server = start_sshd(folder)
    yield {"connection": "ssh", "ssh": server.entry().ssh.model_dump(mode="json")}  # type: ignore[union-attr]
    server.stop()


@contextmanager
def machine(stage: Stage, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """A `ratchet worker` with a short lease; what it says goes to a file of its name."""
    environment = {
        **os.environ,
        "RATCHET_LEASE_TTL_S": "4",
        "RATCHET_LEASE_RENEW_S": "0.5",
        "RATCHET_WORKER_POLL_S": "0.2",
    }
    command = [sys.executable, "-m", "api.cli.main", "worker", "--db", stage.db.url, "--name", name]
    with (stage.folder / name).open("wb") as said:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=said, stdout=said, cwd=ROOT, env=environment
        )
    try:
        yield process
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


@pytest.mark.needs("sshd")
def test_a_worker_paused_past_its_lease_changes_nothing_any_more(url: str | None, reach: dict[str, Any]) -> None:
    with standing(url, reach) as stage, machine(stage, "first") as first:
        wait_until(lambda: is_measuring(stage))
        old = found(stage)[-1].fence
        first.send_signal(signal.SIGSTOP)
        with machine(stage, "second"):
            wait_until(lambda: any(t.fence > old and t.run_id for t in found(stage)))
            refuses_every_late_action(stage, old)
            first.send_signal(signal.SIGCONT)
            wait_until(lambda: "worker.lease_lost" in (stage.folder / "first").read_text())
            wait_until(lambda: has_state(stage, "finished", "failed", "paused", "needs_attention"))
        assert verdict_on(stage) == []


def refuses_every_late_action(stage: Stage, fence: int) -> None:
    """Try on the host, with an old fence, everything that changes it."""
    study = studies.get(stage.db, stage.study_id)
    entry = HostEntry.model_validate(study.spec["host"])
    with stage.db.read() as conn:
        row = hosts.get(conn, study.host).home
    assert row is not None
    original = HomeServer(**{**row, "argv": tuple(row["argv"])})
    plan = LaunchPlan(original.argv, {}, original.cwd, original.port, "127.0.0.1", "m", {})
    link = connect.open_link(entry)
    deadline = Deadline.after(PATIENCE_S)
    where: dict[str, Any] = {"run_dir": entry.run_dir, "fence": fence, "deadline": deadline}
    try:
        live = process.find_runs(link, run_dir=entry.run_dir, deadline=deadline)
        late: list[Callable[[], object]] = [
            lambda: process.launch(link, plan, run_id=process.new_run_id(), **where),
            lambda: home.start(link, original, **where),
            lambda: home.restore(link, original, **where),
            lambda: guard.arm(link, original, deadline_at=None, grace_s=60, **where),
            lambda: guard.renew(link, deadline_at=None, grace_s=60, **where),
            lambda: guard.disarm(link, **where),
            *(lambda run=run: process.stop(link, run, **where) for run in live),  # type: ignore[misc]
        ]
        for action in late:
            with pytest.raises((FenceRefused, PortTaken)):
                action()
    finally:
        link.close()
