"""Opening one authenticated SSH transport, through jump hosts, within one deadline.

Decides the order of the steps (TCP, banner, key exchange, host key, credentials) and tells their failures apart, each
in one line with a remedy. Keeps no state; `session.py` owns the transport that comes back.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import paramiko
from paramiko.agent import AgentSSH
from paramiko.pkey import UnknownKeyType

from optimizer.clock import Deadline
from optimizer.errors import AuthenticationFailed, HostError, Unreachable
from optimizer.remote import known_hosts
from optimizer.remote.target import Target

DEAD_PEER_MS = 15_000
"""Unacknowledged data for this long ends the connection: the peer or the path is gone."""


def connect(
    host: str,
    target: Target,
    jumps: Sequence[Target],
    *,
    pin: str | None,
    deadline: Deadline,
    only_type: str | None = None,
) -> list[paramiko.Transport]:
    """Open the chain of transports; the last one is the host itself, authenticated and keyed.

    `only_type` asks the host for its key of that type first.

    Raises:
        Unreachable: no TCP connection, no banner, or the deadline passed.
        HostKeyRejected: the key of the host or of a jump host is not trusted.
        AuthenticationFailed: every credential was refused, or there is none.
    """
    chain: list[paramiko.Transport] = []
    try:
        for hop in (*jumps, target):
            sock = _socket(host, hop, chain[-1] if chain else None, deadline)
            last = hop is target
            transport = _handshake(host, hop, sock, pin if last else None, deadline, only_type if last else None)
            chain.append(transport)
            authenticate(host, hop, transport, deadline)
    except BaseException:
        close(chain)
        raise
    return chain


def close(chain: Sequence[paramiko.Transport]) -> None:
    """Close transports, the innermost first."""
    for transport in reversed(chain):
        with contextlib.suppress(Exception):
            transport.close()


def _socket(host: str, hop: Target, through: paramiko.Transport | None, deadline: Deadline) -> Any:
    where = f"{hop.hostname}:{hop.port}"
    if through is not None:
        try:
            return through.open_channel(
                "direct-tcpip", (hop.hostname, hop.port), ("127.0.0.1", 0), timeout=max(0.1, deadline.left_s)
            )
        except (paramiko.SSHException, EOFError) as error:
            raise Unreachable(
                host,
                f"{host}: the jump host cannot reach {where}: {error}",
                remedy="check the name and port as the jump host sees them, and AllowTcpForwarding on it",
            ) from error
    if hop.proxy_command:
        return paramiko.ProxyCommand(_fill(hop.proxy_command, hop))
    try:
        sock = socket.create_connection((hop.hostname, hop.port), timeout=max(0.1, deadline.left_s))
    except socket.gaierror as error:
        raise Unreachable(
            host, f"{host}: no address is known for {hop.hostname!r}", remedy="check the name, DNS, or ~/.ssh/config"
        ) from error
    except ConnectionRefusedError as error:
        raise Unreachable(
            host,
            f"{host}: {where} refuses connections",
            remedy="check the port, and that sshd runs on the host",
        ) from error
    except (TimeoutError, OSError) as error:
        why = "did not answer in time" if isinstance(error, TimeoutError) else f"is unreachable: {error}"
        raise Unreachable(
            host, f"{host}: {where} {why}", remedy="check that the host is up, the VPN, and the firewall"
        ) from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_PEER_MS)
    return sock


def _fill(command: str, hop: Target) -> str:
    for token, value in (("%h", hop.hostname), ("%p", str(hop.port)), ("%r", hop.user)):
        command = command.replace(token, value)
    return command.removeprefix("exec ")


def _handshake(
    host: str, hop: Target, sock: Any, pin: str | None, deadline: Deadline, only_type: str | None
) -> paramiko.Transport:
    transport = paramiko.Transport(sock)
    try:
        transport.banner_timeout = max(0.1, 0.8 * deadline.left_s)  # before the handshake's own end, to be told apart
        options = transport.get_security_options()
        wanted = (only_type,) if only_type else known_hosts.pinned_types(pin, hop)
        options.key_types = _ordered(options.key_types, wanted)
        transport.start_client(timeout=max(0.1, deadline.left_s))
        key = transport.get_remote_server_key()
    except (paramiko.SSHException, EOFError, OSError) as error:
        transport.close()
        raise _handshake_error(host, hop, error) from error
    if not known_hosts.trusted(key, pin, hop):
        transport.close()
        raise known_hosts.rejection(host, key, pin, hop)
    return transport


def _ordered(offered: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
    """Sort the key algorithms that we offer: the wanted types first (an RSA key is used with SHA-2 names too)."""

    def rank(name: str) -> int:
        base = "ssh-rsa" if name.startswith("rsa-sha2") else name
        return list(wanted).index(base) if base in wanted else len(wanted)

    return tuple(sorted(offered, key=rank))


def _handshake_error(host: str, hop: Target, error: BaseException) -> HostError:
    where = f"{hop.hostname}:{hop.port}"
    text = str(error).lower()
    if "banner" in text:
        return Unreachable(
            host,
            f"{host}: {where} accepts connections but sends no SSH banner",
            remedy="check that this is the port of sshd; an overloaded sshd (MaxStartups) or a proxy also does this",
        )
    if "no existing session" in text:  # paramiko's words for a handshake that did not end in time
        return _no_answer(host, hop)
    if "no acceptable" in text or "incompatible" in text:
        return Unreachable(host, f"{host}: {where} shares no algorithm with us: {error}", remedy="update its sshd")
    return Unreachable(
        host,
        f"{host}: {where} ended the SSH conversation: {error or type(error).__name__}",
        remedy="look at sshd's log on the host (MaxStartups, DenyUsers, TCP wrappers, fail2ban)",
    )


def _no_answer(host: str, hop: Target) -> Unreachable:
    return Unreachable(
        host,
        f"{host}: {hop.hostname}:{hop.port} accepts connections but does not finish the SSH handshake in time",
        remedy="check that this is the port of sshd; an overloaded host or a slow link needs a longer timeout",
    )


def authenticate(host: str, hop: Target, transport: paramiko.Transport, deadline: Deadline) -> None:
    """Try the credentials of a target in order: agent, then key files.

    Raises:
        AuthenticationFailed: says which were tried and why each was of no use.
        Unreachable: the conversation broke off; the credentials may be right.
    """
    tried: list[str] = []
    for label, key in _credentials(host, hop, tried):
        transport.auth_timeout = max(0.1, deadline.left_s)
        try:
            if not transport.auth_publickey(hop.user, key):
                return
            tried.append(f"{label} (accepted, but the host wants another factor as well)")
        except paramiko.BadAuthenticationType as error:
            tried.append(f"{label} (the host only allows {', '.join(error.allowed_types)})")
        except paramiko.AuthenticationException as error:
            if "timeout" in str(error).lower():
                raise _no_answer(host, hop) from error
            if not transport.is_active():
                if not tried:  # a host ends the conversation after too many keys, not at the first
                    raise _handshake_error(host, hop, error) from error
                tried.append(f"{label} (then the host ended the conversation)")
                break
            tried.append(label)
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise _handshake_error(host, hop, error) from error
    what = "; ".join(tried) if tried else "no key file and no agent key was found"
    raise AuthenticationFailed(
        host,
        f"{host}: {hop.hostname} accepts no credential for user {hop.user!r}; tried: {what}",
        remedy=f"check the user name, and that one of these public keys is in ~{hop.user}/.ssh/authorized_keys "
        "(ssh-copy-id); name the key with ssh.identity_file",
    )


def _credentials(host: str, hop: Target, tried: list[str]) -> Iterator[tuple[str, paramiko.PKey]]:
    if hop.identity_given and not Path(hop.identity_files[0]).exists():
        raise AuthenticationFailed(
            host,
            f"{host}: the key file {hop.identity_files[0]} does not exist",
            remedy="correct ssh.identity_file, or leave it out to use the agent and the default keys",
        )
    if hop.use_agent:
        with _agent_keys(hop) as keys:
            for key in keys:
                yield f"agent key {key.get_name()} {known_hosts.fingerprint(key.asbytes())[:19]}...", key
    for path in hop.identity_files:
        if not Path(path).exists():
            continue
        try:
            yield path, paramiko.PKey.from_path(path)
        except paramiko.PasswordRequiredException:
            tried.append(f"{path} (has a passphrase: load it into ssh-agent)")
        except TypeError:
            tried.append(f"{path} (has a passphrase: load it into ssh-agent)")
        except (paramiko.SSHException, ValueError, OSError, UnknownKeyType) as error:
            tried.append(f"{path} (cannot be read: {error})")


class _AgentAt(AgentSSH):
    """The agent behind a socket of its own (`IdentityAgent`)."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.connect(path)
            self._connect(self.socket)  # type: ignore[attr-defined]  # the stubs leave it out
        except BaseException:
            self.socket.close()
            raise


@contextlib.contextmanager
def _agent_keys(hop: Target) -> Iterator[Sequence[paramiko.PKey]]:
    """Give the agent's keys; none when there is no agent, and no error: key files may still do."""
    agent: AgentSSH | None = None
    with contextlib.suppress(paramiko.SSHException, OSError):
        agent = _AgentAt(hop.agent_socket) if hop.agent_socket else paramiko.Agent()
    try:
        yield agent.get_keys() if agent else ()
    finally:
        if isinstance(agent, paramiko.Agent):
            agent.close()
        elif isinstance(agent, _AgentAt):
            agent.socket.close()


def fetch_key(host: str, target: Target, jumps: Sequence[Target], deadline: Deadline) -> paramiko.PKey:
    """Return the key that a host offers, trusted or not; nothing is authenticated on the host itself.

    Raises:
        Unreachable, HostKeyRejected (of a jump host), AuthenticationFailed (at a jump host).
    """
    chain: list[paramiko.Transport] = []
    try:
        if jumps:
            chain = connect(host, jumps[-1], jumps[:-1], pin=None, deadline=deadline)
        sock = _socket(host, target, chain[-1] if chain else None, deadline)
        transport = paramiko.Transport(sock)
        chain.append(transport)
        transport.banner_timeout = max(0.1, deadline.left_s)
        options = transport.get_security_options()
        options.key_types = _ordered(options.key_types, known_hosts.TYPE_ORDER)
        transport.start_client(timeout=max(0.1, deadline.left_s))
        return transport.get_remote_server_key()
    except (paramiko.SSHException, EOFError, OSError) as error:
        raise _handshake_error(host, target, error) from error
    finally:
        close(chain)
