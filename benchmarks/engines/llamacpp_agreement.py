"""How often `space check` says what a real llama-server does.

    python -m benchmarks.engines.llamacpp_agreement --server PATH --model MODEL.gguf [--draft DRAFT.gguf]
        [--count 40] [--seed 1]

Every drawn flag set starts the server once. Compared: whether it comes up, and whether its slots speculate.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from optimizer.engines.base import FlagValue, Hardware, Verdict
from optimizer.engines.registry import find_engine

START_S = 30.0
MOST_THREADS = 8


def drawn(rng: random.Random, model: str, draft: str | None) -> dict[str, FlagValue]:
    """Draw one request from the preset `all`, ignoring its conditions on purpose."""
    config: dict[str, FlagValue] = {"m": model, "c": rng.choice((300, 512, 1024)), "np": rng.choice((1, 2))}
    config["no-warmup"] = True
    if draft is not None and rng.random() < 0.8:
        config["md"] = draft
    for parameter in find_engine("llamacpp").presets(None)["all"].parameters:
        size = parameter.name.startswith("spec-") and parameter.name != "spec-type"
        if rng.random() < (0.3 if size else 0.8):
            config[parameter.name] = rng.choice(parameter.ladder)
    for name in ("threads", "threads-batch"):
        if int(config.get(name, 1)) > MOST_THREADS:
            config[name] = 2
    return config


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(server: str, argv: list[str]) -> tuple[bool, list[dict[str, Any]], str]:
    """Start the server once: whether it came up, its slots, the end of its log."""
    port = free_port()
    env = {**os.environ, "LD_LIBRARY_PATH": str(Path(server).resolve().parent)}
    words = [server, *argv, "--host", "127.0.0.1", "--port", str(port), "--slots"]
    process = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    up = False
    slots: list[dict[str, Any]] = []
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None and not up:
        up = _get(f"http://127.0.0.1:{port}/health") is not None
        time.sleep(0.05)
    if up:
        slots = _get(f"http://127.0.0.1:{port}/slots") or []
    process.terminate()
    log, _ = process.communicate(timeout=START_S)
    return up, slots, log[-300:]


def _get(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=3) as answer:
            return json.load(answer)
    except (OSError, urllib.error.URLError, ValueError):
        return None


def main() -> None:
    """Draw, start, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--draft")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    engine, rng, good = find_engine("llamacpp"), random.Random(options.seed), 0
    for _ in range(options.count):
        config = drawn(rng, options.model, options.draft)
        result = engine.effective(config, None, Hardware(cpu_count=os.cpu_count() or 1))
        up, slots, log = start(options.server, engine.flags_to_argv(config))
        speculates = bool(slots and slots[0].get("speculative"))
        wrong = up == (result.verdict is Verdict.REJECTED) or (up and speculates != engine.wants_speculation(config))
        good += not wrong
        if wrong:
            print(f"  {config}: up {up}, speculates {speculates}; we say {result.verdict} {result.reasons}\n    {log}")
    print(f"llama-server: {good}/{options.count} = {good / options.count:.1%}")


if __name__ == "__main__":
    main()
