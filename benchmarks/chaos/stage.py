"""The stage of the crash harness: a home server, a short study of it, and what must be true afterwards.

The server is the test double of SGLang, started over `connection: local`: real processes, ports, logs and HTTP, the
same scripts as over SSH. The space is small enough to be measured whole, so that every undisturbed run measures the
same set.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna

from optimizer import spec as specs
from optimizer import studies
from optimizer.clock import SystemClock
from storage import events, leases, measurements, migrate, trials
from storage import studies as rows
from storage.engine import Database, open_database

ROOT = Path(__file__).resolve().parents[2]
REPLICA = [
    sys.executable,
    str(ROOT / "tests" / "replica" / "__main__.py"),
    *("--replica-load-s", "0.05", "--replica-speed", "50", "--replica-children", "1"),
]
POLICIES = ["fcfs", "lpm", "dfs-weight"]


@dataclass
class Stage:
    """One study on one host in one folder."""

    folder: Path
    db: Database
    study_id: str
    port: int
    home_argv: list[str]
    first_home: subprocess.Popen[bytes]

    def close(self) -> None:
        """End every server and remove the folder."""
        for pid in processes_of(self.folder):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.first_home.wait(30)
        self.db.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def set_stage(url: str | None, reach: dict[str, Any] | None = None, **changes: Any) -> Stage:
    """Start a home server and store a study of it.

    `url` is an empty database, None a SQLite file of its own; `reach` says how to get at the host, if not as this one.
    `changes` are laid over the specification's sections.
    """
    folder = Path(tempfile.mkdtemp(prefix="ratchet-chaos-"))
    port = free_port()
    flags = {"model-path": str(folder / "model"), "port": port, "schedule-policy": POLICIES[0]}
    argv = [*REPLICA, *(part for name, value in flags.items() for part in (f"--{name}", str(value)))]
    with (folder / "home.log").open("wb") as log:
        home = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=folder
        )
    wait_for_home(port, 60)
    db = open_database(url or f"sqlite:///{folder / 'ratchet.db'}")
    migrate.upgrade(db)
    document = specification(folder, port, flags, reach or {"connection": "local"})
    for name, change in changes.items():
        document[name] = {**document[name], **change} if name in document else change
    study = specs.parse_study(document)
    record = studies.create(db, study, now=SystemClock().now())
    studies.start(db, record.id, now=SystemClock().now())
    return Stage(folder, db, record.id, port, argv, home)


def specification(folder: Path, port: int, flags: dict[str, Any], reach: dict[str, Any]) -> dict[str, Any]:
    """Return a study of three configurations, the baseline among them."""
    return {
        "name": f"chaos-{port}",
        "host": {
            "name": f"box-{port}",
            **reach,
            "takeover": True,
            "run_dir": str(folder / "runs"),
            "guard": {"grace_s": 120},
        },
        "engine": "sglang",
        "engine_version": "0.5.23",
        "launch": {"command": REPLICA, "flags": flags, "cwd": str(folder)},
        "baseline": {"restarts": 1},
        "space": {"parameters": {"schedule-policy": {"choice": POLICIES}}},
        "workload": {"preset": "five-prompts", "max_tokens": 8, "concurrency": [1], "repeats": 1},
        "budget": {"trials": 10, "confirm_restarts": 0, "ready_timeout_s": 60, "soak_s": 0},
    }


def verdict_on(stage: Stage) -> list[str]:
    """Return every broken promise of a study that ended, one line each."""
    with stage.db.read() as conn:
        study = rows.get(conn, stage.study_id)
        found = trials.list_trials(conn, stage.study_id)
        measured = Counter(m.trial_number for m in measurements.for_study(conn, stage.study_id))
        told = events.since(conn, 0, study_id=stage.study_id, limit=100_000)
    wrong = []
    if study.state != "finished":
        wrong.append(f"the study is {study.state}: {study.state_reason}")
    complete = [t for t in found if t.state == "complete"]
    done = [t for t in found if t.state in {"complete", "pruned"}]  # on a busy machine one may look slow and end early
    if any(measured[t.number] != 1 for t in done) or sum(measured.values()) != len(done):
        wrong.append(f"measured trials {[t.number for t in done]} have measurements {dict(measured)}")
    explored = Counter(json.dumps(t.params, sort_keys=True) for t in done if t.kind == "explore")
    if set(explored.values()) - {1}:
        wrong.append(f"measured twice: {explored}")
    if len(explored) != len(POLICIES) - 1:
        wrong.append(f"{len(explored)} configurations were explored, not {len(POLICIES) - 1}")
    if [t.kind for t in complete].count("baseline") != 1:
        wrong.append(f"{[t.kind for t in complete].count('baseline')} baselines instead of 1")
    if any(t.state not in {"complete", "pruned", "interrupted"} for t in found):
        wrong.append(f"trials were left behind: {[(t.number, t.state) for t in found]}")
    if [e.id for e in told] != sorted({e.id for e in told}):
        wrong.append("events are out of order")
    if owner := kept_lease(stage, study.host):
        wrong.append(f"the lease is still held by {owner}")
    return wrong + wrong_on_host(stage) + wrong_in_search(stage, study.name, complete)


def kept_lease(stage: Stage, host: str) -> str:
    """Return who holds a host beyond the time of its lease; one killed at its very end holds it until then."""
    for _ in range(2):
        with stage.db.read() as conn:
            lease = leases.get(conn, host)
        left_s = (lease.until - SystemClock().now()).total_seconds() if lease is not None else 0.0
        if lease is None or left_s <= 0:
            return ""
        time.sleep(left_s)
    return lease.owner


def wrong_on_host(stage: Stage) -> list[str]:
    """Home serves again with its own command, and nothing else of the study runs."""
    servers = [pid for pid in processes_of(stage.folder) if "replica" in " ".join(command_of(pid))]
    mains = [pid for pid in servers if command_of(pid)[1:2] == stage.home_argv[1:2] and parent_is_foreign(pid, servers)]
    wrong = []
    try:
        wait_for_home(stage.port, 5)
    except TimeoutError:
        wrong.append("home does not answer")
    if [command_of(pid) for pid in mains] != [stage.home_argv]:
        wrong.append(f"these servers run instead of home alone: {[command_of(pid) for pid in mains]}")
    return wrong


def wrong_in_search(stage: Stage, name: str, complete: list[Any]) -> list[str]:
    """The Optuna study has what our rows have, once, and nothing half done."""
    kept = optuna.storages.RDBStorage(stage.db.optuna_url)
    try:
        study = optuna.load_study(storage=kept, study_name=f"{name}-{stage.study_id}")
        states = Counter(t.state.name for t in study.trials)
        ours = sorted(t.output_tok_s for t in complete if t.optuna_number is not None)
        theirs = sorted(t.value for t in study.trials if t.state.name == "COMPLETE")
    finally:
        kept.remove_session()
        kept.engine.dispose()
    wrong = []
    if states["RUNNING"]:
        wrong.append(f"the search has {states['RUNNING']} trials left running")
    if theirs != ours:
        wrong.append(f"the search knows the results {theirs}, our rows have {ours}")
    return wrong


def free_port() -> int:
    """Return a port that nobody uses."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def wait_for_home(port: int, seconds: float) -> None:
    """Wait until the server generates.

    Raises:
        TimeoutError: it did not.
    """
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}).encode()
    end = time.monotonic() + seconds
    while True:
        try:
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/v1/chat/completions", body, {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=5):
                return
        except OSError as error:
            if time.monotonic() >= end:
                raise TimeoutError(str(error)) from error
            time.sleep(0.05)


def command_of(pid: int) -> list[str]:
    """Return the command of a process, empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")[:-1]
    except OSError:
        return []


def parent_is_foreign(pid: int, servers: list[int]) -> bool:
    """Say whether a server process is the root of its tree."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) not in servers
    except OSError:
        return False


def processes_of(folder: Path) -> list[int]:
    """Return the processes that work in the folder or name it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            pid = int(entry.name)
            try:
                inside = str((entry / "cwd").readlink()).startswith(str(folder))
            except OSError:
                inside = False
            if inside or str(folder) in " ".join(command_of(pid)):
                found.append(pid)
    return found
