"""What is ours and what is not: another boot, a number given out again, a scope of systemd, what a killed start left.

No test machine is booted with systemd: a stand-in `systemd-run` and `systemctl` on PATH record their arguments and do
what the real ones do for us. Without them (the default of every other test) servers are owned by session and run id.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from optimizer.clock import Deadline
from optimizer.engines.base import LaunchPlan
from optimizer.errors import CommandFailed, FenceRefused
from optimizer.remote import process, units
from optimizer.remote.base import HomeServer, RunningServer
from tests.integration.remote.conftest import FENCE, Box


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def start_ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19])


def start(box: Box, *argv: str, env: dict[str, str] | None = None) -> RunningServer:
    """Start any command as a server."""
    plan = LaunchPlan(argv, env or {}, None, box.port, "", "", {})
    return process.launch(
        box.link, plan, run_id=process.new_run_id(), run_dir=box.run_dir, fence=FENCE, deadline=Deadline.after(60)
    )


def a_run_of(box: Box, leader: int, *, boot: str, leader_start: int = 1, ended: str = "") -> RunningServer:
    """Leave a run directory as an earlier life of the host left it, without its `over` mark."""
    folder = Path(box.run_dir) / "runs" / "old"
    folder.mkdir(parents=True)
    (folder / "kind").write_text("trial\n")
    (folder / "boot").write_text(f"{boot}\n")
    (folder / "leader").write_text(f"{leader} {leader_start} {ended}\n")
    (folder / "members").write_text(f"{leader}:{start_ticks(leader) if alive(leader) else 1}\n")
    return RunningServer("old", leader, 1, str(folder), str(folder / "log"), box.port, "")


def this_boot(box: Box) -> str:
    server = start(box, "sleep", "600")
    boot = (Path(server.run_dir) / "boot").read_text().strip()
    box.stop(server)
    return boot


@pytest.fixture
def orphans() -> Iterator[tuple[int, int]]:
    """Give a session whose leader is gone while a process of it lives: (session id, pid)."""
    code = "import os,sys,time\nif os.fork(): sys.exit()\nprint(os.getpid(), flush=True)\ntime.sleep(600)"
    leader = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    assert leader.stdout
    child = int(leader.stdout.readline())
    leader.wait()
    yield leader.pid, child
    os.kill(child, signal.SIGKILL)
    leader.stdout.close()


def test_the_numbers_of_a_run_of_another_boot_mean_nothing(local_box: Box, orphans: tuple[int, int]) -> None:
    """After a reboot a daemon may have the session number, and even the pid and start time, of a server of ours."""
    session, innocent = orphans
    old = a_run_of(local_box, session, boot="another-boot.1")
    (Path(old.run_dir) / "members").write_text(f"{innocent}:{start_ticks(innocent)}\n")
    assert process.find_runs(local_box.link, run_dir=local_box.run_dir) == []
    assert process.status(local_box.link, old).rebooted
    assert local_box.stop(old).pids_signalled == ()
    assert alive(innocent)
    local_box.stop(local_box.launch())  # nothing is "still alive" that would refuse a start


def test_a_session_number_that_was_given_out_again_means_nothing(local_box: Box, orphans: tuple[int, int]) -> None:
    session, innocent = orphans
    boot = this_boot(local_box)
    old = a_run_of(local_box, session, boot=boot, ended=str(start_ticks(innocent) - 1))
    assert process.find_runs(local_box.link, run_dir=local_box.run_dir) == []
    assert local_box.stop(old).pids_signalled == ()
    assert alive(innocent)


def test_who_stays_in_the_session_after_the_server_has_ended_is_ours(local_box: Box) -> None:
    code = "import os, sys\nif os.fork(): sys.exit(3)\nos.execve('/bin/sleep', ['sleep', '600'], {})"
    server = start(local_box, sys.executable, "-c", code)
    end = Deadline.after(60)
    while process.status(local_box.link, server).exit_code != 3:
        assert not end.passed
    pids = process.status(local_box.link, server).pids
    assert len(pids) == 1 and b"RATCHET_RUN_ID" not in Path(f"/proc/{pids[0]}/environ").read_bytes()
    assert local_box.stop(server).pids_signalled == pids
    assert not alive(pids[0])


def test_a_tree_that_forks_faster_than_it_can_be_listed_is_ended(local_box: Box) -> None:
    """Each process lives a few milliseconds: signals to single pids always come too late."""
    code = (
        "import os, signal, sys, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up', flush=True)\n"
        "if os.fork(): time.sleep(600)\nwhile True:\n    if os.fork():\n        os._exit(0)\n    time.sleep(0.004)\n"
    )
    server = start(local_box, sys.executable, "-c", code)
    group = int((Path(local_box.run_dir) / "runs" / server.run_id / "leader").read_text().split()[0])
    try:
        local_box.wait_for_log(server, b"up")
        proof = local_box.stop(server, term_wait_s=0.5)
        assert proof.killed
        assert process.find_runs(local_box.link, run_dir=local_box.run_dir) == []
        end = Deadline.after(10)
        while any(server.run_id.encode() in environ(p) for p in Path("/proc").glob("[0-9]*")):
            assert not end.passed  # what was killed needs a moment to end
    finally:  # a machine that keeps such a tree is of no use to anybody
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def environ(folder: Path) -> bytes:
    try:
        return (folder / "environ").read_bytes()
    except OSError:
        return b""


SYSTEMD_RUN = """#!/bin/sh
echo "$*" >>"{calls}"
for word; do case $word in --unit=*) unit=${{word#*=}} ;; esac; done
while [ "$1" != -- ]; do shift; done
shift
if [ -n "$unit" ] && [ -w "{tree}" ]; then mkdir -p "{tree}/$unit" && echo $$ >"{tree}/$unit/cgroup.procs"; fi
exec "$@"
"""
SYSTEMCTL = """#!/bin/sh
echo "systemctl $*" >>"{calls}"
for word; do unit=$word; done
case "$*" in *kill*) for pid in $(cat "{tree}/$unit/cgroup.procs"); do kill -KILL "$pid"; done ;; esac
"""
CGROUPS = ("/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup")


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path | None]]:
    """Put stand-ins on PATH: (file of their calls, the real cgroup below which they make scopes, where we may)."""
    tree = next((Path(c) for c in CGROUPS if (Path(c) / "cgroup.procs").exists() and os.access(c, os.W_OK)), None)
    calls, folder = tmp_path / "calls", tmp_path / "stand-ins"
    folder.mkdir()
    calls.touch()
    for name, text in (("systemd-run", SYSTEMD_RUN), ("systemctl", SYSTEMCTL)):
        (folder / name).write_text(text.format(calls=calls, tree=tree or "/nowhere"))
        (folder / name).chmod(0o755)
    (folder / "loginctl").write_text("#!/bin/sh\necho yes\n")
    (folder / "loginctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    yield calls, tree
    for scope in tree.glob("ratchet-*.scope") if tree else ():
        scope.rmdir()


def test_a_server_gets_a_scope_where_systemd_gives_one(local_box: Box, systemd: tuple[Path, Path | None]) -> None:
    calls, _ = systemd
    server = local_box.launch()
    local_box.wait(server)
    manager = "--system" if os.geteuid() == 0 else "--user"
    probe, real = calls.read_text().splitlines()
    assert probe == f"{manager} --scope --quiet --collect -- true"
    options, command = real.split(" -- ")
    assert re.fullmatch(rf"{manager} --scope --quiet --collect --unit=ratchet-{server.run_id}-\d+\.scope", options)
    assert command == f"/bin/sh {server.run_dir}/launch.sh {server.run_dir}"
    local_box.stop(server)


def test_what_hides_from_everything_but_its_cgroup_is_found_and_stopped(
    local_box: Box, systemd: tuple[Path, Path | None]
) -> None:
    """A worker with a new session, no environment, no parent and no log, never seen before it is looked for."""
    _, tree = systemd
    if tree is None:
        pytest.skip("no cgroup can be made here")
    code = (
        "import os, sys, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)\n"
        "    null = os.open('/dev/null', os.O_RDWR)\n    os.dup2(null, 1); os.dup2(null, 2)\n"
        "    os.execve('/bin/sleep', ['sleep', '600'], {})\nos.wait(); print('up', flush=True); time.sleep(600)\n"
    )
    server = start(local_box, sys.executable, "-c", code)
    local_box.wait_for_log(server, b"up")
    hidden = [p for p in process.status(local_box.link, server).pids if environ(Path(f"/proc/{p}")) == b""]
    assert len(hidden) == 1 and os.getsid(hidden[0]) != os.getsid(server.pid)
    assert hidden[0] in local_box.stop(server).pids_signalled
    assert not alive(hidden[0])


def test_a_systemd_that_refuses_is_done_without(
    local_box: Box, systemd: tuple[Path, Path | None], tmp_path: Path
) -> None:
    (tmp_path / "stand-ins" / "systemd-run").write_text("#!/bin/sh\necho 'Failed to connect to bus' >&2\nexit 1\n")
    server = local_box.launch()
    local_box.wait(server)
    assert not (Path(server.run_dir) / "scope").exists()
    local_box.stop(server)


def test_a_login_that_does_not_linger_gets_no_scope_that_would_end_with_it(
    local_box: Box, systemd: tuple[Path, Path | None], tmp_path: Path
) -> None:
    calls, _ = systemd
    for name, text in (("id", "#!/bin/sh\necho 1000\n"), ("loginctl", "#!/bin/sh\necho no\n")):
        (tmp_path / "stand-ins" / name).write_text(text)
        (tmp_path / "stand-ins" / name).chmod(0o755)
    server = local_box.launch()
    assert calls.read_text() == ""
    local_box.stop(server)


def test_locks_that_a_killed_start_left_in_jit_caches_are_removed_and_no_others(local_box: Box, tmp_path: Path) -> None:
    """Torch's extension builder takes a lock by creating a file: left behind, it hangs every later start."""
    caches = tmp_path / "ext"
    ours, held, old = (caches / "py311_cu124" / name / "lock" for name in ("killed", "held", "older"))
    for lock in (ours, held, old):
        lock.parent.mkdir(parents=True)
    old.touch()
    os.utime(old, (time.time() - 86_400, time.time() - 86_400))
    code = (
        "import os, sys, time\nfd = os.open(sys.argv[1], os.O_CREAT | os.O_EXCL)\nprint('up', flush=True)\n"
        "time.sleep(600)"
    )
    server = start(local_box, sys.executable, "-c", code, str(ours), env={"TORCH_EXTENSIONS_DIR": str(caches)})
    local_box.wait_for_log(server, b"up")
    other = subprocess.Popen([sys.executable, "-c", code, str(held)], stdout=subprocess.PIPE)
    try:
        assert other.stdout and other.stdout.readline() == b"up\n"
        local_box.stop(server)
        assert (ours.exists(), held.exists(), old.exists()) == (False, True, True)
    finally:
        other.kill()
        other.communicate()


@pytest.mark.needs("root")
def test_a_home_of_another_user_is_put_back_as_that_user(local_box: Box) -> None:
    """`nobody` has no group of the same name."""
    from optimizer.remote import home

    argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "busybox", "httpd", "-f", "-p",
            f"127.0.0.1:{local_box.port}"]  # fmt: skip
    owners = subprocess.Popen(argv, cwd="/", env={"PATH": os.environ["PATH"]})
    try:
        end = Deadline.after(30)
        while not process.listeners(local_box.link, local_box.port):
            assert not end.passed
        found = home.find(local_box.link, local_box.port, Deadline.after(60), run_dir=local_box.run_dir)
        assert found.user == "nobody"
        home.stop(local_box.link, found, run_dir=local_box.run_dir, fence=1, deadline=Deadline.after(60))
    finally:
        owners.kill()
        owners.wait()
    back = home.restore(local_box.link, found, run_dir=local_box.run_dir, fence=1, deadline=Deadline.after(60))
    assert back.server is not None
    status = Path(f"/proc/{process.listeners(local_box.link, local_box.port)[0].pid}/status").read_text()
    assert re.search(r"^Uid:\t65534\t65534", status, re.M) and re.search(r"^Gid:\t65534\t65534", status, re.M)
    home.stop(local_box.link, found, run_dir=local_box.run_dir, fence=1, deadline=Deadline.after(60))


def test_a_job_that_cron_or_sshd_started_is_not_the_unit_whose_cgroup_it_is_in(
    local_box: Box, systemd: tuple[Path, Path | None], tmp_path: Path
) -> None:
    """Stopping `cron.service` or `ssh.service` for such a server would hit everybody else."""
    (tmp_path / "stand-ins" / "systemctl").write_text(f"#!/bin/sh\necho {os.getpid()}\n")
    session, limit = os.getsid(0), Deadline.after(60)
    assert units.runs(local_box.link, "llm.service", session, deadline=limit)
    assert not units.runs(local_box.link, "cron.service", session + 1, deadline=limit)
    (tmp_path / "stand-ins" / "systemctl").write_text("#!/bin/sh\necho 0\n")
    assert units.runs(local_box.link, "user:forking.service", session, deadline=limit)


def test_a_late_owner_neither_stops_nor_starts_home_s_unit(local_box: Box, systemd: tuple[Path, Path | None]) -> None:
    calls, _ = systemd
    home = HomeServer(systemd_unit="llm.service", port=local_box.port, found="systemd")
    where: dict[str, Any] = {"run_dir": local_box.run_dir, "deadline": Deadline.after(60)}
    units.stop(local_box.link, home, fence=FENCE + 1, **where)
    assert "systemctl stop llm.service" in calls.read_text()
    said = calls.read_text()
    for action in (units.stop, units.start):
        with pytest.raises(FenceRefused):
            action(local_box.link, home, fence=FENCE, **where)
    assert calls.read_text() == said


def test_a_unit_that_may_not_be_managed_is_told_with_what_systemctl_said(
    local_box: Box, systemd: tuple[Path, Path | None], tmp_path: Path
) -> None:
    for name in ("systemctl", "sudo"):
        (tmp_path / "stand-ins" / name).write_text("#!/bin/sh\necho 'Access denied' >&2\nexit 4\n")
        (tmp_path / "stand-ins" / name).chmod(0o755)
    home = HomeServer(systemd_unit="llm.service", port=local_box.port, found="systemd")
    with pytest.raises(CommandFailed, match=r"systemctl start llm\.service failed: Access denied") as failure:
        units.start(local_box.link, home, run_dir=local_box.run_dir, fence=FENCE, deadline=Deadline.after(60))
    assert "polkit" in failure.value.remedy
