"""Reading streamed answers: whole, cut anywhere, broken."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.bench.dialects import Answer
from optimizer.bench.stream import is_complete, read_answer

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def event(document: object) -> bytes:
    return b"data: " + json.dumps(document, ensure_ascii=False).encode() + b"\n\n"


def delta(text: str | None, finish: str | None = None) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


WHOLE = (
    HEAD
    + b"".join(chunk(event(delta(t))) for t in (None, "Grüße", ", 世", "界!"))
    + chunk(event(delta(None, "stop")))
    + chunk(event({"choices": [], "usage": {"completion_tokens": 4, "prompt_tokens": 9}}))
    + chunk(b"data: [DONE]\n\n")
    + b"0\r\n\r\n"
)


def read(data: bytes, api: str = "chat", *, closed: bool = False) -> Answer:
    return read_answer([(0.0, data)], api, closed=closed)


def test_a_whole_answer() -> None:
    answer = read(WHOLE)
    assert "".join(answer.text) == "Grüße, 世界!"
    assert (answer.output_tokens, sum(answer.counts), answer.prompt_tokens) == (4, 3, 9)
    assert answer.finish_reason == "stop" and answer.error is None


@given(st.lists(st.integers(1, len(WHOLE) - 1), max_size=12))
def test_it_does_not_matter_where_it_is_cut(cuts: list[int]) -> None:
    edges = [0, *sorted(set(cuts)), len(WHOLE)]
    pieces = [(float(i), WHOLE[a:b]) for i, (a, b) in enumerate(pairwise(edges))]
    answer = read_answer(pieces, "chat", closed=False)
    assert "".join(answer.text) == "Grüße, 世界!" and answer.error is None
    assert answer.times == sorted(answer.times)
    assert is_complete(pieces) and not is_complete(pieces[:-1])


def test_a_token_has_the_time_at_which_its_event_was_whole() -> None:
    body = chunk(event(delta("a")))
    pieces = [(1.0, HEAD + body[:20]), (2.0, body[20:]), (3.0, chunk(event(delta("b")))), (4.0, b"0\r\n\r\n")]
    assert read_answer(pieces, "chat", closed=False).times == [2.0, 3.0]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "dropped: the server closed"),
        (WHOLE[:-40], "dropped: the stream ended after 3 tokens"),
        (HEAD + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n", "empty"),
        (HEAD + chunk(b"data: {oops\n\n") + b"0\r\n\r\n", "bad_stream"),
        (HEAD + chunk(b"data: [1]\n\n") + b"0\r\n\r\n", "bad_stream"),
        (HEAD + chunk(event({"error": {"message": "out of memory"}})) + b"0\r\n\r\n", "server_error: out of memory"),
        (HEAD + chunk(b'error: {"message": "slot"}\n\n') + b"0\r\n\r\n", "server_error"),
        (b"no HTTP at all\r\n\r\n", "bad_http"),
        (b'HTTP/1.1 503 X\r\nContent-Length: 31\r\n\r\n{"error":{"message":"loading"}}\n', "http_503: loading"),
        (b"HTTP/1.1 502 X\r\nContent-Length: 11\r\n\r\nbad gateway", "http_502: bad gateway"),
        (b'HTTP/1.1 422 X\r\nContent-Length: 20\r\n\r\n{"detail": "no max"}', "http_422"),
    ],
)
def test_errors_are_named(data: bytes, error: str) -> None:
    assert (read(data, closed=True).error or "").startswith(error)


def test_an_answer_that_ends_with_its_connection() -> None:
    plain = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    done = plain + event(delta("a")) + event(delta("b")) + b"data: [DONE]\n\n"
    assert read(done, closed=True).error is None
    assert read(done[:-2], closed=True).error is None, "the last line may lack its end"
    assert (read(done[:-15], closed=True).error or "").startswith("dropped")
    error = b"HTTP/1.1 500 X\r\nContent-Type: text/plain\r\n\r\nboom"
    assert read(error, closed=True).error == "http_500: boom"


def sized(status: str, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def stream(*events: bytes) -> bytes:
    return HEAD + b"".join(map(chunk, events)) + b"0\r\n\r\n"


USAGE_OF_50 = {"choices": [], "usage": {"completion_tokens": 50}}


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (sized("200 OK", b'{"choices": []}', "Content-Type: application/json"), "not_streamed: .* (application/json)"),
        (sized("200 OK", b"<html>log in</html>"), "not_streamed: .*log in"),
        (sized("200 OK", b'{"error": {"message": "loading"}}'), "server_error: loading"),
        (sized("200 OK", b"\x1f\x8b", "Content-Encoding: gzip"), "bad_http: .*gzip"),
        (sized("307 X", b"", "Location: https://other/v1"), "http_307: (leads to https://other/v1)"),
        (sized("429 X", b'{"error": "slow down"}', "Retry-After: 7"), "http_429: slow down (retry after 7)"),
        (stream(event({"object": "error", "message": "kaboom"})), "server_error: kaboom"),
        (stream(event(delta("a")), event(delta(None, "abort"))), "server_error: .*after 1 tokens (abort)"),
        (stream(event(delta("a"))), "dropped: .*without a finish reason"),
        (stream(event(delta(None, "stop")), event(USAGE_OF_50)), "empty: .*usage says 50 tokens"),
        (stream(event({"choices": [None]})), "bad_stream"),
        (stream(event({"choices": [{"delta": "a"}]})), "bad_stream"),
        (stream(event({"choices": [], "usage": {"completion_tokens": "many"}})), "bad_stream"),
        (stream(event({"usage": {"prompt_tokens_details": {"cached_tokens": "x"}}})), "bad_stream"),
        (stream(event({"usage": {"completion_tokens": float("inf")}})), "bad_stream"),
    ],
)
def test_odd_answers_are_told_as_what_they_are(data: bytes, error: str) -> None:
    pattern = re.escape(error).replace(r"\.\*", ".*")
    assert re.match(pattern, read(data).error or "")


@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
def test_lines_may_end_in_other_ways_and_comments_say_nothing(end: bytes) -> None:
    parts = [b": ping\n\n", event(delta("a")), b"event: x\nid: 4\n\n", event(delta("b", "stop")), b"data:[DONE]\n\n"]
    answer = read(stream(*(part.replace(b"\n", end) for part in parts)))
    assert answer.text == ["a", "b"] and answer.error is None


def test_reasoning_and_tool_calls_are_tokens_too() -> None:
    parts = [{"reasoning_content": "hm"}, {"tool_calls": [{"function": {"arguments": "{}"}}]}, {"content": "x"}]
    answer = read(stream(*(event({"choices": [{"delta": d}]}) for d in parts), event(delta(None, "stop"))))
    assert answer.text == ["hm", "{}", "x"] and answer.error is None


def test_running_usage_counts_every_event() -> None:
    events = [{**delta(t), "usage": {"completion_tokens": n, "prompt_tokens": 5}} for t, n in (("ab", 3), ("cd", 4))]
    last = {"choices": [], "usage": {"completion_tokens": 4, "prompt_tokens": 5}}
    answer = read(HEAD + b"".join(chunk(event(e)) for e in (*events, last)) + b"0\r\n\r\n")
    assert answer.counts == [3, 1] and answer.exact and answer.output_tokens == 4


def test_sglang_text_may_be_cumulative_or_new() -> None:
    for texts in (("He", "Hello"), ("He", "llo")):
        events = [{"text": t, "meta_info": {"completion_tokens": i + 1}} for i, t in enumerate(texts)]
        events[-1]["meta_info"] |= {"finish_reason": {"type": "length"}, "spec_verify_ct": 1}  # type: ignore[operator]
        answer = read(HEAD + b"".join(chunk(event(e)) for e in events) + b"0\r\n\r\n", "generate")
        assert "".join(answer.text) == "Hello" and answer.counts == [1, 1]
        assert answer.engine_timings["spec_verify_ct"] == 1 and answer.finish_reason == "length"
