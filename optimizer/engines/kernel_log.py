"""Reads the kernel's log for what no server can say of itself: that it was killed or that a GPU broke."""

from __future__ import annotations

import re
from dataclasses import dataclass

_OOM_KILL = re.compile(
    r"out of memory: killed process|oom-kill:|memory cgroup out of memory|oom_reaper: reaped|killed process \d+", re.I
)
_XID = re.compile(r"NVRM: Xid \([^)]*\): (\d+)", re.I)
_BROKEN_GPU = frozenset({48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 110, 119, 120, 140})
"""Xid numbers that speak of hardware or firmware: ECC, NVLink, fallen off the bus, GSP."""
_FAULT_XID = frozenset({13, 31, 43, 45, 68, 69})
"""Xid numbers of faults raised by the program: exceptions of the graphics engine, page faults, stopped channels."""
_SEGFAULT = re.compile(r"segfault at|general protection fault|trap invalid opcode", re.I)
TAIL_CHARS = 400_000


@dataclass(frozen=True)
class KernelFinding:
    """What the kernel says."""

    label: str
    summary: str
    remedy: str = ""


def from_kernel_log(text: str) -> KernelFinding | None:
    """Return what the kernel's log explains, if anything; the strongest statement wins."""
    text = text[-TAIL_CHARS:]
    if not text.strip():
        return None
    numbers = {int(number[:6]) for number in _XID.findall(text)}
    broken = sorted(numbers & _BROKEN_GPU)
    if broken:
        summary = f"the driver reports a broken GPU (Xid {', '.join(map(str, broken))})"
        return KernelFinding("environment_broken", summary, "reset or replace the GPU; nothing can be measured on it")
    if _OOM_KILL.search(text):
        return KernelFinding("killed_host_oom", "the kernel killed a process because host memory ran out")
    faults = sorted(numbers & _FAULT_XID)
    if faults:
        summary = f"the driver reports a fault in a kernel (Xid {', '.join(map(str, faults))})"
        return KernelFinding("illegal_memory_access", summary)
    if _SEGFAULT.search(text):
        return KernelFinding("scheduler_crash", "the kernel reports a segmentation fault of the server")
    return None
