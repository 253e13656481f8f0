"""Where an SSH host really is: aliases through `ssh -G`, identity files, jump hosts, proxy commands.

Decides the address, user and credentials to try. Without an `ssh` client the user's ~/.ssh/config is read by paramiko,
which knows fewer keywords. Leaves connecting to `session.py` and trust to `known_hosts.py`.
"""

from __future__ import annotations

import getpass
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko

from optimizer.errors import BadInput, Problem
from optimizer.spec import SshEntry

DEFAULT_PORT = 22
DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
SSH_G_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Target:
    """One SSH endpoint, resolved. `label` is how people call it."""

    label: str
    hostname: str
    port: int
    user: str
    identity_files: tuple[str, ...]
    identity_given: bool
    """The identity file was named by the entry: it must exist, and only it is tried."""
    known_hosts: tuple[str, ...]
    host_key_alias: str | None = None
    proxy_command: str | None = None
    use_agent: bool = True
    agent_socket: str | None = None

    @property
    def known_hosts_name(self) -> str:
        """The name under which known_hosts files list this host."""
        name = self.host_key_alias or self.hostname
        return name if self.port == DEFAULT_PORT or self.host_key_alias else f"[{name}]:{self.port}"


def resolve(entry: SshEntry) -> tuple[Target, tuple[Target, ...]]:
    """Return the host itself and the jump hosts in front of it, nearest first.

    Raises:
        BadInput: `ssh -G` refuses the alias or the configuration file.
    """
    options = lookup(entry.alias or str(entry.hostname), entry.config_file)
    final = _target(entry, options)
    jumps = entry.jump or _split_jumps(_first(options, "proxyjump"))
    return final, tuple(_jump(hop, entry) for hop in jumps)


def lookup(alias: str, config_file: str | None) -> dict[str, list[str]]:
    """Return the client options for a name, keywords in lower case."""
    if alias.startswith("-"):
        raise BadInput("the alias of the host cannot be used", [Problem("ssh.alias", "starts with a dash", alias)])
    ssh = shutil.which("ssh")
    if ssh is None:
        return _lookup_by_paramiko(alias, config_file)
    argv = [ssh, "-G", *(("-F", str(Path(config_file).expanduser())) if config_file else ()), "--", alias]
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=SSH_G_TIMEOUT_S, stdin=subprocess.DEVNULL, check=False
        )
    except subprocess.TimeoutExpired:
        raise BadInput(f"`ssh -G {alias}` did not answer", [Problem("ssh.alias", "ssh hangs on it", alias)]) from None
    if done.returncode != 0:
        why = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"status {done.returncode}"
        raise BadInput(f"`ssh -G {alias}` failed: {why}", [Problem("ssh.alias", why, alias)])
    options: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        options.setdefault(key.lower(), []).append(value)
    return options


def _lookup_by_paramiko(alias: str, config_file: str | None) -> dict[str, list[str]]:
    path = Path(config_file or "~/.ssh/config").expanduser()
    if not path.exists():
        if config_file:
            raise BadInput(f"{path} does not exist", [Problem("ssh.config_file", "does not exist", config_file)])
        return {"hostname": [alias]}
    found: dict[str, Any] = dict(paramiko.SSHConfig.from_path(str(path)).lookup(alias))
    return {key: list(value) if isinstance(value, list) else [str(value)] for key, value in found.items()}


def _first(options: Mapping[str, Sequence[str]], key: str) -> str | None:
    values = options.get(key)
    if not values or values[0].lower() == "none":
        return None
    return values[0]


def _target(entry: SshEntry, options: Mapping[str, Sequence[str]]) -> Target:
    hostname = entry.hostname or _first(options, "hostname") or str(entry.alias)
    given = entry.identity_file is not None
    files = [entry.identity_file] if entry.identity_file else list(options.get("identityfile", ()))
    agent = _first(options, "identityagent")
    identities_only = (_first(options, "identitiesonly") or "no") == "yes"
    return Target(
        label=entry.alias or hostname,
        hostname=hostname,
        port=entry.port or int(_first(options, "port") or DEFAULT_PORT),
        user=entry.user or _first(options, "user") or getpass.getuser(),
        identity_files=tuple(_expand(f) for f in files) or _default_keys(),
        identity_given=given,
        known_hosts=_known_hosts(options),
        host_key_alias=_first(options, "hostkeyalias"),
        proxy_command=None if entry.jump else _first(options, "proxycommand"),
        use_agent=not given and not identities_only and options.get("identityagent", [""])[0].lower() != "none",
        agent_socket=None if agent in {None, "SSH_AUTH_SOCK"} else _expand(str(agent)),
    )


def _jump(hop: str, entry: SshEntry) -> Target:
    """Resolve one jump host: `[user@]name[:port]`, looked up in the same client configuration."""
    user, _, rest = hop.rpartition("@")
    name, port = rest, None
    if rest.startswith("["):
        name, _, tail = rest[1:].partition("]")
        port = tail.removeprefix(":") or None
    elif rest.count(":") == 1:
        name, port = rest.split(":")
    if port is not None and not port.isdigit():
        raise BadInput("a jump host cannot be read", [Problem("ssh.jump", "the port is not a number", hop)])
    hop_entry = SshEntry(
        alias=name,
        user=user or None,
        port=int(port) if port else None,
        identity_file=entry.identity_file,
        config_file=entry.config_file,
    )
    options = lookup(name, entry.config_file)
    return _target(hop_entry, options)


def _split_jumps(text: str | None) -> list[str]:
    return [hop.strip() for hop in text.split(",")] if text else []


def _known_hosts(options: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the known_hosts files; `ssh -G` prints several on one line, without quotes around spaces."""
    lines = [
        *options.get("userknownhostsfile", ("~/.ssh/known_hosts ~/.ssh/known_hosts2",)),
        *options.get("globalknownhostsfile", ("/etc/ssh/ssh_known_hosts",)),
    ]
    names = [name for line in lines for name in dict.fromkeys([line.strip('"'), *line.split()])]
    return tuple(_expand(name) for name in names if name.lower() != "none")


def _expand(path: str) -> str:
    return str(Path(path.replace("%d", str(Path.home()))).expanduser())


def _default_keys() -> tuple[str, ...]:
    return tuple(str(Path.home() / ".ssh" / name) for name in DEFAULT_KEYS)
