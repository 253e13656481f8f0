"""The nouns of a host, and the one seam (`HostLink`) between Ratchet and a machine.

Decides what can be done on a host at all: run a command, read and write files, reach a port. Everything else in
this package is written on top of `HostLink`, so SSH (`session.py`) and local (`local.py`) behave alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from optimizer.clock import Deadline


@dataclass(frozen=True)
class Completed:
    """A finished remote command: exit status, and both streams whole."""

    exit_code: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Standard output as text (undecodable bytes replaced)."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def error_text(self) -> str:
        """Standard error as text."""
        return self.stderr.decode("utf-8", "replace")


class Tunnel(Protocol):
    """A way from this machine to a port on the host."""

    @property
    def url(self) -> str:
        """Base URL on this side, `http://127.0.0.1:PORT`, without a trailing slash."""

    @property
    def path(self) -> str:
        """`direct`, `tunnel` or `local`: stored with every measurement."""

    def close(self) -> None:
        """Stop listening; harmless when repeated."""


class HostLink(Protocol):
    """One host, reachable now or again later. Thread-safe; reconnects by itself between operations.

    Raises (all methods): Unreachable, AuthenticationFailed, HostKeyRejected, ConnectionLost, CommandTimeout.
    """

    outage_s: float
    """How long an outage is waited for by what may be repeated, beyond the time of its own work; 0 on a local link."""

    @property
    def name(self) -> str:
        """The host's name in Ratchet."""

    @property
    def connections(self) -> int:
        """How many times a connection was opened; 0 on a local link."""

    @property
    def disturbances(self) -> int:
        """How often the way to the host broke or stalled; unequal numbers void what was measured between them."""

    def run(self, argv: Sequence[str], *, deadline: Deadline, stdin: bytes = b"") -> Completed:
        """Run one command without a terminal and wait; every argument arrives literally. Any status is returned."""

    def sh(self, script: str, *args: str, deadline: Deadline, stdin: bytes = b"") -> Completed:
        """Run a POSIX sh script (`sh -c script ratchet ARGS...`), whatever the login shell is."""

    def open_tunnel(self, port: int, *, address: str = "127.0.0.1") -> Tunnel:
        """Reach `address:port` as seen from the host."""

    def close(self) -> None:
        """End the connection; servers on the host go on."""


@dataclass(frozen=True)
class HomeServer:
    """The server that the host's owner runs, as it is started again when Ratchet is done.

    Either `argv` (with `env`, `cwd`, `user`, `umask`) or `systemd_unit` is given; `docker:NAME` there is a container.
    """

    argv: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    cwd: str | None = None
    user: str | None = None
    systemd_unit: str | None = None
    port: int = 0
    health_path: str = "/health"
    found: str = "given"
    """`given`, `proc` (read from /proc) or `systemd`."""
    pid: int = 0
    start_ticks: int = 0
    """The process that was found, so that it is recognised even when it does not listen; 0 when not known."""
    umask: str = ""
    """In octal; empty stands for that of the login."""


@dataclass(frozen=True)
class ProcessInfo:
    """One process on the host: identity is the pair (pid, start_ticks)."""

    pid: int
    start_ticks: int
    pgid: int
    session: int
    uid: int
    command: str
    run_id: str | None = None


@dataclass(frozen=True)
class RunningServer:
    """A server that we started, addressable by `run_id` from any process."""

    run_id: str
    pid: int
    start_ticks: int
    run_dir: str
    log_path: str
    port: int
    command_line: str
    """The exact launch command as a shell line, secrets masked."""
    unit: str | None = None
    kind: str = "trial"
    """`trial`, or `home`: the original server, started again by us."""


@dataclass(frozen=True)
class ServerStatus:
    """One poll of a server: cheap, a single remote command."""

    alive: bool
    exit_code: int | None
    pids: tuple[int, ...]
    listening_pids: tuple[int, ...]
    """Who listens on the port now (any process; 0 stands for one that we may not see)."""
    log_size: int
    cpu_ticks: int
    log_chunk: bytes = b""
    """New log bytes since the offset asked for."""
    rebooted: bool = False
    """The host, or the container that it is, was started anew since the launch."""


@dataclass(frozen=True)
class StopProof:
    """What was seen when a server was stopped."""

    pids_signalled: tuple[int, ...]
    killed: bool
    """SIGKILL was needed."""
    port_free: bool
    gpu_memory_back: bool
    elapsed_s: float


@dataclass(frozen=True)
class Gpu:
    """One GPU as `nvidia-smi` sees it; `None` where it does not tell."""

    index: int
    name: str
    memory_total_mib: int
    memory_used_mib: int
    utilisation_pct: float | None = None
    power_w: float | None = None
    sm_clock_mhz: float | None = None
    temperature_c: float | None = None
    processes: tuple[tuple[int, int], ...] = ()
    """(pid, memory in MiB) of compute processes."""


@dataclass(frozen=True)
class Finding:
    """One line of `ratchet host check`: `level` is ok, warning, error or skipped."""

    check: str
    level: str
    detail: str
    remedy: str = ""
    data: dict[str, Any] = field(default_factory=dict)
