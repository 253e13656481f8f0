"""Reads the kernel's log for what no server can say of itself: that it was killed or that a GPU broke."""

from __future__ import annotations

import re
from dataclasses import dataclass

_OOM_KILL = re.compile(
    r"out of memory: killed process|oom-kill:|memory cgroup out of memory|oom_reaper: reaped|killed process \d+", re.I
)
_XID = re.compile(r"NVRM: Xid \([^)]*\): (\d+)", re.I)
_BROKEN_GPU = frozenset({46, 48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 110, 119, 120, 140, 143})
"""Xid numbers that speak of hardware or firmware: ECC, NVLink, fallen off the bus, GSP, a GPU that stands still."""
_FAULT_XID = frozenset({8, 13, 31, 32, 43, 45, 68, 69, 109})
"""Xid numbers of faults raised by the program: exceptions of the graphics engine, page faults, stopped channels."""
_XID_RECOVERY = re.compile(r"NVRM: Xid \([^)]*\): 154\b.{0,80} to 0x\w+ \((?!none|drain p2p)", re.I)
"""What the driver says a GPU needs before it works again: a reset of its own or a restart of the host."""
_AMD_LOST = re.compile(r"amdgpu.*GPU (?:reset\(\d+\) failed|reset end with ret = -|recovery failed)", re.I)
_AMD_HANG = re.compile(r"amdgpu.*(?:GPU reset begin|GPU reset\(\d+\) succeeded|\bring \S+ timeout)", re.I)
_AMD_FAULT = re.compile(r"amdgpu.*(?:page fault|\b(?:for|in) process \S.* pid \d)", re.I)
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
    broken = _broken_gpu(text, numbers)
    if broken:
        return KernelFinding("environment_broken", broken, "reset or replace the GPU; nothing can be measured on it")
    if _OOM_KILL.search(text):
        return KernelFinding("killed_host_oom", "the kernel killed a process because host memory ran out")
    fault = _fault(text, numbers)
    if fault:
        return KernelFinding("illegal_memory_access", fault)
    if _SEGFAULT.search(text):
        return KernelFinding("scheduler_crash", "the kernel reports a segmentation fault of the server")
    return None


def _broken_gpu(text: str, numbers: set[int]) -> str:
    broken = sorted(numbers & _BROKEN_GPU)
    if broken:
        return f"the driver reports a broken GPU (Xid {', '.join(map(str, broken))})"
    if _XID_RECOVERY.search(text):
        return "the driver asks for a reset of the GPU or a restart of the host (Xid 154)"
    return "the driver could not reset a GPU that hung" if _AMD_LOST.search(text) else ""


def _fault(text: str, numbers: set[int]) -> str:
    faults = sorted(numbers & _FAULT_XID)
    if faults:
        return f"the driver reports a fault in a kernel (Xid {', '.join(map(str, faults))})"
    if _AMD_FAULT.search(text):
        return "the driver reports a fault in a kernel (page fault)"
    return "the GPU hung and the driver reset it" if _AMD_HANG.search(text) else ""
