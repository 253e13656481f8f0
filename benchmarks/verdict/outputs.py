"""What the output check says of harmless and of harmful changes, on the demo's real llama-server.

    python -m benchmarks.verdict.outputs

Each line is one fresh start, asked the built-in prompts at temperature 0. Harmless changes compute the same in another
order or another way; harmful ones answer with another model, a coarser cache, or wrong positions.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from api.demo import assets
from api.demo.assets import Assets, free_port
from optimizer.bench.base import RequestSample
from optimizer.bench.measure import measure
from optimizer.bench.output_check import check
from optimizer.bench.workload import from_spec
from optimizer.clock import Deadline, SystemClock
from optimizer.engines.registry import find_engine
from optimizer.http import Probe

BASELINE = {"ctx-size": "4096", "parallel": "1", "threads": "2", "flash-attn": "on"}
HARMLESS: dict[str, dict[str, str]] = {
    "one thread": {"threads": "1"},
    "smaller batches": {"batch-size": "64", "ubatch-size": "16"},
    "no flash attention": {"flash-attn": "off"},
    "drafts by n-grams": {"spec-type": "ngram-simple"},
}
HARMFUL: dict[str, dict[str, str]] = {
    "4-bit model": {"model": "DRAFT"},
    "4-bit cache": {"cache-type-k": "q4_0", "cache-type-v": "q4_0"},
    "wrong positions (rope scale 0.5)": {"rope-freq-scale": "0.5"},
    "wrong positions (rope base 5000)": {"rope-freq-base": "5000"},
}


def main() -> int:
    """Print one line for each change; the status says whether all were judged as they should be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdict.outputs", description=__doc__)
    parser.add_argument("--restarts", type=int, default=3, help="fresh starts of the baseline")
    parser.add_argument("--max-tokens", type=int, default=128)
    asked = parser.parse_args()
    said = assets.prepare(lambda text: print(text, file=sys.stderr))
    engine = find_engine("llamacpp")
    baselines = [answers(said, {}, asked.max_tokens) for _ in range(asked.restarts)]
    wrong = 0
    print(f"{'change':>34s} {'agreement':>10s} {'needed':>7s} {'verdict':>8s}")
    for should_pass, changes in ((True, HARMLESS), (False, HARMFUL)):
        for name, flags in changes.items():
            found = check(answers(said, flags, asked.max_tokens), baselines, engine=engine, config={})
            wrong += found.ok is not should_pass
            mark = "" if found.ok is should_pass else "   <- not as it should be"
            verdict = "passes" if found.ok else "suspect"
            print(f"{name:>34s} {found.agreement:10.0%} {found.tolerance:7.0%} {verdict:>8s}{mark}", flush=True)
            for problem in found.problems:
                print(f"{'':>36s}{problem}", flush=True)
    print(f"{'the baseline itself':>34s} {found.self_agreement:10.0%}")
    return 1 if wrong else 0


def answers(said: Assets, flags: Mapping[str, str], max_tokens: int) -> list[RequestSample]:
    """Start a server with these flags on top of the baseline's, ask all prompts, and stop it."""
    port = free_port()
    asked = {"model": said.model, **BASELINE, **flags, "host": "127.0.0.1", "port": str(port)}
    if asked["model"] == "DRAFT":
        asked["model"] = said.draft_model or said.model
    words = [word for name, value in asked.items() for word in (f"--{name}", value)]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        log = stack.enter_context((Path(folder) / "log").open("wb"))
        server = subprocess.Popen([*said.command, *words], stdout=log, stderr=log, env={**os.environ, **said.env})
        stack.callback(server.wait)
        stack.callback(server.terminate)
        url = f"http://127.0.0.1:{port}"
        wait_until_it_answers(server, url)
        workload = from_spec({"max_tokens": max_tokens, "warmup_requests": 0, "stall_timeout_s": 600})
        engine = find_engine("llamacpp")
        deadline = Deadline.after(1800)
        return list(measure(url, engine=engine, model="", workload=workload, path="direct", deadline=deadline).samples)


def wait_until_it_answers(server: subprocess.Popen[bytes], url: str) -> None:
    """Wait for a first generation.

    Raises:
        SystemExit: the server ended, or did not answer in two minutes.
    """
    deadline = Deadline.after(120)
    with Probe(url) as probe:
        while not deadline.passed and server.poll() is None:
            status, _ = probe.post_json("/completion", {"prompt": "a", "n_predict": 1}, timeout_s=60)
            if status == 200:
                return
            SystemClock().sleep(0.2)
    raise SystemExit(f"the server does not answer (status {server.poll()})")


if __name__ == "__main__":
    sys.exit(main())
