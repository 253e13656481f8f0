"""The demo's stage: an SSH server on loopback and a plain llama-server that serves as home, both taken down at the end.

Decides where they live (one temporary folder) and that nothing of them is left. The study itself knows nothing of it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from api.demo.assets import Assets, free_port
from api.demo.sshd import CLIENT_KEY
from optimizer.clock import Deadline
from optimizer.errors import RatchetError
from optimizer.http import Probe
from optimizer.remote import connect, guard, process
from optimizer.spec import HostEntry, StudySpec, parse_study

HOME_READY_TIMEOUT_S = 60.0
MAX_THREADS = 4
LAST_FENCE = 2**31 - 1
"""The demo's host is thrown away: its last owner is above all others."""


@dataclass
class Stage:
    """What stands on this machine while the demo runs."""

    folder: Path
    ssh: dict[str, Any]
    home: subprocess.Popen[bytes]
    home_command: list[str]
    port: int
    assets: Assets

    @property
    def url(self) -> str:
        """Where home serves."""
        return f"http://127.0.0.1:{self.port}"

    def host_entry(self) -> dict[str, Any]:
        """The host entry of this machine, reached over SSH like any other."""
        return {
            "name": "demo-host",
            "connection": "ssh",
            "ssh": {
                "hostname": "127.0.0.1",
                "port": self.ssh["port"],
                "user": self.ssh["user"],
                "identity_file": str(self.folder / CLIENT_KEY),
                "host_key": self.ssh["host_key"],
            },
            "http": {"reach": "direct", "address": "127.0.0.1"},
            "takeover": True,
            "run_dir": str(self.folder / "run"),
            "guard": {"grace_s": 120},
        }

    def home_answers(self) -> bool:
        """Say whether a server generates on home's port now."""
        with Probe(self.url) as probe:
            body = {"prompt": "The lighthouse", "n_predict": 4, "temperature": 0}
            status, answer = probe.post_json("/completion", body, timeout_s=30)
        return status == 200 and bool(answer.get("content"))


def spec_file() -> Path:
    """Return the demo's specification, in the repository or in the installed package."""
    here = Path(__file__).resolve()
    for candidate in (here.parents[2] / "examples" / "demo.yaml", here.parent / "demo.yaml"):
        if candidate.exists():
            return candidate
    raise RatchetError("examples/demo.yaml is missing from this installation", remedy="reinstall ratchet-tune")


def build_spec(stage: Stage, *, trials: int | None, name: str) -> StudySpec:
    """Fill the demo's specification in for this machine: command, model, port, host and cores."""
    data = yaml.safe_load(spec_file().read_text(encoding="utf-8"))
    data["name"] = name
    data["host"] = stage.host_entry()
    launch = data["launch"]
    launch["command"] = stage.assets.command
    launch["env"] = dict(stage.assets.env)
    cores = max(1, min(MAX_THREADS, os.cpu_count() or 1))
    launch["flags"] |= {"model": stage.assets.model, "port": stage.port, "threads": cores}
    parameters = data["space"]["parameters"]
    steps = sorted({1, max(1, cores // 2), cores})
    parameters["threads"] = {"choice": steps}
    parameters["threads-batch"] = {"choice": steps}
    if stage.assets.draft_model:
        parameters["model-draft"] = {"choice": [stage.assets.draft_model]}
    else:
        del parameters["model-draft"], parameters["spec-draft-n-max"]
        data["space"]["conditions"] = [c for c in data["space"]["conditions"] if "model-draft" not in c["then_absent"]]
        parameters["spec-type"] = {"choice": [t for t in parameters["spec-type"]["choice"] if t != "draft-simple"]}
    if trials is not None:
        data["budget"]["trials"] = trials
        data["budget"]["confirm_restarts"] = min(data["budget"]["confirm_restarts"], max(4, 2 * trials))
    return parse_study(data)


@contextmanager
def set_stage(assets: Assets, say: Callable[[str], None]) -> Iterator[Stage]:
    """Start the SSH server and home; take everything of the demo down at the end, whatever happened."""
    folder = Path(tempfile.mkdtemp(prefix="ratchet-demo-"))
    sshd: subprocess.Popen[bytes] | None = None
    stage: Stage | None = None
    try:
        sshd, facts = start_sshd(folder)
        port = free_port()
        command = [
            *assets.command,
            "--model",
            assets.model,
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--ctx-size",
            "4096",
            "--parallel",
            "1",
            "--threads",
            str(max(1, min(MAX_THREADS, os.cpu_count() or 1))),
        ]
        with (folder / "home.log").open("wb") as log:
            home = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **assets.env},
                cwd=folder,
            )
        stage = Stage(folder, facts, home, command, port, assets)
        _wait_for_home(stage)
        say(f"a plain server serves on 127.0.0.1:{port} (home); it is reached over SSH on port {facts['port']}")
        yield stage
    finally:
        if stage is not None:
            take_down(stage)
        if sshd is not None:
            end_process(sshd)
        shutil.rmtree(folder, ignore_errors=True)


def start_sshd(folder: Path) -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
    with (folder / "sshd.log").open("wb") as errors:
        sshd = subprocess.Popen(
            [sys.executable, "-m", "api.demo.sshd", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    assert sshd.stdout is not None
    line = sshd.stdout.readline()
    if not line:
        tail = (folder / "sshd.log").read_text(errors="replace").strip()[-300:]
        raise RatchetError(f"the demo's SSH server did not start: {tail}", remedy="is asyncssh installed?")
    return sshd, json.loads(line)


def _wait_for_home(stage: Stage) -> None:
    deadline = Deadline.after(HOME_READY_TIMEOUT_S)
    while not deadline.passed:
        if stage.home.poll() is not None:
            tail = (stage.folder / "home.log").read_text(errors="replace").strip()[-300:]
            raise RatchetError(f"the plain server ended with status {stage.home.returncode}: {tail}")
        if stage.home_answers():
            return
        time.sleep(0.1)
    raise RatchetError(f"the plain server did not answer within {HOME_READY_TIMEOUT_S:.0f} s")


def take_down(stage: Stage) -> None:
    """Stop everything that the demo started on its host: the guard, what carries our run ids, and home."""
    with suppress(ChildProcessError):
        if stage.home.poll() is None:
            end_process(stage.home)
    run_dir = str(stage.folder / "run")
    with suppress(RatchetError):
        link = connect.open_link(HostEntry.model_validate(stage.host_entry()), known_host_key=None)
        try:
            with suppress(RatchetError):
                guard.disarm(link, run_dir=run_dir, fence=LAST_FENCE, deadline=Deadline.after(20))
            for server in process.find_runs(link, run_dir=run_dir, deadline=Deadline.after(20)):
                process.stop(link, server, run_dir=run_dir, fence=LAST_FENCE, deadline=Deadline.after(30))
        finally:
            link.close()


def end_process(process_: subprocess.Popen[bytes]) -> None:
    if process_.stdin is not None:
        process_.stdin.close()
    process_.terminate()
    try:
        process_.wait(10)
    except subprocess.TimeoutExpired:
        process_.kill()
        process_.wait()
    if process_.stdout is not None:
        process_.stdout.close()
