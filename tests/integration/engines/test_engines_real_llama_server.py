"""Our word about llama-server against the real one: it starts or dies where we say so, and is recognised."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from typing import Any

import pytest

from api.demo import assets
from optimizer.engines.base import FlagValue, Hardware, LaunchPlan, Verdict
from optimizer.engines.registry import find_engine

pytestmark = [pytest.mark.needs("llama_server"), pytest.mark.slow]
ENGINE = find_engine("llamacpp")
START_S = 60.0
CASES: list[tuple[dict[str, FlagValue], bool]] = [
    ({"threads": 1, "flash-attn": "on", "cache-type-v": "q8_0"}, True),
    ({"flash-attn": "off", "cache-type-k": "q8_0"}, True),
    ({"flash-attn": "off", "cache-type-v": "q8_0"}, False),
    ({"batch-size": 64, "ubatch-size": 512}, True),
    ({"spec-type": "ngram-simple", "spec-ngram-simple-size-n": 4, "spec-ngram-simple-size-m": 16}, True),
    ({"spec-type": "ngram-mod", "spec-ngram-mod-n-match": 0}, False),
    ({"draft-max": 4}, False),
    ({"no-such-flag": True}, False),
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def get(port: int, path: str, body: dict[str, Any] | None = None) -> Any:
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def planned(flags: dict[str, FlagValue]) -> tuple[LaunchPlan, Verdict]:
    found = assets.prepare(lambda text: None)
    if "llama-server" not in found.command[0]:
        pytest.skip("the demo's server here is not llama-server itself")
    config = {"model": found.model, "ctx-size": 512, "parallel": 1, "no-warmup": True, "port": free_port(), **flags}
    config |= {f"env.{k}": v for k, v in found.env.items()}
    effective = ENGINE.effective(config, None, Hardware(cpu_count=os.cpu_count() or 1))
    return ENGINE.launch_plan(found.command, config, None, effective, "ratchet-test"), effective.verdict


def up(process: subprocess.Popen[bytes], port: int) -> bool:
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            get(port, "/health")
            return True
        except OSError:
            time.sleep(0.05)
    return False


@pytest.mark.parametrize(("flags", "starts"), CASES, ids=lambda v: str(v))
def test_the_server_does_what_we_say(flags: dict[str, FlagValue], starts: bool) -> None:
    plan, verdict = planned(flags)
    assert (verdict is not Verdict.REJECTED) == starts
    env = {**os.environ, **plan.env}
    with subprocess.Popen(plan.argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            assert up(process, plan.port) == starts
            if starts:
                ready = ENGINE.readiness(plan)
                assert ready.info_path is not None
                info = get(plan.port, ready.info_path)
                assert ENGINE.identity_matches(info, "ratchet-test")
                assert ENGINE.running_config(info) == {"parallel": 1}
                assert get(plan.port, ready.generate_path, ready.generate_body)["choices"]
                slots = get(plan.port, "/slots")
                assert slots[0]["speculative"] == ENGINE.wants_speculation(flags)
        finally:
            process.terminate()
            process.wait(timeout=30)


def test_every_flag_of_the_table_is_in_the_help_of_the_server() -> None:
    plan, _ = planned({})
    words = ENGINE.help_argv([plan.argv[0]])
    done = subprocess.run(
        words, env={**os.environ, **plan.env}, capture_output=True, text=True, timeout=60, check=False
    )
    names = ENGINE.check_help(done.stdout + done.stderr)
    assert {"threads", "t", "flash-attn", "spec-type", "model-draft", "no-mmap", "fit"} <= names
    assert "draft-max" not in names
    parameters = {p.name for s in ENGINE.presets(None).values() for p in s.parameters}
    assert parameters <= names
