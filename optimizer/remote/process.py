"""One server process on a host, from birth to proof of death.

Decides what a launch checks first, what counts as stopped and how long each step may take. What happens on the host is
in `sh/*.sh` (one remote command per verb); quoting is in `launcher.py`, GPU memory in `gpu.py`.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import replace

from optimizer.clock import Deadline
from optimizer.engines.base import LaunchPlan
from optimizer.errors import NeedsAttention, PortTaken
from optimizer.remote import gpu, launcher, scripts
from optimizer.remote.base import Completed, HostLink, ProcessInfo, RunningServer, ServerStatus, StopProof

TERM_WAIT_S = 15.0
"""From SIGTERM to SIGKILL. SGLang looks for SIGTERM every 5 s and drains; more is load that should have ended."""
KILL_WAIT_S = 10.0
"""From SIGKILL to giving up: only a process stuck in a driver outlives it."""
LOCK_WAIT_S = 30.0
COMMAND_S = 15.0
"""A short look at the host (status, log, listeners) takes milliseconds; this is for a very slow one."""
LOG_CHUNK_BYTES = 262_144
KINDS = ("trial", "home")


def new_run_id() -> str:
    """Return a fresh run id (a random UUID)."""
    return str(uuid.uuid4())


def _hundredths(seconds: float) -> str:
    return str(max(1, int(seconds * 100)))


def fence_word(fence: int | None) -> str:
    """Return a fence as the scripts take it."""
    return "-" if fence is None else str(fence)


def lock_wait(deadline: Deadline) -> str:
    """Return how long a script may wait for the host's lock, in hundredths of a second."""
    return _hundredths(min(LOCK_WAIT_S, max(0.1, deadline.left_s - 2)))


def preflight(
    link: HostLink, plan: LaunchPlan, *, run_dir: str, foreign_ok: bool = False, deadline: Deadline | None = None
) -> list[str]:
    """Look before anything is touched: port free, run directory writable, room on disk and in shared memory.

    `foreign_ok` accepts a server on the port (it will be taken over). Returns warnings for people to read.

    Raises:
        PortTaken: somebody else's server holds the port.
        NeedsAttention: the run directory cannot be written, or the disk is full.
    """
    deadline = deadline or Deadline.after(COMMAND_S)
    done = scripts.call(link, "preflight", run_dir, str(plan.port), deadline=deadline)
    warnings: list[str] = []
    for line in done.text.splitlines():
        word, _, rest = line.partition(" ")
        if word == "listener" and not foreign_ok:
            raise scripts.refusal(link.name, Completed(90, f"!port {rest}".encode(), b""))
        if word in {"disk", "shm"}:
            _room(link, word, int(rest), warnings)
    return warnings


MIN_DISK_KIB = 65_536
LOW_DISK_KIB = 2_097_152
LOW_SHM_KIB = 262_144


def _room(link: HostLink, what: str, free_kib: int, warnings: list[str]) -> None:
    if what == "disk" and free_kib < MIN_DISK_KIB:
        raise NeedsAttention(
            link.name,
            f"{link.name}: only {free_kib // 1024} MiB free where run_dir is",
            remedy="free disk space; logs of old runs are removed by themselves after a week",
        )
    if what == "disk" and free_kib < LOW_DISK_KIB:
        warnings.append(f"only {free_kib // 1024} MiB free where run_dir is")
    if what == "shm" and free_kib < LOW_SHM_KIB:
        warnings.append(f"only {free_kib // 1024} MiB free in /dev/shm: NCCL and workers may fail to start")


def launch(
    link: HostLink,
    plan: LaunchPlan,
    *,
    run_id: str,
    run_dir: str,
    fence: int | None,
    deadline: Deadline,
    kind: str = "trial",
    clean_env: bool = False,
    user: str | None = None,
    umask: str = "",
    watch_gpu: bool = True,
) -> RunningServer:
    """Start a server in a session of its own and return once its process exists; it is not ready yet.

    Asking twice with one `run_id` starts once: after a cut connection the same call finds what it started.
    `kind` is `trial` or `home`. `clean_env` gives the server exactly `plan.env`. `fence` None is for a person who
    takes the host back.

    Raises:
        BadInput: a name or value that no process can receive; nothing was sent.
        PortTaken: the port is held, or a server of an earlier run is still alive.
        FenceRefused: a newer owner has the host, or the guard has restored the original server.
        HostBusy: the host's lock was not free in time.
        HostError: any fault of the connection.
    """
    assert kind in KINDS
    text = launcher.script(plan.argv, plan.env, plan.cwd, run_id=run_id, clean_env=clean_env, user=user, umask=umask)
    command_line = launcher.masked_command(plan.argv, plan.env, secret_env=plan.secret_env)
    meta = json.dumps({"port": plan.port, "command_line": command_line, "served_model": plan.served_model})
    done = scripts.call(
        link, "launch", run_dir, run_id, fence_word(fence), lock_wait(deadline), str(plan.port), kind, meta,
        "1" if watch_gpu else "0", text, deadline=deadline,
    )  # fmt: skip
    words = {line.split(" ")[0]: line.split(" ", 1)[1] for line in done.text.splitlines() if " " in line}
    pid, start = words["started"].split(" ")
    return RunningServer(
        run_id=run_id,
        pid=int(pid),
        start_ticks=int(start),
        run_dir=words["dir"],
        log_path=launcher.log_path(words["dir"]),
        port=plan.port,
        command_line=command_line,
        kind=kind,
    )


def _base_of(server: RunningServer) -> str:
    return server.run_dir.rsplit("/runs/", 1)[0]


def status(
    link: HostLink,
    server: RunningServer,
    *,
    log_offset: int = 0,
    deadline: Deadline | None = None,
    log_limit: int = LOG_CHUNK_BYTES,
) -> ServerStatus:
    """Look at a server once: alive, exit status, its processes, who listens, new log bytes. One remote command."""
    done = scripts.call(
        link, "status", _base_of(server), server.run_id, str(server.pid), str(server.start_ticks), str(server.port),
        str(log_offset), str(log_limit), deadline=deadline or Deadline.after(COMMAND_S),
    )  # fmt: skip
    head, _, chunk = done.stdout.partition(b"\nlog\n")
    words = {k: v for k, _, v in (line.partition(" ") for line in head.decode("utf-8", "replace").splitlines())}
    return ServerStatus(
        alive=words["alive"] == "1",
        exit_code=None if words["exit"] == "-" else int(words["exit"]),
        pids=_numbers(words.get("pids", "")),
        listening_pids=_numbers(words.get("listen", "")),
        log_size=int(words["size"]),
        cpu_ticks=int(words["cpu"]),
        log_chunk=chunk,
        rebooted="rebooted" in words,
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split())


def read_log(
    link: HostLink, server: RunningServer, *, offset: int = 0, limit: int = LOG_CHUNK_BYTES,
    deadline: Deadline | None = None,
) -> bytes:  # fmt: skip
    """Read log bytes from `offset` (negative: that many from the end), at most `limit`."""
    body = (
        'r_size=$(wc -c <"$1" 2>/dev/null) || exit 0\nif [ "$2" -lt 0 ]; then tail -c "$((-$2))" "$1";'
        ' else tail -c "+$(($2 + 1))" "$1"; fi | head -c "$3"'
    )
    args = (server.log_path, str(offset), str(limit))
    deadline = deadline or Deadline.after(COMMAND_S)
    done = scripts.persist(link, lambda until: link.sh(body, *args, deadline=until), deadline)
    return done.stdout


def listeners(link: HostLink, port: int, deadline: Deadline | None = None) -> list[ProcessInfo]:
    """Tell who listens on a port of the host; pid 0 stands for a process that we are not allowed to see."""
    done = scripts.call(link, "listeners", str(port), deadline=deadline or Deadline.after(COMMAND_S))
    return [scripts.parse_process(line) for line in done.text.splitlines() if line]


def find_runs(link: HostLink, *, run_dir: str, deadline: Deadline | None = None) -> list[RunningServer]:
    """List every server of ours that is alive on the host (any process of it), whoever started it."""
    done = scripts.call(link, "find", run_dir, deadline=deadline or Deadline.after(COMMAND_S))
    lines = done.text.splitlines()
    found = []
    for head, meta_line in zip(lines[::2], lines[1::2], strict=False):
        _, run_id, kind, pid, start, directory = head.split(" ", 5)
        meta = _meta(meta_line)
        found.append(
            RunningServer(
                run_id=run_id,
                pid=int(pid),
                start_ticks=int(start),
                run_dir=directory,
                log_path=launcher.log_path(directory),
                port=int(str(meta.get("port", 0))),
                command_line=str(meta.get("command_line", "")),
                kind=kind,
            )
        )
    return found


def _meta(line: str) -> dict[str, object]:
    try:
        return dict(json.loads(line))
    except ValueError:  # cut by a full disk; the processes of the run are found without it
        return {}


def stop(
    link: HostLink,
    server: RunningServer,
    *,
    run_dir: str,
    fence: int | None,
    deadline: Deadline,
    term_wait_s: float = TERM_WAIT_S,
    kill_wait_s: float = KILL_WAIT_S,
    after_guard: bool = False,
) -> StopProof:
    """Stop a server of ours and prove that it is gone: no process, port free, GPU memory back.

    Ends as soon as everything is proved; the GPU memory is waited for until `deadline`. Without a fence a person takes
    the host back; `after_guard` allows it although the guard has acted.

    Raises:
        NeedsAttention: something is left that cannot be removed; nothing may be started until a human looked.
        FenceRefused, HostBusy: as for `launch`.
    """
    began = time.monotonic()
    term_s, kill_s = _waits(deadline, term_wait_s, kill_wait_s)
    done = scripts.call(
        link, "stop", run_dir, server.run_id, fence_word(fence), lock_wait(deadline), _hundredths(term_s),
        _hundredths(kill_s), str(server.port), str(server.pid), "1" if after_guard else "0", deadline=deadline,
    )  # fmt: skip
    before = gpu.parse_levels([x[4:] for x in done.text.splitlines() if x.startswith("gpu ")])
    proof = proof_of(link, done, began=began, port=server.port)
    if before:
        gpu.wait_until_back(link, before, deadline=deadline)
    return replace(proof, gpu_memory_back=True, elapsed_s=time.monotonic() - began)


def _waits(deadline: Deadline, term_wait_s: float, kill_wait_s: float) -> tuple[float, float]:
    """Cut the waits so that SIGKILL is still sent, and its effect seen, before the deadline."""
    kill_s = min(kill_wait_s, max(1.0, deadline.left_s / 3))
    return min(term_wait_s, max(0.5, deadline.left_s - kill_s - 2)), kill_s


def stop_processes(
    link: HostLink, pids: list[tuple[int, int]], *, run_dir: str, fence: int | None, port: int, deadline: Deadline,
    term_wait_s: float = TERM_WAIT_S, kill_wait_s: float = KILL_WAIT_S,
) -> StopProof:  # fmt: skip
    """Stop processes given as (pid, start time) with their descendants: for a home that we did not start."""
    began = time.monotonic()
    term_s, kill_s = _waits(deadline, term_wait_s, kill_wait_s)
    done = scripts.call(
        link, "stop", run_dir, "-", fence_word(fence), lock_wait(deadline), _hundredths(term_s), _hundredths(kill_s),
        str(port), str(pids[0][0]) if pids else "", "0", *(f"{p}:{s}" for p, s in pids), deadline=deadline,
    )  # fmt: skip
    return proof_of(link, done, began=began, port=port)


def proof_of(link: HostLink, done: Completed, *, began: float, port: int) -> StopProof:
    """Read what the stop script saw. Raises NeedsAttention when a process or the port is left."""
    lines = [line.partition(" ") for line in done.text.splitlines()]
    left = [rest for word, _, rest in lines if word == "left"]
    if left:
        raise NeedsAttention(
            link.name,
            f"{link.name}: still alive after SIGKILL: pid {'; pid '.join(left)}",
            remedy="state D means that the process hangs in a driver and only a reboot helps; then try again",
        )
    held = [scripts.parse_process(rest) for word, _, rest in lines if word == "port"]
    words = {word: rest for word, _, rest in lines}
    if held:
        raise PortTaken(
            link.name,
            f"{link.name}: stopped, but port {port} is now held by {scripts.tell(held[0])}",
            remedy="something restarts a server there: name its systemd unit in `home`, or stop its supervisor",
        )
    return StopProof(
        pids_signalled=_numbers(words.get("signalled", "")),
        killed=words.get("killed") == "1",
        port_free=True,
        gpu_memory_back=True,
        elapsed_s=time.monotonic() - began,
    )
