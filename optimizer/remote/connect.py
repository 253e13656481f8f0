"""From a host entry to a link. The one place that chooses between SSH and local.

Decides which pin counts: the entry's own, else the one kept at `ratchet host add`, else the user's known_hosts.
"""

from __future__ import annotations

from optimizer.errors import BadInput, Problem
from optimizer.remote import target
from optimizer.remote.base import HostLink
from optimizer.remote.local import LocalLink
from optimizer.remote.session import SshLink
from optimizer.spec import HostEntry, SshEntry


def open_link(entry: HostEntry, *, known_host_key: str | None = None, outage_s: float = 0.0) -> HostLink:
    """Return the link of a host; nothing is connected before its first use.

    `outage_s` is how long an outage is waited for by what may be repeated, beyond the time of its own work.

    Raises:
        BadInput: the alias or configuration file cannot be used.
    """
    if entry.connection == "local":
        return LocalLink(entry.name)
    ssh = ssh_section(entry)
    final, jumps = target.resolve(ssh)
    return SshLink(
        entry.name, final, jumps, pin=ssh.host_key or known_host_key, connect_timeout_s=ssh.connect_timeout_s,
        outage_s=outage_s,
    )  # fmt: skip


def ssh_section(entry: HostEntry) -> SshEntry:
    """Return how the host is reached. Raises BadInput for a host without an ssh section."""
    if entry.ssh is None:
        raise BadInput(
            f"host {entry.name} has no ssh section", [Problem("ssh", "is missing", hint="give alias or hostname")]
        )
    return entry.ssh
