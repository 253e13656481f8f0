"""Reading a server out of /proc: its command, environment, directory, user, and whether it can be put back from that.

Decides what belongs to a server's configuration. What is done with it is decided in `home.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from optimizer.clock import Deadline
from optimizer.errors import PortTaken
from optimizer.remote import scripts
from optimizer.remote.base import HostLink, ProcessInfo
from optimizer.remote.launcher import MARKS
from optimizer.spec import ENV_NAME

OUR_VARIABLES = {"RATCHET_RUN_ID", *MARKS}
FORWARDERS = {"docker-proxy", "rootlessport", "rootlesskit", "slirp4netns", "pasta", "pasta.avx2", "conmon"}
"""What listens on the host for a container: not the server, though in the cgroup of a service that runs them all."""
SHELL_VARIABLES = {"_", "OLDPWD", "PWD", "SHLVL"}
"""Set by whatever shell starts a program: not part of a server's configuration."""


@dataclass(frozen=True)
class Look:
    """One reading of the server on a port; `kind` is that of our run, or `-`."""

    main: ProcessInfo
    kind: str
    user: str
    self_uid: int
    cwd: str
    umask: str
    same_ns: bool
    cgroup: str
    systemd: bool
    argv: tuple[str, ...]
    env: dict[str, str]


def look(
    link: HostLink, port: int, deadline: Deadline, *, run_dir: str = "~/.ratchet", pid: int = 0, start: int = 0
) -> Look | None:
    """Read the server on a port (or the process given); None when nothing listens.

    Raises:
        PortTaken: a process of another user holds the port, and we may not see it.
    """
    done = scripts.call(link, "home_find", run_dir, str(port), str(pid), str(start), deadline=deadline)
    head, _, rest = done.stdout.partition(b"--cmdline--\n")
    raw_argv, _, raw_env = rest.partition(b"\n--environ--\n")
    words = {k: v for k, _, v in (x.partition(" ") for x in head.decode("utf-8", "replace").splitlines())}
    if "none" in words:
        return None
    if "hidden" in words:
        raise PortTaken(
            link.name,
            f"{link.name}: port {port} is held by a process of another user (uid {words['hidden']})",
            remedy="log in as that user (ssh.user), or give `home.systemd_unit`, or `home.command` for a container",
        )
    return Look(
        main=scripts.parse_process(words["main"]),
        kind=words.get("kind", "-"),
        user=words.get("user", ""),
        self_uid=int(words.get("self", "-1")),
        cwd=words.get("cwd", ""),
        umask=words.get("umask", ""),
        same_ns=words.get("ns") == "same",
        cgroup=words.get("cgroup", ""),
        systemd="systemd" in words,
        argv=tuple(a.decode("utf-8", "surrogateescape") for a in raw_argv.split(b"\0")[:-1]),
        env=environment(raw_env),
    )


def environment(raw: bytes) -> dict[str, str]:
    """Read /proc/PID/environ; names that a shell cannot export (bash functions) and our own marks are left out."""
    env = {}
    for item in raw.split(b"\0"):
        name, equals, value = item.decode("utf-8", "surrogateescape").partition("=")
        if equals and ENV_NAME.match(name) and name not in OUR_VARIABLES and name not in SHELL_VARIABLES:
            env[name] = value
    return env


def forwards(look: Look) -> bool:
    """Say whether this is only the way into a container."""
    return bool(look.argv) and PurePosixPath(look.argv[0]).name in FORWARDERS


def check_reproducible(link: HostLink, port: int, look: Look) -> None:
    """Refuse a server that cannot be started again from what /proc shows. Raises PortTaken with what to do."""
    what = scripts.tell(look.main)
    if not look.same_ns or forwards(look):
        raise PortTaken(
            link.name,
            f"{link.name}: port {port} is served from inside a container ({what})",
            remedy="give the command that starts it under `home.command`, such as [docker, start, NAME]",
        )
    if look.cwd.endswith(" (deleted)"):
        raise PortTaken(
            link.name,
            f"{link.name}: the working directory of {what} was deleted: {look.cwd.removesuffix(' (deleted)')}",
            remedy="make it again and restart that server in it, or give `home.command` and `home.cwd`",
        )
    if look.main.uid != look.self_uid and look.self_uid != 0:
        raise PortTaken(
            link.name,
            f"{link.name}: port {port} is held by another user's server, {what}",
            remedy=f"log in as {look.user or look.main.uid} (ssh.user), or give `home.systemd_unit`",
        )
    if not look.argv or not look.env or (len(look.argv) == 1 and "::" in look.argv[0]):
        raise PortTaken(
            link.name,
            f"{link.name}: the command or environment of {what} cannot be read",
            remedy="give the original server in the host's file under `home.command`",
        )
