"""The double's processes: renamed children that may leave group, session and parent, and pretended GPU memory.

Renaming works as setproctitle does it: the title is written over the argument area, and over the environment too unless
SPT_NOENV is set. The GPU is a folder (REPLICA_GPU_DIR) that `bin/nvidia-smi` reads.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15


def set_title(title: str) -> None:
    """Rename this process: comm, and the argument area as `ps` shows it."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, title[:15].encode(), 0, 0, 0)
    fields = Path("/proc/self/stat").read_text().rpartition(") ")[2].split()
    arg_start, arg_end, _env_start, env_end = (int(fields[i]) for i in (45, 46, 47, 48))
    end = arg_end if os.environ.get("SPT_NOENV") else env_end
    room = end - arg_start
    if arg_start and room > 1:
        ctypes.memmove(arg_start, title.encode()[: room - 1].ljust(room, b"\0"), room)


def start_ticks(pid: int) -> int:
    """Return the start time of a process in clock ticks since boot."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19])


def take_gpu(index: int, mib: int, release_s: float) -> None:
    """Enter this process as a user of a pretended GPU."""
    folder = os.environ.get("REPLICA_GPU_DIR")
    if not folder:
        return
    users = Path(folder) / f"gpu{index}"
    if users.is_dir():
        pid = os.getpid()
        (users / str(pid)).write_text(f"{start_ticks(pid)} {mib} {int(release_s)}\n")


def fork(title: str, body: Callable[[], None], *, escape: bool, ignore_term: bool) -> int:
    """Start a child that runs `body` for ever; returns its pid. `escape`: new session, parent gone, renamed."""
    read_end, write_end = os.pipe()
    first = os.fork()
    if first == 0:
        try:
            os.close(read_end)
            if escape:
                os.setsid()
                if os.fork() != 0:
                    os._exit(0)
            else:
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            signal.signal(signal.SIGTERM, signal.SIG_IGN if ignore_term else signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            set_title(title)
            os.write(write_end, f"{os.getpid()}\n".encode())
            os.close(write_end)
            body()
        finally:
            os._exit(0)
    os.close(write_end)
    pid = int(os.read(read_end, 32) or b"0")
    os.close(read_end)
    if escape:
        os.waitpid(first, 0)
    return pid


def idle() -> None:
    """Be a worker: a little CPU time now and then."""
    while True:
        time.sleep(0.5)


def end(pids: list[int], number: int) -> None:
    """Signal children."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
