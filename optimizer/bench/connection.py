"""Connections of the load client: one state machine for each, on non-blocking sockets.

Decides when a request's time begins, when bytes count as arrived, and when an answer is over. Which request goes out
when is `client.py`; what an answer says is `stream.py`, afterwards.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from optimizer.bench.stream import Piece, is_complete

READ_SIZE = 1 << 16
FINAL_CHUNK = b"0\r\n\r\n"
SO_TIMESTAMPNS = 35
"""Linux: the kernel says with every read when the bytes arrived, however late this process comes to read them."""
TIMESPEC = struct.Struct("@ll")
STAMP_SPACE = socket.CMSG_SPACE(TIMESPEC.size)
MOST_LATE_NS = 10_000_000_000
"""A stamp that is older, or from the future, tells of a step of the wall clock between arrival and read."""


class Stream:
    """One connection and the request on it, if any."""

    __slots__ = (
        "closed",
        "data_at",
        "fresh",
        "head",
        "pieces",
        "request",
        "sent",
        "sized",
        "sock",
        "started",
        "state",
        "tail",
    )

    def __init__(self) -> None:
        self.sock: Any = None
        self.state = "closed"  # closed | connecting | handshake | idle | sending | reading
        self.request: dict[str, Any] | None = None
        self.pieces: list[Piece] = []
        self.tail = b""
        self.started = 0.0
        self.data_at = 0.0
        self.sent = 0
        self.head = b""
        self.fresh = True
        self.sized = False
        self.closed = False


class Connections:
    """All connections to one server. `on_end(stream, error)` is called when a request is over, well or not."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        selector: selectors.BaseSelector,
        on_end: Callable[[Stream, str | None], None],
        *,
        timed_from_due: bool,
    ) -> None:
        parts = urlsplit(url)
        self.host = parts.hostname or "127.0.0.1"
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        self.prefix = parts.path.rstrip("/")
        self.authority = parts.netloc.rpartition("@")[2]
        self.tls = ssl.create_default_context() if parts.scheme == "https" else None
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
        self.family: int = found[0]
        self.address: Any = found[4]
        self.late_s: list[float] = []
        """How long the bytes of each read had waited, where the kernel tells."""
        self.stamped = self.tls is None and sys.platform == "linux"
        self.headers = headers
        self.selector = selector
        self.on_end = on_end
        self.timed_from_due = timed_from_due

    def begin(self, stream: Stream) -> None:
        """Send `stream.request`, over the open connection if there is one."""
        assert stream.request is not None
        body = stream.request["body"].encode()
        extra = "".join(f"{k}: {v}\r\n" for k, v in self.headers.items())
        stream.head = (
            f"POST {self.prefix}{stream.request['path']} HTTP/1.1\r\nHost: {self.authority}\r\n"
            f"Content-Type: application/json\r\nAccept: text/event-stream\r\n{extra}Content-Length: {len(body)}\r\n\r\n"
        ).encode() + body
        stream.pieces, stream.tail, stream.sent, stream.closed = [], b"", 0, False
        stream.started = stream.data_at = time.perf_counter()
        if stream.state == "idle":
            stream.fresh = False
            self._send(stream)
        else:
            stream.fresh = True
            self._connect(stream)

    def _connect(self, stream: Stream) -> None:
        try:
            sock = socket.socket(self.family, socket.SOCK_STREAM)
        except OSError as error:
            self.fail(stream, f"connect: {error.strerror or error}")
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.stamped:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        stream.sock, stream.state = sock, "connecting"
        self.selector.register(sock, selectors.EVENT_WRITE, stream)
        try:
            sock.connect(self.address)
        except BlockingIOError:
            pass
        except OSError as error:
            self.fail(stream, f"connect: {error.strerror or error}")

    def advance(self, stream: Stream) -> None:
        """The socket is ready: do what its state asks for."""
        state = stream.state
        if state == "reading":
            self._read(stream)
        elif state == "sending":
            self._send(stream)
        elif state == "connecting":
            self._connected(stream)
        elif state == "handshake":
            self._handshake(stream)
        elif state == "idle":
            self.close(stream)  # the server ended a connection nobody uses, or spoke out of turn

    def _connected(self, stream: Stream) -> None:
        code = stream.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self.fail(stream, f"connect: {os.strerror(code)}")
            return
        if self.tls is None:
            self._ready(stream)
            return
        self.selector.unregister(stream.sock)
        stream.sock = self.tls.wrap_socket(stream.sock, server_hostname=self.host, do_handshake_on_connect=False)
        self.selector.register(stream.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, stream)
        stream.state = "handshake"
        self._handshake(stream)

    def _handshake(self, stream: Stream) -> None:
        try:
            stream.sock.do_handshake()
        except ssl.SSLWantReadError:
            self.selector.modify(stream.sock, selectors.EVENT_READ, stream)
        except ssl.SSLWantWriteError:
            self.selector.modify(stream.sock, selectors.EVENT_WRITE, stream)
        except OSError as error:
            self.fail(stream, f"tls: {error}")
        else:
            self._ready(stream)

    def _ready(self, stream: Stream) -> None:
        """The connection is open: the request's time begins here (in an open loop, when it was due)."""
        if not self.timed_from_due:
            stream.started = stream.data_at = time.perf_counter()
        self._send(stream)

    def _send(self, stream: Stream) -> None:
        try:
            stream.sent += stream.sock.send(stream.head[stream.sent :])
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass
        except OSError as error:
            self._broken(stream, f"dropped: {error.strerror or error}")
            return
        done = stream.sent >= len(stream.head)
        stream.state = "reading" if done else "sending"
        self.selector.modify(stream.sock, selectors.EVENT_READ if done else selectors.EVENT_WRITE, stream)

    def _read(self, stream: Stream) -> None:
        try:
            data, now = self._receive(stream.sock)
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except OSError as error:
            self._broken(stream, f"dropped: {error.strerror or error}")
            return
        if not data:
            stream.closed = True
            self._broken(stream, None)
            return
        stream.pieces.append((now, data))
        stream.data_at = now
        stream.tail = data[-5:] if len(data) >= 5 else (stream.tail + data)[-5:]
        # A chunked answer ends with its final chunk; one with a length is short (an error) and read as it comes.
        if len(stream.pieces) == 1:
            stream.sized = self._has_length(data)
        if (stream.tail == FINAL_CHUNK or stream.sized) and is_complete(stream.pieces):
            self.on_end(stream, None)

    def _receive(self, sock: Any) -> tuple[bytes, float]:
        """Read what is there; return it with its time of arrival, by the kernel's own stamp where there is one."""
        if self.stamped:
            data, told, _, _ = sock.recvmsg(READ_SIZE, STAMP_SPACE)
            now = time.perf_counter()
            if told:  # the stamp is all that was asked for
                seconds, nanoseconds = TIMESPEC.unpack(told[0][2])
                late = time.time_ns() - seconds * 1_000_000_000 - nanoseconds
                if 0 < late < MOST_LATE_NS:
                    self.late_s.append(late * 1e-9)
                    now -= late * 1e-9
            return data, now
        data = sock.recv(READ_SIZE)
        while self.tls is not None and sock.pending():
            data += sock.recv(READ_SIZE)
        return data, time.perf_counter()

    @staticmethod
    def _has_length(first: bytes) -> bool:
        return b"\r\ncontent-length:" in first[:4096].lower().split(b"\r\n\r\n", 1)[0]

    def _broken(self, stream: Stream, error: str | None) -> None:
        """The connection ended. A reused one that never answered was closed while idle: try once more, afresh."""
        if not stream.pieces and not stream.fresh:
            self.close(stream)
            self.begin(stream)
            return
        self.close(stream)
        self.on_end(stream, error)

    def fail(self, stream: Stream, error: str) -> None:
        """End a request with an error; its connection is closed."""
        self.close(stream)
        self.on_end(stream, error)

    def close(self, stream: Stream) -> None:
        """Close the connection, if it is open."""
        if stream.sock is not None:
            with contextlib.suppress(KeyError, ValueError):
                self.selector.unregister(stream.sock)
            stream.sock.close()
        stream.sock, stream.state = None, "closed"
