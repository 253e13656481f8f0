"""A process that writes: run by tests that lock, stop or kill it. Speaks one JSON line per step on stdout.

python -m tests.integration.storage.writer MODE URL [ARGUMENT...]

hold SECONDS        take the writer's lock, say so, keep it, then commit
hang                take the writer's lock, say so, and wait for ever inside the transaction
lease TTL           claim the host, say so, write a trial and stop (SIGSTOP), again when continued, until a write is
                    refused; exit 3
batches             write trials with measurement, log and event, one transaction each, until killed
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from datetime import UTC, datetime
from typing import Any

from storage import engine, events, leases, logs, measurements, trials
from storage.errors import StaleFence
from tests.contract.storage import samples
from tests.contract.storage.samples import HOST, NOW


def say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def hold(db: engine.Database, seconds: str) -> None:
    with db.write() as conn:
        events.append(conn, "", "held", {}, NOW)
        say(locked=True)
        time.sleep(float(seconds))


def hang(db: engine.Database) -> None:
    with db.write() as conn:
        events.append(conn, "", "hung", {}, NOW)
        say(locked=True)
        sys.stdin.read()


def lease(db: engine.Database, ttl_s: str) -> None:
    with db.write() as conn:
        fence = leases.claim(conn, HOST, "old", ttl_s=float(ttl_s), now=datetime.now(UTC), study_id="s1")
    assert fence is not None
    say(fence=fence)
    try:
        while True:
            with db.write() as conn:
                trials.add(conn, samples.trial(arm="old"), host=HOST, fence=fence)
            os.kill(os.getpid(), signal.SIGSTOP)  # between two transactions: inside one it would hold the lock
    except StaleFence as error:
        say(refused=str(error))
        sys.exit(3)


def batches(db: engine.Database) -> None:
    with db.write() as conn:
        fence = leases.claim(conn, HOST, "batch", ttl_s=0, now=datetime.now(UTC), study_id="s1")
    assert fence is not None
    say(fence=fence)
    while True:
        with db.write() as conn:
            number = trials.add(conn, samples.trial(), host=HOST, fence=fence)
            record = samples.measurement(trial_number=number)
            measurements.add(conn, record, samples.requests(), host=HOST, fence=fence)
            logs.put(conn, "s1", number, b"x" * 5000, host=HOST, fence=fence)
            events.append(conn, "s1", "trial", {"number": number}, NOW)
        say(committed=number)


def main() -> None:
    mode, url, *arguments = sys.argv[1:]
    # A stopped process should block the tests no longer than needed.
    engine.PAUSED_WRITER_S = 2
    db = engine.open_database(url)
    {"hold": hold, "hang": hang, "lease": lease, "batches": batches}[mode](db, *arguments)


if __name__ == "__main__":
    main()
