"""The story's study (`examples/kimi-eagle3.yaml`) against the SGLang test double: proven, adopted or put back.

The server is a double (`tests/replica`), since SGLang itself needs a GPU; everything else is the real code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.demo.assets import free_port

pytestmark = [pytest.mark.slow]
ROOT = Path(__file__).parents[2]
REPLICA = [sys.executable, str(ROOT / "tests" / "replica" / "__main__.py")]


class Box:
    """This machine as the GPU host: a plain double serves as home."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.argv = [*REPLICA, "--model-path", "m", "--tp-size", "8", "--port", str(self.port), "--trust-remote-code"]
        self.argv += ["--replica-speed", "8"]
        with (folder / "home.log").open("wb") as log:
            self.home = subprocess.Popen(
                self.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=folder
            )
        end = time.monotonic() + 60
        while not self.info():
            assert time.monotonic() < end and self.home.poll() is None
            time.sleep(0.1)

    def info(self) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/server_info", timeout=5) as answer:
                return dict(json.load(answer))
        except (OSError, ValueError):
            return {}

    def spec(self, **changes: Any) -> Path:
        data = yaml.safe_load((ROOT / "examples" / "kimi-eagle3.yaml").read_text())
        data["host"] = {"name": "box", "connection": "local", "takeover": True, "run_dir": str(self.folder / "run")}
        data["launch"] |= {"command": REPLICA, "cwd": str(self.folder)}
        data["launch"]["extra_args"] = ["--replica-speed", "8", "--replica-noise-pct", "1"]
        data["launch"]["flags"] |= {"model-path": "m", "port": self.port}
        data["workload"]["max_tokens"] = 64
        data["budget"] = {"trials": 4, "confirm_restarts": 8, "candidates": 1, "soak_s": 1}
        path = self.folder / "spec.yaml"
        path.write_text(yaml.safe_dump(data | changes))
        return path

    def ratchet(self, spec: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "api.cli.main", "run", str(spec), "--db", f"sqlite:///{self.folder}/r.db", "--json"],
            capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=250, check=False,
            env={**os.environ, "RATCHET_DATA_DIR": str(self.folder)},
        )  # fmt: skip

    def run(self, spec: Path) -> dict[str, Any]:
        done = self.ratchet(spec)
        assert done.returncode == 0, done.stderr[-3000:]
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def servers(self) -> list[str]:
        """Command lines of everything that serves out of this folder."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(self.port) in command and "replica" in command:
                found.append(command)
        return found

    def end(self) -> None:
        from optimizer.clock import Deadline
        from optimizer.errors import RatchetError
        from optimizer.remote import process
        from optimizer.remote.local import LocalLink

        link, run_dir = LocalLink("box"), str(self.folder / "run")
        for server in process.find_runs(link, run_dir=run_dir, deadline=Deadline.after(20)):
            try:
                process.stop(link, server, run_dir=run_dir, fence=2**31 - 1, deadline=Deadline.after(30))
            except RatchetError as error:
                pytest.fail(f"left behind: {error}")
        if self.home.poll() is None:
            self.home.terminate()
            self.home.wait(30)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    standing = Box(tmp_path)
    try:
        yield standing
    finally:
        standing.end()


def test_eagle3_is_proven_faster_and_home_is_put_back(box: Box) -> None:
    document = box.run(box.spec())
    verdict = document["verdict"]
    assert verdict["outcome"] == "win" and verdict["ci_low"] > 1.0
    assert verdict["params"]["speculative-algorithm"] == "EAGLE3"
    assert "--speculative-algorithm EAGLE3" in document["launch_command"]
    assert box.info().get("speculative_algorithm") is None
    assert all("--speculative-algorithm" not in command for command in box.servers())


def test_the_proven_winner_is_adopted_when_its_owner_says_so(box: Box) -> None:
    document = box.run(box.spec(on_finish="adopt"))
    assert document["verdict"]["outcome"] == "win"
    assert str(box.info()["speculative_algorithm"]).upper() == "EAGLE3"
    assert document["home"]["argv"][-4:] == box.argv[-4:]
    assert all("--served-model-name" not in command for command in box.servers())


def test_a_drafter_that_cannot_fit_is_refused_while_home_serves_on(box: Box) -> None:
    for name, more in (("target", {}), ("head", {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 99})):
        (box.folder / name).mkdir()
        (box.folder / name / "config.json").write_text(json.dumps({"hidden_size": 64, "vocab_size": 99} | more))
    spec = yaml.safe_load(box.spec().read_text())
    spec["launch"]["flags"] |= {"model-path": str(box.folder / "target"), "speculative-algorithm": "EAGLE"}
    spec["launch"]["flags"] |= {"speculative-draft-model-path": str(box.folder / "head")}
    spec["launch"]["flags"] |= {f"speculative-{n}": 1 for n in ("num-steps", "eagle-topk")}
    done = box.ratchet(box.spec(**spec))
    assert done.returncode != 0
    assert "the drafter is an EAGLE-3 head" in done.stdout + done.stderr
    assert len(box.servers()) == 1 and box.home.poll() is None
