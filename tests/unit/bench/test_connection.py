"""When an answer is over, whatever its framing; which of a host's addresses is used."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Iterator, Sequence

import pytest

from optimizer.bench.connection import Connections, Stream, _address
from optimizer.bench.dialects import Answer
from optimizer.bench.stream import read_answer

EVENT = b'data: {"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}\n\n'
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
WAIT_S = 20.0


class Canned:
    """A server that answers its one request with the given pieces and leaves the connection open."""

    def __init__(self, pieces: Sequence[bytes], host: str = "127.0.0.1") -> None:
        self.listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.port = int(self.listener.getsockname()[1])
        self.pieces = pieces
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        self.listener.settimeout(WAIT_S)
        with self.listener, self.listener.accept()[0] as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with contextlib.suppress(OSError):  # the client may be gone first
                sock.recv(1 << 16)
                for piece in self.pieces:
                    sock.sendall(piece)
                    time.sleep(0.005)
            self.ended.wait(WAIT_S)

    def close(self) -> None:
        self.ended.set()
        self.thread.join()


def answered(url: str) -> Answer | None:
    """Send one request and return the answer; None when it was not over in time although all had arrived."""
    over: list[Stream] = []
    with selectors.DefaultSelector() as selector:
        connections = Connections(url, {}, selector, lambda s, error: over.append(s))
        stream = Stream()
        stream.request = {"path": "/v1/chat/completions", "body": "{}"}
        connections.begin(stream)
        until = time.monotonic() + WAIT_S / 4
        while not over and time.monotonic() < until:
            for key, _ in selector.select(0.1):
                connections.advance(key.data)
        connections.close(stream)
    return read_answer(stream.pieces, "chat", closed=stream.closed) if over else None


@pytest.fixture
def canned() -> Iterator[list[Canned]]:
    made: list[Canned] = []
    yield made
    for server in made:
        server.close()


@pytest.mark.parametrize(
    "pieces",
    [
        [HEAD, b"%x\r\n%s\r\n" % (len(EVENT), EVENT), b"0\r\n\r\n"],
        [HEAD, b"%x\r\n%s\r\n" % (len(EVENT), EVENT), b"0\r\nX-Took: 1\r\n\r\n"],
        [HEAD, b"%x\r\n%s\r\n" % (len(EVENT), EVENT), b"0\r\n", b"X-Took: 1\r\n", b"\r\n"],
        [HEAD, b"%x;a=b\r\n%s\r\n" % (len(EVENT), EVENT), b"000;a=b\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Le", b"ngth: %d\r\n\r\n" % len(EVENT), EVENT[:20], EVENT[20:]],
    ],
    ids=["plain", "trailer", "trailer in pieces", "chunk extension", "length in a split head"],
)
def test_an_answer_is_over_when_its_last_byte_is_there(canned: list[Canned], pieces: list[bytes]) -> None:
    canned.append(Canned(pieces))
    answer = answered(f"http://127.0.0.1:{canned[0].port}")
    assert answer is not None and answer.error is None and answer.text == ["a"]


@pytest.mark.parametrize(
    ("piece", "error"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", "http_204"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "bad_http"),
        (b"HTTP/1.1 401 X\r\nContent-Length: 0\r\n\r\n", "http_401"),
    ],
)
def test_an_answer_without_a_body_is_not_waited_for(canned: list[Canned], piece: bytes, error: str) -> None:
    canned.append(Canned([piece]))
    answer = answered(f"http://127.0.0.1:{canned[0].port}")
    assert answer is not None and (answer.error or "").startswith(error)


def test_a_host_with_two_addresses_is_reached_at_the_one_that_listens(
    canned: list[Canned], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `localhost` is, where the name means ::1 first and the server listens on 127.0.0.1 only."""
    canned += [Canned([HEAD + b"%x\r\n%s\r\n0\r\n\r\n" % (len(EVENT), EVENT)])]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        nobody = silent.getsockname()
    here = ("127.0.0.1", canned[0].port)
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in (nobody, here)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **more: found)
    assert _address("localhost", here[1]) == (socket.AF_INET, here)


def test_ipv6(canned: list[Canned]) -> None:
    try:
        canned.append(Canned([HEAD + b"%x\r\n%s\r\n0\r\n\r\n" % (len(EVENT), EVENT)], host="::1"))
    except OSError:
        pytest.skip("this machine has no IPv6")
    answer = answered(f"http://[::1]:{canned[0].port}")
    assert answer is not None and answer.text == ["a"]
