"""Hosts that are not like ours: other login shells, BusyBox instead of coreutils, bash as /bin/sh, missing tools."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from optimizer.clock import Deadline
from optimizer.errors import PortTaken
from optimizer.remote import connect, doctor, gpu, guard, home, process, scripts
from optimizer.remote.base import HomeServer
from tests.integration.remote.conftest import Box
from tests.integration.remote.sshservers import EmbeddedServer, Sshd, start_sshd, wait_for_port

LOGIN_SHELLS = ("bash", "dash", *(pytest.param(s, marks=pytest.mark.needs(s)) for s in ("fish", "tcsh", "zsh")))
ODD = ["it's", 'a "b"', "$(id) `id` $HOME", "a\\b\\\\", "!!", "line\nline", "ü日", "*", ""]


@pytest.mark.parametrize("kind", [pytest.param("sshd", marks=pytest.mark.needs("sshd")), "embedded"])
@pytest.mark.parametrize("shell", LOGIN_SHELLS)
def test_any_login_shell_passes_arguments_literally(tmp_path: Path, shell: str, kind: str) -> None:
    server: Sshd | EmbeddedServer
    if kind == "sshd":
        server = start_sshd(tmp_path, extra=f'ForceCommand exec {shell} -c "$SSH_ORIGINAL_COMMAND"')
    else:
        server = EmbeddedServer(tmp_path, shell=[shell, "-c"])
    link = connect.open_link(server.entry())
    try:
        done = link.run(["printf", "%s|", *ODD], deadline=Deadline.after(60))
        assert done.text == "".join(f"{word}|" for word in ODD)
        assert link.sh("cat; exit 5", deadline=Deadline.after(60), stdin=b"\0\xff'\n").stdout == b"\0\xff'\n"
        assert link.sh("exit 5", deadline=Deadline.after(60)).exit_code == 5
    finally:
        link.close()
        server.stop()


@pytest.mark.needs("sshd")
def test_a_login_that_prints_banners_on_both_streams_changes_nothing(tmp_path: Path, run_dir: str) -> None:
    server = start_sshd(
        tmp_path / "noisy",
        extra="ForceCommand echo '*** WELCOME ***'; echo noise >&2; sh -c \"$SSH_ORIGINAL_COMMAND\"; echo bye; exit 9",
    )
    box = Box(connect.open_link(server.entry()), run_dir)
    try:
        done = box.link.sh("echo out; echo err >&2; exit 3", deadline=Deadline.after(60))
        assert (done.exit_code, done.stdout, done.stderr) == (3, b"out\n", b"err\n")
        started = box.launch()
        box.wait(started)
        box.stop(started)
    finally:
        box.link.close()
        server.stop()


@pytest.mark.needs("busybox")
@pytest.mark.parametrize("shell", [["dash"], ["bash", "--posix"], ["busybox", "sh"]])
@pytest.mark.parametrize("name", sorted(p.stem for p in (Path(scripts.__file__).parent / "sh").glob("*.sh")))
def test_every_script_parses_in_every_shell(shell: list[str], name: str) -> None:
    done = subprocess.run([*shell, "-n"], input=scripts.text(name).encode(), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.fixture(params=["busybox", "bash"])
def odd_host(
    request: pytest.FixtureRequest, tmp_path: Path, gpu_folder: Path, host_path: str
) -> Iterator[EmbeddedServer]:
    """Return a host whose /bin/sh is BusyBox (and whose tools are BusyBox's only), or bash."""
    program = str(shutil.which(request.param))
    where = os.path.realpath("/bin/sh")
    keeper = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", 'mount --bind "$1" "$2" && echo ready && exec sleep 600', "x", program, where],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert keeper.stdout and keeper.stdout.readline() == b"ready\n"
    path = host_path
    if request.param == "busybox":
        tools = tmp_path / "applets"
        tools.mkdir()
        for applet in subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split():
            (tools / applet).symlink_to(program)
        (tools / "nvidia-smi").symlink_to(Path(host_path.split(":")[0]) / "nvidia-smi")
        path = str(tools)
    server = EmbeddedServer(tmp_path / "odd", shell=["nsenter", "-t", str(keeper.pid), "-m", "/bin/sh", "-c"])
    server.env.update(PATH=path, REPLICA_GPU_DIR=str(gpu_folder))
    yield server
    server.stop()
    keeper.kill()
    keeper.wait()
    keeper.stdout.close()


@pytest.mark.needs("root", "busybox", "util_linux")
def test_servers_and_guard_work_with_another_sh_and_other_tools(
    odd_host: EmbeddedServer, run_dir: str, gpus: Path
) -> None:
    box = Box(connect.open_link(odd_host.entry()), run_dir)
    try:
        process.preflight(box.link, box.plan(), run_dir=run_dir)
        server = box.launch("--replica-escape", "--replica-ignore-term", env={"ODD": "it's $(id)\nüx"})
        box.wait(server)
        assert len(gpu.snapshot(box.link)) == 2
        assert len(process.status(box.link, server).pids) == 5
        listening = process.listeners(box.link, box.port)
        assert [p.pid for p in listening] == [server.pid] and listening[0].run_id == server.run_id
        proof = box.stop(server, term_wait_s=0.5)
        assert proof.killed and len(proof.pids_signalled) == 5
        original = HomeServer(
            argv=box.plan("--served-model-name", "home").argv, env={"A": "b c"}, port=box.port, found="proc"
        )
        until = datetime.now(UTC) + timedelta(hours=1)
        guard.arm(box.link, original, run_dir=run_dir, fence=box.fence, deadline_at=until, grace_s=600)
        trial = box.launch()
        assert guard.renew(box.link, run_dir=run_dir, fence=box.fence, deadline_at=until, grace_s=1)
        end = Deadline.after(90)
        while [e["event"] for e in guard.history(box.link, run_dir=run_dir)][-1] != "done":
            assert not end.passed, guard.history(box.link, run_dir=run_dir)
            time.sleep(0.2)
        assert [e["event"] for e in guard.history(box.link, run_dir=run_dir)] == [
            "armed", "fired", "stopped", "home_started", "home_serving", "done",
        ]  # fmt: skip
        assert trial.run_id not in [r.run_id for r in process.find_runs(box.link, run_dir=run_dir)]
        found = home.find(box.link, box.port, Deadline.after(60), run_dir=run_dir)
        assert (found.argv, found.env) == (original.argv, original.env)
        home.stop(box.link, found, run_dir=run_dir, fence=None, deadline=Deadline.after(60))
        levels = {
            f.check: f.level for f in doctor.check(box.link, odd_host.entry().model_copy(update={"run_dir": run_dir}))
        }
        assert levels["tools"] == "ok" and levels["run directory"] == "ok" and levels["disk"] in {"ok", "warning"}
    finally:
        box.link.close()


@pytest.mark.needs("root", "busybox", "util_linux")
def test_an_unprivileged_login_owns_its_servers_and_is_told_of_others(tmp_path: Path) -> None:
    """The login is `nobody`: other users' processes can be neither read nor signalled."""
    busybox = shutil.which("busybox")
    folder = Path(tempfile.mkdtemp(prefix="ratchet-nobody-"))
    folder.chmod(0o777)
    server = EmbeddedServer(
        tmp_path / "ssh", shell=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/bin/sh", "-c"]
    )
    server.env["HOME"] = str(folder)
    box = Box(connect.open_link(server.entry()), "~/our dir")
    argv = (str(busybox), "httpd", "-f", "-p", f"127.0.0.1:{box.port}")
    foreign = subprocess.Popen(argv)
    try:
        wait_for_port(box.port)
        with pytest.raises(PortTaken, match="another user"):
            process.preflight(box.link, box.plan(), run_dir=box.run_dir)
        with pytest.raises(PortTaken, match="another user"):
            home.find(box.link, box.port, Deadline.after(60), run_dir=box.run_dir)
        foreign.kill()
        foreign.wait()
        plan = process.LaunchPlan(argv, {}, "/", box.port, "", "", {})
        started = process.launch(
            box.link, plan, run_id=process.new_run_id(), run_dir=box.run_dir, fence=1, deadline=Deadline.after(60)
        )
        wait_for_port(box.port)
        assert started.run_dir.startswith(str(folder / "our dir"))
        assert process.status(box.link, started).listening_pids == (started.pid,)
        assert Path(f"/proc/{started.pid}").stat().st_uid == 65534
        box.stop(started)
    finally:
        foreign.kill()
        foreign.wait()
        box.link.close()
        server.stop()
        shutil.rmtree(folder)
