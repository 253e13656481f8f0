"""Real SSH servers on loopback for the tests: OpenSSH's sshd with a configuration of its own, and asyncssh embedded.

Both run unprivileged commands as the current user, on free ports, with keys made for one test session.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh

from optimizer.spec import HostEntry, SshEntry


def free_port() -> int:
    """Return a port that was free a moment ago, and that nobody gets who asks for any: tunnels and clients do."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(10_000, first)
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port


def make_key(path: Path, kind: str = "ed25519") -> Path:
    """Write a key pair; returns the private key's path."""
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(path)], check=True, stdin=subprocess.DEVNULL)
    return path


def wait_for_port(port: int, *, timeout_s: float = 10.0) -> None:
    """Wait until something accepts connections."""
    end = time.monotonic() + timeout_s
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


@dataclass
class Sshd:
    """One OpenSSH server process."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]
    client_key: Path
    host_key: Path
    user: str = field(default_factory=lambda: pwd.getpwuid(os.getuid()).pw_name)

    def entry(self, name: str = "box", **ssh: Any) -> HostEntry:
        """Return a host entry that leads here, with the host key pinned."""
        fields = {
            "hostname": "127.0.0.1",
            "port": self.port,
            "user": self.user,
            "identity_file": str(self.client_key),
            "host_key": public_key(self.host_key),
            "config_file": "/dev/null",
            **ssh,
        }
        return HostEntry(name=name, ssh=SshEntry(**fields))

    def stop(self) -> None:
        """End the server and its sessions."""
        self.process.terminate()
        self.process.wait(5)


def public_key(path: Path) -> str:
    """Return `TYPE BASE64` of a key."""
    return " ".join(path.with_suffix(".pub").read_text().split()[:2])


def start_sshd(folder: Path, *, port: int | None = None, host_key: Path | None = None, extra: str = "") -> Sshd:
    """Start sshd on loopback with its own configuration and keys."""
    folder.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    host_key = host_key or make_key(folder / "host_key")
    client_key = folder / "client_key"
    if not client_key.exists():
        make_key(client_key)
    shutil.copy(client_key.with_suffix(".pub"), folder / "authorized_keys")
    config = folder / "sshd_config"
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {host_key}\nPidFile {folder / 'pid'}\n"
        f"AuthorizedKeysFile {folder / 'authorized_keys'}\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
        f"KbdInteractiveAuthentication no\nPermitRootLogin yes\nLogLevel ERROR\nPrintMotd no\n{extra}\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    sshd = shutil.which("sshd") or "/usr/sbin/sshd"
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen([sshd, "-D", "-e", "-f", str(config)], stdin=subprocess.DEVNULL, stderr=log)
    try:
        wait_for_port(port)
    except OSError:
        process.kill()
        process.wait()
        raise RuntimeError((folder / "log").read_text()) from None
    return Sshd(folder, port, process, client_key, host_key)


class EmbeddedServer:
    """asyncssh in a thread: no privileges, and faults can be scripted."""

    def __init__(self, folder: Path, *, shell: list[str] | None = None, port: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.host_key = make_key(folder / "host_key") if not (folder / "host_key").exists() else folder / "host_key"
        self.client_key = (
            make_key(folder / "client_key") if not (folder / "client_key").exists() else folder / "client_key"
        )
        self.shell = shell or ["/bin/sh", "-c"]
        self.user = pwd.getpwuid(os.getuid()).pw_name
        self.port = port
        self.env: dict[str, str] = {}
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        assert self._ready.wait(10)

    def entry(self, name: str = "box", **ssh: Any) -> HostEntry:
        """Return a host entry that leads here, with the host key pinned."""
        fields = {
            "hostname": "127.0.0.1",
            "port": self.port,
            "user": self.user,
            "identity_file": str(self.client_key),
            "host_key": public_key(self.host_key),
            "config_file": "/dev/null",
            **ssh,
        }
        return HostEntry(name=name, ssh=SshEntry(**fields))

    def stop(self) -> None:
        """Close the server and every connection."""

        async def end() -> None:
            self._acceptor.close()
            for connection in list(self._connections):
                connection.abort()
            await self._acceptor.wait_closed()
            rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def cut(self) -> None:
        """Break every connection without a goodbye."""

        async def end() -> None:
            for connection in list(self._connections):
                connection.abort()

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._connections: set[Any] = set()
        self._loop.run_until_complete(self._listen())
        self._ready.set()
        self._loop.run_forever()

    async def _listen(self) -> None:
        outer = self

        class Server(asyncssh.SSHServer):
            def connection_made(self, conn: Any) -> None:
                self.conn = conn
                outer._connections.add(conn)

            def connection_lost(self, exc: Exception | None) -> None:
                outer._connections.discard(self.conn)

            def connection_requested(self, *args: Any) -> bool:
                return True

        self._acceptor = await asyncssh.create_server(
            Server,
            "127.0.0.1",
            self.port,
            server_host_keys=[str(self.host_key)],
            authorized_client_keys=str(self.client_key.with_suffix(".pub")),
            process_factory=self._run,
            encoding=None,
        )
        self.port = self._acceptor.get_port()

    async def _run(self, process: Any) -> None:
        child = await asyncio.create_subprocess_exec(
            *self.shell,
            process.command or "",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            cwd=str(Path.home()),
            env={"HOME": str(Path.home()), "PATH": os.environ["PATH"], "USER": self.user, **self.env},
        )
        assert child.stdin and child.stdout and child.stderr
        feed = asyncio.create_task(_pump(process.stdin, child.stdin))
        try:
            await asyncio.gather(_pump(child.stdout, process.stdout), _pump(child.stderr, process.stderr))
            status = await child.wait()
        finally:
            feed.cancel()
            if child.returncode is None:  # the client or this server is gone: a login ends like under sshd
                os.killpg(child.pid, signal.SIGKILL)
                await child.wait()
        process.exit(status)


async def _pump(source: Any, sink: Any) -> None:
    """Move bytes until either end is gone."""
    try:
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
        if isinstance(sink, asyncio.StreamWriter):
            sink.close()
    except (OSError, asyncssh.Error):
        if isinstance(sink, asyncio.StreamWriter):
            sink.close()
