"""Turns the placeholders of remedies into the parameters of one engine, with their present values.

`{mem}` becomes `--mem-fraction-static (now 0.85)`. Leaves which flags stand behind a placeholder to the engines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from optimizer.engines.base import Config

_PLACEHOLDER = re.compile(r"\{(\w+)\}")

PLAIN = {
    "mem": "the GPU memory fraction",
    "seqs": "the number of concurrent requests",
    "graphs": "the largest captured batch",
    "ctx": "the context length",
    "chunk": "the prefill chunk",
    "tp": "the number of GPUs per model",
    "kvdtype": "a smaller KV cache type",
    "attn": "attention backend",
    "no_car": "the flag that turns custom all-reduce off",
    "no_graph": "turn graphs off",
    "hostmem": "what the server keeps in host memory",
    "draft_tokens": "the number of draft tokens",
    "draft": "the draft model",
    "model": "the model path",
    "timeout": "the collective timeout",
}


def fill(template: str, words: Mapping[str, tuple[str, ...]], config: Config, groups: Mapping[str, str | None]) -> str:
    """Fill a template with what the log said (`groups`) and with the engine's own names for settings."""

    def one(found: re.Match[str]) -> str:
        name = found.group(1)
        if name in groups:
            return (groups[name] or "?").strip()
        return setting(name, words, config)

    return _PLACEHOLDER.sub(one, template)


def setting(name: str, words: Mapping[str, tuple[str, ...]], config: Config) -> str:
    """Name a setting in the spelling that the configuration uses, else in the engine's newest one."""
    spellings = words.get(name, ())
    for flag in spellings:
        if flag in config:
            return f"{dashed(flag)} (now {config[flag]})"
    return dashed(spellings[0]) if spellings else PLAIN.get(name, name)


def dashed(flag: str) -> str:
    """Write a flag as on the command line; text that is no bare flag name stays as it is."""
    if re.fullmatch(r"[a-z][a-z0-9-]*", flag) is None:
        return flag
    return f"--{flag}" if len(flag) > 3 else f"-{flag}"
