"""NCCL's variables: what it refuses, and when nothing reads them.

Decides by NCCL's own rules (values are read when a communicator is made); which sums go through NCCL at all is the
engines' business.
"""

from __future__ import annotations

import re

from optimizer.engines.base import ENV_PREFIX
from optimizer.engines.resolution import Resolution

TOKENS = {
    "NCCL_PROTO": frozenset({"ll", "ll128", "simple"}),
    "NCCL_ALGO": frozenset({"tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat"}),
}
LEVELS = frozenset({"LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", *"012345"})
FUNCTION = re.compile(r"^[A-Za-z]+:")


def nccl(state: Resolution, gpus: int) -> None:
    """Drop what is never read (by one GPU alone, or a level that NCCL does not know); refuse what NCCL refuses."""
    if gpus <= 1:
        for name in [n for n in state.env if n.startswith("NCCL_")]:
            del state.env[name]
            state.no_effect[ENV_PREFIX + name] = "one GPU exchanges nothing"
        state.ignore("disable-custom-all-reduce", "one GPU exchanges nothing")
        return
    for name, known in TOKENS.items():
        for word in _words(state.env.get(name, "")):
            if word.lower() not in known:
                state.reject(
                    f"{ENV_PREFIX}{name}: {word!r} is not one of {', '.join(sorted(known))}; NCCL fails to start"
                )
    level = state.env.get("NCCL_P2P_LEVEL")
    if level is not None and level not in LEVELS:
        del state.env["NCCL_P2P_LEVEL"]
        state.no_effect[f"{ENV_PREFIX}NCCL_P2P_LEVEL"] = "NCCL ignores a level that it does not know"


def _words(text: str) -> list[str]:
    """The names in a list, an exclusion (`^a`) or a list by function (`func:a,b;func:^c`)."""
    parts = [FUNCTION.sub("", part.strip()).lstrip("^") for part in text.split(";")]
    return [word.strip() for part in parts for word in part.split(",") if word.strip()]
