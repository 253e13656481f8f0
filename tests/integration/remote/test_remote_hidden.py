"""A host whose /proc shows a login only its own processes (hidepid=2): what is not seen is never taken for gone."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from optimizer.clock import Deadline
from optimizer.errors import NeedsAttention, PortTaken
from optimizer.remote import connect, doctor, guard, home, process
from optimizer.remote.base import HomeServer, RunningServer
from optimizer.spec import HostEntry
from tests.integration.remote.conftest import Box
from tests.integration.remote.sshservers import EmbeddedServer, wait_for_port
from tests.integration.remote.test_remote_guard import events, silent_for, wait_until
from tests.integration.remote.test_remote_process import alive

pytestmark = pytest.mark.needs("root", "busybox", "util_linux")
NOBODY = 65534
CAPABLE = struct.pack("<5I", 0x02000001, 1 << 10, 0, 0, 0)
"""A file capability (to bind low ports). To lock memory or bind it to a node, owners give such to their Python."""


@pytest.fixture
def hidden(tmp_path: Path) -> Iterator[Box]:
    """Return a box that is logged into as `nobody`, in a mount namespace whose /proc hides everybody else."""
    keeper = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", "mount -t proc -o hidepid=2 proc /proc && echo ready && exec sleep 600"],
        stdout=subprocess.PIPE,
    )
    assert keeper.stdout is not None
    if keeper.stdout.readline() != b"ready\n":
        keeper.wait()
        keeper.stdout.close()
        pytest.skip("nothing can be mounted here")
    folder = Path(tempfile.mkdtemp(prefix="ratchet-hidden-"))
    os.chown(folder, NOBODY, NOBODY)
    enter = ["nsenter", "-t", str(keeper.pid), "-m", "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}"]
    server = EmbeddedServer(tmp_path / "ssh", shell=[*enter, "--clear-groups", "/bin/sh", "-c"])
    server.env["HOME"] = str(folder)
    box = Box(connect.open_link(server.entry()), str(folder / "run dir"))
    yield box
    for run in process.find_runs(box.link, run_dir=box.run_dir):
        process.stop(box.link, run, run_dir=box.run_dir, fence=None, deadline=Deadline.after(60), after_guard=True)
    box.link.close()
    server.stop()
    keeper.kill()
    keeper.wait()
    keeper.stdout.close()
    shutil.rmtree(folder)


def httpd(box: Box) -> tuple[str, ...]:
    return (str(shutil.which("busybox")), "httpd", "-f", "-p", f"127.0.0.1:{box.port}", "-h", "/")


def start(box: Box, *argv: str) -> RunningServer:
    plan = process.LaunchPlan(argv, {}, "/", box.port, "", "", {})
    return process.launch(
        box.link, plan, run_id=process.new_run_id(), run_dir=box.run_dir, fence=box.fence, deadline=Deadline.after(60)
    )


def test_a_hidden_holder_of_the_port_is_told_and_own_servers_are_whole(hidden: Box) -> None:
    foreign = subprocess.Popen(httpd(hidden))
    try:
        wait_for_port(hidden.port)
        with pytest.raises(PortTaken, match="another user"):
            process.preflight(hidden.link, hidden.plan(), run_dir=hidden.run_dir)
        with pytest.raises(PortTaken, match="another user"):
            home.find(hidden.link, hidden.port, Deadline.after(60), run_dir=hidden.run_dir)
        given = HomeServer(argv=("x",), port=hidden.port)
        with pytest.raises(PortTaken, match="another user"):
            home.stop(hidden.link, given, run_dir=hidden.run_dir, fence=1, deadline=Deadline.after(60))
    finally:
        foreign.kill()
        foreign.wait()
        foreign.wait()
    server = start(hidden, *httpd(hidden))
    wait_until(lambda: process.status(hidden.link, server).listening_pids, 20)
    seen = process.status(hidden.link, server)
    assert seen.alive and seen.listening_pids == (server.pid,) and server.pid in seen.pids
    proof = process.stop(hidden.link, server, run_dir=hidden.run_dir, fence=hidden.fence, deadline=Deadline.after(60))
    assert server.pid in proof.pids_signalled and not alive(server.pid)


def test_the_guard_acts_where_others_are_hidden(hidden: Box) -> None:
    given = HomeServer(argv=httpd(hidden), cwd="/", port=hidden.port)
    until = datetime.now(UTC) + timedelta(hours=1)
    guard.arm(hidden.link, given, run_dir=hidden.run_dir, fence=hidden.fence, deadline_at=until, grace_s=600)
    trial = start(hidden, "sleep", "600")
    silent_for(hidden, 601)
    wait_until(lambda: "done" in events(hidden), 30)
    assert events(hidden) == ["armed", "fired", "stopped", "home_started", "home_serving", "done"]
    assert [r.kind for r in process.find_runs(hidden.link, run_dir=hidden.run_dir)] == ["home"]
    assert not alive(trial.pid)


def test_a_server_that_hides_itself_is_neither_dead_while_it_runs_nor_left_behind(hidden: Box) -> None:
    program = Path(hidden.run_dir).parent / "busybox"
    shutil.copy(str(shutil.which("busybox")), program)
    os.setxattr(program, "security.capability", CAPABLE)
    server = start(hidden, str(program), "sleep", "600")
    ls = ["ls", f"/proc/{server.pid}"]
    wait_until(lambda: hidden.link.run(ls, deadline=Deadline.after(60)).exit_code != 0, 10)
    status = process.status(hidden.link, server)
    assert status.alive and status.exit_code is None
    hidden.stop(server, term_wait_s=0.5)
    assert not alive(server.pid)


def test_what_is_hidden_and_beyond_our_signals_is_no_proof_of_a_stop(hidden: Box) -> None:
    """What became another user in our group (`sudo`) loads on, while nobody of ours is left to be seen."""
    leader = subprocess.Popen(["sleep", "600"], process_group=0)
    try:
        folder = Path(hidden.run_dir) / "runs" / "old"
        made = f'mkdir -p "$1" && cd "$1" && echo trial >kind && echo "{leader.pid} 1" >leader && cp boot.now boot'
        server = RunningServer("old", leader.pid, 1, str(folder), str(folder / "log"), hidden.port, "")
        other = start(hidden, "sleep", "600")
        made = made.replace("boot.now", f"'{other.run_dir}/boot'")
        hidden.stop(other)
        assert hidden.link.sh(made, str(folder), deadline=Deadline.after(60)).exit_code == 0
        with pytest.raises(NeedsAttention, match="may not see"):
            process.stop(
                hidden.link, server, run_dir=hidden.run_dir, fence=hidden.fence, deadline=Deadline.after(60),
                term_wait_s=0.2, kill_wait_s=0.3,
            )  # fmt: skip
        assert leader.poll() is None
    finally:
        leader.kill()
        leader.wait()
    hidden.stop(server)


def test_the_doctor_says_that_others_are_hidden(hidden: Box) -> None:
    entry = HostEntry(name="box", connection="local", run_dir=hidden.run_dir)
    told = {f.check: f for f in doctor.check(hidden.link, entry, port=hidden.port)}
    assert told["tools"].level == "warning" and "hidepid" in told["tools"].detail
