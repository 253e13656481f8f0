"""What the kernel of a host says about a server that died: killed for lack of memory, a fault, a broken GPU.

Decides which of its lines are about this server; what they mean is `engines.kernel_log`. Where the log may not be read,
the memory cgroup's own count of kills still tells that there was one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import structlog

from optimizer.clock import Deadline
from optimizer.errors import HostError
from optimizer.remote import scripts
from optimizer.remote.base import HostLink, RunningServer

log = structlog.get_logger(__name__)

LOOK_S = 15.0
SLACK_S = 10.0
"""The kernel's clock in its log drifts from the time since boot."""
TIME = re.compile(r"^(?:<\d+>)?\[ *(\d+\.\d+)\]")
PID = re.compile(r"(?:[Kk]illed process |Kill process |\bpid[ =:]|\w\[)\s*0*([1-9]\d*)")
"""A process that a line names; 0 is how drivers name nobody."""
OF_A_GPU = re.compile(r"\bXid\b|amdgpu.*GPU (?:reset|recovery)", re.I)
"""Lines about a GPU as a whole, which may name no process."""
COUNTED = "oom-kill: the memory cgroup counts {} killed since the server was started"


def read(link: HostLink, server: RunningServer, *, pids: Iterable[int] = (), deadline: Deadline | None = None) -> str:
    """Return the kernel's lines about this server since its start; empty when there are none or none can be read.

    `pids` are processes that were seen of the server, beside those that the host remembers.
    """
    base = server.run_dir.rsplit("/runs/", 1)[0]
    limit = deadline or Deadline.after(LOOK_S)
    try:
        done = scripts.call(link, "kernel", base, server.run_id, *map(str, pids), deadline=limit)
    except HostError as error:
        log.warning("kernel_log.unread", host=link.name, error=error.message)
        return ""
    return about(done.text)


def about(text: str) -> str:
    """Pick out of what the script printed the lines about the run, one a line."""
    head = {word: rest for word, _, rest in (line.partition(" ") for line in text.splitlines()[:3])}
    counted = int(head.get("counted", "0"))
    born = head.get("born", "")
    pids = set(head.get("pids", "").split())
    times = ((line, TIME.match(line)) for line in text.splitlines() if born)  # without a start, all is too old
    found = [line for line, at in times if at and _is_about(line, at, int(born) / 100, pids)]
    return "\n".join([*found, *([COUNTED.format(counted)] if counted > 0 else [])])


def _is_about(line: str, at: re.Match[str], born_s: float, pids: set[str]) -> bool:
    if float(at[1]) < born_s - SLACK_S:
        return False
    named = PID.findall(line)
    return bool(pids & set(named)) or (not named and OF_A_GPU.search(line) is not None)
