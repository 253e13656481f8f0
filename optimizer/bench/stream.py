"""Reads one streamed HTTP answer out of the pieces that arrived, each with its arrival time.

Decides which events carry tokens, text, usage and errors in the four streaming dialects. It runs after the request has
ended, so that reading costs nothing while other streams are being timed. When pieces arrive is `client.py`'s.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httptools

Piece = tuple[float, bytes]
"""Arrival time (monotonic seconds) and the bytes that one read returned."""


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


class _Body:
    """Collects the parts of the HTTP message; the callbacks are httptools' own names."""

    def __init__(self) -> None:
        self.time = 0.0
        self.parts: list[Piece] = []
        self.complete = False

    def on_body(self, data: bytes) -> None:
        self.parts.append((self.time, data))

    def on_message_complete(self) -> None:
        self.complete = True


def is_complete(pieces: Sequence[Piece]) -> bool:
    """Say whether the pieces hold one whole HTTP answer (judged by its own length or final chunk)."""
    body = _Body()
    parser = httptools.HttpResponseParser(body)
    try:
        for _, data in pieces:
            parser.feed_data(data)
    except httptools.HttpParserError:
        return True
    return body.complete


def read_answer(pieces: Sequence[Piece], api: str, *, closed: bool) -> Answer:
    """Read one answer; `closed` says that the server ended the connection after it."""
    answer = Answer()
    body = _Body()
    parser = httptools.HttpResponseParser(body)
    try:
        for body.time, data in pieces:
            parser.feed_data(data)
    except httptools.HttpParserError as error:
        answer.error = f"bad_http: {error}"
        return answer
    answer.status = parser.get_status_code() if pieces else 0
    answer.complete = body.complete
    if answer.status != 200:
        answer.error = _status_error(answer.status, b"".join(p for _, p in body.parts), body.complete)
        return answer
    _read_events(body.parts, answer, EVENTS[api])
    _judge_end(answer, closed)
    return answer


def _status_error(status: int, body: bytes, complete: bool) -> str:
    if status == 0:
        return "dropped: the server closed the connection without an answer"
    text = body.decode("utf-8", "replace").strip()
    try:
        document = json.loads(text)
        error = document.get("error", document) if isinstance(document, dict) else document
        text = str(error.get("message") or error.get("detail") or error) if isinstance(error, dict) else str(error)
    except json.JSONDecodeError:
        pass
    tail = "" if complete else " (and the answer was cut off)"
    return f"http_{status}: {' '.join(text.split())[:200]}{tail}"


def _read_events(parts: Sequence[Piece], answer: Answer, event: Callable[[Any, float, Answer], None]) -> None:
    rest = b""
    for time, data in parts:
        lines = (rest + data).split(b"\n")
        rest = lines.pop()
        for line in lines:
            _read_line(line, time, answer, event)
    if rest and answer.complete:
        _read_line(rest, parts[-1][0], answer, event)


def _read_line(line: bytes, time: float, answer: Answer, event: Callable[[Any, float, Answer], None]) -> None:
    if line.startswith(b"data:"):
        payload = line[5:].strip()
    elif line.startswith(b"error:"):
        payload = line[6:].strip()
    else:
        return
    if payload == b"[DONE]":
        answer.done_marker = True
        return
    try:
        document = json.loads(payload)
    except ValueError:
        answer.error = answer.error or f"bad_stream: an event is not JSON: {payload[:80]!r}"
        return
    if not isinstance(document, dict):
        answer.error = answer.error or f"bad_stream: an event is not an object: {payload[:80]!r}"
        return
    problem = document.get("error")
    if problem or line.startswith(b"error:"):
        said = problem.get("message", problem) if isinstance(problem, dict) else problem or document
        answer.error = answer.error or f"server_error: {' '.join(str(said).split())[:200]}"
        return
    event(document, time, answer)


def _judge_end(answer: Answer, closed: bool) -> None:
    if answer.error is None and not answer.complete and not (closed and answer.done_marker):
        answer.error = f"dropped: the stream ended after {sum(answer.counts)} tokens without its end"
    if answer.error is None and not answer.times:
        answer.error = "empty: the answer has no tokens"


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
        answer.cached_tokens = details.get("cached_tokens", answer.cached_tokens)
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
        answer.engine_timings = timings
        answer.cached_tokens = timings.get("cache_n", answer.cached_tokens)


def _generate(document: dict[str, Any], time: float, answer: Answer) -> None:
    """SGLang: text is cumulative by default, `meta_info` comes with every event."""
    meta = document.get("meta_info") or {}
    text = str(document.get("text") or "")
    last = answer.cumulative
    new = text[len(last) :] if text.startswith(last) else text
    answer.cumulative = last + new
    _token(answer, time, new, meta.get("completion_tokens"))
    answer.prompt_tokens = int(meta.get("prompt_tokens") or answer.prompt_tokens)
    answer.cached_tokens = meta.get("cached_tokens", answer.cached_tokens)
    finish = meta.get("finish_reason")
    if finish:
        answer.finish_reason = str(finish.get("type")) if isinstance(finish, dict) else str(finish)
        answer.engine_timings = {k: v for k, v in meta.items() if isinstance(v, int | float | str | list)}


def _completion(document: dict[str, Any], time: float, answer: Answer) -> None:
    """llama.cpp: `tokens` are the new token ids; the last event has `stop` and the timings."""
    text = str(document.get("content") or "")
    if document.get("stop"):
        answer.finish_reason = {"limit": "length"}.get(str(document.get("stop_type")), "stop")
        answer.engine_timings = document.get("timings") or {}
        answer.cached_tokens = answer.engine_timings.get("cache_n", answer.cached_tokens)
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
