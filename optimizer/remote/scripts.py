"""The shell scripts that run on a host, and how their refusals become errors.

Decides which script text is sent (`sh/lib.sh` plus one body) and the meaning of every `!word` line that a script
prints when it refuses. Leaves the meaning of everything else a script prints to its caller.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from importlib import resources
from typing import TypeVar

import structlog

from optimizer.clock import Deadline
from optimizer.errors import (
    CommandFailed,
    ConnectionLost,
    FenceRefused,
    HostBusy,
    HostError,
    NeedsAttention,
    NotFound,
    PortTaken,
    Unreachable,
)
from optimizer.remote.base import Completed, HostLink, ProcessInfo

log = structlog.get_logger(__name__)
T = TypeVar("T")
FIRST_PAUSE_S = 0.2
LAST_PAUSE_S = 3.0
"""Between two attempts to reach a host again: quick after a blip, slow while a VPN comes back."""
REFUSED = 90
"""Exit status of a script that refused and said why on a line that starts with `!`."""


@functools.cache
def text(name: str) -> str:
    """Return the script `sh/NAME.sh` with the shared functions in front."""
    folder = resources.files("optimizer.remote") / "sh"
    lib = (folder / "lib.sh").read_text("utf-8")
    return lib if name == "lib" else _slim(lib + "\n" + (folder / f"{name}.sh").read_text("utf-8"))


def _slim(script: str) -> str:
    """Drop comment lines: every script crosses the network at each call."""
    return "\n".join(line for line in script.split("\n") if not line.lstrip().startswith("#")) + "\n"


def persist(link: HostLink, action: Callable[[Deadline], T], deadline: Deadline, *, outage_s: float | None = None) -> T:
    """Do something that is harmless when repeated, again after a cut connection, until it works or time is over.

    An outage is waited for `outage_s` (the link's own patience) beyond the deadline; what is done after it has the
    time that it had at first. A host that was never reached is not waited for: its first failure is told at once.

    Raises:
        Whatever `action` raises when it is no fault of the connection, or the last such fault when time is over.
    """
    work_s = deadline.left_s
    give_up = Deadline(deadline.at_s + (link.outage_s if outage_s is None else outage_s))
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return action(deadline)
        except (ConnectionLost, Unreachable) as error:
            if not link.connections or give_up.left_s < pause_s + 0.5:
                raise
            if pause_s == FIRST_PAUSE_S:
                log.warning("link.lost", host=link.name, error=error.message)
        time.sleep(pause_s)
        pause_s = min(LAST_PAUSE_S, pause_s * 2)
        deadline = give_up.sooner(work_s)


def call(link: HostLink, name: str, *args: str, deadline: Deadline, outage_s: float | None = None) -> Completed:
    """Run one script and return its output; every script may be repeated, so a cut connection is survived.

    `outage_s` as for `persist`.

    Raises:
        FenceRefused, HostBusy, PortTaken, NotFound, NeedsAttention: the script refused.
        CommandFailed: it ended in a way that it never should; carries its standard error.
    """
    done = persist(link, lambda limit: link.sh(text(name), *args, deadline=limit), deadline, outage_s=outage_s)
    if done.exit_code == REFUSED:
        raise refusal(link.name, done)
    if done.exit_code != 0:
        raise CommandFailed(
            link.name,
            f"{link.name}: the script {name} ended with status {done.exit_code}: {done.error_text.strip()[-300:]}",
            exit_code=done.exit_code,
            stderr=done.error_text,
            remedy=f"run `ratchet host check {link.name}`: a basic tool may be missing there",
        )
    return done


def refusal(host: str, done: Completed) -> HostError | NotFound:
    """Turn the `!word` line of a script into the error that it means."""
    lines = [line for line in done.text.splitlines() if line.startswith("!")]
    word, _, rest = (lines[-1][1:] if lines else "unknown").partition(" ")
    make = _REFUSALS.get(word)
    if make is None:
        return CommandFailed(host, f"{host}: refused: {word} {rest}", exit_code=REFUSED, stderr=done.error_text)
    return make(host, rest)


def _fence(host: str, rest: str) -> HostError:
    return FenceRefused(
        host,
        f"{host}: a newer owner (fence {rest}) has taken this host over",
        remedy="another Ratchet runs a study here; stop it there, or let its lease run out",
    )


def _busy(host: str, rest: str) -> HostError:
    return HostBusy(
        host,
        f"{host}: another process holds the lock on the host",
        remedy="wait for the other launch, stop or restore to end and try again",
    )


def _fired(host: str, rest: str) -> HostError:
    return FenceRefused(
        host,
        f"{host}: the guard has restored the original server ({rest.strip() or 'see its log'})",
        remedy="read the guard's history and start again: arming a new guard takes the host back",
    )


def _port(host: str, rest: str) -> HostError:
    process = parse_process(rest)
    error = PortTaken(
        host,
        f"{host}: the port is held by {tell(process)}",
        remedy="set `takeover: true` if Ratchet may stop it and put it back, or choose another port",
    )
    error.process = process  # type: ignore[attr-defined]
    return error


def _alive(host: str, rest: str) -> HostError:
    run_id, _, kind = rest.partition(" ")
    return PortTaken(
        host,
        f"{host}: run {run_id} ({kind or 'trial'}) of an earlier start is still alive",
        remedy=f"stop it first: `ratchet host restore {host}` stops leftovers and restores the original server",
    )


def _rundir(host: str, rest: str) -> HostError:
    return NeedsAttention(
        host,
        f"{host}: cannot write to {rest}",
        remedy="check that the disk is not full and that run_dir belongs to the login user",
    )


def _start(host: str, rest: str) -> HostError:
    return CommandFailed(
        host,
        f"{host}: the launcher did not start: {rest[-300:]}",
        exit_code=REFUSED,
        stderr=rest,
        remedy=f"run `ratchet host check {host}`: setsid or /bin/sh may be missing",
    )


def _smi(host: str, rest: str) -> HostError:
    return NeedsAttention(
        host,
        f"{host}: nvidia-smi does not answer",
        remedy="the driver may hang: look at `dmesg` on the host; a reboot may be needed",
    )


def _unarmed(host: str, rest: str) -> NotFound:
    return NotFound(f"{host}: no guard is armed on the host", remedy="arm one before the original server is stopped")


_REFUSALS: dict[str, Callable[[str, str], HostError | NotFound]] = {
    "fence": _fence,
    "busy": _busy,
    "fired": _fired,
    "port": _port,
    "alive": _alive,
    "rundir": _rundir,
    "start": _start,
    "smi": _smi,
    "unarmed": _unarmed,
}


def parse_process(line: str) -> ProcessInfo:
    """Read one line of `r_describe`."""
    pid, start, pgid, session, uid, run_id, command = (line.split(" ", 6) + [""] * 7)[:7]
    return ProcessInfo(
        pid=int(pid),
        start_ticks=int(start or 0),
        pgid=int(pgid or 0),
        session=int(session or 0),
        uid=int(uid or -1),
        command=command.strip(),
        run_id=None if run_id in {"-", ""} else run_id,
    )


def tell(process: ProcessInfo) -> str:
    """Say who a process is, in a few words."""
    if process.pid == 0:
        return f"a process of another user (uid {process.uid})"
    return f"pid {process.pid} (uid {process.uid}): {process.command[:120]}"
