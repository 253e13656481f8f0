"""`ratchet serve` and the commands over it, as processes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from api import serve as service
from api.cli import study as study_commands
from api.cli.main import main
from optimizer.errors import BadInput
from tests.integration.api.conftest import wait_for
from tests.integration.api.specs import HOST, spec

RATCHET = [sys.executable, "-m", "api.cli.main"]


@dataclass
class Done:
    """What a command printed."""

    stdout: str
    stderr: str


class Shell:
    """Runs commands in this process (a process each would be slow), with a home of their own."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [n for n in os.environ if n.startswith("RATCHET_")]:
            monkeypatch.delenv(name)
        self.capsys = capsys
        self.monkeypatch = monkeypatch
        monkeypatch.setenv("RATCHET_DATA_DIR", str(home))

    def run(self, *args: str, code: int = 0) -> Done:
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(args))
        printed = self.capsys.readouterr()
        assert int(ended.value.code or 0) == code, (args, ended.value.code, printed.out, printed.err)
        return Done(printed.out, printed.err)

    def json(self, *args: str) -> Any:
        return json.loads(self.run(*args, "--json").stdout)


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(tmp_path / "home", capsys, monkeypatch)


@pytest.fixture
def served(shell: Shell, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    log = tmp_path / "serve.log"
    with log.open("w") as target:
        process = subprocess.Popen([*RATCHET, "serve", "--no-worker", "--port", "0"], stderr=target, stdout=target)
    try:
        told = wait_for(lambda: re.search(r"http://127\.0\.0\.1:\d+", log.read_text()), 120)
        shell.monkeypatch.setenv("RATCHET_API_URL", told[0])
        yield process
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.slow
def test_a_day_at_the_command_line(shell: Shell, served: subprocess.Popen[bytes], tmp_path: Path) -> None:
    (tmp_path / "host.yaml").write_text(yaml.safe_dump(HOST))
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec()))
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump(spec(engine="sglangg", budget={"trails": 1})))
    shell.run("host", "add", str(tmp_path / "host.yaml"))
    refused = shell.run("study", "create", str(tmp_path / "bad.yaml"), code=2)
    assert "engine" in refused.stderr and "budget.trails" in refused.stderr and refused.stdout == ""
    made = shell.json("study", "create", str(tmp_path / "spec.yaml"))
    assert shell.json("study", "start", "night")["state"] == "queued"
    assert shell.json("study", "list")["items"][0]["id"] == made["id"]
    assert "night" in shell.run("study", "show", "night").stdout
    assert shell.run("study", "report", "night", "--format", "md").stdout.startswith("# night")
    assert shell.run("study", "export", "night", "--format", "csv").stdout.startswith("number,kind")
    assert shell.json("study", "stop", "night")["state"] == "finished"
    assert "finished" in shell.run("study", "start", "night", code=1).stderr
    assert shell.run("study", "show", "nope", code=1).stdout == ""
    window = shell.json(
        "window", "add", "nights", "--start", "0 22 * * *", "--timezone", "Asia/Tokyo", "--until", "06:00"
    )
    assert len(window["next_openings"]) == 5
    assert "JST" in window["next_openings"][0]["opens_local"]
    assert "nights" in shell.run("window", "list").stdout
    shell.run("window", "add", "x", "--start", "bad", "--until", "06:00", code=2)

    served.send_signal(signal.SIGTERM)
    assert served.wait(20) == 0


@pytest.mark.slow
def test_streams_do_not_hold_up_the_end_and_the_first_key_closes_the_door(
    shell: Shell, served: subprocess.Popen[bytes]
) -> None:
    url = os.environ["RATCHET_API_URL"]
    with httpx.stream("GET", f"{url}/api/v1/events", timeout=30) as stream:
        next(stream.iter_lines())
        key = shell.run("key", "create", "boss", "--scope", "admin").stdout.strip()
        time.sleep(1.2)
        assert httpx.get(f"{url}/api/v1/studies").status_code == 401
        assert httpx.get(f"{url}/api/v1/studies", headers={"Authorization": f"Bearer {key}"}).status_code == 200
        began = time.monotonic()
        served.send_signal(signal.SIGINT)
        assert served.wait(20) == 0
        assert time.monotonic() - began < 18  # open streams alone would hold it up for ever


@pytest.mark.slow
def test_nobody_else_is_let_near_without_a_key(shell: Shell) -> None:
    refused = shell.run("serve", "--host", "0.0.0.0", "--no-worker", "--port", "0", code=2)
    assert "API key" in refused.stderr and "ratchet key create" in refused.stderr
    assert shell.run("key", "create", "x", "--scope", "boss", code=2).stdout == ""
    made = shell.json("key", "create", "x", "--scope", "viewer,operator")
    assert made["key"].startswith("rk_") and made["scopes"] == ["viewer", "operator"]
    assert "rk_" + made["id"] not in shell.run("key", "list").stdout
    assert shell.json("key", "revoke", "x")["usable"] is False
    assert "API key" in shell.run("serve", "--host", "0.0.0.0", "--no-worker", "--port", "0", code=2).stderr


def test_a_port_that_is_taken_is_told_before_any_work_begins(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(service, "_make_worker", lambda *_: pytest.fail("a worker was made"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        told = shell.run("serve", "--port", str(taken.getsockname()[1]), code=1).stderr
    assert "cannot listen on 127.0.0.1" in told and "--port" in told


def test_what_can_be_no_name_of_a_host_is_told() -> None:
    with pytest.raises(BadInput) as caught:
        service.listen("x" * 64, 0)
    assert caught.value.problems[0].path == "--host"


def test_a_name_listens_on_all_its_addresses_that_this_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    asked = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, port)) for a in ("127.0.0.1", "192.0.2.1", "127.0.0.2")]
    monkeypatch.setattr(service.socket, "getaddrinfo", lambda *_, **__: asked)
    with contextlib.ExitStack() as open_until_told:
        found = [open_until_told.enter_context(sock) for sock in service.listen("box", port)]
        assert [sock.getsockname() for sock in found] == [("127.0.0.1", port), ("127.0.0.2", port)]


def test_an_output_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        study_commands._write(b"x", tmp_path / "missing" / "report.html")
    assert caught.value.problems[0].path == "--output"


def test_a_study_that_has_ended_is_not_waited_for() -> None:
    found = {"id": "1", "state": "finished"}
    assert study_commands._follow(None, found) is found
