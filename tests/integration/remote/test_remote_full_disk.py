"""A disk of the host that is full, for real: a small tmpfs holds the run directory. Home comes back all the same."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from optimizer.clock import Deadline
from optimizer.engines.base import LaunchPlan
from optimizer.errors import FenceRefused, NeedsAttention
from optimizer.remote import gpu, guard, home, process
from optimizer.remote.base import HomeServer, RunningServer
from optimizer.remote.local import LocalLink
from tests.integration.remote.conftest import Box, pids_of
from tests.integration.remote.test_remote_guard import arm, events, silent_for, wait_until
from tests.integration.remote.test_remote_process import alive

pytestmark = pytest.mark.needs("root", "busybox")


@contextlib.contextmanager
def small_disk(at: Path) -> Iterator[Path]:
    """Mount a disk of 3 MiB."""
    at.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", str(at)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.decode()}")
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


@pytest.fixture
def small(local_link: LocalLink, tmp_path: Path) -> Iterator[Box]:
    """Return a box whose run directory is on a small disk."""
    with small_disk(tmp_path / "disk") as disk:
        box = Box(local_link, str(disk / "ratchet"))
        yield box
        for pid in pids_of(Path(box.run_dir)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)


def fill(folder: Path) -> Path:
    """Use every byte that is left."""
    ballast = folder / "somebody's file"
    with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass
    return ballast


def given(box: Box) -> HomeServer:
    argv = ("busybox", "httpd", "-f", "-h", "/", "-p", f"127.0.0.1:{box.port}")
    return HomeServer(argv=argv, env={"BIG": "x" * 9000}, port=box.port)


def trial_of(box: Box) -> RunningServer:
    """Start a trial that does nothing, as far as the disk is concerned."""
    plan = LaunchPlan(("sleep", "600"), {}, None, box.port, "", "", {})
    return process.launch(
        box.link, plan, run_id=process.new_run_id(), run_dir=box.run_dir, fence=box.fence, deadline=Deadline.after(60)
    )


def disk_of(box: Box) -> Path:
    return Path(box.run_dir).parent


def test_the_guard_brings_home_back_although_the_disk_is_full(small: Box) -> None:
    arm(small, given(small), 600)
    trial = trial_of(small)
    fill(disk_of(small))
    silent_for(small, 601)
    wait_until(lambda: "done" in events(small), 60)
    assert not alive(trial.pid)
    assert [r.kind for r in process.find_runs(small.link, run_dir=small.run_dir)] == ["home"]
    assert events(small) == ["armed", "fired", "stopped", "home_started", "home_serving", "done"]


def test_home_is_put_back_by_us_although_the_disk_is_full(small: Box) -> None:
    arm(small, given(small), 600)
    trial = trial_of(small)
    fill(disk_of(small))
    done = home.restore(small.link, given(small), run_dir=small.run_dir, fence=small.fence, deadline=Deadline.after(60))
    assert done.stopped == (trial.run_id,) and not done.already_serving
    assert [r.kind for r in process.find_runs(small.link, run_dir=small.run_dir)] == ["home"]
    guard.disarm(small.link, run_dir=small.run_dir, fence=small.fence)


def test_a_sign_of_life_counts_although_the_disk_is_full(small: Box) -> None:
    """Else the guard stops a trial of a living study, which is told that all is well."""
    arm(small, given(small), 600)
    lease = Path(small.run_dir) / "guard" / "lease"
    silent_for(small, 100)
    old = int(lease.read_text().split()[0])
    fill(disk_of(small))
    guard.renew(small.link, run_dir=small.run_dir, fence=small.fence, deadline_at=None, grace_s=600)
    assert int(lease.read_text().split()[0]) >= old + 9_000
    assert sorted(p.name for p in lease.parent.iterdir() if p.name.startswith("lease")) == ["lease"]


def test_a_newer_owner_is_remembered_although_the_disk_is_full(small: Box) -> None:
    arm(small, given(small), 600)
    fill(disk_of(small))
    guard.disarm(small.link, run_dir=small.run_dir, fence=small.fence + 1)
    with pytest.raises(FenceRefused):
        guard.disarm(small.link, run_dir=small.run_dir, fence=small.fence)


def test_a_guard_that_cannot_be_written_is_refused_and_the_old_one_stands(small: Box) -> None:
    """An armed guard without the whole of home's launcher would leave the host without a server."""
    with pytest.raises(NeedsAttention, match="cannot write"):
        Path(small.run_dir).mkdir()
        full = fill(disk_of(small))
        arm(small, given(small), 600)
    full.unlink()
    arm(small, given(small), 600)
    folder = Path(small.run_dir) / "guard"
    kept = {name: (folder / name).read_bytes() for name in ("home.sh", "conf", "token", "pid")}
    full = fill(disk_of(small))
    other = HomeServer(argv=("other",), env={"BIG": "y" * 20_000}, port=small.port)
    with pytest.raises(NeedsAttention, match="cannot write"):
        arm(small, other, 60)
    assert {name: (folder / name).read_bytes() for name in kept} == kept
    assert guard.state(small.link, run_dir=small.run_dir).alive
    full.unlink()
    guard.disarm(small.link, run_dir=small.run_dir, fence=small.fence)


def test_a_killed_guard_is_started_again_once_although_the_disk_is_full(small: Box) -> None:
    arm(small, given(small), 600)
    os.kill(int((Path(small.run_dir) / "guard" / "pid").read_text().split()[0]), 9)
    fill(disk_of(small))
    for was_there in (False, True):
        wait_until(lambda expected=was_there: guard.state(small.link, run_dir=small.run_dir).alive is expected, 60)
        renewed = guard.renew(small.link, run_dir=small.run_dir, fence=small.fence, deadline_at=None, grace_s=600)
        assert renewed is was_there
    guard.disarm(small.link, run_dir=small.run_dir, fence=small.fence)


def test_a_trial_on_a_full_disk_is_refused_with_what_to_do(small: Box) -> None:
    Path(small.run_dir, "runs").mkdir(parents=True)
    fill(disk_of(small))
    with pytest.raises(NeedsAttention, match="cannot write"):
        small.launch()
    with pytest.raises(NeedsAttention, match="MiB free"):
        process.preflight(small.link, small.plan(), run_dir=small.run_dir)


def test_gpu_memory_is_proved_although_the_disk_for_temporary_files_is_full(
    small: Box, gpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nvidia-smi says must not get lost on the way: no GPU seen is no memory given back."""
    monkeypatch.setenv("TMPDIR", str(disk_of(small)))
    fill(disk_of(small))
    assert [g.index for g in gpu.snapshot(small.link)] == [0, 1]
