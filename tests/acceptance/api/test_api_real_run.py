"""From the empty page to the verdict, by hand in a real browser: real service, real worker, real SSH.

Only the GPU server is a double (`tests/replica`); which verdict its speed deserves is `test_eagle3.py`'s matter. A
second study is paused, resumed and stopped on its page.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance.api.browsing import Watched, browser, complaints
from tests.acceptance.test_eagle3 import Box, box
from tests.integration.remote.sshservers import EmbeddedServer

__all__ = ["box", "browser"]
pytestmark = [pytest.mark.needs("chromium"), pytest.mark.slow, pytest.mark.timeout(900)]
VERDICT_MS = 600_000
BUDGET = {"trials": 2, "confirm_restarts": 4, "candidates": 1, "soak_s": 1}
STEP_MS = 120_000


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[EmbeddedServer]:
    folder = tmp_path / "ssh"
    folder.mkdir()
    server = EmbeddedServer(folder)
    yield server
    server.stop()


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A `ratchet serve` of its own, told to stop at the end: that puts home back."""
    command = [sys.executable, "-m", "api.cli.main", "serve", "--port", "0", "--db", f"sqlite:///{tmp_path}/serve.db"]
    with (tmp_path / "serve.log").open("w") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "RATCHET_DATA_DIR": str(tmp_path / "data")},
        )  # fmt: skip
        assert process.stderr is not None
        yield next(word for line in process.stderr for word in line.split() if word.startswith("http://"))
        process.terminate()
        process.communicate(timeout=120)


def host_yaml(box: Box, ssh: EmbeddedServer) -> str:
    entry = ssh.entry("box").model_dump(mode="json", exclude_none=True)
    return yaml.safe_dump(entry | {"takeover": True, "run_dir": str(box.folder / "run")})


def write(page: Any, label: str, text: str) -> None:
    page.get_by_label(label).fill(text)
    page.get_by_text("This can be used.").wait_for()


def create_and_start(page: Any, name: str) -> None:
    page.get_by_role("button", name="Create and start").click()
    page.get_by_role("heading", name=name, level=1).wait_for()


def in_state(page: Any, state: str, timeout_ms: int = STEP_MS) -> None:
    page.locator(f"[data-live=head] .chip.{state}").wait_for(timeout=timeout_ms)


def test_a_study_is_watched_to_its_verdict_and_another_is_steered(
    box: Box, ssh: EmbeddedServer, url: str, browser: Any
) -> None:
    watched = Watched(browser, url)
    page = watched.page
    page.on("dialog", lambda dialog: dialog.accept())

    page.goto("/hosts")
    write(page, "Host entry (YAML)", host_yaml(box, ssh))
    page.get_by_role("button", name="Add host").click()
    page.get_by_role("button", name="Examine").click()
    page.locator("#findings-box summary").wait_for(timeout=STEP_MS)
    if not page.get_by_text("connected and logged in").is_visible():
        page.locator("#findings-box summary").click()
    page.get_by_text("connected and logged in").wait_for()
    watched.shoot("real-host")

    page.goto("/studies/new")
    write(page, "Specification", box.spec(host="box", budget=BUDGET).read_text())
    create_and_start(page, "kimi-eagle3")
    page.locator("#live-log").get_by_text("server_args").wait_for(timeout=STEP_MS)
    watched.shoot("real-running")
    assert complaints(page) == []
    in_state(page, "finished", VERDICT_MS)
    sentence = page.locator(".sentence").inner_text()
    assert sentence.startswith(("Proven faster", "No proven win", "The original is faster", "Undecided")), sentence
    assert f"--port {box.port}" in watched.copied(page.locator("[data-copy=best-command]")).replace("\\\n ", "")
    assert page.locator("table.diff .after").count() > 0
    assert page.locator("#trials tbody tr").count() >= 4
    watched.shoot("real-verdict")
    assert complaints(page) == []
    assert box.info().get("speculative_algorithm") is None, "the original server is not back"

    page.get_by_role("link", name="Copy as new study").click()
    page.get_by_text("This can be used.").wait_for()
    create_and_start(page, "kimi-eagle3-2")
    page.locator("#live-log").wait_for(timeout=STEP_MS)
    page.get_by_role("button", name="Pause").click()
    in_state(page, "paused")
    assert box.info(), "the original server is not back after the pause"
    page.get_by_role("button", name="Resume").click()
    page.locator("#live-log").wait_for(timeout=STEP_MS)
    page.get_by_role("button", name="Stop").click()
    in_state(page, "finished")
    assert box.info(), "the original server is not back after the stop"
    assert watched.noise == []
