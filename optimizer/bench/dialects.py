"""What one event of a stream says in each of the four streaming dialects: text, tokens, usage, the engine's timings.

Decides which fields are read. An event of another shape raises one of the built-in errors; what is made of that, and
where events begin and end, is `stream.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Answer:
    """What one answer said. Errors are `kind: detail`; an answer without error ended as it should."""

    status: int = 0
    complete: bool = False
    times: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    exact: bool = False
    """The server said how many tokens each event carried; else every event with text counts as one."""
    text: list[str] = field(default_factory=list)
    cumulative: str = ""
    """All text so far, kept for servers that repeat it with every event."""
    finish_reason: str | None = None
    prompt_tokens: int = 0
    output_tokens: int | None = None
    cached_tokens: int | None = None
    engine_timings: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    done_marker: bool = False


def _token(answer: Answer, time: float, text: str, total: Any) -> None:
    """Note one event: `total` is the number of tokens so far if the server says it, else None."""
    before = sum(answer.counts) if isinstance(total, int) and not answer.exact else answer.output_tokens or 0
    if isinstance(total, int):
        answer.exact = True
        answer.output_tokens = total
        count = total - before
    else:
        count = 1 if text else 0
    if count > 0 or text:
        answer.times.append(time)
        answer.counts.append(max(count, 0))
    if text:
        answer.text.append(text)


def _note_cached(answer: Answer, tokens: Any) -> None:
    if tokens is not None:
        answer.cached_tokens = int(tokens)


def _chat(document: dict[str, Any], time: float, answer: Answer) -> None:
    _openai(document, time, answer, _delta_text)


def _completions(document: dict[str, Any], time: float, answer: Answer) -> None:
    _openai(document, time, answer, lambda choice: choice.get("text") or "")


def _delta_text(choice: dict[str, Any]) -> str:
    delta = choice.get("delta") or {}
    text = delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning") or ""
    for call in delta.get("tool_calls") or ():
        text += (call.get("function") or {}).get("arguments") or ""
    return str(text)


def _openai(document: dict[str, Any], time: float, answer: Answer, text_of: Callable[[dict[str, Any]], str]) -> None:
    usage = document.get("usage")
    choices = document.get("choices") or ()
    if usage:
        answer.prompt_tokens = int(usage.get("prompt_tokens") or 0)
        details = usage.get("prompt_tokens_details") or {}
        _note_cached(answer, details.get("cached_tokens"))
    for choice in choices:
        text = text_of(choice)
        finish = choice.get("finish_reason")
        running = usage.get("completion_tokens") if usage and not finish else None
        if text or running is not None:
            _token(answer, time, text, running)
        answer.finish_reason = finish or answer.finish_reason
    if usage and usage.get("completion_tokens") is not None:
        answer.output_tokens = int(usage["completion_tokens"])
    timings = document.get("timings")
    if timings:
        answer.engine_timings = dict(timings)
        _note_cached(answer, timings.get("cache_n"))


def _generate(document: dict[str, Any], time: float, answer: Answer) -> None:
    """SGLang: text is cumulative by default, `meta_info` comes with every event."""
    meta = document.get("meta_info") or {}
    text = str(document.get("text") or "")
    last = answer.cumulative
    new = text[len(last) :] if text.startswith(last) else text
    answer.cumulative = last + new
    _token(answer, time, new, meta.get("completion_tokens"))
    answer.prompt_tokens = int(meta.get("prompt_tokens") or answer.prompt_tokens)
    _note_cached(answer, meta.get("cached_tokens"))
    finish = meta.get("finish_reason")
    if finish:
        answer.finish_reason = str(finish.get("type")) if isinstance(finish, dict) else str(finish)
        answer.engine_timings = {k: v for k, v in meta.items() if isinstance(v, int | float | str | list)}


def _completion(document: dict[str, Any], time: float, answer: Answer) -> None:
    """llama.cpp: `tokens` are the new token ids; the last event has `stop` and the timings."""
    text = str(document.get("content") or "")
    if document.get("stop"):
        answer.finish_reason = {"limit": "length"}.get(str(document.get("stop_type")), "stop")
        answer.engine_timings = dict(document.get("timings") or {})
        _note_cached(answer, answer.engine_timings.get("cache_n"))
        answer.prompt_tokens = int(document.get("tokens_evaluated") or answer.prompt_tokens)
        answer.output_tokens = int(document.get("tokens_predicted") or 0)
        if text:
            _token(answer, time, text, None)
        answer.done_marker = True
        return
    _token(answer, time, text, document.get("tokens_predicted"))


EVENTS: dict[str, Callable[[Any, float, Answer], None]] = {
    "chat": _chat,
    "completions": _completions,
    "generate": _generate,
    "completion": _completion,
}
