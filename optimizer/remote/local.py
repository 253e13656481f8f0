"""The same protocol as SSH, on this machine: scripts through a child `sh`, no channel in between.

Decides nothing about servers; a `connection: local` host behaves like a remote one, with the same scripts.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from optimizer.clock import Deadline
from optimizer.errors import CommandFailed, CommandTimeout
from optimizer.remote import wire
from optimizer.remote.base import Completed, Tunnel

READ_BYTES = 65536
OUR_MARKS = ("RATCHET_RUN_ID", "SPT_NOENV")
"""Never handed on: a Ratchet that was itself started under a run id must not pass it to the scripts it runs."""


@dataclass(frozen=True)
class LocalTunnel:
    """No tunnel at all: the port is already here."""

    url: str
    path: str = "local"

    def close(self) -> None:
        """Do nothing."""


class LocalLink:
    """This machine as a host."""

    outage_s = 0.0
    connections = 0
    disturbances = 0

    def __init__(self, name: str) -> None:
        self._name = name
        self.commands = 0
        """How many commands were run (for the benchmark)."""

    @property
    def name(self) -> str:
        """The host's name in Ratchet."""
        return self._name

    def run(self, argv: Sequence[str], *, deadline: Deadline, stdin: bytes = b"") -> Completed:
        """Run one command and wait; every argument arrives literally."""
        return self._talk(wire.Conversation(wire.script_for_argv(argv), stdin), deadline)

    def sh(self, script: str, *args: str, deadline: Deadline, stdin: bytes = b"") -> Completed:
        """Run a POSIX sh script with arguments."""
        return self._talk(wire.Conversation(wire.script_with_args(script, args), stdin), deadline)

    def open_tunnel(self, port: int, *, address: str = "127.0.0.1") -> Tunnel:
        """Return the port as it is."""
        return LocalTunnel(f"http://{address}:{port}")

    def close(self) -> None:
        """Do nothing."""

    def _talk(self, conversation: wire.Conversation, deadline: Deadline) -> Completed:
        self.commands += 1
        process = subprocess.Popen(
            ["/bin/sh", "-c", 'eval "$(cat)"'],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            cwd=os.path.expanduser("~"),  # noqa: PTH111 - the home directory as the shell sees it, like sshd does
            env={k: v for k, v in os.environ.items() if k not in OUR_MARKS},
        )
        try:
            self._exchange(process, conversation, deadline)
            if conversation.finished():
                return conversation.result()
            if not deadline.passed:
                raise CommandFailed(
                    self._name,
                    f"{self._name}: the script ended without its last line",
                    exit_code=process.wait(),
                    stderr=conversation.stderr.decode("utf-8", "replace")[-2000:],
                )
            raise CommandTimeout(self._name, f"{self._name}: a command did not end in time")
        finally:
            if process.poll() is None and not conversation.finished():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()
            process.wait()

    def _exchange(self, process: subprocess.Popen[bytes], conversation: wire.Conversation, deadline: Deadline) -> None:
        assert process.stdin and process.stdout and process.stderr
        pending = memoryview(conversation.payload())
        os.set_blocking(process.stdin.fileno(), False)
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdin, selectors.EVENT_WRITE)
            selector.register(process.stdout, selectors.EVENT_READ, conversation.stdout)
            selector.register(process.stderr, selectors.EVENT_READ, conversation.stderr)
            while not conversation.settled() and not deadline.passed:
                if selector.get_map() is None or len(selector.get_map()) == 0:
                    return
                for key, _ in selector.select(deadline.left_s):
                    if key.fileobj is process.stdin:
                        pending = _feed(process.stdin.fileno(), pending)
                        if not pending:
                            selector.unregister(process.stdin)
                            process.stdin.close()
                        continue
                    data = os.read(key.fd, READ_BYTES)
                    if data:
                        key.data.extend(data)
                    else:
                        selector.unregister(key.fileobj)


def _feed(fd: int, pending: memoryview) -> memoryview:
    try:
        return pending[os.write(fd, pending[:READ_BYTES]) :]
    except BrokenPipeError:
        return pending[:0]
