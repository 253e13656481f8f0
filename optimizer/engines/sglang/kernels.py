"""Attention kernels that SGLang's arguments allow and its start refuses, for the model or the GPU.

Decides what is found out only when the weights are loaded; what the arguments themselves refuse is in `attention.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.engines.base import Config, Hardware
from optimizer.engines.hardware import capability
from optimizer.engines.sglang.attention import BACKENDS
from optimizer.engines.sglang.request import ModelFacts

LATENT_ONLY = frozenset({"flashmla", "cutlass_mla", "trtllm_mla", "cutedsl_mla", "tokenspeed_mla"})
"""Kernels that read the compressed cache of latent attention (MLA) and nothing else."""
AMPERE, HOPPER = 8, 9


def refused(config: Config, hardware: Hardware, model: Mapping[str, Any] | None) -> list[str]:
    """Return why the kernels of an effective configuration cannot run; nothing is said of what is not known."""
    kernels = {str(config[name]) for name in BACKENDS if name in config}
    facts, compute = ModelFacts.read(model), capability(hardware)
    reasons = []
    if facts.known and not facts.latent_attention:
        found = sorted(kernels & LATENT_ONLY)
        reasons += [f"{kernel} is for models with latent attention (MLA), which this one has not" for kernel in found]
    if facts.latent_attention and "trtllm_mha" in kernels:
        reasons.append("trtllm_mha is for models without latent attention (MLA), which this one has")
    able = (HOPPER,) if facts.latent_attention else (AMPERE, HOPPER)
    if "fa3" in kernels and compute is not None and compute[0] not in able:
        reasons.append("fa3 runs on Hopper GPUs, without latent attention (MLA) also on Ampere and Ada ones")
    return reasons
