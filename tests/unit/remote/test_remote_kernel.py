"""Which lines of a kernel's log are about a server of ours."""

from __future__ import annotations

import pytest

from optimizer.engines.kernel_log import from_kernel_log
from optimizer.remote import kernel

HEAD = "born 100000\npids 41 42 43\ncounted {}\n"


@pytest.mark.parametrize(
    "line",
    [
        "[ 1200.5] Out of memory: Killed process 42 (sglang::schedul) total-vm:9kB, anon-rss:8kB, UID:0",
        "[ 1200.5] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=python,pid=43,uid=0",
        "[ 1200.5] Memory cgroup out of memory: Killed process 41 (python) total-vm:9kB",
        "[ 1200.5] llama-server[42]: segfault at 8 ip 00007fb6 sp 00007fff error 4 in libllama.so.0",
        "[ 1200.5] traps: python[41] general protection fault ip:7f sp:7f error:0",
        "[  995.1] NVRM: Xid (PCI:0000:3b:00): 31, pid=42, name=python, Ch 00000008",
        "[ 1200.5] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "<4>[ 1200.500000] Out of memory: Killed process 42 (x)",
        "[ 1200.500000] box kernel: Out of memory: Killed process 42 (x)",
        "[ 1200.5] NVRM: Xid (PCI:0000:3b:00): 43, pid 42, name python, channel 0x00000008",
        "[ 1200.5] NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)",
        "[ 1200.5] amdgpu 0000:c3:00.0: amdgpu: GPU reset begin!",
        "[ 1200.5] amdgpu 0000:c3:00.0: amdgpu: GPU reset end with ret = -110",
        "[ 1200.5] [drm:amdgpu_job_timedout [amdgpu]] *ERROR* GPU Recovery Failed: -110",
        "[ 1200.5] amdgpu 0000:c3:00.0: amdgpu:  for process llama-server pid 42 thread llama-server pid 44",
        "[ 1200.5] amdgpu 0000:c3:00.0: amdgpu: [gfxhub0] page fault (src_id:0, for process x pid 42 thread x pid 42)",
    ],
)
def test_lines_about_our_processes_since_the_start_are_ours(line: str) -> None:
    found = kernel.about(HEAD.format(0) + line + "\n")
    assert found == line and from_kernel_log(found) is not None


@pytest.mark.parametrize(
    "line",
    [
        "[ 1200.5] Out of memory: Killed process 4200 (browser) total-vm:9kB",
        "[ 1200.5] NVRM: Xid (PCI:0000:3b:00): 31, pid=99, name=python",
        "[ 1200.5] NVRM: Xid (PCI:0000:3b:00): 31, pid 99, name python",
        "[ 1200.5] amdgpu 0000:c3:00.0: amdgpu:  for process browser pid 99 thread browser pid 99",
        "[ 1200.5] [drm:amdgpu_job_timedout [amdgpu]] *ERROR* Process information: process  pid 0 thread  pid 0",
        "[  900.5] amdgpu 0000:c3:00.0: amdgpu: GPU reset begin!",
        "[  900.5] Out of memory: Killed process 42 (an older process of that number)",
        "[  900.5] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        "dmesg: read kernel buffer failed: Operation not permitted",
        "",
    ],
)
def test_other_processes_and_earlier_times_are_not(line: str) -> None:
    assert kernel.about(HEAD.format(0) + line + "\n") == ""


def test_where_the_log_may_not_be_read_the_cgroup_s_count_tells() -> None:
    found = kernel.about(HEAD.format(2))
    assert "2 killed" in found and from_kernel_log(found).label == "killed_host_oom"  # type: ignore[union-attr]


@pytest.mark.parametrize("line", ["", "[ 12.5] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"])
def test_without_the_time_of_the_start_no_line_is_ours(line: str) -> None:
    assert kernel.about(f"born \npids \n{line}") == ""


@pytest.mark.parametrize(
    ("line", "label"),
    [
        ("GPU reset begin!\namdgpu: GPU reset(2) succeeded!", "illegal_memory_access"),
        ("GPU reset begin!\namdgpu: GPU reset(2) failed", "environment_broken"),
        ("GPU reset begin!\namdgpu: GPU reset end with ret = -62", "environment_broken"),
    ],
)
def test_an_amd_gpu_that_came_back_is_no_broken_gpu(line: str, label: str) -> None:
    found = from_kernel_log(f"[ 1.0] amdgpu 0000:c3:00.0: amdgpu: {line}")
    assert found is not None and found.label == label


def test_a_gpu_that_needs_nothing_is_not_broken() -> None:
    line = "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    assert from_kernel_log(line) is None
