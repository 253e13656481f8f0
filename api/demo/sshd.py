"""The demo's own SSH server: unprivileged, on loopback, with throw-away keys, ended with its parent.

Decides only how a login runs a command (`sh -c`, as this user); Ratchet reaches it like any other host. Run as
`python -m api.demo.sshd DIR`: it writes keys into DIR, prints one JSON line, and serves until standard input closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import asyncssh

HOST_KEY = "host_key"
CLIENT_KEY = "client_key"


class LoopbackServer(asyncssh.SSHServer):
    """Accepts the one throw-away key, and forwarding to loopback only."""

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        """Allow direct-tcpip to this machine."""
        return dest_host in {"127.0.0.1", "localhost", "::1"}


async def run_command(process: asyncssh.SSHServerProcess[bytes]) -> None:
    """Run one command under `sh -c` with its three streams on the channel; report its exit status."""
    if process.command is None:
        process.stderr.write(b"no interactive logins here\n")
        process.exit(1)
        return
    child = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        process.command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=os.environ.get("HOME", "/"),
        start_new_session=True,
    )
    await process.redirect(stdin=child.stdin, stdout=child.stdout, stderr=child.stderr)
    ended, gone = asyncio.ensure_future(child.wait()), asyncio.ensure_future(process.wait_closed())
    await asyncio.wait({ended, gone}, return_when=asyncio.FIRST_COMPLETED)
    gone.cancel()
    if child.returncode is None:
        os.killpg(child.pid, signal.SIGKILL)  # the client is gone: its login ends, what it detached goes on
    status = await ended
    with contextlib.suppress(asyncssh.Error, OSError):
        await process.stdout.drain()
    process.exit(status if status >= 0 else 128 - status)


def make_keys(directory: Path) -> tuple[asyncssh.SSHKey, asyncssh.SSHKey]:
    """Create the host key and the client key (files readable by this user alone)."""
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    client_key = asyncssh.generate_private_key("ssh-ed25519")
    for name, key in ((HOST_KEY, host_key), (CLIENT_KEY, client_key)):
        path = directory / name
        path.touch(mode=0o600)
        path.write_bytes(key.export_private_key())
    return host_key, client_key


async def serve(directory: Path) -> None:
    """Serve until standard input closes."""
    host_key, client_key = make_keys(directory)
    authorized = asyncssh.import_authorized_keys(client_key.export_public_key().decode())
    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=LoopbackServer,
        server_host_keys=[host_key],
        authorized_client_keys=authorized,
        process_factory=run_command,
        encoding=None,
        keepalive_interval=30,
        line_editor=False,
        agent_forwarding=False,
        x11_forwarding=False,
    )
    port = server.sockets[0].getsockname()[1]
    facts = {"port": port, "host_key": host_key.get_fingerprint("sha256"), "user": os.environ.get("USER") or "demo"}
    print(json.dumps(facts), flush=True)
    await _until_parent_is_gone()
    server.close()


async def _until_parent_is_gone() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.read(4096):
        pass


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
