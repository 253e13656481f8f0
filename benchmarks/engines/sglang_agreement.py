"""How often `space check` says what SGLang's own argument code says.

    python -m benchmarks.engines.sglang_agreement --python PY --oracle ORACLE.py --packages DIR --models DIR \\
        [--versions 0.5.23,...] [--gpus h100,rtx4090] [--count 200] [--seed 1] [--answers DIR] [--show 20]

PY is the interpreter of an environment that has SGLang's Python dependencies; ORACLE runs SGLang's parser and
resolution with a pretended GPU; DIR/VERSION/sglang are unpacked wheels. Answers are cached in --answers.
Compared: the verdict (accepted, adjusted, rejected), and for what is not rejected, which given flags were changed and
to what.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.engines.cases import Case, sglang_cases
from benchmarks.engines.recorded import GPUS, differing, same
from optimizer.engines.base import Effective, Verdict
from optimizer.engines.flag_catalogue import read_command_line
from optimizer.engines.hardware import known_gpu
from optimizer.engines.sglang.flags import table
from optimizer.engines.sglang.rules import effective

VERSIONS = "0.4.9.post6,0.5.5,0.5.12,0.5.15,0.5.20,0.5.23"
DERIVED = frozenset({"cuda_graph_config", "model_path", "served_model_name", "tokenizer_path"})
"""Records that collect other flags, or that only repeat one."""


def ask(options: argparse.Namespace, version: str, gpu: str, cases: list[Case]) -> list[dict[str, Any]]:
    """Return SGLang's answers, from the cache where they are there."""
    name = f"{version}-{gpu}-{options.count}-{options.seed}.jsonl"
    cached = Path(options.answers) / name
    if cached.is_file():
        return [json.loads(line) for line in cached.read_text().splitlines()]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([{"id": c.ident, "argv": c.argv, "env": c.env} for c in cases], file)
        file.flush()
        command = [options.python, options.oracle, "--sglang", f"{options.packages}/{version}", "--gpu", gpu]
        command += ["--gpus", str(GPUS), "--check", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if len(answers) != len(cases):
        raise SystemExit(f"{version} {gpu}: {len(answers)} answers to {len(cases)} cases: {done.stderr[-500:]}")
    cached.parent.mkdir(parents=True, exist_ok=True)
    cached.write_text("\n".join(json.dumps(a) for a in answers) + "\n")
    return answers


def engine_changes(answer: dict[str, Any], version: str) -> dict[str, Any]:
    """Given flags that SGLang changed, by our names, with what they became."""
    names = {f.record_name: f.name for f in table().at(version).flags}
    changes: dict[str, Any] = {}
    for record, change in (answer.get("changed") or {}).items():
        if record not in DERIVED:
            changes[names.get(record, record)] = change["to"]
    return changes


def our_changes(result: Effective) -> dict[str, Any]:
    """Given flags that we say are changed."""
    return {a.flag: a.becomes for a in result.adjustments}


def compare(case: Case, answer: dict[str, Any], result: Effective, version: str) -> str:
    """Return what the two disagree on, empty when they agree."""
    rejected = answer["status"].startswith("rejected")
    if rejected != (result.verdict is Verdict.REJECTED):
        return f"engine {answer['status']} ({answer.get('error', '')!s:.160}); we {result.verdict} {result.reasons}"
    if rejected:
        return ""
    theirs, ours = engine_changes(answer, version), our_changes(result)
    wrong = differing(ours, theirs)
    return "; ".join(f"{n}: engine {theirs.get(n, '=')!r}, we {ours.get(n, '=')!r}" for n in wrong)


def compare_filled(answer: dict[str, Any], result: Effective, version: str) -> list[str]:
    """Values that both fill in, and that differ."""
    names = {f.record_name: f.name for f in table().at(version).flags}
    wrong = []
    for record, change in (answer.get("filled") or {}).items():
        name = names.get(record, record)
        if record not in DERIVED and name in result.config and not same(result.config[name], change["to"]):
            wrong.append(f"{name}: engine fills {change['to']!r}, we {result.config[name]!r}")
    return wrong


def record(
    options: argparse.Namespace, version: str, gpu: str, cases: list[Case], answers: list[dict[str, Any]]
) -> None:
    """Append a sample as facts: what was asked, accepted or rejected, and which given flags became what."""
    with Path(options.record).open("a", encoding="utf-8") as out:
        for case, answer in list(zip(cases, answers, strict=True))[:: options.every]:
            rejected = answer["status"].startswith("rejected")
            row = {
                "version": version,
                "gpu": gpu,
                "argv": [w.replace(f"{options.models}/", "") for w in answer["argv"]],
                "env": case.env,
                "rejected": rejected,
                "changes": {} if rejected else engine_changes(answer, version),
            }
            out.write(json.dumps(row) + "\n")


def read_model(path: str) -> dict[str, Any] | None:
    """The config.json of a model directory."""
    file = Path(path) / "config.json"
    return json.loads(file.read_text()) if path and file.is_file() else None


def main() -> None:
    """Ask, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--python", "--oracle", "--packages", "--models"):
        parser.add_argument(name, required=True)
    parser.add_argument("--versions", default=VERSIONS)
    parser.add_argument("--gpus", default="h100,rtx4090")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--answers", default=tempfile.gettempdir() + "/sglang-answers")
    parser.add_argument("--show", type=int, default=20)
    parser.add_argument("--record", help="append some cases with their answers to this file")
    parser.add_argument("--every", type=int, default=8, help="record one case in so many")
    options = parser.parse_args()
    total = agreed = 0
    reasons: Counter[str] = Counter()
    for version in options.versions.split(","):
        for gpu in options.gpus.split(","):
            cases = sglang_cases(version, options.count, options.seed, options.models)
            answers = ask(options, version, gpu, cases)
            fresh = [(c, a) for c, a in zip(cases, answers, strict=True) if c.argv == a["argv"]]
            cases, answers = [c for c, _ in fresh], [a for _, a in fresh]
            good, shown, statuses = 0, 0, Counter(str(a["status"]) for a in answers)
            fills: Counter[str] = Counter()
            for case, answer in zip(cases, answers, strict=True):
                hardware = known_gpu(gpu, count=GPUS)
                model = read_model(str(case.config["model-path"]))
                draft = read_model(str(case.config.get("speculative-draft-model-path", "")))
                config, rest = read_command_line("sglang", case.argv, version)
                asked = {**config, **{f"env.{k}": v for k, v in case.env.items()}}
                result = effective(asked, version, hardware, model, draft)
                if rest:
                    result = replace(result, verdict=Verdict.REJECTED, reasons=(*result.reasons, f"stray {rest}"))
                difference = compare(case, answer, result, version)
                if not answer["status"].startswith("rejected"):
                    fills.update(compare_filled(answer, result, version))
                good += not difference
                if difference:
                    reasons[difference[:150]] += 1
                    shown += 1
                    if shown <= options.show:
                        print(f"  {version} {gpu}: {difference}\n      {' '.join(case.argv)} {case.env or ''}")
            for text, times in fills.most_common(options.show):
                print(f"  {version} {gpu}: {times} x {text}")
            print(f"{version} on {gpu}: {good}/{len(cases)} = {good / len(cases):.1%}   {dict(statuses)}")
            if options.record:
                record(options, version, gpu, cases, answers)
            total, agreed = total + len(cases), agreed + good
    for text, times in reasons.most_common(15 if options.show else 0):
        print(f"{times:5d} x {text}")
    print(f"all: {agreed}/{total} = {agreed / total:.2%}")


if __name__ == "__main__":
    main()
