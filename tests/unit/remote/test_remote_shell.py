"""How a shell's two streams end, on a channel that delivers them in an order of the test's choosing."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from optimizer.clock import Deadline
from optimizer.remote import wire
from optimizer.remote.shell import RemoteShell


class Transport:
    def is_active(self) -> bool:
        return True


class Channel:
    """Holds the pieces a peer sent; a pipe wakes the reader as paramiko's does."""

    closed = False
    eof_received = False

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        self.out = bytearray()
        self.err = bytearray()

    def exec_command(self, command: str) -> None:
        assert command == wire.REMOTE_COMMAND

    def fileno(self) -> int:
        return self.reader

    def send_ready(self) -> bool:
        return True

    def settimeout(self, seconds: float) -> None:
        assert seconds > 0

    def send(self, data: bytes) -> int:
        return len(data)

    def give(self, out: bytes = b"", err: bytes = b"") -> None:
        self.out.extend(out)
        self.err.extend(err)
        os.write(self.writer, b"*")

    def recv_ready(self) -> bool:
        return bool(self.out)

    def recv_stderr_ready(self) -> bool:
        return bool(self.err)

    def recv(self, most: int) -> bytes:
        taken = bytes(self.out[:most])
        del self.out[:most]
        return taken

    def recv_stderr(self, most: int) -> bytes:
        taken = bytes(self.err[:most])
        del self.err[:most]
        return taken

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def channel() -> Iterator[Channel]:
    made = Channel()
    yield made
    os.close(made.reader)
    os.close(made.writer)


def shell_on(channel: Channel) -> RemoteShell:
    return RemoteShell(Transport(), channel, Deadline.after(5))  # type: ignore[arg-type]


def test_what_a_script_wrote_to_standard_error_is_not_lost_when_its_output_ends_first(channel: Channel) -> None:
    conversation = wire.Conversation("", nonce="n")
    channel.give(out=b"\n<ratchet-n>\nout\n</ratchet-n 42>\n")
    later = threading.Timer(0.1, channel.give, kwargs={"err": b"\n<ratchet-n>\nerr\n</ratchet-n>\n"})
    later.start()
    shell = shell_on(channel)
    shell.talk(conversation, Deadline.after(5))
    later.join()
    assert (conversation.result().stdout, conversation.result().stderr) == (b"out", b"err")
    assert shell.usable


def test_a_shell_that_ends_without_the_last_of_its_standard_error_still_has_a_result(channel: Channel) -> None:
    conversation = wire.Conversation("", nonce="n")
    channel.give(out=b"\n<ratchet-n>\nout\n</ratchet-n 0>\n", err=b"\n<ratchet-n>\nhal")
    channel.eof_received = True
    shell_on(channel).talk(conversation, Deadline.after(5))
    assert (conversation.result().exit_code, conversation.result().stderr) == (0, b"hal")


def test_a_shell_that_ends_before_its_script_is_broken(channel: Channel) -> None:
    channel.give(out=b"\n<ratchet-n>\nout")
    channel.eof_received = True
    with pytest.raises(EOFError):
        shell_on(channel).talk(wire.Conversation("", nonce="n"), Deadline.after(5))
