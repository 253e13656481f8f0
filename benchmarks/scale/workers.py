"""Eight machines on one PostgreSQL: nobody starts twice on a host, and eight do eight times the work of one.

    python -m benchmarks.scale.workers [--workers 8] [--seconds 30] [--trial-s 2.0] [--db URL] [--json]

Every worker is a process with the real dispatch, leases, fences and writes of a trial. Only what a GPU host would do is
a wait, so that this machine's cores do not decide the result: it measures what coordination costs, not servers. A start
holds a file that no other start may hold; finding it there is counted as a double start.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from benchmarks.chaos.databases import fresh_database, postgres_server
from benchmarks.scale.storage import START, measurement, requests, trial
from optimizer import lease, worker
from optimizer.clock import SystemClock
from optimizer.settings import Settings
from storage import events, hosts, logs, measurements, migrate, studies, tables, trials
from storage.engine import Database, open_database
from storage.records import HostRecord, StudyRecord

SETTINGS = Settings(lease_ttl_s=20.0, lease_renew_s=2.0, worker_poll_s=0.5)
CLOCK = SystemClock()
WRITES_PER_TRIAL = 14
"""Small transactions of a trial between its proposal and its outcome: phases, stages, states."""


def host_work(db: Database, study_id: str, *, owner: str, settings: Settings, on_lease: Any, **_: Any) -> None:
    """Stand for `worker.advance`: trials of one study under its lease, until the benchmark's end."""
    import random

    rng = random.Random(study_id)
    folder, trial_s = Path(os.environ["BENCH_FOLDER"]), float(os.environ["BENCH_TRIAL_S"])
    with db.read() as conn:
        host = studies.get(conn, study_id).host
    ttl_s, renew_s = settings.lease_ttl_s, settings.lease_renew_s
    keeper = lease.claim(db, host, owner, study_id, clock=CLOCK, ttl_s=ttl_s, renew_s=renew_s)
    if keeper is None:
        return
    on_lease(keeper)
    with keeper:
        while not (folder / "stop").exists() and not keeper.interrupted:
            one_trial(db, study_id, host, keeper.fence, folder, trial_s, rng)
        with db.write() as conn:
            studies.move(conn, study_id, from_states=list(worker.WORKABLE), to="finished", now=CLOCK.now())


def one_trial(db: Database, study_id: str, host: str, fence: int, folder: Path, trial_s: float, rng: Any) -> None:
    """Write what a trial writes, and wait as long as its server would take."""
    with db.write() as conn:
        number = trials.add(conn, trial(study_id, 0, rng), host=host, fence=fence)
    busy = folder / host
    try:
        busy.touch(exist_ok=False)
    except FileExistsError:
        with (folder / "doubles").open("a") as file:
            file.write(f"{host}\n")
    for step in range(WRITES_PER_TRIAL):
        time.sleep(trial_s / WRITES_PER_TRIAL)
        with db.write() as conn:
            trials.update(conn, study_id, number, host=host, fence=fence, phase=f"step {step}")
            events.append(conn, study_id, "phase", {"number": number, "step": step}, CLOCK.now())
    busy.unlink(missing_ok=True)
    with db.write() as conn:
        trials.update(conn, study_id, number, host=host, fence=fence, state="complete", output_tok_s=90.0)
        measurements.add(conn, measurement(study_id, number, rng), requests(rng), host=host, fence=fence)
        logs.put(conn, study_id, number, b"ready to roll\n" * 4000, host=host, fence=fence)


def run_worker(url: str) -> None:
    """Be one machine."""
    from optimizer.dispatch.procrastinate import ProcrastinateWorker

    worker.advance = host_work  # type: ignore[assignment]
    one = ProcrastinateWorker(open_database(url), settings=SETTINGS)
    print("ready", flush=True)
    sys.stdin.readline()
    one.start()
    while not Path(os.environ["BENCH_FOLDER"], "stop").exists():
        time.sleep(0.1)
    one.stop(60)


def measure(url: str, count: int, seconds: float, trial_s: float) -> dict[str, Any]:
    """Run `count` machines over as many hosts; return trials finished, starts that met another, and refusals."""
    db = open_database(url)
    migrate.upgrade(db)
    with db.write() as conn:
        for index in range(count):
            hosts.put(conn, HostRecord(f"box-{index}", {}, START))
            studies.create(conn, StudyRecord(f"s{index}", f"s{index}", "queued", f"box-{index}", "sglang", {}, START))
    with tempfile.TemporaryDirectory(prefix="ratchet-workers-") as folder:
        environment = {**os.environ, "BENCH_FOLDER": folder, "BENCH_TRIAL_S": str(trial_s)}
        command = [sys.executable, "-m", "benchmarks.scale.workers", "--be-worker", url]
        machines = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
            for _ in range(count)
        ]
        for machine in machines:
            assert machine.stdout is not None
            machine.stdout.readline()
        # Processes start far slower than trials run, so they wait for a word.
        for machine in machines:
            assert machine.stdin is not None
            machine.stdin.write("go\n")
            machine.stdin.flush()
        wait_for_first_trials(db, count)
        before = completed(db)
        time.sleep(seconds)
        done = completed(db) - before
        Path(folder, "stop").touch()
        for machine in machines:
            machine.wait()
        doubles = Path(folder, "doubles")
        double_starts = len(doubles.read_text().splitlines()) if doubles.exists() else 0
    db.close()
    return {"workers": count, "trials": done, "seconds": seconds, "double_starts": double_starts,
            "trials_per_min": round(60 * done / seconds, 2)}  # fmt: skip


def completed(db: Database) -> int:
    """Return the trials that are complete."""
    t = tables.trials
    with db.read() as conn:
        return int(conn.execute(sa.select(sa.func.count()).select_from(t).where(t.c.state == "complete")).scalar_one())


def wait_for_first_trials(db: Database, count: int) -> None:
    """Wait until every host has a trial: from then on all are at work."""
    host_count = sa.select(sa.func.count(sa.distinct(tables.trials.c.host))).where(tables.trials.c.state == "complete")
    while True:
        with db.read() as conn:
            if conn.execute(host_count).scalar_one() == count:
                return
        time.sleep(0.1)


def main() -> None:
    """Compare one machine with several; exit 1 on a double start or when more than 10 % is lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--trial-s", type=float, default=2.0)
    parser.add_argument("--db", help="a PostgreSQL on which databases may be created; default: one of its own")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--be-worker", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.be_worker:
        run_worker(options.be_worker)
        return
    with postgres_server() as own:
        results = []
        for count in (1, options.workers):
            with fresh_database(options.db or own) as url:
                assert url is not None, "needs a PostgreSQL"
                results.append(measure(url, count, options.seconds, options.trial_s))
    one, many = results
    share = many["trials_per_min"] / (options.workers * one["trials_per_min"])
    if options.json:
        print(json.dumps({"runs": results, "share_of_linear": round(share, 3)}, indent=2))
    else:
        for run in results:
            print(f"{run['workers']} workers: {run['trials']} trials in {run['seconds']} s, "
                  f"{run['double_starts']} double starts")  # fmt: skip
        print(f"throughput: {100 * share:.1f} % of {options.workers} times one")
    sys.exit(1 if share < 0.9 or any(run["double_starts"] for run in results) else 0)


if __name__ == "__main__":
    main()
