"""The three dialects in which the double is asked and answers: /generate, /v1/completions, /v1/chat/completions."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import Any


@dataclass
class Call:
    """One generation, whatever dialect asked for it."""

    prompt: str
    max_tokens: int
    stream: bool
    dialect: str
    include_usage: bool = False
    model: str = ""


def read_call(path: str, data: dict[str, Any]) -> Call:
    """Read any of the three dialects."""
    if path == "/generate":
        text = data.get("text")
        prompt = text if isinstance(text, str) else " ".join(map(str, data.get("input_ids", [])))
        params = data.get("sampling_params") or {}
        return Call(prompt, int(params.get("max_new_tokens", 128)), bool(data.get("stream")), "generate")
    limit = int(data.get("max_tokens") or data.get("max_completion_tokens") or 128)
    usage_on = bool((data.get("stream_options") or {}).get("include_usage"))
    text_mode = path == "/v1/completions"
    prompt = str(data["prompt"]) if text_mode else "\n".join(str(m["content"]) for m in data["messages"])
    return Call(
        prompt=prompt,
        max_tokens=limit,
        stream=bool(data.get("stream")),
        dialect="text" if text_mode else "chat",
        include_usage=usage_on,
        model=str(data.get("model", "")),
    )


def usage(call: Call, tokens: int) -> dict[str, Any]:
    """Return OpenAI's usage object."""
    prompt = len(call.prompt.split())
    return {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens,
            "prompt_tokens_details": {"cached_tokens": 0}}  # fmt: skip


def chunk(call: Call, ident: str, piece: str | None, *, role: bool = False) -> dict[str, Any]:
    """Return one streamed piece; None is the end."""
    choice: dict[str, Any] = {"index": 0, "finish_reason": "length" if piece is None else None}
    if call.dialect == "chat":
        delta: dict[str, Any] = {} if piece is None else {"content": piece}
        choice["delta"] = {"role": "assistant", **delta} if role else delta
    else:
        choice["text"] = piece or ""
    kind = "chat.completion.chunk" if call.dialect == "chat" else "text_completion"
    return {"id": ident, "object": kind, "created": int(time.time()), "model": call.model, "choices": [choice]}


def meta_info(
    args: dict[str, Any], call: Call, tokens: int, verifies: int, took_s: float, final: bool
) -> dict[str, Any]:
    """Return SGLang's per-request fields."""
    meta: dict[str, Any] = {
        "id": uuid.uuid4().hex, "prompt_tokens": len(call.prompt.split()), "completion_tokens": tokens,
        "cached_tokens": 0, "finish_reason": {"type": "length", "length": tokens} if final else None,
        "weight_version": "default", "num_retractions": 0, "e2e_latency": took_s,
    }  # fmt: skip
    if verifies:
        drafts = int(args["speculative_num_draft_tokens"]) - 1
        meta.update(spec_verify_ct=verifies, spec_accept_length=tokens / verifies,
                    spec_num_correct_drafts=tokens - verifies, spec_num_proposed_drafts=drafts * verifies,
                    spec_accept_rate=max(0, tokens - verifies) / max(1, drafts * verifies))  # fmt: skip
    return meta


def whole_answer(
    args: dict[str, Any], call: Call, text: str, tokens: int, verifies: int, took_s: float
) -> dict[str, Any]:
    """Return the answer of a request that was not streamed."""
    if call.dialect == "generate":
        return {"text": text, "output_ids": list(range(tokens)),
                "meta_info": meta_info(args, call, tokens, verifies, took_s, True)}  # fmt: skip
    choice: dict[str, Any] = {"index": 0, "finish_reason": "length"}
    if call.dialect == "chat":
        choice["message"] = {"role": "assistant", "content": text}
    else:
        choice["text"] = text
    kind = "chat.completion" if call.dialect == "chat" else "text_completion"
    return {"id": uuid.uuid4().hex, "object": kind, "created": int(time.time()), "model": call.model,
            "choices": [choice], "usage": usage(call, tokens)}  # fmt: skip
