"""Hosts for the tests: a real sshd, an embedded asyncssh server, this machine; all with a pretended GPU in reach."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from optimizer.clock import Deadline
from optimizer.engines.base import LaunchPlan
from optimizer.remote import connect, process
from optimizer.remote.base import HostLink, RunningServer
from optimizer.remote.local import LocalLink
from tests.integration.remote.sshservers import EmbeddedServer, Sshd, free_port, start_sshd

REPLICA = Path(__file__).parents[2] / "replica"
FENCE = 7


@pytest.fixture(scope="session")
def gpu_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the pretended GPUs are; the folder itself is missing until a test makes it."""
    return tmp_path_factory.mktemp("gpu") / "gpus"


@pytest.fixture(scope="session")
def host_path(gpu_folder: Path) -> str:
    """Return the PATH of the hosts, the pretended nvidia-smi first."""
    return f"{REPLICA / 'bin'}:{os.environ['PATH']}"


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory, gpu_folder: Path, host_path: str) -> Iterator[Sshd]:
    """Start one OpenSSH server for the session."""
    server = start_sshd(
        tmp_path_factory.mktemp("sshd"), extra=f"SetEnv PATH={host_path} REPLICA_GPU_DIR={gpu_folder}\nMaxStartups 100"
    )
    yield server
    server.stop()


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory, gpu_folder: Path, host_path: str) -> Iterator[EmbeddedServer]:
    """Start one asyncssh server for the session."""
    server = EmbeddedServer(tmp_path_factory.mktemp("embedded"))
    server.env.update(PATH=host_path, REPLICA_GPU_DIR=str(gpu_folder))
    yield server
    server.stop()


@pytest.fixture(params=[pytest.param("sshd", marks=pytest.mark.needs("sshd")), "embedded"])
def ssh_server(request: pytest.FixtureRequest) -> Sshd | EmbeddedServer:
    """Return each kind of SSH server in turn."""
    server: Sshd | EmbeddedServer = request.getfixturevalue(request.param)
    return server


@pytest.fixture(params=[pytest.param("sshd", marks=pytest.mark.needs("sshd")), "embedded", "local"])
def link(
    request: pytest.FixtureRequest, gpu_folder: Path, host_path: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[HostLink]:
    """Return a link to each kind of host in turn."""
    if request.param == "local":
        monkeypatch.setenv("PATH", host_path)
        monkeypatch.setenv("REPLICA_GPU_DIR", str(gpu_folder))
        made: HostLink = LocalLink("box")
    else:
        made = connect.open_link(request.getfixturevalue(request.param).entry())
    yield made
    made.close()


@pytest.fixture
def local_link(gpu_folder: Path, host_path: str, monkeypatch: pytest.MonkeyPatch) -> LocalLink:
    """Return this machine alone, for what does not depend on the channel."""
    monkeypatch.setenv("PATH", host_path)
    monkeypatch.setenv("REPLICA_GPU_DIR", str(gpu_folder))
    return LocalLink("box")


@pytest.fixture
def gpus(gpu_folder: Path) -> Iterator[Path]:
    """Give the hosts two pretended GPUs."""
    for index in (0, 1):
        (gpu_folder / f"gpu{index}").mkdir(parents=True)
    yield gpu_folder
    shutil.rmtree(gpu_folder)


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[str]:
    """Return a run directory with a space in its name; whatever was started under it is ended afterwards."""
    folder = tmp_path / "run dir"
    yield str(folder)
    for pid in pids_of(folder):
        os.kill(pid, signal.SIGKILL)


def pids_of(folder: Path) -> list[int]:
    """Return the processes that belong to a run directory: its run ids in the environment, or its guard."""
    ids = {p.name.encode() for p in (folder / "runs").glob("*")}
    found = []
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            environ = (proc / "environ").read_bytes()
            command = (proc / "cmdline").read_bytes()
        except OSError:
            continue
        run = environ.partition(b"RATCHET_RUN_ID=")[2].partition(b"\0")[0]
        if run in ids or str(folder).encode() in command:
            found.append(int(proc.name))
    return found


@dataclass
class Box:
    """One host with a run directory, and the verbs with their usual arguments."""

    link: HostLink
    run_dir: str
    port: int = field(default_factory=free_port)
    fence: int = FENCE

    def plan(self, *extra: str, env: dict[str, str] | None = None, cwd: str | None = None) -> LaunchPlan:
        """Return a plan for the double on this box's port."""
        argv = (sys.executable, str(REPLICA / "__main__.py"), "--model-path", "/models/m", "--port", str(self.port),
                "--replica-load-s", "0.1", "--replica-speed", "20", *extra)  # fmt: skip
        return LaunchPlan(argv, env or {}, cwd, self.port, "127.0.0.1", "/models/m", {})

    def launch(self, *extra: str, env: dict[str, str] | None = None, run_id: str | None = None) -> RunningServer:
        """Start the double."""
        return process.launch(
            self.link, self.plan(*extra, env=env), run_id=run_id or process.new_run_id(), run_dir=self.run_dir,
            fence=self.fence, deadline=Deadline.after(60),
        )  # fmt: skip

    def wait(self, server: RunningServer, *, log: bytes = b"fired up", seconds: float = 90) -> None:
        """Wait until a line is in the log."""
        end = Deadline.after(seconds)
        seen = b""
        while log not in seen:
            status = process.status(self.link, server, log_offset=0)
            seen = status.log_chunk
            assert status.alive or log in seen, seen.decode()
            assert not end.passed, seen.decode()

    def wait_for_log(self, server: RunningServer, text: bytes, *, seconds: float = 90) -> None:
        """Wait until a text is in the log, whatever became of the main process."""
        end = Deadline.after(seconds)
        while text not in process.read_log(self.link, server):
            assert not end.passed

    def stop(self, server: RunningServer, *, seconds: float = 90, term_wait_s: float = 15.0) -> process.StopProof:
        """Stop with proof."""
        return process.stop(
            self.link, server, run_dir=self.run_dir, fence=self.fence, deadline=Deadline.after(seconds),
            term_wait_s=term_wait_s,
        )  # fmt: skip


@pytest.fixture
def box(link: HostLink, run_dir: str) -> Box:
    """Return a box on each kind of host."""
    return Box(link, run_dir)


@pytest.fixture
def local_box(local_link: LocalLink, run_dir: str) -> Box:
    """Return a box on this machine."""
    return Box(local_link, run_dir)


def path_without(tool: str, folder: Path) -> str:
    """Return a PATH that has every usual tool but one."""
    tools = folder / "tools"
    tools.mkdir()
    for directory in os.environ["PATH"].split(":"):
        for file in Path(directory).glob("*") if Path(directory).is_dir() else ():
            if file.name != tool and not (tools / file.name).exists():
                (tools / file.name).symlink_to(file)
    return str(tools)
