"""What in a log only this engine prints: pairs of weight (1 to 5) and pattern, capitals ignored."""

from __future__ import annotations

SIGNS = (
    (5, r"\bllama[-_](?:server|model|context|kv|init|new|print|perf)\w*|llama\.cpp|llama_load_model"),
    (4, r"\bggml_\w+|\bgguf_\w+|\.gguf\b|GGML_ASSERT"),
    (4, r"slot +\w+: id|srv +\w+: |print_timing|draft acceptance|eval time ="),
    (3, r"bind HTTP server|error while handling argument|^error: invalid argument: -|n_ctx|load_tensors"),
    (2, r"^main: |^\d+\.\d\d\.\d{3}\.\d{3} [IWED] |n_drafted\s*=|n_accept\s*="),
)
