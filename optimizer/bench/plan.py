"""Which requests go out in which phase, word for word: bodies in the four dialects, salts, warm-up, arrivals.

Decides how a workload becomes requests of one engine. It is deterministic, so that every restart is asked the same;
sending is `client.py`, and what the answers mean is `measure.py`.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

from optimizer.bench.base import Prompt, Workload
from optimizer.bench.workload import prompt_text

PATHS = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "generate": "/generate",
    "completion": "/completion",
}
REQUESTS_PER_STREAM = 3
"""At least that many requests for each stream of a level: one to start, one steady, one to end."""
WARMUP_TOKENS = 32
COUNTS_EVERY_CHUNK = frozenset({"sglang", "vllm"})
"""Engines that put the token count into every chunk when asked (`continuous_usage_stats`)."""


@dataclass(frozen=True)
class PlannedRequest:
    """One request to be sent. `repeat` counts from 0 for each prompt at this level."""

    prompt: Prompt
    repeat: int
    path: str
    body: str


def level_requests(
    workload: Workload, concurrency: int, *, engine: str, model: str, salt: str = ""
) -> list[PlannedRequest]:
    """Return the requests of one level in order: all prompts, then all prompts again."""
    count = workload.requests_per_level or max(
        len(workload.prompts) * workload.repeats, concurrency * REQUESTS_PER_STREAM if concurrency > 1 else 0
    )
    if workload.requests_per_level is None:
        count = -(-count // len(workload.prompts)) * len(workload.prompts)
    planned = []
    for index in range(count):
        repeat, position = divmod(index, len(workload.prompts))
        prompt = workload.prompts[position]
        label = f"{salt}{concurrency}.{repeat}" if needs_salt(workload, engine) else ""
        planned.append(_planned(prompt, repeat, workload, engine, model, label))
    return planned


def warmup_requests(
    workload: Workload, concurrency: int, *, engine: str, model: str, salt: str = ""
) -> list[PlannedRequest]:
    """Return the warm-up of one level: enough requests to fill every stream.

    They carry a text of their own and never a measured prompt, so that neither a prefix cache nor a pool of drafts
    that the server shares between requests has seen what is about to be measured.
    """
    if workload.warmup_requests == 0:
        return []
    count = max(workload.warmup_requests, concurrency)
    text = {"role": "user", "content": prompt_text("warmup")}
    tokens = min(WARMUP_TOKENS, max(p.max_tokens for p in workload.prompts))
    prompt = Prompt("warm-up", "warm-up", (text,), tokens)
    return [_planned(prompt, i, workload, engine, model, f"{salt}w{concurrency}.{i}") for i in range(count)]


def needs_salt(workload: Workload, engine: str) -> bool:
    """Say whether prompts must differ by a salt to miss the prefix cache (llama.cpp can be told not to use it)."""
    return workload.cache == "cold" and engine != "llamacpp"


def arrivals(workload: Workload, count: int) -> list[float] | None:
    """Return seconds from the start at which requests are due (exponential gaps, seeded), None for a closed loop."""
    if workload.arrival_rate_s is None:
        return None
    rng = random.Random(workload.seed)
    times, now = [], 0.0
    for _ in range(count):
        times.append(now)
        now += rng.expovariate(workload.arrival_rate_s)
    return times


def _planned(prompt: Prompt, repeat: int, workload: Workload, engine: str, model: str, label: str) -> PlannedRequest:
    body = _BODIES[workload.api](prompt, workload, engine, model, label)
    return PlannedRequest(prompt, repeat, PATHS[workload.api], json.dumps(body, ensure_ascii=False))


def _salted(messages: tuple[dict[str, str], ...], label: str) -> list[dict[str, str]]:
    """Put the salt in front of the first message: a prefix cache can then share no more than the template's start."""
    if not label:
        return list(messages)
    first = {**messages[0], "content": f"[{label}] {messages[0]['content']}"}
    return [first, *messages[1:]]


def _common(prompt: Prompt, workload: Workload, engine: str, model: str) -> dict[str, Any]:
    body: dict[str, Any] = {
        "max_tokens": prompt.max_tokens,
        "temperature": workload.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if model:
        body["model"] = model
    if engine in COUNTS_EVERY_CHUNK:
        body["stream_options"]["continuous_usage_stats"] = True
    if engine == "llamacpp":
        body["cache_prompt"] = workload.cache == "warm"
    if workload.ignore_eos:
        body["ignore_eos"] = True
    if workload.temperature > 0:
        body["seed"] = workload.seed
    return body


def _chat(prompt: Prompt, workload: Workload, engine: str, model: str, label: str) -> dict[str, Any]:
    body = _common(prompt, workload, engine, model)
    body["messages"] = _salted(prompt.messages, label)
    if prompt.json_schema is not None:
        schema = {"name": "answer", "schema": prompt.json_schema, "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


def _plain(prompt: Prompt, label: str) -> str:
    return "\n\n".join(m["content"] for m in _salted(prompt.messages, label))


def _completions(prompt: Prompt, workload: Workload, engine: str, model: str, label: str) -> dict[str, Any]:
    return {**_common(prompt, workload, engine, model), "prompt": _plain(prompt, label)}


def _generate(prompt: Prompt, workload: Workload, engine: str, model: str, label: str) -> dict[str, Any]:
    sampling: dict[str, Any] = {"max_new_tokens": prompt.max_tokens, "temperature": workload.temperature}
    if workload.ignore_eos:
        sampling["ignore_eos"] = True
    return {"text": _plain(prompt, label), "sampling_params": sampling, "stream": True}


def _completion(prompt: Prompt, workload: Workload, engine: str, model: str, label: str) -> dict[str, Any]:
    body = {
        "prompt": _plain(prompt, label),
        "n_predict": prompt.max_tokens,
        "temperature": workload.temperature,
        "stream": True,
        "cache_prompt": workload.cache == "warm",
        "ignore_eos": workload.ignore_eos,
    }
    return body | ({"seed": workload.seed} if workload.temperature > 0 else {})


_BODIES = {"chat": _chat, "completions": _completions, "generate": _generate, "completion": _completion}
