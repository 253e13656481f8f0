"""How often `space check` says what vLLM's own argument code says.

    python -m benchmarks.engines.vllm_agreement --python PY --oracle ORACLE.py --models DIR [--gpu h100]
        [--count 100] [--seed 1] [--answers FILE] [--show 20]

PY is the interpreter of an environment with vLLM; ORACLE runs its parser and configuration with a pretended GPU.
Compared: accepted or rejected, and the batch sizes, asynchronous scheduling, method and draft length of what is
accepted.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.engines.cases import Case, Target, draw
from benchmarks.engines.sglang_agreement import read_model
from optimizer.engines.base import Effective, FlagValue, Verdict, split_env
from optimizer.engines.flag_catalogue import read_command_line
from optimizer.engines.hardware import known_gpu
from optimizer.engines.registry import find_engine
from optimizer.engines.vllm.rules import effective

VERSION = "0.32.0"
TARGETS = (
    Target("cfg-llama31-8b", (1, 1, 2, 4), "cfg-eagle3-llama", ("ngram", "eagle3", "draft-model")),
    Target("cfg-qwen3-30b-a3b", (1, 2, 4), "", ("ngram",)),
    Target("cfg-deepseek-v3", (8,), "", ("mtp", "ngram")),
)
PLAIN = ("cuda-graphs", "nccl", "memory", "scheduling", "kernels")
FINAL = {
    "scheduler_config.max_num_batched_tokens": "max-num-batched-tokens",
    "scheduler_config.max_num_seqs": "max-num-seqs",
    "scheduler_config.async_scheduling": "async-scheduling",
    "speculative_config.method": "spec-method",
    "speculative_config.num_speculative_tokens": "spec-tokens",
}
EXTRAS: tuple[tuple[str, tuple[FlagValue, ...]], ...] = (
    ("async-scheduling", (True,)),
    ("no-enable-chunked-prefill", (True,)),
    ("max-model-len", (2048, 16384)),
    ("spec-tokens", (0, 3)),
    ("spec-method", ("suffix2", "ngram", "eagle")),
    ("gpu-memory-utilization", (0.0, 1.5)),
    ("max-num-seqs", (0, 4096)),
    ("kv-cache-dtype", ("fp9",)),
    ("pipeline-parallel-size", (2,)),
    ("tensor-parallel-size", (16,)),
)


def cases(count: int, seed: int, models: str) -> list[Case]:
    """Draw requests; the same seed gives the same ones."""
    rng = random.Random(seed)
    engine = find_engine("vllm")
    presets = engine.presets(VERSION)
    found: list[Case] = []
    for i in range(count):
        target = rng.choice(TARGETS)
        config: dict[str, FlagValue] = {
            "model": f"{models}/{target.model}",
            "tensor-parallel-size": rng.choice(target.tp),
        }
        names = [n for n in (rng.choice((*target.presets, "")), *rng.sample(PLAIN, rng.randint(1, 3))) if n in presets]
        config |= draw(rng, presets, names, "spec-method")
        if rng.random() < 0.2:
            name, values = rng.choice(EXTRAS)
            config[name] = rng.choice(values)
        if config.get("spec-method") in ("eagle3", "eagle", "draft_model") and target.draft and rng.random() < 0.95:
            config["spec-model"] = f"{models}/{target.draft}"
        flags, env = split_env(config)
        found.append(Case(f"{seed}-{i}", config, engine.flags_to_argv(flags), env))
    return found


def compare(answer: dict[str, Any], result: Effective) -> str:
    """Return what the two disagree on, empty when they agree."""
    rejected = str(answer["status"]).startswith("rejected")
    if rejected != (result.verdict is Verdict.REJECTED):
        return f"engine {answer['status']} ({answer.get('error', '')!s:.200}); we {result.verdict} {result.reasons}"
    if rejected:
        return ""
    wrong = []
    for record, name in FINAL.items():
        theirs = answer.get("final", {}).get(record)
        ours = result.config.get(name)
        if name == "async-scheduling":
            ours = ours is True
        if theirs is not None and ours != theirs:
            wrong.append(f"{name}: engine {theirs!r}, we {ours!r}")
    return "; ".join(wrong)


def ask(options: argparse.Namespace, found: list[Case]) -> list[dict[str, Any]]:
    """Return vLLM's answers, from the file where they are there."""
    path = Path(options.answers)
    if path.is_file():
        return [json.loads(line) for line in path.read_text().splitlines()]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([{"id": c.ident, "argv": c.argv} for c in found], file)
        file.flush()
        command = [options.python, options.oracle, "--gpu", options.gpu, "--gpus", "8", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    answers = [line for line in done.stdout.splitlines() if line.startswith("{")]
    path.write_text("\n".join(answers) + "\n")
    return [json.loads(line) for line in answers]


def main() -> None:
    """Ask, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--python", "--oracle", "--models"):
        parser.add_argument(name, required=True)
    parser.add_argument("--gpu", default="h100")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--answers", default=tempfile.gettempdir() + "/vllm-answers.jsonl")
    parser.add_argument("--show", type=int, default=20)
    options = parser.parse_args()
    found = cases(options.count, options.seed, options.models)
    answers = ask(options, found)
    good, shown = 0, 0
    hardware = known_gpu(options.gpu, count=8)
    for case, answer in zip(found, answers, strict=False):
        config, _ = read_command_line("vllm", case.argv, VERSION)
        model = read_model(str(case.config["model"]))
        draft = read_model(str(case.config.get("spec-model", "")))
        difference = compare(answer, effective(config, VERSION, hardware, model, draft))
        good += not difference
        if difference and shown < options.show:
            shown += 1
            print(f"  {difference}\n      {' '.join(case.argv)}")
    statuses = dict(Counter(str(a["status"]) for a in answers))
    print(f"vllm {VERSION} on {options.gpu}: {good}/{len(answers)} = {good / max(1, len(answers)):.1%}   {statuses}")


if __name__ == "__main__":
    main()
