"""The key that a host shows, for a person to compare and pin (`ratchet host add`).

Decides what is shown; whether a key is trusted in operation is decided in `known_hosts.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.clock import Deadline
from optimizer.remote import connect, known_hosts, sshconnect, target
from optimizer.spec import HostEntry


@dataclass(frozen=True)
class Offered:
    """The key that a host shows: what a person compares, and what is pinned."""

    kind: str
    fingerprint: str
    """`SHA256:...`, as `ssh-keygen -lf` prints it."""
    key: str
    """`TYPE BASE64`: the whole key, for pinning."""
    in_known_hosts: bool
    """The user's known_hosts lists exactly this key for the host."""
    address: str


def fetch_fingerprint(entry: HostEntry) -> Offered:
    """Return the host key that a host offers now, trusted or not, for a person to compare.

    Raises:
        BadInput: the host is not reached over SSH.
        Unreachable, HostKeyRejected, AuthenticationFailed: the last two only of jump hosts.
    """
    ssh = connect.ssh_section(entry)
    final, jumps = target.resolve(ssh)
    key = sshconnect.fetch_key(entry.name, final, jumps, Deadline.after(ssh.connect_timeout_s))
    return Offered(
        kind=key.get_name(),
        fingerprint=known_hosts.fingerprint(key.asbytes()),
        key=f"{key.get_name()} {key.get_base64()}",
        in_known_hosts=known_hosts.trusted(key, None, final),
        address=f"{final.hostname}:{final.port}",
    )
