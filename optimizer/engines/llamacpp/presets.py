"""Named parts of llama-server's search space.

Decides ladders and sensible first values; what is refused or merged is in `rules.py`.
"""

from __future__ import annotations

from optimizer.engines.spaces import choice, floats, ints, merge, only_when
from optimizer.search.space import Space

CACHE_TYPES = ("f16", "q8_0", "q4_0")


def presets(version: str | None) -> dict[str, Space]:
    """Return every preset by name; one table serves all builds, so `version` changes nothing."""
    parts = {
        "speculation": _speculation(),
        "threads": _threads(),
        "kv-cache": _kv_cache(),
        "batching": _batching(),
    }
    return {**parts, "all": merge(*parts.values())}


def _speculation() -> Space:
    kinds = ("none", "ngram-simple", "ngram-mod", "ngram-map-k", "draft-simple")
    return Space(
        parameters=(
            choice("spec-type", *kinds, why="drafting without or with a second model"),
            ints("spec-ngram-simple-size-n", 2, 3, 4, 6, 8, 12, 16, log=True, why="tokens looked up"),
            ints("spec-ngram-simple-size-m", 4, 8, 16, 32, 48, 64, log=True, why="tokens drafted"),
            ints("spec-ngram-map-k-size-n", 2, 3, 4, 6, 8, 12, 16, log=True, why="tokens looked up"),
            ints("spec-ngram-map-k-size-m", 4, 8, 16, 32, 48, 64, log=True, why="tokens drafted"),
            ints("spec-ngram-map-k-min-hits", 1, 2, 3, why="times seen before it is drafted"),
            ints("spec-ngram-mod-n-match", 4, 8, 12, 16, 24, 32, log=True, why="tokens looked up"),
            ints("spec-ngram-mod-n-min", 0, 2, 4, 8, 16, 32, 48, why="shorter drafts are thrown away"),
            ints("spec-ngram-mod-n-max", 4, 8, 16, 32, 48, 64, 96, log=True, why="longest draft"),
            ints("spec-draft-n-max", 1, 2, 3, 4, 6, 8, 12, 16, log=True, why="longest draft of the second model"),
            floats("spec-draft-p-min", 0.0, 0.25, 0.5, 0.75, 0.9, why="drafting stops below this probability"),
        ),
        conditions=(
            only_when(
                "spec-type != ngram-simple",
                "spec-ngram-simple-size-n",
                "spec-ngram-simple-size-m",
            ),
            only_when(
                "spec-type != ngram-map-k",
                "spec-ngram-map-k-size-n",
                "spec-ngram-map-k-size-m",
                "spec-ngram-map-k-min-hits",
            ),
            only_when(
                "spec-type != ngram-mod",
                "spec-ngram-mod-n-match",
                "spec-ngram-mod-n-min",
                "spec-ngram-mod-n-max",
            ),
            only_when("spec-type != draft-simple", "spec-draft-n-max", "spec-draft-p-min"),
        ),
        rules=("spec-ngram-mod-n-min <= spec-ngram-mod-n-max",),
        defaults=(
            {"spec-type": "none"},
            {"spec-type": "ngram-simple", "spec-ngram-simple-size-n": 4, "spec-ngram-simple-size-m": 16},
            {
                "spec-type": "ngram-mod",
                "spec-ngram-mod-n-match": 16,
                "spec-ngram-mod-n-min": 8,
                "spec-ngram-mod-n-max": 32,
            },
            {"spec-type": "draft-simple", "spec-draft-n-max": 4, "spec-draft-p-min": 0.5},
        ),
        dropped={
            "spec-ngram-simple-min-hits": "ngram-simple logs it and never reads it",
            "spec-draft-p-split": "the server never reads it",
        },
    )


def _threads() -> Space:
    counts = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64)
    return Space(
        parameters=(
            ints("threads", *counts, log=True, why="threads that generate"),
            ints("threads-batch", *counts, log=True, why="threads that read prompts"),
        ),
    )


def _kv_cache() -> Space:
    return Space(
        parameters=(
            choice("flash-attn", "on", "off", why="one fused kernel; needed by a quantised V cache"),
            choice("cache-type-k", *CACHE_TYPES, why="smaller keys: less memory traffic, other outputs"),
            choice("cache-type-v", *CACHE_TYPES, why="smaller values: needs flash attention, other outputs"),
        ),
        defaults=(
            {"flash-attn": "on", "cache-type-k": "f16", "cache-type-v": "f16"},
            {"flash-attn": "on", "cache-type-k": "q8_0", "cache-type-v": "q8_0"},
        ),
    )


def _batching() -> Space:
    return Space(
        parameters=(
            ints("batch-size", 128, 256, 512, 1024, 2048, 4096, log=True, why="tokens handed over at once"),
            ints("ubatch-size", 32, 64, 128, 256, 512, 1024, 2048, log=True, why="tokens computed at once"),
        ),
        rules=("ubatch-size <= batch-size",),
        defaults=({"batch-size": 2048, "ubatch-size": 512},),
    )
