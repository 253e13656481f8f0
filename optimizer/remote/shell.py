"""One remote `sh` on a channel of its own, which runs scripts one after another.

Decides how bytes move on the channel: both streams drained in one event-driven wait, never past the deadline.
Leaves connecting, reuse and the meaning of failures to `session.py`.
"""

from __future__ import annotations

import contextlib
import threading

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


class _Bell(threading.Event):
    """Rings when either stream of a channel has something new, or has ended.

    Never `Channel.fileno()` in its place: closing such a channel closes descriptors that paramiko's own thread may be
    about to write to, which ends the whole connection, or corrupts whatever has the number by then.
    """

    def clear(self) -> None:
        """Stay set: paramiko clears the event of a stream that was emptied, though the other may hold something."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a ring, and be ready for the next one."""
        rang = super().wait(timeout)
        super().clear()
        return rang


class RemoteShell:
    """A channel with `wire.REMOTE_COMMAND` on it. For one thread at a time."""

    def __init__(self, transport: paramiko.Transport, channel: paramiko.Channel, deadline: Deadline) -> None:
        """Start the shell; nothing is waited for but the host's answer to the request."""
        self.transport = transport
        self._channel = channel
        self._bell = _Bell()
        self._broken = False
        channel.in_buffer.set_event(self._bell)
        channel.in_stderr_buffer.set_event(self._bell)
        end = threading.Timer(deadline.left_s, self.close)  # paramiko waits for the answer without an end
        end.daemon = True
        end.start()
        try:
            channel.exec_command(wire.REMOTE_COMMAND)
        except (paramiko.SSHException, EOFError, OSError):
            self._broken = True  # told by the first conversation, with its better error
        finally:
            end.cancel()

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
        """End the channel; a script that still runs on it has `wire.ORPHAN_S` left."""
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
        self._exchange(memoryview(conversation.line()), conversation, deadline)
        self._broken = not conversation.finished()

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
            if conversation.finished() and not late:  # only the end of standard error is still on its way
                deadline, late = deadline.sooner(STDERR_WAIT_S), True
            if self.ended:
                if conversation.finished():
                    return
                raise EOFError("the remote shell ended")
            self._bell.wait(min(deadline.left_s, SEND_PAUSE_S if pending else LIVENESS_S))
            if not self.transport.is_active():
                raise EOFError("the connection was cut")

    def _drain(self, conversation: wire.Conversation) -> bool:
        """Move a piece of what has arrived on both streams; say whether anything did."""
        out, err = self._channel.recv_ready(), self._channel.recv_stderr_ready()
        if out:
            conversation.stdout.extend(self._channel.recv(READ_BYTES))
        if err:
            conversation.stderr.extend(self._channel.recv_stderr(READ_BYTES))
        return out or err
