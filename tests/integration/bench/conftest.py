"""The scripted server as a fixture: a process of its own, ended by pid."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


@dataclass
class Server:
    """A running scripted server."""

    url: str
    process: subprocess.Popen[str]

    def get(self, path: str) -> Any:
        """Return the JSON of one GET."""
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return json.loads(answer.read())


@pytest.fixture
def server() -> Iterator[Server]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.client.scripted_server"], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    port = int(process.stdout.readline())
    yield Server(f"http://127.0.0.1:{port}", process)
    process.kill()
    process.wait()
    process.stdout.close()
