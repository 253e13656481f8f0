"""A connection's own sign of life: a request that every SSH server must answer, again and again.

Decides when a connection counts as dead. TCP cannot tell: a dropped packet looks like a slow host for many minutes,
and behind a jump host or a proxy command the socket of ours stays healthy. Reconnecting is left to `session.py`.
"""

from __future__ import annotations

import contextlib
import threading
import time

import paramiko

ASK_EVERY_S = 2.0
"""Also keeps NAT entries and firewalls awake."""
DEAD_S = 15.0
"""A request without an answer for this long ends the connection."""
STALL_S = 5.0
"""An answer that takes this long is a stall: what was measured through the connection meanwhile is void."""
KIND = "keepalive@openssh.com"


class Pulse:
    """Watches one authenticated transport until it ends; ends it when the peer falls silent."""

    def __init__(self, transport: paramiko.Transport) -> None:
        self._transport = transport
        self._asked_at: float | None = None
        self._stalls = 0
        self.silent = False
        """The connection was given up because nothing answered."""
        threading.Thread(target=self._beat, name="pulse", daemon=True).start()

    @property
    def unanswered_s(self) -> float:
        """How long the request that is on its way has been waiting; 0 when none is."""
        asked_at = self._asked_at
        return 0.0 if asked_at is None else time.monotonic() - asked_at

    @property
    def stalls(self) -> int:
        """How often an answer took `STALL_S` or longer, the one that is waited for included."""
        return self._stalls + (self.unanswered_s >= STALL_S)

    def _beat(self) -> None:
        while self._transport.is_active():
            self._asked_at = time.monotonic()
            end = threading.Timer(DEAD_S, self._give_up)
            end.daemon = True
            end.start()
            with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
                self._transport.global_request(KIND, wait=True)
            end.cancel()
            self._stalls += self.unanswered_s >= STALL_S
            self._asked_at = None
            self._transport.join(ASK_EVERY_S)

    def _give_up(self) -> None:
        self.silent = True
        self._transport.close()
