"""Connections of the load client: one state machine for each, on non-blocking sockets.

Decides when a request's time begins, when bytes count as arrived, and when an answer is over. Which request goes out
when is `client.py`; what an answer says is `stream.py`, afterwards.
"""

from __future__ import annotations

import contextlib
import os
import re
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
TAIL_BYTES = 256
"""Room for a final chunk with trailers; an answer whose trailers are longer ends when the connection does."""
FINAL_CHUNK = re.compile(rb"(?:^|\r\n)0+(?:[ \t]*;[^\r\n]*)?\r\n(?:[^\r\n]+\r\n)*\r\n\Z")
PROBE_TIMEOUT_S = 3.0
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
        "was_due",
    )

    def __init__(self) -> None:
        self.sock: Any = None
        self.state = "closed"  # closed | connecting | handshake | idle | sending | reading
        self.request: dict[str, Any] | None = None
        self.pieces: list[Piece] = []
        self.tail = b""
        self.started = 0.0
        self.was_due = False
        self.data_at = 0.0
        self.sent = 0
        self.head = b""
        self.fresh = True
        self.sized: bool | None = None  # whether the answer has a length; None before its head is whole
        self.closed = False


class Connections:
    """All connections to one server. `on_end(stream, error)` is called when a request is over, well or not."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        selector: selectors.BaseSelector,
        on_end: Callable[[Stream, str | None], None],
    ) -> None:
        parts = urlsplit(url)
        self.host = parts.hostname or "127.0.0.1"
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        self.prefix = parts.path.rstrip("/")
        self.authority = parts.netloc.rpartition("@")[2]
        self.tls = ssl.create_default_context() if parts.scheme == "https" else None
        self.family, self.address = _address(self.host, self.port)
        self.late_s: list[float] = []
        """How long the bytes of each read had waited, where the kernel tells."""
        self.stamped = self.tls is None and sys.platform == "linux"
        self.headers = headers
        self.selector = selector
        self.on_end = on_end

    def begin(self, stream: Stream, due: float | None = None) -> None:
        """Send `stream.request`, over the open connection if there is one.

        In an open loop its time began when it was `due` (monotonic seconds), however late this process was.
        """
        assert stream.request is not None
        body = stream.request["body"].encode()
        extra = "".join(f"{k}: {v}\r\n" for k, v in self.headers.items())
        stream.head = (
            f"POST {self.prefix}{stream.request['path']} HTTP/1.1\r\nHost: {self.authority}\r\n"
            f"Content-Type: application/json\r\nAccept: text/event-stream\r\nAccept-Encoding: identity\r\n"
            f"{extra}Content-Length: {len(body)}\r\n\r\n"
        ).encode() + body
        stream.pieces, stream.tail, stream.sized, stream.sent, stream.closed = [], b"", None, 0, False
        stream.data_at = time.perf_counter()
        stream.started, stream.was_due = stream.data_at if due is None else due, due is not None
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
        """The connection is open: the request's time begins here, in an open loop it has begun before."""
        stream.data_at = time.perf_counter()
        if not stream.was_due:
            stream.started = stream.data_at
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
        stream.tail = data[-TAIL_BYTES:] if len(data) >= TAIL_BYTES else (stream.tail + data)[-TAIL_BYTES:]
        if self._may_be_over(stream) and is_complete(stream.pieces):
            self.on_end(stream, None)

    @staticmethod
    def _may_be_over(stream: Stream) -> bool:
        """Say whether to look closely. A chunked answer, the usual one, is looked at when it shows a final chunk."""
        if stream.sized is None:
            stream.sized = _has_length(b"".join(data for _, data in stream.pieces))
            return True
        return stream.sized or (stream.tail.endswith(b"\r\n\r\n") and FINAL_CHUNK.search(stream.tail) is not None)

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

    def _broken(self, stream: Stream, error: str | None) -> None:
        """The connection ended. A reused one that never answered was closed while idle: try once more, afresh."""
        if not stream.pieces and not stream.fresh:
            self.close(stream)
            self.begin(stream, stream.started if stream.was_due else None)
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


def _has_length(begin: bytes) -> bool | None:
    """Say whether an answer that begins like this says how long it is; None while its head is not whole."""
    head, whole, _ = begin.partition(b"\r\n\r\n")
    return b"\r\ncontent-length:" in head.lower() if whole else None


def _address(host: str, port: int) -> tuple[int, Any]:
    """Return family and address of a host; of several (`localhost` is often two) the first that answers.

    Raises:
        OSError: nobody knows such a host.
    """
    try:
        found = [(each[0], each[4]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except UnicodeError as error:
        raise OSError(f"{host[:80]!r} is no name of a host") from error
    for family, address in found if len(found) > 1 else ():
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.settimeout(PROBE_TIMEOUT_S)
            probe.connect(address)
            return family, address
    return found[0]
