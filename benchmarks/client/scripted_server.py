"""A test server that streams tokens at known times, in its own process: the truth that a client is compared with.

The model name of a request is its script: `ttft=0.2,itl=0.02,n=64` (seconds, tokens), with faults: `status=500`,
`stall=10` or `drop=10` (after so many tokens), `usage=5` (added to the true count), `nousage=1`, `multi=4` (tokens in
one event), `garbage=3` (event 3 is not JSON), `cached=100`, `draft=2.5` (accept length told in the timings), `split=1`
(every event cut in the middle, sent in two pieces). `GET /truth` tells when each token was really written.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import json
import os
import selectors
import socket
import time
from typing import Any

READ_SIZE = 1 << 16
CHAT = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
TEXTS = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "scripted"}
"""What some clients insist on in every event."""
TEXT = " word"


class Connection:
    """One client connection and the answer in progress."""

    __slots__ = ("api", "buffer", "index", "out", "received", "script", "sent", "sock", "tokens")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.buffer = b""
        self.out = b""
        self.script: dict[str, float] = {}
        self.api = ""
        self.received = 0.0
        self.index = 0
        self.tokens = 0
        self.sent: list[float] = []


class ScriptedServer:
    """One thread, one loop: connections on a selector, tokens on a heap of due times."""

    def __init__(self, port: int = 0, script: str = "") -> None:
        self.script = parse_script(script)
        self.selector = selectors.DefaultSelector()
        self.listener = socket.create_server(("127.0.0.1", port), backlog=1024)
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ, None)
        self.due: list[tuple[float, int, Connection, int]] = []
        self.order = 0
        self.truth: list[dict[str, Any]] = []
        self.generated = 0
        self.requests = 0
        self.bodies: list[Any] = []

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.listener.getsockname()[1])

    def serve(self) -> None:
        """Serve until the process is ended."""
        while True:
            for key, mask in self._wait():
                if key.data is None:
                    self._accept()
                elif mask & selectors.EVENT_READ:
                    self._read(key.data)
                else:
                    self._flush(key.data)
            now = time.perf_counter()
            while self.due and self.due[0][0] <= now:
                _, _, connection, index = heapq.heappop(self.due)
                self._step(connection, index)

    def _wait(self) -> list[tuple[selectors.SelectorKey, int]]:
        """Sleep until something happens; the last millisecond by the clock, since selectors round up to whole ones."""
        if not self.due:
            return self.selector.select(None)
        left = self.due[0][0] - time.perf_counter()
        if left > 0.001:
            return self.selector.select(left - 0.001)
        if left > 0:
            time.sleep(left)
        return self.selector.select(0)

    def _accept(self) -> None:
        sock, _ = self.listener.accept()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.selector.register(sock, selectors.EVENT_READ, Connection(sock))

    def _close(self, connection: Connection) -> None:
        if connection.sock.fileno() >= 0:
            self.selector.unregister(connection.sock)
            connection.sock.close()
        connection.api = ""

    def _read(self, connection: Connection) -> None:
        try:
            data = connection.sock.recv(READ_SIZE)
        except OSError:
            data = b""
        if not data:
            self._close(connection)
            return
        connection.buffer += data
        head, separator, body = connection.buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        lines = head.decode().split("\r\n")
        length = next((int(x.split(":")[1]) for x in lines if x.lower().startswith("content-length:")), 0)
        if len(body) >= length:
            connection.buffer = body[length:]
            method, path, _ = lines[0].split(" ")
            self._request(connection, method, path, body[:length])

    def _request(self, connection: Connection, method: str, path: str, body: bytes) -> None:
        if method == "HEAD":
            connection.out += b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
            self._flush(connection)
            return
        if method != "POST" or not body or path == "/flush_cache":
            self._simple(connection, path)
            return
        asked = json.loads(body)
        self.requests += 1
        self.bodies.append(asked)
        told = parse_script(str(asked.get("model") or asked.get("text") or asked.get("prompt") or ""))
        script = told or dict(self.script)
        limit = (
            asked.get("max_tokens") or asked.get("n_predict") or asked.get("sampling_params", {}).get("max_new_tokens")
        )
        script.setdefault("n", float(limit or 16))
        connection.script, connection.api = script, path.rsplit("/", 1)[-1]
        if path == "/v1/chat/completions":
            connection.api = "chat"
        connection.received, connection.index, connection.tokens, connection.sent = time.perf_counter(), 0, 0, []
        if "status" in script:
            self._answer(connection, int(script["status"]), json.dumps({"error": {"message": "scripted failure"}}))
            return
        connection.out = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        if connection.api == "chat":
            connection.out += event(CHAT | {"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}]})
        self._flush(connection)
        self._later(connection, connection.received + script.get("ttft", 0.0), 0)

    def _simple(self, connection: Connection, path: str) -> None:
        if path == "/truth":
            self._answer(connection, 200, json.dumps(self.truth))
            self.truth = []
        elif path == "/bodies":
            self._answer(connection, 200, json.dumps(self.bodies))
        elif path == "/metrics":
            running = sum(bool(c.api) for c in self._connections())
            rows = {"tokens_predicted_total": self.generated, "requests_processing": running}
            self._answer(connection, 200, "".join(f"llamacpp:{name} {value}\n" for name, value in rows.items()))
        elif path.startswith("/add/"):
            self.generated += int(path.rsplit("/", 1)[-1])
            self._answer(connection, 200, "{}")
        elif path == "/v1/models":
            self._answer(connection, 200, json.dumps({"data": [{"id": "itl=0.001"}]}))
        else:
            self._answer(connection, 404 if path == "/none" else 200, "{}")

    def _connections(self) -> list[Connection]:
        return [key.data for key in self.selector.get_map().values() if key.data is not None]

    def _answer(self, connection: Connection, status: int, text: str) -> None:
        head = f"HTTP/1.1 {status} Scripted\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
        connection.out += (head + text).encode()
        connection.api = ""
        self._flush(connection)

    def _later(self, connection: Connection, at: float, index: int) -> None:
        self.order += 1
        heapq.heappush(self.due, (at, self.order, connection, index))

    def _step(self, connection: Connection, index: int) -> None:
        """Write one event, or the end; faults happen here."""
        script = connection.script
        if not connection.api or index != connection.index:
            return
        total, multi = int(script["n"]), int(script.get("multi", 1))
        if connection.tokens >= script.get("drop", 1e9):
            self._close(connection)
            return
        if connection.tokens >= script.get("stall", 1e9):
            return
        count = min(multi, total - connection.tokens)
        connection.tokens += count
        connection.index += 1
        if index == int(script.get("garbage", -1)):
            connection.out += chunk(b"data: {not json\n\n")
        else:
            connection.out += chunk(self._event(connection, count), split="split" in script)
        connection.sent += [time.perf_counter()] * count
        if connection.tokens >= total:
            connection.out += self._end(connection)
            self._flush(connection)
            self.truth.append({"received": connection.received, "sent": connection.sent, "script": script})
            self.generated += total
            connection.api = ""
            return
        self._flush(connection)
        next_at = connection.received + script.get("ttft", 0.0) + connection.index * script.get("itl", 0.0)
        self._later(connection, next_at, connection.index)

    def _event(self, connection: Connection, count: int) -> bytes:
        text = TEXT * count
        if connection.api == "chat":
            data: dict[str, Any] = CHAT | {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
        elif connection.api == "completions":
            data = TEXTS | {"choices": [{"index": 0, "text": text, "finish_reason": None}]}
        elif connection.api == "generate":
            finish = {"type": "length"} if connection.tokens >= connection.script["n"] else None
            meta = {"completion_tokens": connection.tokens, "prompt_tokens": 7, "finish_reason": finish}
            data = {"text": TEXT * connection.tokens, "meta_info": meta | {"spec_verify_ct": 3}}
        else:
            data = {"content": text, "tokens": [5] * count, "stop": False, "tokens_predicted": connection.tokens}
        return b"data: " + json.dumps(data).encode() + b"\n\n"

    def _end(self, connection: Connection) -> bytes:
        script, total = connection.script, connection.tokens
        said = total + int(script.get("usage", 0))
        timings: dict[str, float] = {"predicted_n": total, "cache_n": int(script.get("cached", 0))}
        if "draft" in script:
            timings |= {"draft_n": total, "draft_n_accepted": round(total - total / script["draft"])}
        if connection.api == "completion":
            last = {"content": "", "stop": True, "stop_type": "limit", "tokens_predicted": said, "tokens_evaluated": 7}
            return event(last | {"timings": timings}) + b"0\r\n\r\n"
        if connection.api == "generate":
            return chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
        usage = {"completion_tokens": said, "prompt_tokens": 120, "total_tokens": said + 120}
        finish = {"index": 0, "delta": {}, "text": "", "finish_reason": "length"}
        common = CHAT if connection.api == "chat" else TEXTS
        parts = event(common | {"choices": [finish]})
        if "nousage" not in script:
            parts += event(common | {"choices": [], "usage": usage, "timings": timings})
        return parts + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"

    def _flush(self, connection: Connection) -> None:
        if not connection.out:
            return
        try:
            sent = connection.sock.send(connection.out)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._close(connection)
            return
        connection.out = connection.out[sent:]
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.out else 0)
        if self.selector.get_key(connection.sock).events != events:
            self.selector.modify(connection.sock, events, connection)


def event(data: dict[str, Any]) -> bytes:
    """Return one server-sent event as an HTTP chunk."""
    return chunk(b"data: " + json.dumps(data).encode() + b"\n\n")


def chunk(data: bytes, *, split: bool = False) -> bytes:
    """Return one HTTP chunk, or two that cut the data in the middle."""
    if split:
        half = len(data) // 2
        return chunk(data[:half]) + chunk(data[half:])
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def parse_script(text: str) -> dict[str, float]:
    """Read `name=value` pairs; anything else is no script."""
    script = {}
    for part in text.split("\n")[0].split(","):
        name, separator, value = part.rpartition(" ")[2].partition("=")
        if separator:
            script[name] = float(value)
    return script


def main() -> None:
    """Print the port on one line, then serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--script", default="", help="for requests whose model name is none")
    asked = parser.parse_args()
    server = ScriptedServer(asked.port, asked.script)
    with contextlib.suppress(OSError):  # its script is only true if it is let run in time
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    print(server.port, flush=True)
    server.serve()


if __name__ == "__main__":
    main()
