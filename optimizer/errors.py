"""Every error of the optimizer, in one tree.

    RatchetError                      what happened, where, what to do
    +- BadInput                       the caller's fault; carries every problem found (path, value, hint)
    +- NotFound / Conflict            a named thing is missing / a move is impossible in this state
    +- HostError                      about one host
    |  +- Unreachable                 refused, timed out, banner stalled        (retry)
    |  +- AuthenticationFailed
    |  +- HostKeyRejected             unknown or changed; says how to re-pin
    |  +- ConnectionLost              in the middle of an operation             (retry)
    |  +- CommandTimeout              the host is there, the command is slow    (retry)
    |  +- CommandFailed               exit status and stderr
    |  +- FenceRefused                a newer owner has been here
    |  +- HostBusy                    another Ratchet holds the lock            (retry)
    |  +- PortTaken                   somebody else's server; never touched without takeover
    |  +- NeedsAttention              a stop could not be proved: a human must look
    +- ServerFailed                   a server did not become ready or died; carries its Explanation
    +- WrongServer                    what answers is not what we started
    +- BenchmarkFailed                the client could not measure, for no fault of the server   (retry)
    |  +- RequestsFailed              the server failed, stalled or did not finish too many requests
    +- LeaseLost                      another worker owns the host now
    +- Stopped                        a stop, pause or the window's end was asked for

Whether to retry is a property of the class. A refused configuration is a result of a trial, not an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from optimizer.engines.base import Explanation


class RatchetError(Exception):
    """Something went wrong; `str()` is one line, `remedy` says what to do."""

    retry: ClassVar[bool] = False

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy

    @property
    def message(self) -> str:
        """What happened, in one line."""
        return str(self.args[0])


@dataclass(frozen=True)
class Problem:
    """One mistake in an input: where (`budget.trials`), the value given, and what to do."""

    path: str
    message: str
    value: Any = None
    hint: str = ""


class BadInput(RatchetError):
    """Input that cannot be used; every problem is listed at once."""

    def __init__(self, message: str, problems: Sequence[Problem] = (), *, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.problems = tuple(problems)


class NotFound(RatchetError):
    """A study, trial, host, window or file that was named does not exist."""


class Conflict(RatchetError):
    """The thing exists but cannot do this in the state it is in."""


class HostError(RatchetError):
    """Something about one host."""

    def __init__(self, host: str, message: str, *, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.host = host


class Unreachable(HostError):
    """No SSH conversation could be opened."""

    retry = True


class AuthenticationFailed(HostError):
    """The host refused every credential."""


class HostKeyRejected(HostError):
    """The host key is unknown or has changed."""


class ConnectionLost(HostError):
    """The connection broke in the middle of an operation."""

    retry = True


class CommandTimeout(HostError):
    """A remote command did not end before its deadline."""

    retry = True


class CommandFailed(HostError):
    """A remote command ended with a status other than 0."""

    def __init__(self, host: str, message: str, *, exit_code: int, stderr: str = "", remedy: str = "") -> None:
        super().__init__(host, message, remedy=remedy)
        self.exit_code = exit_code
        self.stderr = stderr


class FenceRefused(HostError):
    """The host has seen a newer owner than us."""


class HostBusy(HostError):
    """Another process holds the host's lock."""

    retry = True


class PortTaken(HostError):
    """A server that is not ours listens on the port."""


class NeedsAttention(HostError):
    """The state of the host cannot be proved; a human must look before anything is started again."""


class ServerFailed(RatchetError):
    """A server died or never became ready."""

    def __init__(self, explanation: Explanation, *, log_tail: str = "", exit_code: int | None = None) -> None:
        super().__init__(explanation.summary, remedy=explanation.remedy)
        self.explanation = explanation
        self.log_tail = log_tail
        self.exit_code = exit_code


class WrongServer(RatchetError):
    """What answers on the port is not the process that we started."""


class BenchmarkFailed(RatchetError):
    """The measurement could not be completed."""

    retry = True


class RequestsFailed(BenchmarkFailed):
    """Too many requests failed, stalled or did not end in time: what a server does that cannot be used."""


class LeaseLost(RatchetError):
    """Another worker owns the host now; nothing more may be written or started."""


class Stopped(RatchetError):
    """A stop, a pause or the end of the window was asked for."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
