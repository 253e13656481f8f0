"""How a vLLM server proves that it answers, and what it says of itself.

Decides paths and how the model list and the start of the log are read; polling and comparing are done elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from optimizer.engines.base import FlagValue, LaunchPlan, Readiness

LOG_HINTS = (
    r"Initializing a V1 LLM engine",
    r"Starting to load model",
    r"Loading weights took",
    r"Available KV cache memory|GPU KV cache size|CPU KV cache size",
    r"Capturing CUDA graphs",
    r"Graph capturing finished",
    r"init engine .* took",
    r"Starting vLLM server on",
    r"Application startup complete",
)


def readiness(plan: LaunchPlan) -> Readiness:
    """Say how to prove that the planned server answers."""
    return Readiness(
        health_path="/health",
        generate_path="/v1/completions",
        generate_body={
            "model": plan.served_model,
            "prompt": "The capital of France is",
            "max_tokens": 4,
            "temperature": 0,
        },
        info_path="/v1/models",
        log_hints=LOG_HINTS,
    )


def running_config(info: Mapping[str, Any]) -> dict[str, FlagValue]:
    """Read what the model list shows: the context length."""
    models = info.get("data")
    if isinstance(models, list):
        for model in models:
            length = model.get("max_model_len") if isinstance(model, Mapping) else None
            if isinstance(length, int):
                return {"max-model-len": length}
    return {}


def identity_matches(info: Mapping[str, Any], served_model: str) -> bool:
    """Say whether the model list shows our name."""
    models = info.get("data")
    return isinstance(models, list) and any(isinstance(m, Mapping) and m.get("id") == served_model for m in models)


ENGINE_LINE = re.compile(r"Initializing a V1 LLM engine \(.{1,40}?\) with config: (.*)")
"""The one place where vLLM tells its resolved configuration; without development mode no endpoint does."""
NUMBERS = {
    "max_seq_len": "max-model-len",
    "tensor_parallel_size": "tensor-parallel-size",
    "pipeline_parallel_size": "pipeline-parallel-size",
    "data_parallel_size": "data-parallel-size",
}
WORDS = {"kv_cache_dtype": "kv-cache-dtype", "quantization": "quantization"}
SWITCHES = {
    "enforce_eager": "enforce-eager",
    "enable_prefix_caching": "enable-prefix-caching",
    "enable_chunked_prefill": "enable-chunked-prefill",
    "disable_custom_all_reduce": "disable-custom-all-reduce",
}
GRAPH_MODE = re.compile(r"'cudagraph_mode': <CUDAGraphMode\.(\w+)")
SPECULATION = re.compile(r"speculative_config=(None|SpeculativeConfig\(([^)]*)\))")
SPEC_FIELDS = {"method": "spec-method", "num_spec_tokens": "spec-tokens"}
BATCH_TOKENS = re.compile(r"Chunked prefill is enabled with max_num_batched_tokens=(\d+)")


def running_from_log(log_text: str) -> dict[str, FlagValue]:
    """Read the resolved configuration that the engine printed when it started; empty when the line is missing."""
    line = ENGINE_LINE.search(log_text)
    if line is None:
        return {}
    head, _, compiled = line.group(1).partition("compilation_config=")
    found: dict[str, FlagValue] = _speculation(head)
    values = dict(re.findall(r"(?<![\w.])(\w+)=([^,\s]+)", head))
    found |= {flag: int(values[k]) for k, flag in NUMBERS.items() if values.get(k, "").isdigit()}
    found |= {flag: values[k].strip("'") for k, flag in WORDS.items() if values.get(k, "None") != "None"}
    found |= {flag: values[k] == "True" for k, flag in SWITCHES.items() if values.get(k) in {"True", "False"}}
    graphs = GRAPH_MODE.search(compiled)
    if graphs is not None:
        found["cudagraph-mode"] = graphs.group(1)
    tokens = BATCH_TOKENS.search(log_text)
    if tokens is not None:
        found["max-num-batched-tokens"] = int(tokens.group(1))
    return found


def _speculation(text: str) -> dict[str, FlagValue]:
    spec = SPECULATION.search(text)
    if spec is None:
        return {}
    if spec.group(1) == "None":
        return {"spec-method": "none"}
    fields = dict(re.findall(r"(\w+)=([^,\s]+)", spec.group(2)))
    return {flag: fields[k].strip("'") for k, flag in SPEC_FIELDS.items() if k in fields}
