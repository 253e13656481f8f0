"""Reads one streamed HTTP answer out of the pieces that arrived, each with its arrival time.

Decides where the events are, what is an error and when an answer is whole. It runs after the request has ended, so
that reading costs nothing while other streams are being timed. What an event says is `dialects.py`, when pieces arrive
`client.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import httptools

from optimizer.bench.dialects import EVENTS, Answer

Piece = tuple[float, bytes]
"""Arrival time (monotonic seconds) and the bytes that one read returned."""
GAVE_UP = ("abort", "error")
"""Finish reasons of an answer that the server did not finish."""


class _Body:
    """Collects the parts of the HTTP message; the callbacks are httptools' own names."""

    def __init__(self) -> None:
        self.time = 0.0
        self.headers: dict[str, str] = {}
        self.parts: list[Piece] = []
        self.complete = False

    @property
    def text(self) -> str:
        """The whole body."""
        return b"".join(data for _, data in self.parts).decode("utf-8", "replace").strip()

    @property
    def delimited(self) -> bool:
        """Whether the message itself says where it ends; else it ends with the connection."""
        return "content-length" in self.headers or "chunked" in self.headers.get("transfer-encoding", "").lower()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

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
    answer.complete = body.complete or (closed and bool(body.headers) and not body.delimited)
    encoding = body.headers.get("content-encoding", "identity")
    if answer.status != 200:
        answer.error = _status_error(answer.status, body, answer.complete)
    elif encoding.lower() != "identity":
        answer.error = f"bad_http: the answer is compressed ({encoding}) although none was asked for"
    elif not _read_events(body.parts, answer, EVENTS[api]) and answer.complete and body.text:
        answer.error = _not_streamed(body)
    _judge_end(answer, closed)
    return answer


def _status_error(status: int, body: _Body, complete: bool) -> str:
    if status == 0:
        return "dropped: the server closed the connection without an answer"
    said = [_message(body.text)]
    for name, form in (("location", "leads to {}"), ("retry-after", "retry after {}")):
        if name in body.headers:
            said.append(f"({form.format(body.headers[name][:200])})")
    if not complete:
        said.append("(and the answer was cut off)")
    return f"http_{status}: {' '.join(part for part in said if part)}"


def _message(text: str) -> str:
    """Return what a body says went wrong, on one line."""
    try:
        document = json.loads(text)
    except ValueError:
        document = text
    error = document.get("error") or document if isinstance(document, dict) else document
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or error
    return " ".join(str(error).split())[:200]


def _not_streamed(body: _Body) -> str:
    try:
        document = json.loads(body.text)
    except ValueError:
        document = None
    if isinstance(document, dict) and document.get("error"):
        return f"server_error: {_message(body.text)}"
    kind = body.headers.get("content-type", "no type")
    return f"not_streamed: the answer has no events but is one text ({kind}): {' '.join(body.text.split())[:80]}"


def _read_events(parts: Sequence[Piece], answer: Answer, event: Callable[[Any, float, Answer], None]) -> bool:
    """Read the events line by line; say whether there was any."""
    rest, found = b"", False
    for time, data in parts:
        lines = (rest + data.replace(b"\r", b"\n")).split(b"\n")  # empty lines say nothing, so \r\n needs no care
        rest = lines.pop()
        for line in lines:
            found |= _read_line(line, time, answer, event)
    if rest and answer.complete:
        found |= _read_line(rest, parts[-1][0], answer, event)
    return found


def _read_line(line: bytes, time: float, answer: Answer, event: Callable[[Any, float, Answer], None]) -> bool:
    """Read one line of an event stream; comments and other fields than data are no events."""
    if not line.startswith((b"data:", b"error:")):
        return False
    payload = line.partition(b":")[2].strip()
    if payload == b"[DONE]":
        answer.done_marker = True
        return True
    problem = _problem(line, payload, time, answer, event)
    answer.error = answer.error or problem
    return True


def _problem(
    line: bytes, payload: bytes, time: float, answer: Answer, event: Callable[[Any, float, Answer], None]
) -> str | None:
    """Take in one event; return what is wrong with it, None when all is well."""
    try:
        document = json.loads(payload)
    except ValueError:
        return f"bad_stream: an event is not JSON: {payload[:80]!r}"
    if not isinstance(document, dict):
        return f"bad_stream: an event is not an object: {payload[:80]!r}"
    if document.get("error") or document.get("object") == "error" or line.startswith(b"error:"):
        return f"server_error: {_message(payload.decode('utf-8', 'replace'))}"
    try:
        event(document, time, answer)
    except (TypeError, ValueError, AttributeError, ArithmeticError):
        return f"bad_stream: an event is not what this API sends: {payload[:80]!r}"
    return None


def _judge_end(answer: Answer, closed: bool) -> None:
    """Say what is wrong with how an answer ended, unless something else is wrong already."""
    if answer.error is not None:
        return
    tokens = sum(answer.counts)
    ended = answer.done_marker or answer.finish_reason is not None
    if answer.finish_reason in GAVE_UP:
        answer.error = f"server_error: the server gave up after {tokens} tokens ({answer.finish_reason})"
    elif not answer.complete and not (closed and answer.done_marker):
        answer.error = f"dropped: the stream ended after {tokens} tokens without its end"
    elif answer.times and not ended:
        answer.error = f"dropped: the stream ended after {tokens} tokens without a finish reason or [DONE]"
    elif not answer.times and answer.output_tokens:
        answer.error = f"empty: the stream shows no text, although usage says {answer.output_tokens} tokens"
    elif not answer.times:
        answer.error = "empty: the answer has no tokens"
