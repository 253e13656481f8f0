"""A TCP proxy that can be cut or frozen: the network between Ratchet and a host, failing on request."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading


class Proxy:
    """Carries connections to a port, until it is told to fail.

    `cut` resets connections, `frozen` holds everything back while set, `swallow` holds back for ever what is connected
    now (as a firewall that forgot it), `refusing` lets nobody in.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._swallowed: set[socket.socket] = set()
        self.frozen = threading.Event()
        self.refusing = threading.Event()
        self._stop = threading.Event()
        self.accepted = 0
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def cut(self) -> None:
        """Reset every connection, both ways."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for sock in pair:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
                sock.close()

    def swallow(self) -> None:
        """Carry nothing more over the connections of now, without a word to either side; new ones work."""
        with self._lock:
            self._swallowed.update(client for client, _ in self._pairs)

    def close(self) -> None:
        """End everything."""
        self._stop.set()
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(3)

    def _accept(self) -> None:
        self._listener.settimeout(0.1)
        while not self._stop.is_set():
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            if self.refusing.is_set():
                client.close()
                continue
            self.accepted += 1
            server = socket.create_connection(("127.0.0.1", self._target))
            with self._lock:
                self._pairs.append((client, server))
            thread = threading.Thread(target=self._carry, args=(client, server), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        other = {client: server, server: client}
        try:
            while not self._stop.is_set():
                ready, _, _ = select.select([client, server], [], [], 0.1)
                for sock in ready:
                    if self.frozen.is_set() or client in self._swallowed:
                        self._stop.wait(0.1)
                        continue
                    data = sock.recv(65536)
                    if not data:
                        return
                    other[sock].sendall(data)
        except (OSError, ValueError):
            return
        finally:
            for sock in (client, server):
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
                sock.close()
