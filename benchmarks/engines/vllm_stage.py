"""The stage of the vLLM study: a loopback SSH server, and a plain vLLM of the owner's that serves as home.

Decides where they live (one folder) and that nothing of them is left. `Server` is one vLLM that a check starts itself,
with the product's own way to start, watch and stop it.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from api.demo.assets import free_port
from api.demo.sshd import CLIENT_KEY
from api.demo.stage import end_process, start_sshd
from optimizer.clock import Deadline
from optimizer.engines.base import Config, Hardware, LaunchPlan
from optimizer.engines.registry import find_engine
from optimizer.http import Probe
from optimizer.remote import connect, process
from optimizer.remote.base import HostLink, RunningServer
from optimizer.spec import HostEntry

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "vllm-cpu.yaml"
ENGINE = find_engine("vllm")
START_S = 1200.0
"""A start takes half a minute on a free core and many minutes on a busy one."""
POLL_S = 0.5


@dataclass(frozen=True)
class Stage:
    """One machine that plays host and owner."""

    folder: Path
    vllm: str
    model: str
    ssh: dict[str, Any]
    port: int

    def host_entry(self) -> dict[str, Any]:
        """Return this machine as a host that is reached over SSH."""
        ssh = {"hostname": "127.0.0.1", "identity_file": str(self.folder / CLIENT_KEY), "config_file": "/dev/null"}
        return {
            "name": "vllm-cpu-box",
            "ssh": ssh | {k: self.ssh[k] for k in ("port", "user", "host_key")},
            "gpus": "none",
            "takeover": True,
            "run_dir": str(self.folder / "run"),
        }

    def spec(self, trials: int, *, quick: bool = False) -> dict[str, Any]:
        """Return the example's specification, filled in for this machine; `quick` for a busy one: short and eager."""
        data: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text("utf-8"))
        data["host"] = self.host_entry()
        data["launch"]["command"] = [self.vllm, "serve"]
        data["launch"]["flags"] |= {"model": self.model, "port": self.port}
        data["budget"]["trials"] = trials
        if quick:
            data["baseline"]["restarts"] = 1
            data["budget"] |= {"confirm_restarts": 2, "soak_s": 0}
            data["workload"] |= {"max_tokens": 32, "prompts": data["workload"]["prompts"][:2]}
            del data["space"]["parameters"]["enforce-eager"]
            del data["space"]["known"][0]["flags"]["enforce-eager"]
        return data

    def config(self) -> dict[str, Any]:
        """Return the example's baseline as one configuration."""
        launch = self.spec(1)["launch"]
        return {**launch["flags"], **{f"env.{k}": v for k, v in launch["env"].items()}}

    @contextmanager
    def link(self) -> Iterator[HostLink]:
        """Open the SSH link to the host."""
        link = connect.open_link(HostEntry.model_validate(self.host_entry()))
        try:
            yield link
        finally:
            link.close()


@contextmanager
def set_stage(folder: Path, vllm: str, model: str) -> Iterator[Stage]:
    """Start the SSH server; end it, and every server of ours, at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    sshd, facts = start_sshd(folder)
    stage = Stage(folder, vllm, model, facts, free_port())
    try:
        yield stage
    finally:
        try:
            stop_servers(stage)
        finally:
            end_process(sshd)


def stop_servers(stage: Stage) -> None:
    """Stop every server that Ratchet left on the host, the one that it put back among them."""
    run_dir = str(stage.folder / "run")
    with stage.link() as link:
        for server in process.find_runs(link, run_dir=run_dir, deadline=Deadline.after(30)):
            process.stop(link, server, run_dir=run_dir, fence=None, deadline=Deadline.after(120))


@contextmanager
def owners_server(stage: Stage) -> Iterator[None]:
    """Run the plain server that a study will find on the port; ended here when the study did not."""
    plan = plan_of(stage, {})
    with (stage.folder / "home.log").open("wb") as log:
        home = subprocess.Popen(
            plan.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, **plan.env}, cwd=stage.folder,
        )  # fmt: skip
    try:
        wait_until(lambda: home.poll() is not None or answers(stage.port), "the owner's server", START_S)
        if home.poll() is not None:
            raise SystemExit(f"the owner's server ended: see {stage.folder / 'home.log'}")
        yield
    finally:
        if home.poll() is None:
            end_process(home)


def plan_of(stage: Stage, changes: Config, *, port: int | None = None) -> LaunchPlan:
    """Plan the example's baseline with some settings changed (None takes one away)."""
    config = {k: v for k, v in {**stage.config(), "port": port or stage.port, **changes}.items() if v is not None}
    effective = ENGINE.effective(config, None, Hardware())
    return ENGINE.launch_plan([stage.vllm, "serve"], config, None, effective, "vllm-check")


@contextmanager
def server(stage: Stage, link: HostLink, plan: LaunchPlan) -> Iterator[RunningServer]:
    """Launch one server as a trial is launched, and stop it with proof at the end."""
    run_dir = str(stage.folder / "run")
    started = process.launch(
        link, plan, run_id=process.new_run_id(), run_dir=run_dir, fence=None, deadline=Deadline.after(60)
    )
    try:
        yield started
    finally:
        process.stop(link, started, run_dir=run_dir, fence=None, deadline=Deadline.after(120))


def answers(port: int) -> bool:
    """Say whether a healthy server is on the port."""
    with Probe(f"http://127.0.0.1:{port}") as probe:
        return probe.status("/health") == 200


def wait_until(condition: Callable[[], bool], what: str, seconds: float) -> float:
    """Wait for a condition and return the seconds it took. Raises TimeoutError."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(POLL_S)
    return time.monotonic() - began
