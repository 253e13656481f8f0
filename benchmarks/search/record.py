"""Records a table of a real llama-server: a fresh start per row, accept length and step time with it. Resumable.

    python -m benchmarks.search.record --server llama-server --model MODEL.gguf --out benchmarks/tables/NAME.csv

Rows already in the file are kept and skipped, so it may be stopped and started at will. Restarts of one configuration
lie far apart in time, each round in another order, and the baseline comes again and again, so that drift is visible.
Give the machine to it alone (or run it under `chrt -f 5`): what else runs there ends up in the table.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from optimizer.search.canonical import Candidate, CanonicalSpace
from optimizer.search.spec_space import parse

BASELINE = {"threads": 2, "flash-attn": "on", "cache-type-v": "f16", "spec-type": "none"}
SECTION: dict[str, Any] = {
    "parameters": {
        "threads": {"choice": [1, 2]},
        "flash-attn": {"choice": ["on", "off"]},
        "cache-type-v": {"choice": ["f16", "q8_0"]},
        "spec-type": {"choice": ["none", "ngram-simple", "ngram-map-k", "ngram-mod"]},
        "spec-match": {"choice": [2, 4, 8]},
        "spec-draft-max": {"choice": [4, 8, 16]},
    },
    "conditions": [{"if": "spec-type == none", "then_absent": ["spec-match", "spec-draft-max"]}],
}
PROMPTS = {
    "code": "Write a Python class for a bank account with deposit, withdraw and transfer, then again with docstrings.",
    "fix": "Correct the spelling and print the text twice: The quik brown fox jumpd over the lazi dog and ran of to "
    "the forrest, were it met an other fox that was quiker stil.",
    "list": "List the numbers from 1 to 25, each on its own line as `item N: value N`.",
}
"""Repetitive answers, as agents and editors ask for: where drafting from the text so far can win or lose."""
MAX_TOKENS = 112
READY_S = 60.0
ANSWER_S = 180.0
BASELINE_EVERY = 12
COLUMNS = ("tok_s", "accept_len", "step_ms", "ready_s", "bench_s", "failed", *(f"tok_s.{p}" for p in PROMPTS))


class Failed(Exception):
    """The server did not start, or died; `label` says of what."""

    def __init__(self, label: str) -> None:
        super().__init__(label)
        self.label = label


def arguments(params: dict[str, Any]) -> list[str]:
    """Spell a configuration as llama-server's flags."""
    argv = ["--threads", params["threads"], "--threads-batch", params["threads"], "--flash-attn", params["flash-attn"]]
    argv += ["--cache-type-v", params["cache-type-v"], "--spec-type", params["spec-type"]]
    match, most = params.get("spec-match"), params.get("spec-draft-max")
    if params["spec-type"] in {"ngram-simple", "ngram-map-k"}:
        argv += [f"--spec-{params['spec-type']}-size-n", match, f"--spec-{params['spec-type']}-size-m", most]
    elif params["spec-type"] == "ngram-mod":
        argv += ["--spec-ngram-mod-n-match", match, "--spec-ngram-mod-n-min", 1, "--spec-ngram-mod-n-max", most]
    return [str(a) for a in argv]


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def request(url: str, body: dict[str, Any] | None, timeout_s: float) -> dict[str, Any]:
    """GET, or POST JSON, and return the JSON answer."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=timeout_s) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def wait_ready(server: subprocess.Popen[bytes], url: str, log: Path) -> float:
    """Wait until the server answers and return the seconds. Raises Failed as soon as it dies."""
    begun = time.monotonic()
    while time.monotonic() - begun < READY_S:
        if server.poll() is not None:
            raise Failed(label_of(log))
        try:
            request(f"{url}/health", None, 2.0)
            return time.monotonic() - begun
        except (OSError, ValueError):
            time.sleep(0.1)
    raise Failed("health_never_ready")


def label_of(log: Path) -> str:
    """Name the failure by the engine's own explanation of the log, where it has one."""
    text = log.read_text(encoding="utf-8", errors="replace")
    try:
        from optimizer.engines.base import FailureContext
        from optimizer.engines.registry import find_engine

        return find_engine("llamacpp").explain(text, FailureContext(phase="startup")).label
    except (ImportError, AttributeError):
        return "unsupported_combination" if "requires flash_attn" in text.lower() else "unknown"


def measure(url: str) -> dict[str, Any]:
    """Ask every prompt once, greedily and without a prompt cache, after one request to warm up."""
    ask(url, "Say hello.", 8)
    begun = time.monotonic()
    tokens = steps = 0
    decode_ms = 0.0
    row: dict[str, Any] = {}
    for name, prompt in PROMPTS.items():
        timings = ask(url, prompt, MAX_TOKENS)["timings"]
        count, kept = int(timings["predicted_n"]), int(timings.get("draft_n_accepted", 0))
        tokens, steps = tokens + count, steps + max(1, count - kept)
        decode_ms += float(timings["predicted_ms"])
        row[f"tok_s.{name}"] = round(float(timings["predicted_per_second"]), 2)
    span = time.monotonic() - begun
    row |= {"tok_s": round(tokens / span, 2), "accept_len": round(tokens / steps, 4)}
    return {**row, "step_ms": round(decode_ms / steps, 4), "bench_s": round(span, 2)}


def ask(url: str, prompt: str, tokens: int) -> dict[str, Any]:
    """Send one chat request."""
    body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": tokens, "temperature": 0.0}
    return request(f"{url}/v1/chat/completions", {**body, "cache_prompt": False}, ANSWER_S)


def record_one(server: Path, model: Path, candidate: Candidate, log: Path) -> dict[str, Any]:
    """Start one configuration, measure it, stop it; return the row without its parameters."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    argv = [str(server), "--model", str(model), "--port", str(port), "--host", "127.0.0.1", "--ctx-size", "2048"]
    argv += ["--parallel", "1", *arguments(candidate.params)]
    env = {**os.environ, "LD_LIBRARY_PATH": f"{server.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
    with log.open("wb") as sink:
        process = subprocess.Popen(argv, stdout=sink, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env)
        try:
            ready_s = wait_ready(process, url, log)
            return {"ready_s": round(ready_s, 3), **measure(url)}
        except Failed as failure:
            return {"failed": failure.label}
        except (OSError, urllib.error.URLError, KeyError, ValueError):
            return {"failed": label_of(log) if process.poll() is not None else "unknown"}
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def schedule(listed: list[Candidate], baseline: Candidate, restarts: int, seed: int) -> list[tuple[Candidate, int]]:
    """Every configuration once per round, each round in another order, the baseline again and again."""
    rng = np.random.default_rng(seed)
    plan: list[tuple[Candidate, int]] = []
    extra = restarts
    for restart in range(1, restarts + 1):
        for place, i in enumerate(rng.permutation(len(listed))):
            plan.append((listed[i], restart))
            if place % BASELINE_EVERY == BASELINE_EVERY - 1:
                extra += 1
                plan.append((baseline, extra))
    return plan


def done_rows(out: Path, space: CanonicalSpace) -> set[tuple[str, int]]:
    """Keys and restarts already recorded in the file."""
    if not out.exists():
        return set()
    found = set()
    with out.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            cells = {n: row[f"p.{n}"] for n in space.names if row[f"p.{n}"]}
            params = {n: next(v for v in space.values[n] if str(v) == cell) for n, cell in cells.items()}
            candidate = space.check(params).candidate
            if candidate is not None:
                found.add((candidate.key, int(row["restart"])))
    return found


def main() -> None:
    """Record until everything planned is in the file, or `--limit` rows were added."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search.record", description=__doc__)
    parser.add_argument("--server", type=Path, required=True, help="llama-server, with its libraries beside it")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="TABLE.csv; TABLE.space.yaml is written beside it")
    parser.add_argument("--restarts", type=int, default=2)
    parser.add_argument("--limit", type=int, default=0, help="stop after so many new rows")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server is stopped as on Ctrl-C
    space = CanonicalSpace(parse(SECTION, presets={}))
    baseline = space.check(BASELINE).candidate
    assert baseline is not None
    section = {"engine": "llamacpp", "objective": {"maximize": "tok_s"}, "baseline": BASELINE, **SECTION}
    beside = chosen.out.with_name(chosen.out.name.removesuffix(".csv") + ".space.yaml")
    beside.write_text(yaml.safe_dump(section, sort_keys=False, width=110), encoding="utf-8")
    known = done_rows(chosen.out, space)
    plan = schedule(space.enumerate() or [], baseline, chosen.restarts, chosen.seed)
    left = [(c, r) for c, r in plan if (c.key, r) not in known]
    print(f"{len(plan)} starts planned, {len(known)} recorded, {len(left)} left", file=sys.stderr)
    columns = [*(f"p.{n}" for n in space.names), "restart", *COLUMNS]
    log = chosen.out.with_suffix(".log")
    with chosen.out.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        if file.tell() == 0:
            writer.writeheader()
        for candidate, restart in left[: chosen.limit or None]:
            row = record_one(chosen.server, chosen.model, candidate, log)
            cells = {f"p.{n}": v for n, v in candidate.params.items()}
            writer.writerow({**cells, "restart": restart, **row})
            file.flush()
            print(candidate.params, row.get("tok_s") or row.get("failed"), file=sys.stderr)
    log.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
