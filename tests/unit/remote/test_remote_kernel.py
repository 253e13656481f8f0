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


def test_a_host_that_tells_nothing_says_nothing() -> None:
    assert kernel.about("born \npids \n") == ""
