"""How the facts of a host are judged, each as one finding with what to do. Pure; `doctor.py` gathers the facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from optimizer.remote import scripts
from optimizer.remote.base import Finding, Gpu, ProcessInfo
from optimizer.spec import HostEntry

NEEDED = (
    "setsid",
    "sed",
    "grep",
    "tail",
    "head",
    "cut",
    "tr",
    "wc",
    "df",
    "find",
    "sort",
    "mv",
    "sleep",
    "date",
    "readlink",
    "mkdir",
)
CLOCK_SKEW_S = 5.0
MIN_DISK_KIB = 65_536
LOW_DISK_KIB = 2_097_152
LOW_SHM_KIB = 1_048_576
LOW_NOFILE = 4096
SHM_REMEDY = (
    "NCCL and workers share memory there: enlarge /dev/shm (--shm-size in a container), "
    "or remove segments of dead processes"
)
SLOW_COMMAND_S = 1.0


@dataclass
class Facts:
    """What the doctor's script printed."""

    words: dict[str, list[str]] = field(default_factory=dict)
    took_s: float = 0.0
    began_epoch: float = 0.0

    def first(self, key: str) -> str:
        """Return the first value under a key, empty when there is none."""
        return self.words.get(key, [""])[0]

    def number(self, key: str) -> int | None:
        """Return the first value as a number, None when it is none."""
        text = self.first(key).split(" ")[0]
        return int(text) if text.isdigit() else None


def shell(facts: Facts) -> Finding:
    """Judge who logs in and how fast the host answers."""
    user = facts.first("user").split(" ")[0]
    detail = f"user {user}, login shell {facts.first('shell')}, {facts.first('kernel')}"
    if facts.took_s > SLOW_COMMAND_S + 2:
        return Finding(
            "shell",
            "warning",
            f"{detail}; a look took {facts.took_s:.1f} s",
            "the host is overloaded or far away: readiness will be noticed late",
        )
    return Finding("shell", "ok", detail, data={"kernel": facts.first("kernel")})


def tools(facts: Facts) -> Finding:
    """Judge the tools and /proc that the scripts need."""
    have = set(facts.words.get("tool", []))
    missing = [name for name in NEEDED if name not in have]
    if "proc" not in facts.words or "nettcp" not in facts.words:
        return Finding("tools", "error", "/proc cannot be read", "Ratchet needs a Linux host with /proc mounted")
    if missing:
        return Finding(
            "tools",
            "error",
            f"missing: {', '.join(missing)}",
            "install util-linux and coreutils (or BusyBox) on the host",
        )
    if "hidepid" in facts.words:
        return Finding(
            "tools",
            "warning",
            "/proc hides other users' processes (hidepid)",
            "who holds a port or a GPU cannot be named; log in as the user that runs the server",
        )
    notes = [
        n
        for n, tool in (
            ("no flock: a directory is the lock", "flock"),
            ("sleep knows whole seconds only", "fractional-sleep"),
        )
        if tool not in have
    ]
    if "scope" in facts.words:
        notes.append("each server gets a systemd scope of its own")
    return Finding("tools", "ok", "everything needed is there" + (f" ({'; '.join(notes)})" if notes else ""))


def run_dir(facts: Facts) -> Finding:
    """Judge the run directory."""
    verdict, _, path = facts.first("rundir").partition(" ")
    if verdict != "ok":
        return Finding(
            "run directory",
            "error",
            f"cannot be written: {path}",
            "correct run_dir in the host's file, free its disk, or change its owner and mode on the host",
        )
    return Finding("run directory", "ok", path)


def room(facts: Facts) -> Iterator[Finding]:
    """Judge disk and shared memory."""
    for key, name, low, why in (
        ("disk_kib", "disk", LOW_DISK_KIB, "logs and compile caches need room: free some, or move run_dir"),
        ("shm_kib", "shm", LOW_SHM_KIB, SHM_REMEDY),
    ):
        free = facts.number(key)
        if free is None:
            yield Finding(name, "skipped", "df does not tell")
            continue
        extra = f", {facts.first('shm_segments')} segments of NCCL or workers" if name == "shm" else ""
        level = "error" if name == "disk" and free < MIN_DISK_KIB else "warning" if free < low else "ok"
        yield Finding(
            name,
            level,
            f"{free / 1_048_576:.1f} GiB free{extra}",
            why if level != "ok" else "",
            data={"free_kib": free},
        )


def clock(facts: Facts) -> Finding:
    """Compare the host's clock with ours."""
    epoch = facts.number("epoch")
    if epoch is None:
        return Finding("clock", "skipped", "date does not tell")
    skew = epoch - facts.began_epoch
    if abs(skew) > CLOCK_SKEW_S + facts.took_s:
        return Finding(
            "clock",
            "warning",
            f"differs from here by {skew:+.0f} s",
            "switch time synchronisation on; only times in logs are affected",
            {"skew_s": skew},
        )
    return Finding("clock", "ok", "agrees with this machine's", data={"skew_s": round(skew, 1)})


def limits(facts: Facts) -> Finding:
    """Judge limits of the login user."""
    nofile = facts.number("nofile")
    if "killuser" in facts.words:
        return Finding(
            "limits",
            "error",
            "logind ends a user's processes at logout (KillUserProcesses=yes)",
            "run `loginctl enable-linger` for the login user and set KillUserProcesses=no",
        )
    if nofile is not None and nofile < LOW_NOFILE:
        return Finding("limits", "warning", f"at most {nofile} open files", "raise nofile in limits.conf")
    return Finding("limits", "ok", f"{nofile or 'unlimited'} open files")


def gpus(entry: HostEntry, facts: Facts, gpus: Sequence[Gpu]) -> Iterator[Finding]:
    """Judge the GPUs and who uses them."""
    if not gpus:
        yield _no_gpus(entry, facts)
        return
    wanted = set(entry.gpus if entry.gpus is not None else [g.index for g in gpus])
    missing = sorted(wanted - {g.index for g in gpus})
    if missing:
        yield Finding(
            "gpus",
            "error",
            f"GPU {', '.join(map(str, missing))} of the host's file does not exist",
            f"the host has GPUs {', '.join(str(g.index) for g in gpus)}",
        )
    used = [g for g in gpus if g.index in wanted]
    names = sorted({g.name for g in used})
    yield Finding(
        "gpus",
        "ok",
        f"{len(used)} x {', '.join(names)}, driver {facts.first('driver')}",
        data={"count": len(used), "driver": facts.first("driver"), "names": names},
    )
    yield from _gpu_users(facts, used)


def _no_gpus(entry: HostEntry, facts: Facts) -> Finding:
    said = facts.first("smi")
    why = f"nvidia-smi: {said}" if said else "nvidia-smi is missing"
    if entry.gpus:
        named = f"the host's file names GPUs {entry.gpus}, but {why}"
        return Finding("gpus", "error", named, "install or repair the NVIDIA driver, or set `gpus: none`")
    if said:
        remedy = "repair the driver (see `dmesg`; a reboot may be needed), or remove nvidia-smi if no GPU is used"
        return Finding("gpus", "error" if "not answer" in said else "warning", why, remedy)
    return Finding("gpus", "ok", f"none ({why}); memory after a stop cannot be proved")


def _gpu_users(facts: Facts, gpus: Sequence[Gpu]) -> Iterator[Finding]:
    known = {p.pid: p for p in map(scripts.parse_process, facts.words.get("gpuproc", []))}
    rows = [(g.index, pid, mib) for g in gpus for pid, mib in g.processes]
    foreign = [(i, pid, mib) for i, pid, mib in rows if pid not in known or known[pid].run_id is None]
    if not foreign:
        yield Finding("gpu users", "ok", "only our own" if rows else "nobody")
        return
    told = "; ".join(f"GPU {i}: {_name(known.get(pid), pid)} {mib} MiB" for i, pid, mib in foreign[:8])
    yield Finding(
        "gpu users",
        "warning",
        told,
        "if this is not the original server, measurements will be disturbed: Ratchet never ends it",
    )


def _name(process: ProcessInfo | None, pid: int) -> str:
    return scripts.tell(process) if process is not None and process.start_ticks else f"pid {pid} (not visible to us)"


def runs(entry: HostEntry, facts: Facts) -> Iterator[Finding]:
    """Tell servers of ours that are still alive."""
    trials = [r.split(" ")[0] for r in facts.words.get("run", []) if r.endswith(" trial")]
    if trials:
        yield Finding(
            "our servers",
            "warning",
            f"{len(trials)} of an earlier study alive: {', '.join(trials)}",
            f"`ratchet host restore {entry.name}` stops it, if no study is running",
        )
    else:
        yield Finding("our servers", "ok", "no leftover")


def guard(entry: HostEntry, facts: Facts) -> Finding:
    """Tell the state of the dead man's switch."""
    words = facts.words.get("guard", [])
    fired = next((w.removeprefix("fired ") for w in words if w.startswith("fired ")), "")
    if fired:
        return Finding(
            "guard",
            "warning",
            f"has acted: {fired}",
            "the original server was put back; the next study arms a new guard",
        )
    if "armed" in words and "alive" not in words:
        return Finding(
            "guard",
            "warning",
            "armed but not running",
            "the host was rebooted or its process was killed; a running study starts it again",
        )
    if not entry.guard.enabled:
        return Finding(
            "guard",
            "warning",
            "switched off in the host's file",
            "without it nobody puts the original server back when this machine dies",
        )
    return Finding("guard", "ok", "armed and alive" if "armed" in words else "none armed")


def paths(facts: Facts) -> Iterator[Finding]:
    """Tell which of the paths asked for can be read."""
    for line in facts.words.get("path", []):
        verdict, _, path = line.partition(" ")
        if verdict == "ok":
            yield Finding("path", "ok", path)
        else:
            yield Finding("path", "error", f"{path} is not there or cannot be read", "correct it in the specification")
