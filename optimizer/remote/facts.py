"""What a host has, asked in one or two short commands: cores, GPUs, and whether a command runs there.

Decides how questions are put; what the answers mean for an engine is the engine's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from optimizer.clock import Deadline
from optimizer.engines.base import Hardware
from optimizer.remote import gpu
from optimizer.remote.base import Completed, HostLink

CPU_SCRIPT = "nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || grep -c ^processor /proc/cpuinfo"
RUN_SCRIPT = 'n=$1; shift; while [ "$n" -gt 0 ]; do export "$1"; shift; n=$((n-1)); done; exec "$@"'


def hardware(link: HostLink, *, deadline: Deadline) -> Hardware:
    """Return the host's cores and GPUs (empty GPU fields without `nvidia-smi`)."""
    cores = link.sh(CPU_SCRIPT, deadline=deadline).text.strip()
    gpus = gpu.snapshot(link, deadline=deadline)
    first = gpus[0] if gpus else None
    return Hardware(
        gpu_name=first.name if first else "",
        gpu_count=len(gpus),
        gpu_memory_gib=first.memory_total_mib / 1024 if first else 0.0,
        cpu_count=int(cores) if cores.isdigit() else 0,
    )


def expand_command(link: HostLink, command: Sequence[str], *, deadline: Deadline) -> list[str]:
    """Expand a leading `~` of each word as the host's own home directory; everything else stays literal."""
    if not any(w == "~" or w.startswith("~/") for w in command):
        return list(command)
    home = link.sh('printf %s "$HOME"', deadline=deadline).text
    return [home + w[1:] if w == "~" or w.startswith("~/") else w for w in command]


def run_with_env(link: HostLink, argv: Sequence[str], env: Mapping[str, str], *, deadline: Deadline) -> Completed:
    """Run a command with variables set; status 127 when it does not exist."""
    pairs = [f"{k}={v}" for k, v in env.items()]
    return link.sh(RUN_SCRIPT, str(len(pairs)), *pairs, *argv, deadline=deadline)
