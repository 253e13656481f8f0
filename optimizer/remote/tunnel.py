"""A local port that leads to a port on the host, over `direct-tcpip` channels of the link's connection.

Decides nothing about servers. Every wait is for an event (no polling), small writes leave at once, and a connection
that breaks on the host's side breaks here too, so that a client sees it. The listening port survives reconnects.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable

import paramiko

from optimizer.errors import HostError

BLOCK = 65536
Address = tuple[str, int]
OpenDirect = Callable[[Address, Address], paramiko.Channel]


class SshTunnel:
    """Listens on 127.0.0.1; `open_direct(destination, origin)` gives the channel for each connection."""

    path = "tunnel"

    def __init__(
        self, open_direct: OpenDirect, destination: Address, *, on_close: Callable[[SshTunnel], None] | None = None
    ) -> None:
        self._open_direct = open_direct
        self._destination = destination
        self._on_close = on_close
        self._closing = threading.Event()
        self._live: dict[socket.socket, paramiko.Channel | None] = {}
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name=f"tunnel-{self._port}", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Base URL on this side."""
        return f"http://127.0.0.1:{self._port}"

    def close(self) -> None:
        """Stop listening and cut what is open; harmless when repeated."""
        if self._closing.is_set():
            return
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            live = list(self._live.items())
        for sock, channel in live:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            if channel is not None:
                channel.close()
        self._thread.join(2)
        if self._on_close:
            self._on_close(self)

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                sock, origin = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._live[sock] = None
            threading.Thread(target=self._carry, args=(sock, origin), daemon=True).start()

    def _carry(self, sock: socket.socket, origin: Address) -> None:
        try:
            try:
                channel = self._open_direct(self._destination, origin)
            except (HostError, paramiko.SSHException, EOFError, OSError):
                _reset(sock)  # as a refused connection would look
                return
            with self._lock:
                self._live[sock] = channel
            upward = threading.Thread(target=_send_up, args=(sock, channel), daemon=True)
            upward.start()
            try:
                if self._closing.is_set() or not _send_down(channel, sock):
                    _reset(sock)
            finally:
                channel.close()
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RD)
                upward.join()
        finally:
            with self._lock:
                self._live.pop(sock, None)
            sock.close()


def _reset(sock: socket.socket) -> None:
    """Make the close that follows a reset, so that the client knows that the answer was not complete."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _send_up(sock: socket.socket, channel: paramiko.Channel) -> None:
    """Carry what the client writes, and the end of it."""
    try:
        while data := sock.recv(BLOCK):
            channel.sendall(data)
        channel.shutdown_write()
    except (OSError, EOFError, paramiko.SSHException):
        channel.close()


def _send_down(channel: paramiko.Channel, sock: socket.socket) -> bool:
    """Carry what the server writes, to its end; False when either side broke off."""
    try:
        while data := channel.recv(BLOCK):
            sock.sendall(data)
    except (OSError, EOFError, paramiko.SSHException):
        return False
    return bool(channel.eof_received) and channel.get_transport().is_active()
