"""SSH as a `HostLink`: raw paramiko channels, one deadline per operation, reconnecting between operations.

Decides how a command is run over a channel and when a connection counts as lost. Never `SSHClient.exec_command`
(its stdin file can deadlock in garbage collection), never a terminal, never a wait without an end.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Sequence

import paramiko
import structlog

from optimizer.clock import Deadline
from optimizer.errors import CommandFailed, CommandTimeout, ConnectionLost, HostError, HostKeyRejected, Unreachable
from optimizer.remote import known_hosts, pulse, sshconnect, wire
from optimizer.remote.base import Completed, Tunnel
from optimizer.remote.shell import RemoteShell
from optimizer.remote.target import Target
from optimizer.remote.tunnel import SshTunnel

logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # what it logs as errors is raised here with a remedy

log = structlog.get_logger(__name__)

STATUS_WAIT_S = 0.5
DOUBT_S = 4.0
"""A command that runs out of time while the host owes an answer for this long met a dead connection."""
SPARE_SHELL_S = 2.0
IDLE_SHELLS = 3
"""Remote shells kept for the next command; more are opened while several threads talk at once."""
MOST_SHELLS = 8
"""sshd allows 10 sessions on a connection (MaxSessions); further commands wait for a free one."""
CHANNEL_TRIES = 20
CHANNEL_PAUSE_S = 0.25
"""A refused channel is asked for again for a while: others may hold the host's sessions."""


class SshLink:
    """One host over SSH. Thread-safe: operations share one connection, each has its own channel."""

    def __init__(
        self, name: str, target: Target, jumps: Sequence[Target] = (), *, pin: str | None = None,
        connect_timeout_s: float = 15.0, outage_s: float = 0.0,
    ) -> None:  # fmt: skip
        self._name = name
        self._target = target
        self._jumps = tuple(jumps)
        self._pin = pin
        self._connect_timeout_s = connect_timeout_s
        self.outage_s = outage_s
        """How long an outage is waited for by what may be repeated, beyond the deadline of its own work."""
        self._chain: list[paramiko.Transport] = []
        self._idle: list[RemoteShell] = []
        self._pulse: pulse.Pulse | None = None
        self._past_stalls = 0
        self._lock = threading.Lock()
        self._connecting = threading.Lock()
        self._opening = threading.Lock()
        self._free = threading.BoundedSemaphore(MOST_SHELLS)
        self._talking = 0
        self._tunnels: set[SshTunnel] = set()
        self.commands = 0
        """How many commands were run (for the benchmark)."""
        self.connections = 0
        """How many times a connection was opened."""

    @property
    def name(self) -> str:
        """The host's name in Ratchet."""
        return self._name

    @property
    def disturbances(self) -> int:
        """How often the connection was replaced or stalled so far; unequal numbers void what was measured between."""
        with self._lock:
            cut = bool(self._chain) and not self._chain[-1].is_active()
            return self.connections + cut + self._past_stalls + (self._pulse.stalls if self._pulse else 0)

    def run(self, argv: Sequence[str], *, deadline: Deadline, stdin: bytes = b"") -> Completed:
        """Run one command and wait; every argument arrives literally."""
        return self._talk(wire.Conversation(wire.script_for_argv(argv), stdin), deadline)

    def sh(self, script: str, *args: str, deadline: Deadline, stdin: bytes = b"") -> Completed:
        """Run a POSIX sh script with arguments, whatever the login shell is."""
        return self._talk(wire.Conversation(wire.script_with_args(script, args), stdin), deadline)

    def open_tunnel(self, port: int, *, address: str = "127.0.0.1") -> Tunnel:
        """Listen on a free port here and carry each connection to `address:port` as the host sees it."""
        tunnel = SshTunnel(self._open_direct, (address, port), on_close=self._tunnels.discard)
        self._tunnels.add(tunnel)
        return tunnel

    def close(self) -> None:
        """End the connection and its tunnels; servers on the host go on. The next operation connects again."""
        for tunnel in list(self._tunnels):
            tunnel.close()
        self._forget()

    def _live(self) -> paramiko.Transport | None:
        with self._lock:
            last = self._chain[-1] if self._chain else None
        return last if last is not None and last.is_active() and last.is_authenticated() else None

    def _transport(self, deadline: Deadline) -> paramiko.Transport:
        """Return the live transport; one thread at a time connects, the others wait for it as long as they may."""
        transport = self._live()
        if transport is not None:
            return transport
        if not self._connecting.acquire(timeout=deadline.left_s):
            raise Unreachable(self._name, f"{self._name}: not connected in time", remedy="the host is being tried")
        try:
            return self._live() or self._reconnect(deadline)
        finally:
            self._connecting.release()

    def _reconnect(self, deadline: Deadline) -> paramiko.Transport:
        self._forget()
        chain = self._connect(deadline.sooner(self._connect_timeout_s))
        with self._lock:
            self._chain, self._pulse = chain, pulse.Pulse(chain[-1])
            self.connections += 1
        if self.connections > 1:
            log.info("link.connected_again", host=self._name, connections=self.connections)
        return chain[-1]

    def _forget(self) -> None:
        """Give the connection up; what waits on it ends, the next operation connects again."""
        with self._lock:
            chain, self._chain, self._idle = self._chain, [], []
            self._past_stalls += self._pulse.stalls if self._pulse else 0
            self._pulse = None
        sshconnect.close(chain)

    def _connect(self, deadline: Deadline) -> list[paramiko.Transport]:
        """Connect; a pin that is only a fingerprint may belong to a key type that is not offered first."""
        try:
            return sshconnect.connect(self._name, self._target, self._jumps, pin=self._pin, deadline=deadline)
        except HostKeyRejected:
            if not self._pin or not self._pin.startswith("SHA256:"):
                raise
            for kind in known_hosts.TYPE_ORDER[1:]:
                with contextlib.suppress(HostKeyRejected, Unreachable):
                    return sshconnect.connect(
                        self._name, self._target, self._jumps, pin=self._pin, deadline=deadline, only_type=kind
                    )
            raise

    def _doubtful(self, transport: paramiko.Transport) -> bool:
        """Say whether the host owes this connection an answer for so long that it is rather gone than slow."""
        with self._lock:
            beat = self._pulse if self._chain and self._chain[-1] is transport else None
        return beat is None or beat.unanswered_s >= DOUBT_S

    def _talk(self, conversation: wire.Conversation, deadline: Deadline) -> Completed:
        self.commands += 1
        if not self._free.acquire(timeout=deadline.left_s):
            raise CommandTimeout(self._name, f"{self._name}: too many commands at once", remedy="try again")
        with self._lock:
            self._talking += 1
        try:
            return self._talk_alone(conversation, deadline)
        finally:
            with self._lock:
                self._talking -= 1
            self._free.release()

    def _talk_alone(
        self, conversation: wire.Conversation, deadline: Deadline, other: RemoteShell | None = None
    ) -> Completed:
        shell = other or self._idle_shell() or self._new_shell(deadline)
        try:
            shell.talk(conversation, deadline)
        except (paramiko.SSHException, EOFError, OSError) as error:
            status = shell.wait_for_status(STATUS_WAIT_S) if shell.ended and not conversation.started() else -1
            shell.close()
            if not conversation.finished() and not deadline.passed:
                unread = not conversation.started() and conversation.first_try and shell.transport.is_active()
                spare = self._spare_shell(deadline) if unread and status == -1 else None
                if spare is None:
                    raise self._broken(shell, conversation, error, status) from error
                return self._talk_alone(conversation.again(), deadline, spare)
        if not conversation.finished():
            doubtful = self._doubtful(shell.transport)
            shell.close()
            if doubtful:
                raise self._lost(TimeoutError("the host does not answer"))
            raise CommandTimeout(
                self._name,
                f"{self._name}: a command did not end in time",
                remedy="the host may be overloaded or its disk may hang; `ratchet host check` tells more",
            )
        self._keep(shell)
        return conversation.result()

    def _spare_shell(self, deadline: Deadline) -> RemoteShell | None:
        """Open a shell in place of one that ended before it read anything; None when the connection does not live."""
        try:
            return self._new_shell(deadline.sooner(SPARE_SHELL_S))
        except HostError:
            return None

    def _idle_shell(self) -> RemoteShell | None:
        with self._lock:
            while self._idle:
                shell = self._idle.pop()
                if shell.usable:
                    return shell
                shell.close()
        return None

    def _keep(self, shell: RemoteShell) -> None:
        with self._lock:
            if shell.usable and len(self._idle) < IDLE_SHELLS and self._chain and self._chain[-1] is shell.transport:
                self._idle.append(shell)
                return
        shell.close()

    def _new_shell(self, deadline: Deadline) -> RemoteShell:
        transport = self._transport(deadline)
        return RemoteShell(transport, self._session(transport, deadline), deadline)

    def _session(self, transport: paramiko.Transport, deadline: Deadline) -> paramiko.Channel:
        pause = threading.Event()
        last: BaseException | None = None
        for _ in range(CHANNEL_TRIES):
            try:
                return self._open(transport, deadline, "session")
            except paramiko.ChannelException as error:
                last = error
                if deadline.left_s < CHANNEL_PAUSE_S:
                    break
                pause.wait(CHANNEL_PAUSE_S)
            except (paramiko.SSHException, EOFError, OSError) as error:
                if not transport.is_active() or self._doubtful(transport):
                    raise self._lost(error) from error
                raise CommandTimeout(
                    self._name,
                    f"{self._name}: the host does not open a channel in time",
                    remedy="the host may be overloaded; `ratchet host check` tells more",
                ) from error
        if self._talking == 1:
            self._forget()  # the sessions are held by what timed out before: a fresh connection has its own
        raise self._channel_limit(last) from last

    def _open(
        self,
        transport: paramiko.Transport,
        deadline: Deadline,
        kind: str,
        destination: tuple[str, int] | None = None,
        origin: tuple[str, int] | None = None,
    ) -> paramiko.Channel:
        """Open a channel; one at a time, as paramiko keeps the reason of a refusal in one place for all threads."""
        with self._opening:
            return transport.open_channel(kind, destination, origin, timeout=max(0.1, deadline.left_s))

    def _channel_limit(self, error: BaseException | None) -> Unreachable:
        return Unreachable(
            self._name,
            f"{self._name}: sshd refuses another session on this connection ({error or 'limit reached'})",
            remedy="raise MaxSessions in the host's sshd_config (10 is enough)",
        )

    def _lost(self, error: BaseException) -> ConnectionLost:
        with self._lock:
            silent = self._pulse is not None and self._pulse.silent
        detail = f"no answer for {pulse.DEAD_S:g} s" if silent else str(error) or type(error).__name__
        return ConnectionLost(
            self._name,
            f"{self._name}: the SSH connection broke in the middle of a command ({detail})",
            remedy="what was started on the host goes on; Ratchet connects again and looks",
        )

    def _broken(
        self, shell: RemoteShell, conversation: wire.Conversation, error: BaseException, status: int
    ) -> HostError:
        """Tell a cut connection from a login shell that ended without running anything."""
        if conversation.started() or not shell.transport.is_active() or status == -1:
            return self._lost(error)  # closed without a status: cut, though not yet noticed
        said = (conversation.stderr + conversation.stdout).decode("utf-8", "replace").strip()
        return CommandFailed(
            self._name,
            f"{self._name}: the login shell did not run a command (status {status}): {said[-200:]}",
            exit_code=status,
            stderr=said,
            remedy="the login user needs a shell that can start /bin/sh (not nologin, no ForceCommand)",
        )

    def _open_direct(self, destination: tuple[str, int], origin: tuple[str, int]) -> paramiko.Channel:
        deadline = Deadline.after(self._connect_timeout_s)
        transport = self._transport(deadline)
        return self._open(transport, deadline, "direct-tcpip", destination, origin)
