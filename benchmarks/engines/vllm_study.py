"""A whole study on a real vLLM, on the CPU of this machine, and what that vLLM does to our knowledge of it.

    python -m benchmarks.engines.vllm_study --python VENV/bin/python --model DIR [--folder DIR] [--trials 6]
        [--quick] [--only study,speculating,compiled,sigterm,port,failures]

The study is `examples/vllm-cpu.yaml` run by `ratchet run` over SSH to this machine: it takes a running server over,
measures it, explores, confirms and puts it back. Prints one table; exit status 1 when a line of it is wrong. On a free
core the study takes about 20 minutes, the other checks about 15.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from benchmarks.engines.vllm_checks import (
    FAILURES,
    Row,
    compiled,
    failing_start,
    port_taken,
    speculating,
    swallowed_sigterm,
)
from benchmarks.engines.vllm_stage import Stage, answers, owners_server, set_stage, stop_servers
from storage import studies, trials
from storage.engine import open_database
from storage.records import TrialRecord


def study(stage: Stage, count: int, *, quick: bool) -> Iterator[Row]:
    """Run the example to its end and look at what was recorded and what serves afterwards."""
    spec = stage.folder / "spec.yaml"
    spec.write_text(yaml.safe_dump(stage.spec(count, quick=quick)), "utf-8")
    url = f"sqlite:///{stage.folder / 'ratchet.db'}"
    ratchet = Path(sys.executable).with_name("ratchet")
    with owners_server(stage):
        done = subprocess.run(
            [ratchet, "run", spec, "--json", "--db", url], stdout=subprocess.PIPE, check=False,
            env={**os.environ, "RATCHET_HOME": str(stage.folder)},
        )  # fmt: skip
        if not done.stdout:
            raise SystemExit(f"the study did not begin: status {done.returncode}")
        document = json.loads(done.stdout)
        yield Row("study", document.get("state") == "finished", str(document.get("sentence") or document))
        yield Row("home serves again", answers(stage.port), f"port {stage.port}")
        stop_servers(stage)
    yield from recorded(url)


def recorded(url: str) -> Iterator[Row]:
    """Every trial of the study, and what must hold for all of them."""
    db = open_database(url)
    try:
        with db.read() as conn:
            found = list(trials.list_trials(conn, studies.list_studies(conn, limit=1)[0].id))
    finally:
        db.close()
    for trial in found:
        yield Row(f"trial {trial.number} ({trial.kind})", trial.state != "interrupted", told(trial))
    measured = [t for t in found if t.state == "complete"]
    drafting = [t for t in measured if "spec-method" in t.effective]
    plain = [t for t in measured if "spec-method" not in t.effective]
    yield Row("n-gram on", all((t.accept_len or 0) > 1 for t in drafting), lengths(drafting))
    yield Row("n-gram off", bool(plain) and all(t.accept_len is None for t in plain), lengths(plain))
    wrong = [w for t in measured for w in t.warnings if "planned" in w]
    yield Row("runs as planned", not wrong and all(t.running_config for t in measured), "; ".join(wrong) or "all")


def told(trial: TrialRecord) -> str:
    """One trial in one line."""
    speed = f"{trial.output_tok_s:.1f} tok/s" if trial.output_tok_s else "not measured"
    check: dict[str, Any] = trial.output_check or {}
    parts = [trial.state, speed, f"accept length {trial.accept_len}", f"params {trial.params}"]
    if check:
        parts.append(f"agreement {check['agreement']:.2f} of {check['tolerance']:.2f} needed, ok {check['ok']}")
    if trial.failure:
        parts.append(f"{trial.failure['label']}: {trial.failure['summary']}")
    return ", ".join(parts)


def lengths(found: list[TrialRecord]) -> str:
    """The accept lengths of some trials."""
    return f"{len(found)} trials, accept length {[t.accept_len for t in found]}"


def checks(stage: Stage, wanted: set[str], count: int, *, quick: bool) -> Iterator[Row]:
    """All checks that are wanted, one server at a time."""
    if "study" in wanted:
        yield from study(stage, count, quick=quick)
    with stage.link() as link:
        if "speculating" in wanted:
            yield from speculating(stage, link)
        if "compiled" in wanted:
            yield compiled(stage, link)
        if "sigterm" in wanted:
            yield swallowed_sigterm(stage, link)
        if "port" in wanted:
            yield from port_taken(stage, link)
        if "failures" in wanted:
            yield from (failing_start(stage, link, case) for case in FAILURES)


def report(rows: Iterator[Row], show: Callable[[str], None]) -> bool:
    """Print every row as it comes; say whether all are right."""
    good = True
    for row in rows:
        good = good and row.ok
        show(f"{'ok   ' if row.ok else 'WRONG'}  {row.check:34s} {row.seen}")
    return good


def main() -> int:
    """Read the options, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, type=Path, help="interpreter of the environment with vLLM")
    parser.add_argument("--model", required=True, type=Path)
    parser.add_argument("--folder", type=Path, help="keep logs and database there")
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--quick", action="store_true", help="a shorter study, for a busy machine")
    parser.add_argument("--only", default="study,speculating,compiled,sigterm,port,failures")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="ratchet-vllm-"))
    vllm = str(options.python.absolute().with_name("vllm"))
    try:
        with set_stage(folder.absolute(), vllm, str(options.model.absolute())) as stage:
            rows = checks(stage, set(options.only.split(",")), options.trials, quick=options.quick)
            good = report(rows, lambda text: print(text, flush=True))
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
