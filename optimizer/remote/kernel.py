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
PID = re.compile(r"(?:[Kk]illed process |Kill process |\bpid=|\w\[)(\d+)")
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
    born_s = int(head.get("born") or 0) / 100
    pids = set(head.get("pids", "").split())
    found = [line for line in text.splitlines() if (at := TIME.match(line)) and _is_about(line, at, born_s, pids)]
    counted = int(head.get("counted", "0"))
    return "\n".join([*found, *([COUNTED.format(counted)] if counted > 0 else [])])


def _is_about(line: str, at: re.Match[str], born_s: float, pids: set[str]) -> bool:
    if float(at[1]) < born_s - SLACK_S:
        return False
    named = PID.findall(line)
    return bool(pids & set(named)) or (not named and "Xid" in line)
