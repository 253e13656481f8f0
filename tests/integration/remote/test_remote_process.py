"""Starting, owning and stopping the double on every kind of host."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from optimizer.clock import Deadline
from optimizer.errors import FenceRefused, HostBusy, NeedsAttention, PortTaken
from optimizer.remote import gpu, process
from tests.integration.remote.conftest import REPLICA, Box, path_without
from tests.integration.remote.sshservers import wait_for_port


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def test_a_server_is_started_seen_and_stopped_with_proof(box: Box, gpus: Path) -> None:
    server = box.launch()
    box.wait(server)
    status = process.status(box.link, server)
    assert status.alive and set(status.listening_pids) <= set(status.pids) and status.listening_pids
    assert len(status.pids) == 5  # supervisor, server, two schedulers, detokenizer
    assert {p for g in gpu.snapshot(box.link) for p, _ in g.processes} <= set(status.pids)
    assert [r.run_id for r in process.find_runs(box.link, run_dir=box.run_dir)] == [server.run_id]
    proof = box.stop(server)
    assert proof.port_free and proof.gpu_memory_back
    assert not [p for p in status.pids if alive(p)]
    assert process.find_runs(box.link, run_dir=box.run_dir) == []
    assert process.listeners(box.link, box.port) == []


def test_children_that_left_group_session_name_and_parent_are_stopped_and_a_lookalike_survives(box: Box) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from tests.replica import children\n"
        "children.set_title('sglang::scheduler_TP0'); print('up', flush=True); children.idle()"
    )
    lookalike = subprocess.Popen(
        [sys.executable, "-c", code, str(REPLICA.parents[1]), "padding for the title"], stdout=subprocess.PIPE
    )
    assert lookalike.stdout and lookalike.stdout.readline() == b"up\n"
    try:
        server = box.launch("--replica-escape", "--replica-ignore-term")
        box.wait(server)
        pids = process.status(box.link, server).pids
        escaped = [p for p in pids if Path(f"/proc/{p}/comm").read_text().startswith("sglang::schedul")]
        assert len(escaped) == 2
        assert all(os.getsid(p) == p or os.getsid(p) != os.getsid(server.pid) for p in escaped)
        proof = box.stop(server, term_wait_s=0.5)
        assert proof.killed
        assert not [p for p in pids if alive(p)]
        assert lookalike.poll() is None
        assert lookalike.pid not in proof.pids_signalled
    finally:
        lookalike.kill()
        lookalike.wait()
        lookalike.stdout.close()


def test_a_child_that_overwrote_its_environment_is_found_by_the_log_it_writes_to(local_box: Box) -> None:
    code = (
        "import os, sys, time; sys.path.insert(0, sys.argv[1]); from tests.replica import children\n"
        "os.environ.pop('SPT_NOENV')\n"
        "pid = children.fork('sglang::hidden', children.idle, escape=True, ignore_term=False)\n"
        "print('child', pid, flush=True); time.sleep(600)"
    )
    plan = local_box.plan()
    plan = process.LaunchPlan(
        (sys.executable, "-c", code, str(REPLICA.parents[1])), {}, None, local_box.port, "", "", {}
    )
    server = process.launch(
        local_box.link, plan, run_id=process.new_run_id(), run_dir=local_box.run_dir, fence=1,
        deadline=Deadline.after(40),
    )  # fmt: skip
    local_box.wait(server, log=b"child")
    said = re.search(rb"child (\d+)", process.read_log(local_box.link, server))
    assert said
    child = int(said[1])
    assert b"RATCHET_RUN_ID" not in Path(f"/proc/{child}/environ").read_bytes()
    proof = local_box.stop(server, term_wait_s=2)
    assert child in proof.pids_signalled
    assert not alive(child)


def test_death_is_told_with_its_status_at_once(box: Box) -> None:
    server = box.launch("--replica-fail", "capture")
    began = time.monotonic()
    log = b""
    while (status := process.status(box.link, server, log_offset=len(log))).alive:
        log += status.log_chunk
        assert time.monotonic() - began < 60
        time.sleep(0.05)
    log += status.log_chunk
    assert status.exit_code == 137
    assert log.count(b"Capture cuda graph failed") == 1
    assert log.count(b"Load weight begin") == 1  # incremental: nothing is read twice


def test_a_hanging_start_shows_no_pulse(local_box: Box) -> None:
    server = local_box.launch("--replica-fail", "load_hang")
    local_box.wait(server, log=b"Load weight begin")
    first = process.status(local_box.link, server)
    time.sleep(1.0)
    second = process.status(local_box.link, server, log_offset=first.log_size)
    assert second.alive and second.log_chunk == b""
    assert second.cpu_ticks - first.cpu_ticks <= 10  # a tenth of a second: workers that wake up now and then
    local_box.stop(server)


def test_gpu_memory_that_comes_back_late_delays_the_stop_and_nothing_else(local_box: Box, gpus: Path) -> None:
    server = local_box.launch("--replica-release-s", "3")
    local_box.wait(server)
    proof = local_box.stop(server)
    assert proof.gpu_memory_back
    assert 1.5 < proof.elapsed_s < 15
    again = local_box.launch()
    local_box.stop(again)


def test_gpu_memory_that_never_comes_back_needs_attention(local_box: Box, gpus: Path) -> None:
    server = local_box.launch("--replica-release-s", "-1")
    local_box.wait(server)
    with pytest.raises(NeedsAttention, match=r"GPU \d still holds 20000 MiB.*no visible process") as caught:
        local_box.stop(server, seconds=8)
    assert "nvidia-smi" in caught.value.remedy


def test_a_foreign_server_on_the_port_is_refused_and_lives_on(box: Box) -> None:
    foreign = subprocess.Popen(
        [sys.executable, "-m", "http.server", str(box.port), "--bind", "127.0.0.1"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for_port(box.port)
        with pytest.raises(PortTaken, match=str(foreign.pid)) as caught:
            process.preflight(box.link, box.plan(), run_dir=box.run_dir)
        assert "takeover" in caught.value.remedy
        with pytest.raises(PortTaken, match=str(foreign.pid)):
            box.launch()
        assert foreign.poll() is None
        assert process.find_runs(box.link, run_dir=box.run_dir) == []
    finally:
        foreign.kill()
        foreign.wait()


def test_asking_twice_under_one_run_id_starts_once(box: Box) -> None:
    run_id = process.new_run_id()
    first = box.launch(run_id=run_id)
    second = box.launch(run_id=run_id)
    assert (first.pid, first.start_ticks) == (second.pid, second.start_ticks)
    with pytest.raises(PortTaken, match=run_id):
        box.launch()
    box.stop(first)


def test_a_lower_fence_is_refused_on_the_host(box: Box) -> None:
    server = box.launch()
    newer = Box(box.link, box.run_dir, box.port, fence=box.fence + 1)
    newer.stop(server)
    with pytest.raises(FenceRefused, match=str(newer.fence)):
        box.launch()
    with pytest.raises(FenceRefused):
        box.stop(server)


def test_two_controllers_at_once_one_works_the_other_is_refused(ssh_server: object, run_dir: str) -> None:
    from optimizer.remote import connect

    boxes = [Box(connect.open_link(ssh_server.entry()), run_dir) for _ in range(2)]  # type: ignore[attr-defined]
    boxes[1].port = boxes[0].port
    outcomes: list[object] = [None, None]

    def go(index: int) -> None:
        try:
            outcomes[index] = boxes[index].launch()
        except (PortTaken, HostBusy) as error:
            outcomes[index] = error

    threads = [threading.Thread(target=go, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    servers = [o for o in outcomes if isinstance(o, process.RunningServer)]
    assert len(servers) == 1 and sum(isinstance(o, PortTaken | HostBusy) for o in outcomes) == 1
    boxes[0].stop(servers[0])
    for one in boxes:
        one.link.close()


@pytest.mark.parametrize("with_flock", [True, False])
def test_the_lock_is_waited_for_and_given_up(
    local_box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_flock: bool
) -> None:
    if not with_flock:
        monkeypatch.setenv("PATH", path_without("flock", tmp_path))
    body = process.scripts.text("lib") + 'r_base "$1"\nr_make_base\nr_lock 100 || exit 3\necho held\nsleep "$2"\n'
    holder = threading.Thread(
        target=local_box.link.sh, args=(body, local_box.run_dir, "2.5"), kwargs={"deadline": Deadline.after(10)}
    )
    holder.start()
    end = Deadline.after(40)
    while not (Path(local_box.run_dir) / ("lock" if with_flock else "lock.d/owner")).exists():
        assert not end.passed
    refused = local_box.link.sh(body.replace("100", "30"), local_box.run_dir, "0", deadline=Deadline.after(40))
    assert refused.exit_code == 3
    with pytest.raises(HostBusy):
        process.launch(
            local_box.link, local_box.plan(), run_id=process.new_run_id(), run_dir=local_box.run_dir, fence=1,
            deadline=Deadline.after(2.3),
        )  # fmt: skip
    server = local_box.launch()  # waits until the holder has ended
    holder.join()
    local_box.stop(server)


def test_a_directory_lock_of_a_dead_owner_is_broken(
    local_box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", path_without("flock", tmp_path))
    lock = Path(local_box.run_dir) / "lock.d"
    lock.mkdir(parents=True)
    (lock / "owner").write_text("999999 1\n")
    server = local_box.launch()
    local_box.stop(server)
    assert not lock.exists()


NASTY = {
    "SPACES": "a  b",
    "QUOTES": 'it\'s "quoted" `id` \\ back\\slash',
    "DOLLAR": "$(id) ${HOME} $HOME !!",
    "LINES": "one\ntwo\n\nfour\t|tab",
    "SEMI": "; rm -rf /tmp/none; & | < > # *",
    "TILDE": "~ ~/x ~root",
    "WORDS": "grüße 日本語 \u2028",
    "PERCENT": "%s %b %% \\n \\0101",
    "EMPTY": "",
}


def test_every_value_arrives_literally_in_arguments_environment_and_paths(box: Box, tmp_path: Path) -> None:
    folder = tmp_path / "we ird;$(x) ü'\""
    folder.mkdir()
    out = folder / "out put"
    code = "import json,os,sys; open(sys.argv[1],'w').write(json.dumps([sys.argv[2:],dict(os.environ),os.getcwd()]))"
    plan = process.LaunchPlan(
        (sys.executable, "-c", code, str(out), *NASTY.values()), {f"N_{k}": v for k, v in NASTY.items()}, str(folder),
        box.port, "", "", {},
    )  # fmt: skip
    server = process.launch(
        box.link, plan, run_id=process.new_run_id(), run_dir=box.run_dir, fence=1, deadline=Deadline.after(40)
    )
    end = Deadline.after(40)
    while process.status(box.link, server).alive and not end.passed:
        time.sleep(0.05)
    import json

    argv, env, cwd = json.loads(out.read_text())
    assert argv == list(NASTY.values())
    assert {k: env.get(f"N_{k}") for k in NASTY} == NASTY
    assert cwd == str(folder)
    assert process.status(box.link, server).exit_code == 0
    box.stop(server)


def test_the_launcher_with_its_secrets_does_not_stay_and_the_directory_is_private(local_box: Box) -> None:
    server = local_box.launch(env={"HF_TOKEN": "hf_very_secret"})
    local_box.wait(server)
    folder = Path(server.run_dir)
    assert not (folder / "launch.sh").exists()
    assert "hf_very_secret" not in server.command_line and "HF_TOKEN=***" in server.command_line
    assert folder.stat().st_mode & 0o077 == 0
    text = b"".join(p.read_bytes() for p in folder.iterdir() if p.is_file())
    assert b"hf_very_secret" not in text
    commands = subprocess.run(["ps", "-eo", "args"], capture_output=True, check=True).stdout
    assert b"hf_very_secret" not in commands
    local_box.stop(server)


def test_a_command_that_does_not_exist_is_told_by_its_status(local_box: Box) -> None:
    plan = process.LaunchPlan(("/no/such/program",), {}, None, local_box.port, "", "", {})
    server = process.launch(
        local_box.link, plan, run_id=process.new_run_id(), run_dir=local_box.run_dir, fence=1,
        deadline=Deadline.after(40),
    )  # fmt: skip
    end = Deadline.after(40)
    while (status := process.status(local_box.link, server)).alive or status.exit_code is None:
        assert not end.passed
    assert status.exit_code == 127
    assert b"/no/such/program" in status.log_chunk


def heeded(pid: int) -> set[signal.Signals]:
    ignored = re.search(r"SigIgn:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    assert ignored
    return {s for s in signal.Signals if not int(ignored[1], 16) & (1 << (s - 1))}


def test_signals_reach_the_server_although_it_was_started_in_the_background(local_box: Box) -> None:
    """A non-interactive shell starts background jobs with SIGINT and SIGQUIT ignored, which servers inherit."""
    server = local_box.launch()
    local_box.wait(server)
    assert heeded(server.pid) >= {signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP}
    local_box.stop(server)


def test_signals_reach_a_server_although_ratchet_itself_was_told_to_ignore_them(
    local_box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by `nohup ratchet worker &`: SGLang's workers report their death by SIGQUIT, and it would never arrive."""
    before = {s: signal.signal(s, signal.SIG_IGN) for s in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)}
    try:
        server = local_box.launch()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    local_box.wait(server)
    assert heeded(server.pid) >= {signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP}
    local_box.stop(server)


def test_shared_memory_of_a_killed_run_is_removed_and_nobody_elses(local_box: Box) -> None:
    theirs = Path(f"/dev/shm/psm_theirs{os.getpid()}")
    code = (
        "import mmap, os, sys, time\n"
        "fd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR); os.ftruncate(fd, 4096)\n"
        "m = mmap.mmap(fd, 4096); os.close(fd)\n"
        "print('child made it', flush=True); time.sleep(600)"
    )
    ours = Path(f"/dev/shm/psm_ours{os.getpid()}")
    plan = process.LaunchPlan((sys.executable, "-c", code, str(ours)), {}, None, local_box.port, "", "", {})
    server = process.launch(
        local_box.link, plan, run_id=process.new_run_id(), run_dir=local_box.run_dir, fence=1,
        deadline=Deadline.after(40),
    )  # fmt: skip
    local_box.wait(server, log=b"made it")
    other = subprocess.Popen([sys.executable, "-c", code, str(theirs)], stdout=subprocess.PIPE)
    try:
        assert other.stdout and other.stdout.readline() == b"child made it\n"
        assert ours.exists()
        local_box.stop(server)
        assert not ours.exists() and theirs.exists()
    finally:
        other.kill()
        other.communicate()
        theirs.unlink()


def test_a_semaphore_that_somebody_else_made_stays(local_box: Box) -> None:
    """Its maker has it mapped under another name; a program that starts children looks it up by name later."""
    code = (
        "import multiprocessing, time\n"
        "lock = multiprocessing.get_context('spawn').Lock()\n"
        "print(lock._semlock.name, flush=True); time.sleep(600)"
    )
    server = local_box.launch()
    local_box.wait(server)
    other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert other.stdout
        made = Path("/dev/shm/sem." + other.stdout.readline().decode().strip().lstrip("/"))
        assert made.exists()
        local_box.stop(server)
        assert made.exists()
    finally:
        other.terminate()
        other.communicate()


def test_a_full_disk_is_told_before_anything_is_stopped(local_box: Box, tmp_path: Path) -> None:
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "df").write_text("#!/bin/sh\necho 'Filesystem 1024-blocks Used Available Capacity Mounted on'\n"
                             "echo '/dev/x 1000000 999000 1000 100% /'\n")  # fmt: skip
    (fake / "df").chmod(0o755)
    os.environ["PATH"] = f"{fake}:{os.environ['PATH']}"  # undone by the fixture's monkeypatch
    with pytest.raises(NeedsAttention, match="0 MiB free"):
        process.preflight(local_box.link, local_box.plan(), run_dir=local_box.run_dir)
    assert shutil.which("df") == str(fake / "df")
