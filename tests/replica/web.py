"""The double's HTTP side: a small asyncio server with SGLang's endpoints, streaming at the pace of `speed.py`."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import random
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from tests.replica.dialects import Call, chunk, meta_info, read_call, usage, whole_answer
from tests.replica.flags import VERSION
from tests.replica.speed import speed

WORDS = (
    *("the", "server", "reads", "a", "prompt", "and", "answers", "with", "words", "that", "depend", "on", "nothing"),
    *("but", "it", "so", "two", "runs", "can", "be", "compared", "one", "step", "at", "time", "while", "load", "grows"),
)


@dataclass
class State:
    """What the endpoints share."""

    args: dict[str, Any]
    options: Any
    launch_command: str
    factor: float
    log: Any
    up: bool = False
    running: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    verify: int = 0
    cycles: int = 0
    started: float = field(default_factory=time.time)
    crash: asyncio.Event = field(default_factory=asyncio.Event)


def words_for(prompt: str, count: int, *, garbage: bool) -> list[str]:
    """Return the answer: the same words for the same prompt, whatever the flags."""
    rng = random.Random(hashlib.sha256(prompt.encode()).digest())
    if garbage:
        return ["\u00a4\u00a4"] * count
    return [rng.choice(WORDS) for _ in range(count)]


async def generate(state: State, call: Call, emit: Any) -> tuple[str, int, int]:
    """Produce the answer cycle by cycle; returns text, tokens and verify passes."""
    answer = words_for(call.prompt, call.max_tokens, garbage=state.options.replica_fail == "garbage")
    done, verifies, carry = 0, 0, 0.0
    state.running += 1
    due = time.monotonic() + 0.004 + len(call.prompt.split()) / 40_000
    try:
        while done < len(answer):
            pace = speed(state.args, os.environ, state.running)
            due += pace.cycle_ms / 1000 / state.factor
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            carry += pace.accept_len
            count = min(len(answer) - done, max(1, int(carry)))
            carry -= count
            piece = " ".join(answer[done : done + count]) + " "
            done += count
            verifies += 1 if pace.draft_tokens else 0
            state.cycles += 1
            _decode_line(state, pace)
            await emit(piece, done, verifies)
    finally:
        state.running -= 1
        state.output_tokens += done
        state.verify += verifies
    return " ".join(answer) + " ", done, verifies


def _decode_line(state: State, pace: Any) -> None:
    every = int(state.args.get("decode_log_interval") or 40)
    if state.cycles % every:
        return
    accept = ""
    if pace.draft_tokens:
        rate = (pace.accept_len - 1) / max(1, pace.draft_tokens - 1)
        accept = f"accept len: {pace.accept_len:.2f}, accept rate: {rate:.2f}, "
    graph = not state.args.get("disable_cuda_graph")
    state.log(
        f"Decode batch, #running-req: {state.running}, #token: {state.output_tokens}, token usage: 0.01, {accept}"
        f"cuda graph: {graph}, gen throughput (token/s): {pace.tok_s * state.factor * state.running:.2f}, #queue-req: 0"
    )


class Connection:
    """One client connection: HTTP/1.1 with keep-alive and chunked answers."""

    def __init__(self, state: State, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.state, self.reader, self.writer = state, reader, writer

    async def serve(self) -> None:
        """Answer requests until the client leaves."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = await self.reader.readuntil(b"\r\n\r\n")
                lines = head.decode("latin-1").split("\r\n")
                method, target, _ = lines[0].split(" ", 2)
                headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:] if line)}
                body = await self.reader.readexactly(int(headers.get("content-length", "0")))
                await self._route(method, target.partition("?")[0], body)
        with contextlib.suppress(ConnectionError):
            self.writer.close()

    async def _send(self, status: int, body: bytes, kind: str = "application/json") -> None:
        reason = {200: "OK", 400: "Bad Request", 404: "Not Found", 503: "Service Unavailable"}.get(status, "Error")
        self.writer.write(
            f"HTTP/1.1 {status} {reason}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
        )
        await self.writer.drain()

    async def _json(self, status: int, data: Any) -> None:
        await self._send(status, json.dumps(data).encode())

    async def _route(self, method: str, path: str, body: bytes) -> None:
        state = self.state
        if path in {"/health", "/health_generate", "/ready"}:
            healthy = state.up or state.options.replica_fail == "no_generate"
            await self._send(200 if healthy else 503, b"", "text/plain")
        elif path in {"/ping", "/"}:
            await self._send(200, b"", "text/plain")
        elif path == "/v1/models":
            model = {"id": state.args["served_model_name"], "object": "model", "owned_by": "sglang",
                     "root": state.args["model_path"], "max_model_len": state.args["context_length"]}  # fmt: skip
            await self._json(200, {"object": "list", "data": [model]})
        elif path in {"/model_info", "/get_model_info"}:
            model_path = state.args["model_path"]
            info = {"model_path": model_path, "tokenizer_path": model_path, "is_generation": True}
            await self._json(200, {**info, "weight_version": "default"})
        elif path in {"/server_info", "/get_server_info"}:
            await self._json(200, self._server_info())
        elif path == "/flush_cache":
            if state.running:
                await self._send(400, b"Flush cache failed.\n", "text/plain")
            else:
                state.log("Cache flushed successfully!")
                await self._send(200, b"Cache flushed.\n", "text/plain")
        elif path == "/metrics" and state.args.get("enable_metrics"):
            await self._send(200, metrics(state).encode(), "text/plain; version=0.0.4")
        elif method == "POST" and path in {"/generate", "/v1/completions", "/v1/chat/completions"}:
            await self._generate(path, body)
        else:
            await self._json(404, {"detail": "Not Found"})

    def _server_info(self) -> dict[str, Any]:
        state = self.state
        inner: dict[str, Any] = {"last_gen_throughput": 0.0, "effective_max_running_requests_per_dp":
                                 state.args["max_running_requests"]}  # fmt: skip
        if state.verify:
            inner["avg_spec_accept_length"] = state.output_tokens / state.verify
        return {
            **state.args,
            "version": VERSION,
            "launch_command": state.launch_command,
            "status": "Up" if state.up else "Starting",
            "max_total_num_tokens": 200_000,
            "startup_time": 1.0,
            "internal_states": [inner],
        }

    async def _generate(self, path: str, body: bytes) -> None:
        state = self.state
        try:
            data = json.loads(body)
            call = read_call(path, data)
        except (ValueError, KeyError, TypeError) as error:
            await self._json(400, {"error": {"message": f"bad request: {error}", "type": "BadRequestError"}})
            return
        if state.options.replica_fail in {"not_ready", "no_generate"}:
            await asyncio.sleep(3600)
        state.requests += 1
        state.prompt_tokens += len(call.prompt.split())
        if state.options.replica_fail == "crash" and state.requests > state.options.replica_fail_after:
            state.crash.set()
            await asyncio.sleep(5)
        print(f'INFO:     127.0.0.1:0 - "POST {path} HTTP/1.1" 200 OK', flush=True)
        await (self._stream(call) if call.stream else self._whole(call))

    async def _whole(self, call: Call) -> None:
        async def nothing(piece: str, done: int, verifies: int) -> None:
            return

        began = time.monotonic()
        text, tokens, verifies = await generate(self.state, call, nothing)
        await self._json(200, whole_answer(self.state.args, call, text, tokens, verifies, time.monotonic() - began))

    async def _stream(self, call: Call) -> None:
        self.writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        began, ident, so_far = time.monotonic(), uuid.uuid4().hex, ""

        async def event(data: Any) -> None:
            raw = b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"
            self.writer.write(f"{len(raw):x}\r\n".encode() + raw + b"\r\n")
            await self.writer.drain()

        async def emit(piece: str, done: int, verifies: int) -> None:
            nonlocal so_far
            so_far += piece
            if call.dialect == "generate":
                final = done >= call.max_tokens
                meta = meta_info(self.state.args, call, done, verifies, time.monotonic() - began, final)
                await event({"text": so_far, "output_ids": list(range(done)), "meta_info": meta})
            else:
                await event(chunk(call, ident, piece))

        if call.dialect == "chat":
            await event(chunk(call, ident, "", role=True))
        _, tokens, _ = await generate(self.state, call, emit)
        if call.dialect != "generate":
            await event(chunk(call, ident, None))
            if call.include_usage:
                await event({**chunk(call, ident, None), "choices": [], "usage": usage(call, tokens)})
        await event(b"[DONE]")
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()


def metrics(state: State) -> str:
    """Return the Prometheus text."""
    label = f'{{model_name="{state.args["served_model_name"]}"}}'
    pace = speed(state.args, os.environ)
    rows = {
        "prompt_tokens_total": state.prompt_tokens, "generation_tokens_total": state.output_tokens,
        "num_requests_total": state.requests, "num_running_reqs": state.running, "num_queue_reqs": 0,
        "gen_throughput": round(pace.tok_s * state.factor, 2) if state.running else 0.0, "token_usage": 0.01,
        "cache_hit_rate": 0.0,
    }  # fmt: skip
    if pace.draft_tokens:
        rows["spec_accept_length"] = round(pace.accept_len, 3)
        rows["spec_verify_calls_total"] = state.verify
    lines = []
    for name, value in rows.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# TYPE sglang:{name} {kind}", f"sglang:{name}{label} {value}"]
    return "\n".join(lines) + "\n"
