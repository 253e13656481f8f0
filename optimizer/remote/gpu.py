"""GPUs of a host through `nvidia-smi`, where there is one: who uses them, and whether memory came back.

Decides how memory before and after are compared. Foreign processes are listed and never touched.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from optimizer.clock import Deadline
from optimizer.errors import NeedsAttention
from optimizer.remote import scripts
from optimizer.remote.base import Gpu, HostLink

QUERY = "index,uuid,name,memory.total,memory.used,utilization.gpu,power.draw,clocks.sm,temperature.gpu"
TOLERANCE_MIB = 300
"""Contexts of daemons and ECC bookkeeping move the idle level by this much; a leftover server holds gigabytes."""
POLL_S = 0.5
SNAPSHOT_S = 40.0
"""nvidia-smi without persistence mode takes seconds for each of two questions; one that hangs is told after 15 s."""
APPS = "gpu_uuid,pid,used_memory"


def snapshot(link: HostLink, deadline: Deadline | None = None) -> list[Gpu]:
    """List the GPUs with their compute processes; empty where there is no `nvidia-smi` or no driver.

    Raises:
        NeedsAttention: nvidia-smi does not answer.
    """
    done = scripts.call(link, "gpu", QUERY, APPS, deadline=deadline or Deadline.after(SNAPSHOT_S))
    gpus, _, apps = done.text.partition("--\n")
    by_uuid: dict[str, list[tuple[int, int]]] = {}
    for line in apps.splitlines():
        cells = [c.strip() for c in line.split(",")]
        if len(cells) == 3 and cells[1].isdigit():
            by_uuid.setdefault(cells[0], []).append((int(cells[1]), _int(cells[2])))
    return [g for line in gpus.splitlines() if (g := _parse(line, by_uuid)) is not None]


def users(link: HostLink, indexes: Sequence[int] | None = None) -> list[tuple[int, str, int]]:
    """List who computes on these GPUs (None: on any): index, process in words, MiB. Raises as `snapshot`."""
    rows = [
        (g.index, pid, mib) for g in snapshot(link) if indexes is None or g.index in indexes for pid, mib in g.processes
    ]
    if not rows:
        return []
    pids = dict.fromkeys(str(pid) for _, pid, _ in rows)
    done = scripts.call(link, "describe", *pids, deadline=Deadline.after(SNAPSHOT_S))
    known = {p.pid: scripts.tell(p) for p in map(scripts.parse_process, done.text.splitlines()) if p.start_ticks}
    return [(index, known.get(pid, f"pid {pid}, which we may not see"), mib) for index, pid, mib in rows]


def _parse(line: str, apps: Mapping[str, list[tuple[int, int]]]) -> Gpu | None:
    cells = [c.strip() for c in line.split(",")]
    if len(cells) != 9 or not cells[0].isdigit():
        return None
    return Gpu(
        index=int(cells[0]),
        name=cells[2],
        memory_total_mib=_int(cells[3]),
        memory_used_mib=_int(cells[4]),
        utilisation_pct=_float(cells[5]),
        power_w=_float(cells[6]),
        sm_clock_mhz=_float(cells[7]),
        temperature_c=_float(cells[8]),
        processes=tuple(apps.get(cells[1], ())),
    )


def _int(cell: str) -> int:
    return int(float(cell)) if cell.replace(".", "", 1).isdigit() else 0


def _float(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:  # "[N/A]", "[Not Supported]"
        return None


def parse_levels(lines: Sequence[str]) -> dict[int, int]:
    """Read `index, used MiB` lines as the launcher kept them."""
    levels = {}
    for line in lines:
        index, _, used = line.partition(",")
        if index.strip().isdigit() and used.strip().isdigit():
            levels[int(index)] = int(used)
    return levels


def still_held(gpus: Sequence[Gpu], before: Mapping[int, int]) -> dict[int, int]:
    """Return the MiB by GPU index that are in use beyond the level before and the tolerance."""
    extra = {g.index: g.memory_used_mib - before[g.index] for g in gpus if g.index in before}
    return {index: mib for index, mib in extra.items() if mib > TOLERANCE_MIB}


def _unseen(link: HostLink, gpus: Sequence[Gpu], before: Mapping[int, int]) -> NeedsAttention | None:
    """A GPU that nvidia-smi does not tell of any more (a driver that broke, a card off the bus) is no memory back."""
    missing = sorted(set(before) - {g.index for g in gpus})
    if not missing:
        return None
    return NeedsAttention(
        link.name,
        f"{link.name}: nvidia-smi does not tell of GPU {', '.join(map(str, missing))} any more",
        remedy="run `nvidia-smi` on the host and look at `dmesg`; a GPU that fell off the bus needs a reboot",
    )


def wait_until_back(link: HostLink, before: Mapping[int, int], *, deadline: Deadline) -> float:
    """Wait until the memory in use is back at the level `before` (MiB by index); return the seconds waited.

    Raises:
        NeedsAttention: the deadline passed with memory still taken, or a GPU not seen; says on which and by whom.
    """
    began = time.monotonic()
    while True:
        # A time of its own: the last look may end a little after the deadline.
        gpus = snapshot(link, Deadline.after(SNAPSHOT_S))
        held, unseen = still_held(gpus, before), _unseen(link, gpus, before)
        if not held and unseen is None:
            return time.monotonic() - began
        if deadline.left_s < POLL_S:
            break
        time.sleep(POLL_S)
    if unseen is not None:
        raise unseen
    index, mib = max(held.items(), key=lambda item: item[1])
    users = [f"pid {pid} ({used} MiB)" for g in gpus if g.index == index for pid, used in g.processes]
    raise NeedsAttention(
        link.name,
        f"{link.name}: GPU {index} still holds {mib} MiB more than before the start, {_users(users)}",
        remedy="look at `nvidia-smi` on the host; if no process holds it, reset the GPU or reboot, then resume",
    )


def wait_until_released(link: HostLink, before: Sequence[Gpu], pids: Sequence[int], *, deadline: Deadline) -> float:
    """Wait until the memory that `pids` held in the snapshot `before` is free again; return the seconds waited.

    Raises:
        NeedsAttention: as for `wait_until_back`.
    """
    levels = {}
    for g in before:
        held = sum(mib for pid, mib in g.processes if pid in pids)
        if held:
            levels[g.index] = max(0, g.memory_used_mib - held)
    return wait_until_back(link, levels, deadline=deadline) if levels else 0.0


def _users(users: Sequence[str]) -> str:
    return "used by " + ", ".join(users) if users else "by no visible process"
