"""How a script travels to a host, and how its output is told apart from noise.

The login shell of a host may be anything (bash, fish, csh, something that prints banners), so it only ever sees one
fixed line without anything special in it; scripts arrive on standard input, one a line, and one remote shell serves
many of them (login files can cost a second each time). Markers with a fresh number frame both streams of a script:
what login files print is dropped, and the end is known without the channel ending. Leaves channels to others.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from optimizer.remote.base import Completed

REMOTE_COMMAND = '/bin/sh -c \'exec 3<&0; while IFS= read -r r_in; do eval "$(printf %b "$r_in")"; done\''
"""The only line that a login shell parses; no character in it means anything special in fish or csh quotes."""

ORPHAN_S = 120
"""What a script has left when its connection goes away: longer than a launch or a stop, which must not end halfway."""
_WATCH = """(
    IFS= read -r r_in && exit
    r_left=%d
    while [ $r_left -gt 0 ]; do sleep 1; r_left=$((r_left - 1)); done
    kill -s KILL -- -$$
    grep -q r_in /proc/$PPID/cmdline && kill -s KILL -- -$PPID
) <&3 3<&- >/dev/null 2>&1 &
r_watch=$!
"""
"""Sees the end of standard input while a script runs, and ends the group that the shell leads, or the login shell
that started it (a server that gives its logins no group of their own is left alone). What is in a session of its own,
as every server that we start, goes on."""
_UNWATCH = "{ kill -s KILL $r_watch; wait $r_watch; } 2>/dev/null\n"
"""Waited for, so that it cannot take the next script's line."""


def quote(text: str) -> str:
    """Quote one argument for a POSIX shell."""
    return shlex.quote(text)


def encode(text: str) -> bytes:
    """Encode text for the wire; bytes that came in as surrogates leave as they were."""
    return text.encode("utf-8", "surrogateescape")


def script_for_argv(argv: Sequence[str]) -> str:
    """Return a script that becomes the command `argv`, every argument literal.

    Raises:
        ValueError: an argument holds a NUL, which no process can receive.
    """
    return "exec " + " ".join(_checked(a) for a in argv) + "\n"


def script_with_args(script: str, args: Sequence[str]) -> str:
    """Return `script` with its positional arguments set. Raises ValueError for a NUL in an argument."""
    return "set -- " + " ".join(_checked(a) for a in args) + "\n" + script + "\n"


def _checked(argument: str) -> str:
    if "\0" in argument:
        raise ValueError("an argument cannot hold a NUL character")
    return quote(argument)


def _stdin(data: bytes) -> str:
    if not data:
        return "</dev/null"
    if b"\0" in data:
        return "printf '" + "".join(f"\\{byte:03o}" for byte in data) + "' |"
    return "printf %s " + quote(data.decode("utf-8", "surrogateescape")) + " |"


@dataclass
class Conversation:
    """One script on its way: what to send, and what came back so far."""

    script: str
    stdin: bytes = b""
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))
    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)
    _searched: int = 0
    first_try: bool = True

    def again(self) -> Conversation:
        """Return the same script to be sent once more, after a shell that never began it."""
        return Conversation(self.script, self.stdin, first_try=False)

    def payload(self, *, watched: bool = False) -> bytes:
        """The framed script, for a shell that evaluates it."""
        mark = f"ratchet-{self.nonce}"
        before = _stdin(self.stdin)
        inner = f"(\n{self.script}\n) 3<&-"
        body = f"{before} {inner}" if before.endswith("|") else f"{inner} {before}"
        return encode(
            (_WATCH % ORPHAN_S if watched else "")
            + f"printf '\\n<{mark}>\\n'; printf '\\n<{mark}>\\n' >&2\n{body}\nr_status=$?\n"
            + (_UNWATCH if watched else "")
            + f"printf '\\n</{mark}>\\n' >&2; printf '\\n</{mark} %d>\\n' $r_status\n(exit $r_status)\n"
        )

    def line(self) -> bytes:
        """The framed script on one line, as `REMOTE_COMMAND` reads it."""
        return self.payload(watched=True).replace(b"\\", b"\\\\").replace(b"\n", b"\\n") + b"\n"

    @property
    def _end(self) -> bytes:
        return f"\n</ratchet-{self.nonce} ".encode()

    def finished(self) -> bool:
        """Say whether the script's end was seen on standard output."""
        at = self.stdout.find(self._end, max(0, self._searched - len(self._end)))
        if at < 0:
            self._searched = len(self.stdout)
            return False
        self._searched = at
        return self.stdout.find(b">\n", at + len(self._end)) >= 0

    def settled(self) -> bool:
        """Say whether the end was seen on both streams; they travel apart, and either may come first."""
        return self.finished() and f"\n</ratchet-{self.nonce}>\n".encode() in self.stderr

    def started(self) -> bool:
        """Say whether the script began at all."""
        return f"\n<ratchet-{self.nonce}>\n".encode() in self.stdout

    def result(self) -> Completed:
        """Return the outcome; call after `finished()`."""
        at = self.stdout.find(self._end)
        status = bytes(self.stdout[at + len(self._end) : self.stdout.index(b">\n", at + len(self._end))])
        return Completed(int(status), self._framed(self.stdout, at), self._framed(self.stderr, None))

    def _framed(self, stream: bytearray, end: int | None) -> bytes:
        start_mark = f"\n<ratchet-{self.nonce}>\n".encode()
        start = stream.find(start_mark)
        start = 0 if start < 0 else start + len(start_mark)
        if end is None:
            end = stream.find(f"\n</ratchet-{self.nonce}>\n".encode())
            end = len(stream) if end < 0 else end
        return bytes(stream[start:end])
