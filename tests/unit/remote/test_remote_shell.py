"""How a shell's two streams end, on a channel that delivers them in an order of the test's choosing."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from paramiko.buffered_pipe import BufferedPipe

from optimizer.clock import Deadline
from optimizer.remote import wire
from optimizer.remote.base import Completed
from optimizer.remote.shell import RemoteShell


class Transport:
    def is_active(self) -> bool:
        return True


class Channel:
    """Holds the pieces a peer sent, in paramiko's own buffers."""

    closed = False
    eof_received = False

    def __init__(self) -> None:
        self.in_buffer: Any = BufferedPipe()
        self.in_stderr_buffer: Any = BufferedPipe()

    def exec_command(self, command: str) -> None:
        assert command == wire.REMOTE_COMMAND

    def send_ready(self) -> bool:
        return True

    def settimeout(self, seconds: float) -> None:
        assert seconds > 0

    def send(self, data: bytes) -> int:
        return len(data)

    def give(self, out: bytes = b"", err: bytes = b"") -> None:
        if out:
            self.in_buffer.feed(out)
        if err:
            self.in_stderr_buffer.feed(err)

    def recv_ready(self) -> bool:
        return bool(self.in_buffer.read_ready())

    def recv_stderr_ready(self) -> bool:
        return bool(self.in_stderr_buffer.read_ready())

    def recv(self, most: int) -> bytes:
        return bytes(self.in_buffer.read(most))

    def recv_stderr(self, most: int) -> bytes:
        return bytes(self.in_stderr_buffer.read(most))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def channel() -> Channel:
    return Channel()


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


def test_a_shell_has_no_descriptor_that_a_late_answer_could_be_written_to_after_its_close(channel: Channel) -> None:
    """paramiko's thread writes to a channel's descriptor without a lock; EBADF there ends the whole connection."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    shell = shell_on(channel)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    shell.close()
    channel.give(err=b"late")


def test_a_ring_of_one_stream_is_not_lost_when_the_other_is_emptied(channel: Channel) -> None:
    conversation = wire.Conversation("", nonce="n")
    pieces = (
        [b"\n<ratchet-n>\n", b"a" * 10, b"\n</ratchet-n 0>\n"],
        [b"\n<ratchet-n>\n", b"b" * 10, b"\n</ratchet-n>\n"],
    )

    def peer() -> None:
        for out, err in zip(*pieces, strict=True):
            time.sleep(0.01)
            channel.give(out=out)
            channel.give(err=err)

    feeder = threading.Thread(target=peer)
    feeder.start()
    shell_on(channel).talk(conversation, Deadline.after(30))
    feeder.join()
    assert conversation.result() == Completed(0, b"a" * 10, b"b" * 10)


def test_endless_output_ends_at_the_deadline(channel: Channel) -> None:
    class Endless(Channel):
        def recv_ready(self) -> bool:
            return True

        def recv(self, most: int) -> bytes:
            return b"y\n"

    conversation = wire.Conversation("", nonce="n")
    shell = shell_on(Endless())
    shell.talk(conversation, Deadline.after(0.1))
    assert not conversation.finished() and not shell.usable
