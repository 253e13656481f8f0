"""A local port that leads to a port on the host, over `direct-tcpip` channels of the link's connection.

Decides nothing about servers. Every wait is for an event (no polling), small writes leave at once, and a connection
that breaks on the host's side breaks here too, so that a client sees it. The listening port survives reconnects.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import paramiko

from optimizer.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Hashable

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
        self._live: set[socket.socket] = set()
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
            live = list(self._live)
        for sock in live:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
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
                self._live.add(sock)
            threading.Thread(target=self._carry, args=(sock, origin), daemon=True).start()

    def _carry(self, sock: socket.socket, origin: Address) -> None:
        try:
            try:
                channel = self._open_direct(self._destination, origin)
            except (HostError, paramiko.SSHException, EOFError, OSError):
                _reset(sock)  # as a refused connection would look
                return
            try:
                if not _pump(sock, channel):
                    _reset(sock)
            finally:
                channel.close()
        finally:
            with self._lock:
                self._live.discard(sock)
            sock.close()


def _reset(sock: socket.socket) -> None:
    """Make the close that follows a reset, so that the client knows that the answer was not complete."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _pump(sock: socket.socket, channel: paramiko.Channel) -> bool:
    """Carry bytes both ways until both sides ended; False when the SSH side broke off."""
    poller = select.poll()
    channel_fd = channel.fileno()
    poller.register(sock, select.POLLIN)
    poller.register(channel_fd, select.POLLIN)
    client_open = True
    try:
        while True:
            ready = {fd for fd, _ in poller.poll()}
            if sock.fileno() in ready and client_open:
                data = sock.recv(BLOCK)
                if data:
                    channel.sendall(data)
                else:
                    client_open = False
                    poller.unregister(sock)
                    channel.shutdown_write()
            if channel_fd in ready:
                data = channel.recv(BLOCK) if (channel.recv_ready() or channel.eof_received or channel.closed) else b"-"
                if data == b"-" and not channel.recv_ready():
                    channel.recv_stderr(BLOCK) if channel.recv_stderr_ready() else None
                    continue
                if data:
                    sock.sendall(data)
                else:
                    return _ended_well(channel)
    except (OSError, EOFError, paramiko.SSHException):
        return False


def _ended_well(channel: paramiko.Channel) -> bool:
    transport: Hashable = channel.get_transport()
    return bool(channel.eof_received and transport and channel.get_transport().is_active())
