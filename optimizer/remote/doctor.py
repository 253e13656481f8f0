"""`ratchet host check`: everything that a night depends on, looked at once, each finding with what to do.

Decides which facts matter and how they are judged. Changes nothing on the host but creating the run directory; a fault
of the connection is a finding like any other.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from optimizer.clock import Deadline
from optimizer.engines.base import EngineModule
from optimizer.errors import AuthenticationFailed, HostError, HostKeyRejected, NotFound, RatchetError
from optimizer.remote import gpu, home, scripts
from optimizer.remote.base import Finding, Gpu, HostLink, ProcessInfo
from optimizer.spec import HostEntry

CHECK_S = 60.0
NEEDED = ("setsid", "sed", "grep", "tail", "head", "cut", "tr", "wc", "df", "find", "sort", "mv", "sleep", "date",
          "readlink", "mkdir")  # fmt: skip
CLOCK_SKEW_S = 5.0
LOW_DISK_KIB = 2_097_152
LOW_SHM_KIB = 1_048_576
LOW_NOFILE = 4096
SLOW_COMMAND_S = 1.0
SKIPPED_AFTER_SSH = ("host key", "shell", "tools", "run directory", "disk", "shm", "clock", "gpus", "port", "guard")


@dataclass
class _Facts:
    """What the doctor's script printed."""

    words: dict[str, list[str]] = field(default_factory=dict)
    took_s: float = 0.0
    began_epoch: float = 0.0

    def first(self, key: str) -> str:
        return self.words.get(key, [""])[0]

    def number(self, key: str) -> int | None:
        text = self.first(key).split(" ")[0]
        return int(text) if text.isdigit() else None


def check(
    link: HostLink,
    entry: HostEntry,
    *,
    port: int | None = None,
    paths: Sequence[str] = (),
    engine: EngineModule | None = None,
    command: Sequence[str] = (),
    deadline: Deadline | None = None,
) -> list[Finding]:
    """Look at a host and judge it; never raises for what it finds.

    `port` and `paths` (models) come from a study or the home entry; with `engine` and `command` (of `launch`) the
    installed version is asked too.
    """
    deadline = deadline or Deadline.after(CHECK_S)
    first = _connection(link, entry, deadline)
    if first[0].level == "error":
        return [*first, *(Finding(name, "skipped", "not looked at: no connection") for name in SKIPPED_AFTER_SSH)]
    port = port or (home.from_entry(entry.home, default_port=0).port if entry.home else 0)
    try:
        facts = _facts(link, entry, port, paths, deadline)
        gpus = gpu.snapshot(link, deadline)
    except RatchetError as error:
        return [*first, Finding("shell", "error", error.message, error.remedy)]
    return [
        *first,
        _shell(facts),
        _tools(facts),
        _run_dir(facts),
        *_room(facts),
        _clock(facts),
        _limits(facts),
        *_gpus(entry, facts, gpus),
        *_runs(entry, facts),
        *_port(link, entry, facts, port, deadline),
        _guard(entry, facts),
        *_paths(facts),
        *_engine(link, engine, command, deadline),
    ]


def _connection(link: HostLink, entry: HostEntry, deadline: Deadline) -> list[Finding]:
    if entry.connection == "local":
        return [Finding("ssh", "ok", "this machine, no SSH"), Finding("host key", "skipped", "no SSH")]
    began = time.monotonic()
    try:
        link.sh("exit 0", deadline=deadline)
    except HostKeyRejected as error:
        return [Finding("ssh", "error", "the host answers, its key is not trusted", error.remedy),
                Finding("host key", "error", error.message, error.remedy)]  # fmt: skip
    except AuthenticationFailed as error:
        return [Finding("ssh", "error", error.message, error.remedy), Finding("host key", "ok", "trusted")]
    except HostError as error:
        return [Finding("ssh", "error", error.message, error.remedy)]
    took = time.monotonic() - began
    return [Finding("ssh", "ok", f"connected and logged in, {took:.2f} s", data={"connect_s": round(took, 3)}),
            Finding("host key", "ok", "trusted")]  # fmt: skip


def _facts(link: HostLink, entry: HostEntry, port: int, paths: Sequence[str], deadline: Deadline) -> _Facts:
    facts = _Facts(began_epoch=time.time())
    began = time.monotonic()
    done = scripts.call(link, "doctor", entry.run_dir, str(port), *paths, deadline=deadline)
    facts.took_s = time.monotonic() - began
    for line in done.text.splitlines():
        key, _, value = line.partition(" ")
        facts.words.setdefault(key, []).append(value)
    return facts


def _shell(facts: _Facts) -> Finding:
    user = facts.first("user").split(" ")[0]
    detail = f"user {user}, login shell {facts.first('shell')}, {facts.first('kernel')}"
    if facts.took_s > SLOW_COMMAND_S + 2:
        return Finding("shell", "warning", f"{detail}; a look took {facts.took_s:.1f} s",
                       "the host is overloaded or far away: readiness will be noticed late")  # fmt: skip
    return Finding("shell", "ok", detail, data={"kernel": facts.first("kernel")})


def _tools(facts: _Facts) -> Finding:
    have = set(facts.words.get("tool", []))
    missing = [name for name in NEEDED if name not in have]
    if "proc" not in facts.words or "nettcp" not in facts.words:
        return Finding("tools", "error", "/proc cannot be read", "Ratchet needs a Linux host with /proc mounted")
    if missing:
        return Finding("tools", "error", f"missing: {', '.join(missing)}",
                       "install util-linux and coreutils (or BusyBox) on the host")  # fmt: skip
    if "hidepid" in facts.words:
        return Finding("tools", "warning", "/proc hides other users' processes (hidepid)",
                       "who holds a port or a GPU cannot be named; log in as the user that runs the server")  # fmt: skip
    notes = [n for n, tool in (("no flock: a directory is the lock", "flock"),
                               ("sleep knows whole seconds only", "fractional-sleep")) if tool not in have]  # fmt: skip
    return Finding("tools", "ok", "everything needed is there" + (f" ({'; '.join(notes)})" if notes else ""))


def _run_dir(facts: _Facts) -> Finding:
    verdict, _, path = facts.first("rundir").partition(" ")
    if verdict != "ok":
        return Finding("run directory", "error", f"{path} cannot be written",
                       "correct run_dir in the host's file, or its owner and mode on the host")  # fmt: skip
    return Finding("run directory", "ok", path)


def _room(facts: _Facts) -> Iterator[Finding]:
    for key, name, low, why in (
        ("disk_kib", "disk", LOW_DISK_KIB, "logs and compile caches need room: free some, or move run_dir"),
        ("shm_kib", "shm", LOW_SHM_KIB, "NCCL and workers share memory there: enlarge /dev/shm (--shm-size in a "
         "container), or remove segments of dead processes"),
    ):  # fmt: skip
        free = facts.number(key)
        if free is None:
            yield Finding(name, "skipped", "df does not tell")
            continue
        extra = f", {facts.first('shm_segments')} segments of NCCL or workers" if name == "shm" else ""
        level = "warning" if free < low else "ok"
        yield Finding(name, level, f"{free / 1_048_576:.1f} GiB free{extra}", why if level != "ok" else "",
                      data={"free_kib": free})  # fmt: skip


def _clock(facts: _Facts) -> Finding:
    epoch = facts.number("epoch")
    if epoch is None:
        return Finding("clock", "skipped", "date does not tell")
    skew = epoch - facts.began_epoch
    if abs(skew) > CLOCK_SKEW_S + facts.took_s:
        return Finding("clock", "warning", f"differs from here by {skew:+.0f} s",
                       "switch time synchronisation on; only times in logs are affected", {"skew_s": skew})  # fmt: skip
    return Finding("clock", "ok", "agrees with this machine's", data={"skew_s": round(skew, 1)})


def _limits(facts: _Facts) -> Finding:
    nofile = facts.number("nofile")
    if "killuser" in facts.words:
        return Finding("limits", "error", "logind ends a user's processes at logout (KillUserProcesses=yes)",
                       "run `loginctl enable-linger` for the login user and set KillUserProcesses=no")  # fmt: skip
    if nofile is not None and nofile < LOW_NOFILE:
        return Finding("limits", "warning", f"at most {nofile} open files", "raise nofile in limits.conf")
    return Finding("limits", "ok", f"{nofile or 'unlimited'} open files")


def _gpus(entry: HostEntry, facts: _Facts, gpus: Sequence[Gpu]) -> Iterator[Finding]:
    if not gpus:
        why = "nvidia-smi is missing" if "nvidia-smi" not in facts.words.get("tool", []) else facts.first("driver")
        if entry.gpus:
            yield Finding("gpus", "error", f"the host's file names GPUs {entry.gpus}, but {why}",
                          "install the NVIDIA driver, or set `gpus: none`")  # fmt: skip
        else:
            yield Finding("gpus", "ok", f"none ({why}); memory after a stop cannot be proved")
        return
    wanted = set(entry.gpus if entry.gpus is not None else [g.index for g in gpus])
    missing = sorted(wanted - {g.index for g in gpus})
    if missing:
        yield Finding("gpus", "error", f"GPU {', '.join(map(str, missing))} of the host's file does not exist",
                      f"the host has GPUs {', '.join(str(g.index) for g in gpus)}")  # fmt: skip
    used = [g for g in gpus if g.index in wanted]
    names = sorted({g.name for g in used})
    yield Finding("gpus", "ok", f"{len(used)} x {', '.join(names)}, driver {facts.first('driver')}",
                  data={"count": len(used), "driver": facts.first("driver"), "names": names})  # fmt: skip
    yield from _gpu_users(facts, used)


def _gpu_users(facts: _Facts, gpus: Sequence[Gpu]) -> Iterator[Finding]:
    known = {p.pid: p for p in map(scripts.parse_process, facts.words.get("gpuproc", []))}
    rows = [(g.index, pid, mib) for g in gpus for pid, mib in g.processes]
    foreign = [(i, pid, mib) for i, pid, mib in rows if pid not in known or known[pid].run_id is None]
    if not foreign:
        yield Finding("gpu users", "ok", "only our own" if rows else "nobody")
        return
    told = "; ".join(f"GPU {i}: {_name(known.get(pid), pid)} {mib} MiB" for i, pid, mib in foreign[:8])
    yield Finding("gpu users", "warning", told,
                  "if this is not the original server, measurements will be disturbed: Ratchet never ends it")  # fmt: skip


def _name(process: ProcessInfo | None, pid: int) -> str:
    return scripts.tell(process) if process is not None and process.start_ticks else f"pid {pid} (not visible to us)"


def _runs(entry: HostEntry, facts: _Facts) -> Iterator[Finding]:
    trials = [r.split(" ")[0] for r in facts.words.get("run", []) if r.endswith(" trial")]
    if trials:
        yield Finding("our servers", "warning", f"{len(trials)} of an earlier study alive: {', '.join(trials)}",
                      f"`ratchet host restore {entry.name}` stops it, if no study is running")  # fmt: skip
    else:
        yield Finding("our servers", "ok", "no leftover")


def _port(link: HostLink, entry: HostEntry, facts: _Facts, port: int, deadline: Deadline) -> Iterator[Finding]:
    if not port:
        yield Finding("port", "skipped", "no port known; a study or `home.url` names it")
        return
    found = [scripts.parse_process(line) for line in facts.words.get("listener", [])]
    if not found:
        yield Finding("port", "ok", f"{port} is free")
        return
    who = scripts.tell(found[0])
    if not entry.takeover and found[0].run_id is None:
        yield Finding("port", "error", f"{port} is held by {who}",
                      "set `takeover: true` if Ratchet may stop it and put it back, or choose another port")  # fmt: skip
        return
    yield Finding("port", "ok", f"{port} is held by {who}")
    if entry.home is not None:
        yield Finding("home", "ok", "given in the host's file")
        return
    try:
        original = home.find(link, port, deadline, run_dir=entry.run_dir)
    except NotFound as error:
        yield Finding("home", "warning", error.message, error.remedy)
    except RatchetError as error:
        yield Finding("home", "error", error.message, error.remedy)
    else:
        program = PurePosixPath(original.argv[0]).name if original.argv else "?"
        how = f"unit {original.systemd_unit}" if original.systemd_unit else f"{program}, {len(original.argv)} arguments"
        yield Finding("home", "ok", f"can be put back: {how} (found in {original.found})")


def _guard(entry: HostEntry, facts: _Facts) -> Finding:
    words = facts.words.get("guard", [])
    fired = next((w.removeprefix("fired ") for w in words if w.startswith("fired ")), "")
    if fired:
        return Finding("guard", "warning", f"has acted: {fired}",
                       "the original server was put back; the next study arms a new guard")  # fmt: skip
    if "armed" in words and "alive" not in words:
        return Finding("guard", "warning", "armed but not running",
                       "the host was rebooted or its process was killed; a running study starts it again")  # fmt: skip
    if not entry.guard.enabled:
        return Finding("guard", "warning", "switched off in the host's file",
                       "without it nobody puts the original server back when this machine dies")  # fmt: skip
    return Finding("guard", "ok", "armed and alive" if "armed" in words else "none armed")


def _paths(facts: _Facts) -> Iterator[Finding]:
    for line in facts.words.get("path", []):
        verdict, _, path = line.partition(" ")
        if verdict == "ok":
            yield Finding("path", "ok", path)
        else:
            yield Finding("path", "error", f"{path} is not there or cannot be read", "correct it in the specification")


def _engine(
    link: HostLink, engine: EngineModule | None, command: Sequence[str], deadline: Deadline
) -> Iterator[Finding]:
    if engine is None or not command:
        yield Finding("engine", "skipped", "no launch command known; a study names it")
        return
    argv = engine.version_argv(command)
    try:
        done = link.run(["/bin/sh", "-c", 'case $1 in "~/"*) p=$HOME/${1#??}; shift; exec "$p" "$@";; *) exec "$@";; esac',
                         "sh", *argv], deadline=deadline)  # fmt: skip
    except HostError as error:
        yield Finding("engine", "error", error.message, error.remedy)
        return
    version = engine.parse_version(done.text + "\n" + done.error_text)
    if version is None:
        said = (done.error_text or done.text).strip().splitlines()[-1:] or ["nothing"]
        yield Finding("engine", "error", f"{engine.name} does not tell its version (status {done.exit_code}): {said[0][:200]}",
                      f"run `{' '.join(argv)}` on the host; check launch.command")  # fmt: skip
    else:
        yield Finding("engine", "ok", f"{engine.name} {version}", data={"version": version})
