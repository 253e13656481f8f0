"""A study started and stopped over HTTP: the same run, and home back within 15 s of the stop."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from api.demo import assets
from api.demo.assets import free_port
from api.demo.stage import Stage, build_spec, set_stage

pytestmark = [pytest.mark.needs("llama_server"), pytest.mark.slow]


class Service:
    """A `ratchet serve` process of its own."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.log = (folder / "serve.log").open("w")
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "api.cli.main",
                "serve",
                "--port",
                str(self.port),
                "--db",
                f"sqlite:///{folder / 'r.db'}",
            ],
            stdout=self.log,
            stderr=self.log,
            stdin=subprocess.DEVNULL,
        )

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def end(self) -> int:
        self.process.terminate()
        code = self.process.wait(60)
        self.log.close()
        return code


def wait_for(what: Callable[[], Any], timeout_s: float) -> Any:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        try:
            found = what()
        except (OSError, ValueError):
            found = None
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {timeout_s} s")


@pytest.fixture
def stage() -> Iterator[Stage]:
    with set_stage(assets.prepare(lambda _: None), lambda _: None) as standing:
        yield standing


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    running = Service(tmp_path)
    try:
        wait_for(lambda: running.call("GET", "/healthz")[0] == 200, 30)
        yield running
    finally:
        running.end()


def test_a_study_is_started_and_stopped_by_http_with_home_back_in_time(stage: Stage, service: Service) -> None:
    spec = build_spec(stage, trials=30, name="over-http").model_dump(mode="json")
    spec["workload"]["max_tokens"] = 32
    status, created = service.call("POST", "/api/v1/studies", spec)
    assert status == 201, created
    study = f"/api/v1/studies/{created['id']}"
    assert service.call("POST", f"{study}/start")[0] == 202
    assert service.call("POST", f"{study}/start")[0] == 202

    def explored() -> bool:
        items = service.call("GET", f"{study}/trials")[1]["items"]
        return sum(t["kind"] == "explore" and t["state"] == "complete" for t in items) >= 2

    wait_for(explored, 120)
    asked = time.monotonic()
    assert service.call("POST", f"{study}/stop")[0] == 202
    wait_for(lambda: service.call("GET", study)[1]["state"] == "finished", 30)
    assert stage.home_answers()
    assert time.monotonic() - asked < 15
    trials = service.call("GET", f"{study}/trials")[1]["items"]
    assert all(t["launch_command"] for t in trials)
    assert service.call("POST", f"{study}/start")[0] == 409


def test_shutting_the_service_down_puts_home_back(stage: Stage, service: Service) -> None:
    spec = build_spec(stage, trials=30, name="shut-down").model_dump(mode="json")
    spec["workload"]["max_tokens"] = 32
    _, created = service.call("POST", "/api/v1/studies", spec)
    study = f"/api/v1/studies/{created['id']}"
    service.call("POST", f"{study}/start")
    wait_for(lambda: service.call("GET", f"{study}/trials")[1]["items"], 60)
    service.end()
    assert stage.home_answers()
