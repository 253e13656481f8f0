"""GPUs as rules see them: architecture and memory by model name.

Decides nothing about engines. The memory is what `nvidia-smi` shows as total, in MiB; the compute capability decides
which kernels an engine picks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from optimizer.engines.base import Hardware


@dataclass(frozen=True)
class GpuModel:
    """One GPU model: pattern of its name, compute capability, memory in MiB."""

    key: str
    name: str
    capability: tuple[int, int]
    memory_mib: int


MODELS = (
    GpuModel("gb300", "NVIDIA GB300", (10, 3), 284208),
    GpuModel("b300", "NVIDIA B300", (10, 3), 275040),
    GpuModel("gb200", "NVIDIA GB200", (10, 0), 189471),
    GpuModel("b200", "NVIDIA B200", (10, 0), 183359),
    GpuModel("gh200", "NVIDIA GH200 480GB", (9, 0), 97871),
    GpuModel("h200", "NVIDIA H200", (9, 0), 143771),
    GpuModel("h100nvl", "NVIDIA H100 NVL", (9, 0), 95830),
    GpuModel("h100", "NVIDIA H100 80GB HBM3", (9, 0), 81559),
    GpuModel("h800", "NVIDIA H800", (9, 0), 81559),
    GpuModel("h20", "NVIDIA H20", (9, 0), 97871),
    GpuModel("a100-40", "NVIDIA A100-SXM4-40GB", (8, 0), 40960),
    GpuModel("a100", "NVIDIA A100-SXM4-80GB", (8, 0), 81920),
    GpuModel("a800", "NVIDIA A800-SXM4-80GB", (8, 0), 81920),
    GpuModel("a30", "NVIDIA A30", (8, 0), 24576),
    GpuModel("l40s", "NVIDIA L40S", (8, 9), 46068),
    GpuModel("l40", "NVIDIA L40", (8, 9), 46068),
    GpuModel("l4", "NVIDIA L4", (8, 9), 23034),
    GpuModel("a10", "NVIDIA A10", (8, 6), 23028),
    GpuModel("a40", "NVIDIA A40", (8, 6), 46068),
    GpuModel("t4", "Tesla T4", (7, 5), 15360),
    GpuModel("v100", "Tesla V100-SXM2-32GB", (7, 0), 32768),
    GpuModel("rtxpro6000", "NVIDIA RTX PRO 6000 Blackwell", (12, 0), 97887),
    GpuModel("rtx6000ada", "NVIDIA RTX 6000 Ada Generation", (8, 9), 49140),
    GpuModel("rtxa6000", "NVIDIA RTX A6000", (8, 6), 49140),
    GpuModel("rtx5090", "NVIDIA GeForce RTX 5090", (12, 0), 32607),
    GpuModel("rtx4090", "NVIDIA GeForce RTX 4090", (8, 9), 24564),
    GpuModel("rtx3090", "NVIDIA GeForce RTX 3090", (8, 6), 24576),
)


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower().replace("nvidia", "").replace("geforce", "").replace("tesla", ""))


def find_gpu(name: str) -> GpuModel | None:
    """Return the model that a name means (`h100`, `NVIDIA H100 80GB HBM3`), None when it is not known."""
    wanted = _plain(name)
    if not wanted:
        return None
    for model in MODELS:
        if wanted in {_plain(model.key), _plain(model.name)}:
            return model
    for model in MODELS:
        if wanted.startswith(_plain(model.key)):
            return model
    return None


def known_gpu(name: str, *, count: int) -> Hardware:
    """Return the hardware of a host with that many GPUs of a model; an unknown model keeps only its name."""
    model = find_gpu(name)
    if model is None:
        return Hardware(gpu_name=name, gpu_count=count)
    return Hardware(gpu_name=model.name, gpu_count=count, gpu_memory_gib=round(model.memory_mib / 1024, 3))


def capability(hardware: Hardware) -> tuple[int, int] | None:
    """Return the compute capability, None when the model is not known."""
    model = find_gpu(hardware.gpu_name)
    return model.capability if model else None


def memory_mib(hardware: Hardware) -> int | None:
    """Return the memory of one GPU in MiB as the driver reports it, None when it is not known."""
    if hardware.gpu_memory_gib > 0:
        model = find_gpu(hardware.gpu_name)
        exact = model.memory_mib if model else None
        if exact is not None and abs(exact / 1024 - hardware.gpu_memory_gib) < 0.01:
            return exact
        return round(hardware.gpu_memory_gib * 1024)
    model = find_gpu(hardware.gpu_name)
    return model.memory_mib if model else None


def lacking_gpus(needed: int, hardware: Hardware, visible: str) -> str:
    """Return why a server cannot have so many GPUs of one host; empty when it can, or when nothing is known.

    `visible` is its CUDA_VISIBLE_DEVICES (empty: all; a list that hides every GPU is none of a server on GPUs).
    """
    listed = [word for word in visible.split(",") if word.strip() not in {"", "-1"}]
    there = len(listed) or hardware.gpu_count
    if not hardware.gpu_count or needed <= there:
        return ""
    return f"{needed} GPUs are needed, " + (
        f"CUDA_VISIBLE_DEVICES lists {there}" if listed else f"the host has {there}"
    )
