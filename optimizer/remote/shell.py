"""One remote `sh` on a channel of its own, which runs scripts one after another.

Decides how bytes move on the channel: both streams drained in one event-driven wait, never past the deadline.
Leaves connecting, reuse and the meaning of failures to `session.py`.
"""

from __future__ import annotations

import contextlib
import select
import threading
from collections.abc import Iterator

import paramiko

from optimizer.clock import Deadline
from optimizer.remote import wire

READ_BYTES = 65536
LIVENESS_S = 1.0
"""How often a silent wait looks whether the transport is still there."""
STDERR_WAIT_S = 5.0
"""How long a script that has ended is waited on for the rest of its standard error."""
SEND_PAUSE_S = 0.02
"""Wait for the peer's window while a large script is on its way."""


class RemoteShell:
    """A channel with `wire.REMOTE_COMMAND` on it. For one thread at a time."""

    def __init__(self, transport: paramiko.Transport, channel: paramiko.Channel, deadline: Deadline) -> None:
        """Start the shell; nothing is waited for but the host's answer to the request."""
        self.transport = transport
        self._channel = channel
        self._poller = select.poll()
        self._broken = False
        self.proven = False
        """A script ran here before: login files no longer explain a silence."""
        with self._bounded(deadline):
            try:
                channel.exec_command(wire.REMOTE_COMMAND)
                self._poller.register(channel.fileno(), select.POLLIN)
            except (paramiko.SSHException, EOFError, OSError):
                self._broken = True  # told by the first conversation, with its better error

    @property
    def usable(self) -> bool:
        """Say whether another script may be sent."""
        return not self._broken and not self.ended and self.transport.is_active()

    @property
    def ended(self) -> bool:
        """Say whether the remote shell is over."""
        return bool(self._channel.closed or self._channel.eof_received)

    @property
    def exit_code(self) -> int:
        """Exit status of the shell, -1 while unknown."""
        return self._channel.exit_status if self._channel.exit_status_ready() else -1

    def wait_for_status(self, seconds: float) -> int:
        """Return the exit status, which comes a moment after the end of the streams; -1 when none comes."""
        self._channel.status_event.wait(seconds)
        return self.exit_code

    def close(self) -> None:
        """End the channel; what runs on it ends by itself when it next writes."""
        self._broken = True
        with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
            self._channel.close()

    def talk(self, conversation: wire.Conversation, deadline: Deadline) -> None:
        """Run one script until its end was seen or the deadline passed.

        Raises:
            EOFError, OSError, SSHException: the channel or the connection ended first.
        """
        if self._broken:
            raise EOFError("the remote shell did not start")
        with self._bounded(deadline):
            self._exchange(memoryview(conversation.line()), conversation, deadline)
        if conversation.finished():
            self.proven = True
        else:
            self._broken = True

    @contextlib.contextmanager
    def _bounded(self, deadline: Deadline) -> Iterator[None]:
        """Close the channel just after the deadline: some waits inside paramiko have no end of their own."""
        timer = threading.Timer(deadline.left_s + 0.05, self.close)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _exchange(self, pending: memoryview, conversation: wire.Conversation, deadline: Deadline) -> None:
        channel, late = self._channel, False
        while not deadline.passed:
            while pending and channel.send_ready():
                channel.settimeout(max(0.05, deadline.left_s))
                pending = pending[channel.send(bytes(pending[:READ_BYTES])) :]
            moved = self._drain(conversation)
            if conversation.settled():
                return
            if moved:
                continue
            if conversation.finished():  # only the end of standard error is still on its way
                deadline = deadline.sooner(STDERR_WAIT_S) if not late else deadline
                late = True
            if self.ended:
                if conversation.finished():
                    return
                raise EOFError("the remote shell ended")
            wait_s = min(deadline.left_s, SEND_PAUSE_S if pending else LIVENESS_S)
            self._poller.poll(max(1, int(wait_s * 1000)))
            if not self.transport.is_active():
                raise EOFError("the connection was cut")

    def _drain(self, conversation: wire.Conversation) -> bool:
        """Move what has arrived on both streams; say whether anything did."""
        moved = False
        while self._channel.recv_ready():
            conversation.stdout.extend(self._channel.recv(READ_BYTES))
            moved = True
        while self._channel.recv_stderr_ready():
            conversation.stderr.extend(self._channel.recv_stderr(READ_BYTES))
            moved = True
        return moved
