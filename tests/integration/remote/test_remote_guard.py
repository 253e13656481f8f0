"""The original server: found, stopped, put back by us, and by the guard when we are gone."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from optimizer.clock import Deadline
from optimizer.errors import FenceRefused, NeedsAttention, NotFound, PortTaken
from optimizer.remote import guard, home, process
from optimizer.remote.base import HomeServer
from optimizer.spec import HomeEntry
from tests.integration.remote.conftest import REPLICA, Box
from tests.integration.remote.sshservers import free_port, wait_for_port

SOON = timedelta(hours=1)


def replica(port: int, *extra: str) -> list[str]:
    return [sys.executable, str(REPLICA / "__main__.py"), "--model-path", "/models/m", "--port", str(port),
            "--replica-load-s", "0.2", *extra]  # fmt: skip


@dataclass
class Original:
    """A server that somebody else started before us."""

    process: subprocess.Popen[bytes]
    argv: list[str]
    cwd: Path
    port: int


@pytest.fixture
def original(tmp_path: Path) -> Iterator[Original]:
    cwd = tmp_path / "the owner's dir"
    cwd.mkdir()
    port = free_port()
    argv = replica(port, "--served-model-name", "the owner's $MODEL")
    env = {"PATH": os.environ["PATH"], "OWNER_SETTING": "two  words\nand a line $(id)"}
    started = subprocess.Popen(
        argv, cwd=cwd, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    wait_for_port(port)
    yield Original(started, argv, cwd, port)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGKILL)
    started.wait()


def healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def model_of(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5) as answer:
        return str(json.load(answer)["data"][0]["id"])


def serves(port: int, model: str) -> bool:
    """Say whether this model answers; the server of another may be stopped in the midst of its answer."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        return model_of(port) == model
    return False


def wait_until(check: object, seconds: float) -> float:
    began = time.monotonic()
    while not check():  # type: ignore[operator]
        assert time.monotonic() - began < seconds, "did not happen in time"
        time.sleep(0.05)
    return time.monotonic() - began


def events(box: Box) -> list[str]:
    return [e["event"] for e in guard.history(box.link, run_dir=box.run_dir)]


def test_home_is_found_stopped_and_put_back_exactly(box: Box, original: Original) -> None:
    found = home.find(box.link, original.port, Deadline.after(60), run_dir=box.run_dir)
    assert list(found.argv) == original.argv
    assert found.cwd == str(original.cwd) and found.found == "proc"
    assert found.env["OWNER_SETTING"] == "two  words\nand a line $(id)"
    home.stop(box.link, found, run_dir=box.run_dir, fence=1, deadline=Deadline.after(60))
    assert original.process.wait(5) is not None
    assert not healthy(original.port)
    done = home.restore(box.link, found, run_dir=box.run_dir, fence=1, deadline=Deadline.after(60))
    assert done.server is not None and done.server.kind == "home" and not done.already_serving
    assert model_of(original.port) == "the owner's $MODEL"
    again = home.find(box.link, original.port, Deadline.after(60), run_dir=box.run_dir)
    assert (again.argv, again.cwd) == (found.argv, found.cwd)
    assert again.env == {k: v for k, v in found.env.items() if k != "PWD"}
    environ = Path(f"/proc/{again.pid}/environ").read_bytes().split(b"\0")
    assert b"OWNER_SETTING=two  words\nand a line $(id)" in environ
    assert not [v for v in environ if v.startswith((b"SSH_", b"REPLICA_"))]  # nothing of our login leaks in
    second = home.restore(box.link, found, run_dir=box.run_dir, fence=1, deadline=Deadline.after(60))
    assert second.already_serving and second.server is None
    home.stop(box.link, found, run_dir=box.run_dir, fence=1, deadline=Deadline.after(60))
    assert not healthy(original.port)


def test_a_server_that_is_not_home_is_not_stopped(local_box: Box, original: Original) -> None:
    other = HomeServer(argv=("something", "else"), port=original.port)
    with pytest.raises(PortTaken, match="not the original server"):
        home.stop(local_box.link, other, run_dir=local_box.run_dir, fence=1, deadline=Deadline.after(60))
    assert healthy(original.port)


def test_no_home_and_a_trial_in_its_place_are_told(local_box: Box) -> None:
    with pytest.raises(NotFound, match="nothing listens"):
        home.find(local_box.link, local_box.port, Deadline.after(60), run_dir=local_box.run_dir)
    server = local_box.launch()
    local_box.wait(server)
    with pytest.raises(PortTaken, match=server.run_id):
        home.find(local_box.link, local_box.port, Deadline.after(60), run_dir=local_box.run_dir)
    local_box.stop(server)


def test_a_home_that_does_not_come_back_needs_attention(local_box: Box) -> None:
    broken = HomeServer(
        argv=(*replica(local_box.port), "--replica-fail", "capture"), port=local_box.port, found="given"
    )
    with pytest.raises(NeedsAttention, match=r"status 137.*Capture cuda graph failed"):
        home.restore(local_box.link, broken, run_dir=local_box.run_dir, fence=1, deadline=Deadline.after(60))


def test_restore_stops_leftover_trials_first(local_box: Box) -> None:
    trial = local_box.launch()
    local_box.wait(trial)
    given = HomeServer(argv=tuple(replica(local_box.port)), port=local_box.port)
    done = home.restore(local_box.link, given, run_dir=local_box.run_dir, fence=None, deadline=Deadline.after(60))
    assert done.stopped == (trial.run_id,)
    assert healthy(local_box.port)
    home.stop(local_box.link, given, run_dir=local_box.run_dir, fence=None, deadline=Deadline.after(60))


def test_a_home_that_is_a_unit_is_stopped_and_started_by_systemctl(
    local_box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pretended systemctl of one server (names may have colons); the real one needs a machine booted with systemd."""
    box, pid_file, log = local_box, tmp_path / "unit.pid", tmp_path / "calls"
    fake = tmp_path / "bin"
    fake.mkdir()
    command = " ".join(f"'{word}'" for word in replica(box.port, "--served-model-name", "unit"))
    (fake / "systemctl").write_text(
        f"#!/bin/sh\necho \"$*\" >>'{log}'\ncase $1 in\n"
        f"start) setsid {command} >/dev/null 2>&1 & echo $! >'{pid_file}' ;;\n"
        f"stop) kill \"$(cat '{pid_file}')\" ;;\nis-failed) exit 1 ;;\nesac\n"
    )
    (fake / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake}:{os.environ['PATH']}")
    unit = HomeServer(systemd_unit="llm:0.service", port=box.port, found="systemd")
    done = home.restore(box.link, unit, run_dir=box.run_dir, fence=1, deadline=Deadline.after(60))
    assert done.server is not None and done.server.unit == "llm:0.service"
    assert model_of(box.port) == "unit"
    home.stop(box.link, unit, run_dir=box.run_dir, fence=1, deadline=Deadline.after(60))
    assert not healthy(box.port)
    arm(box, unit, 1)
    wait_until(lambda: healthy(box.port), 60)
    home.stop(box.link, unit, run_dir=box.run_dir, fence=None, deadline=Deadline.after(60))
    assert log.read_text().count("start llm:0.service") == 2


LISTEN = "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); time.sleep(600)"
DOCKER = """#!/bin/sh
[ "$1" = inspect ] || echo "$*" >>'{log}'
case $1 in
start) setsid busybox httpd -f -h / -p 127.0.0.1:{port} >/dev/null 2>&1 & echo $! >'{pid}' ;;
stop) kill "$(cat '{pid}')" ;;
esac
"""


@pytest.mark.needs("busybox")
def test_a_home_in_a_container_is_stopped_and_started_by_its_name(
    local_box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What serves there is no child of `docker start`, and what holds the port may be neither."""
    box, log = local_box, tmp_path / "calls"
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "docker"
    fake.write_text(DOCKER.format(log=log, port=box.port, pid=tmp_path / "pid"))
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    entry = HomeEntry(command=["docker", "start", "-a", "llm"], url=f"http://127.0.0.1:{box.port}")
    container, limit = home.from_entry(entry, default_port=0), Deadline.after(60)
    done = home.restore(box.link, container, run_dir=box.run_dir, fence=1, deadline=limit)
    assert done.server is not None and done.server.command_line == "docker start llm"
    home.stop(box.link, container, run_dir=box.run_dir, fence=1, deadline=limit)
    assert process.listeners(box.link, box.port) == []
    arm(box, container, 1)
    wait_until(lambda: "home_serving" in events(box), 30)
    home.stop(box.link, container, run_dir=box.run_dir, fence=None, deadline=limit)
    assert log.read_text().splitlines() == ["start llm", "stop llm", "start llm", "stop llm"]


def test_the_way_into_a_container_is_not_taken_for_the_server(local_box: Box) -> None:
    """It is in the cgroup of the daemon: stopping that unit would stop every container of the host."""
    argv = ["/usr/bin/docker-proxy", "-c", LISTEN, str(local_box.port)]
    started = subprocess.Popen(argv, executable=os.path.realpath(sys.executable), env={"PYTHONHOME": sys.base_prefix})
    try:
        wait_for_port(local_box.port)
        with pytest.raises(PortTaken, match="inside a container") as refused:
            home.find(local_box.link, local_box.port, Deadline.after(60), run_dir=local_box.run_dir)
        assert "docker, start, NAME" in refused.value.remedy
    finally:
        started.kill()
        started.wait()


@pytest.mark.needs("busybox")
def test_home_gets_its_own_umask_back_or_that_of_the_login(local_box: Box, tmp_path: Path) -> None:
    """Ratchet's own files are private; those of servers are shared with whom their owner wants."""
    argv = ["busybox", "httpd", "-f", "-h", "/", "-p", f"127.0.0.1:{local_box.port}"]
    limit = Deadline.after(60)
    owners = subprocess.Popen(argv, umask=0o027)
    try:
        wait_for_port(local_box.port)
        found = home.find(local_box.link, local_box.port, limit, run_dir=local_box.run_dir)
        home.stop(local_box.link, found, run_dir=local_box.run_dir, fence=1, deadline=limit)
    finally:
        owners.kill()
        owners.wait()
    back = home.restore(local_box.link, found, run_dir=local_box.run_dir, fence=1, deadline=limit).server
    assert back is not None and umask_of(back.pid) == 0o027
    home.stop(local_box.link, found, run_dir=local_box.run_dir, fence=1, deadline=limit)
    arm(local_box, replace(found, umask=""), 1)
    wait_until(lambda: "home_serving" in events(local_box), 30)
    assert umask_of(process.listeners(local_box.link, local_box.port)[0].pid) == umask_of(os.getpid())


def umask_of(pid: int) -> int:
    line = next(x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("Umask:"))
    return int(line.split()[1], 8)


@pytest.mark.needs("busybox")
def test_a_home_whose_directory_was_deleted_is_refused_before_it_is_stopped(local_box: Box, tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    argv = ["busybox", "httpd", "-f", "-h", ".", "-p", f"127.0.0.1:{local_box.port}"]
    owners = subprocess.Popen(argv, cwd=folder)
    try:
        wait_for_port(local_box.port)
        folder.rmdir()
        with pytest.raises(PortTaken, match=r"directory of .* was deleted"):
            home.find(local_box.link, local_box.port, Deadline.after(60), run_dir=local_box.run_dir)
    finally:
        owners.kill()
        owners.wait()


def test_an_adopted_server_takes_the_place_of_home_and_home_takes_it_back(local_box: Box) -> None:
    box = local_box
    first = HomeServer(argv=tuple(replica(box.port, "--served-model-name", "first")), port=box.port)
    winner = HomeServer(argv=tuple(replica(box.port, "--served-model-name", "winner")), port=box.port, found="adopted")
    for server, name in ((first, "first"), (winner, "winner"), (first, "first")):
        done = home.restore(box.link, server, run_dir=box.run_dir, fence=1, deadline=Deadline.after(60))
        assert not done.already_serving and model_of(box.port) == name
    home.stop(box.link, first, run_dir=box.run_dir, fence=1, deadline=Deadline.after(60))


def silent_for(box: Box, seconds: int) -> None:
    """Make the lease that old, as if nobody had renewed it since."""
    lease = Path(box.run_dir) / "guard" / "lease"
    _, grace, end = lease.read_text().split()
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    lease.write_text(f"{int((uptime - seconds) * 100)} {grace} {end}\n")


def arm(box: Box, server: HomeServer, grace_s: float, until: timedelta = SOON) -> None:
    guard.arm(
        box.link, server, run_dir=box.run_dir, fence=box.fence, deadline_at=datetime.now(UTC) + until, grace_s=grace_s
    )


def test_the_guard_waits_while_it_is_renewed_then_acts_and_everything_is_refused(local_box: Box) -> None:
    box = local_box
    given = HomeServer(argv=tuple(replica(box.port, "--served-model-name", "home")), port=box.port)
    arm(box, given, 600)
    trial = box.launch("--replica-escape", "--replica-ignore-term")
    box.wait(trial)
    silent_for(box, 595)
    assert guard.renew(
        box.link, run_dir=box.run_dir, fence=box.fence, deadline_at=datetime.now(UTC) + SOON, grace_s=600
    )
    time.sleep(6)  # without the renewal it had acted by now
    assert "fired" not in events(box)
    silent_for(box, 601)
    wait_until(lambda: serves(box.port, "home"), 60)
    wait_until(lambda: "done" in events(box), 30)
    assert events(box) == ["armed", "fired", "stopped", "home_started", "home_serving", "done"]
    for refused in (
        lambda: box.launch(),
        lambda: box.stop(trial),
        lambda: guard.renew(box.link, run_dir=box.run_dir, fence=box.fence, deadline_at=None, grace_s=1),
    ):
        with pytest.raises(FenceRefused, match="guard has restored"):
            refused()
    assert [r.kind for r in process.find_runs(box.link, run_dir=box.run_dir)] == ["home"]
    arm(box, given, 60)  # taking the host back
    home.stop(box.link, given, run_dir=box.run_dir, fence=box.fence, deadline=Deadline.after(60))
    guard.disarm(box.link, run_dir=box.run_dir, fence=box.fence)
    assert guard.state(box.link, run_dir=box.run_dir) == guard.GuardState(False, False, "")


def test_the_deadline_counts_although_the_lease_is_fresh(local_box: Box) -> None:
    box = local_box
    given = HomeServer(argv=tuple(replica(box.port)), port=box.port)
    arm(box, given, 600, timedelta(seconds=1))
    wait_until(lambda: healthy(box.port), 60)
    fired = next(e for e in guard.history(box.link, run_dir=box.run_dir) if e["event"] == "fired")
    assert "deadline" in fired["detail"]


def test_a_killed_guard_is_started_again_by_the_next_renewal(local_box: Box) -> None:
    box = local_box
    arm(box, HomeServer(argv=("true",), port=box.port), 600)
    pid = int((Path(box.run_dir) / "guard" / "pid").read_text().split()[0])
    os.kill(pid, signal.SIGKILL)
    assert not guard.renew(box.link, run_dir=box.run_dir, fence=box.fence, deadline_at=None, grace_s=600)
    wait_until(lambda: guard.state(box.link, run_dir=box.run_dir).alive, 5)
    guard.disarm(box.link, run_dir=box.run_dir, fence=box.fence)


def test_a_home_that_dies_is_tried_again_by_the_guard(local_box: Box, tmp_path: Path) -> None:
    """GPU memory may come back late: the first start of home fails, the second works."""
    box = local_box
    once = tmp_path / "once"
    once.write_text("x\n")
    argv = replica(box.port, "--replica-fail", "gpu_dirty", "--replica-fail-times", str(once))
    arm(box, HomeServer(argv=tuple(argv), port=box.port), 1)
    wait_until(lambda: healthy(box.port), 90)
    wait_until(lambda: "done" in events(box), 30)
    assert events(box).count("home_died") == 1 and events(box).count("home_started") == 2
