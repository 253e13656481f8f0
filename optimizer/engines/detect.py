"""Says which engine wrote a log, by what only that engine prints."""

from __future__ import annotations

import re

from optimizer.engines.logtext import strip_colours

_SIGNS: dict[str, tuple[tuple[int, re.Pattern[str]], ...]] = {
    "sglang": tuple(
        (weight, re.compile(pattern, re.I | re.M))
        for weight, pattern in (
            (5, r"\bsglang\b|\bsgl[-_]kernel|sglang::"),
            (4, r"--mem-fraction-static|mem_fraction_static|server_args="),
            (4, r"\b(?:Decode|Prefill) batch\b|#running-req|fired up and ready"),
            (3, r"Load weight (?:begin|end)|Received sigquit|Scheduler hit an exception|Capture (?:\w+ )?cuda graph"),
            (2, r"\b(?:TP|DP|EP)\d+\]|token_to_kv_pool|warmup error|Memory pool end"),
            (4, r"launch_server\.py"),
            (2, r"launch_server|speculative[-_](?:eagle|num)[-_]"),
        )
    ),
    "vllm": tuple(
        (weight, re.compile(pattern, re.I | re.M))
        for weight, pattern in (
            (5, r"\bvllm\b|VLLM::|\bvllm_\w+"),
            (4, r"gpu[-_]memory[-_]utilization|\bEngineCore(?:_\w+)?\b|AsyncLLMEngine|MQLLMEngine|llm_engine\.py"),
            (4, r"Avg prompt throughput|SpecDecoding metrics|Speculative metrics"),
            (
                3,
                r"\(APIServer pid=|\(Worker(?:_\w+)? pid=|VllmWorker|SpeculativeConfig|GPU KV cache |max_model_len",
            ),
            (2, r"max seq len|(?:INFO|ERROR|WARNING) \d\d-\d\d \d\d:\d\d:\d\d "),
        )
    ),
    "llamacpp": tuple(
        (weight, re.compile(pattern, re.I | re.M))
        for weight, pattern in (
            (5, r"\bllama[-_](?:server|model|context|kv|init|new|print|perf)\w*|llama\.cpp|llama_load_model"),
            (4, r"\bggml_\w+|\bgguf_\w+|\.gguf\b|GGML_ASSERT"),
            (4, r"slot +\w+: id|srv +\w+: |print_timing|draft acceptance|eval time ="),
            (
                3,
                r"bind HTTP server|error while handling argument|^error: invalid argument: -|n_ctx|load_tensors",
            ),
            (2, r"^main: |^\d+\.\d\d\.\d{3}\.\d{3} [IWED] |n_drafted\s*=|n_accept\s*="),
        )
    ),
}
HEAD, TAIL = 400_000, 400_000
ENOUGH = 40
"""Occurrences counted of one sign: a long log is no surer than a short one."""


def detect_engine(text: str) -> str | None:
    """Return `sglang`, `vllm` or `llamacpp`, or None when nothing in the log tells."""
    if len(text) > HEAD + TAIL:
        text = text[:HEAD] + "\n" + text[-TAIL:]
    text = strip_colours(text)
    scores = {engine: _score(text, signs) for engine, signs in _SIGNS.items()}
    best = max(scores, key=lambda engine: scores[engine])
    return best if scores[best] > 0 else None


def _score(text: str, signs: tuple[tuple[int, re.Pattern[str]], ...]) -> float:
    total = 0.0
    for weight, pattern in signs:
        count = 0
        for _ in pattern.finditer(text):
            count += 1
            if count >= ENOUGH:
                break
        if count:
            total += weight + min(count, ENOUGH) * 0.1
    return total
