"""Another machine: a process that takes the study's job, says so, and works until it is killed."""

from __future__ import annotations

import sys
import time
from typing import Any

from optimizer import lease, worker
from optimizer.clock import SystemClock
from optimizer.dispatch.procrastinate import ProcrastinateWorker
from optimizer.settings import Settings
from storage.engine import Database, open_database


def hang(db: Database, study_id: str, *, owner: str, **_: Any) -> None:
    keeper = lease.claim(db, "box", owner, study_id, clock=SystemClock(), ttl_s=2, renew_s=0.5)
    assert keeper is not None
    with keeper:
        print("working", flush=True)
        time.sleep(600)


if __name__ == "__main__":
    worker.advance = hang  # type: ignore[assignment]
    one = ProcrastinateWorker(open_database(sys.argv[1]), name="doomed", settings=Settings(worker_poll_s=0.1))
    one.start()
    time.sleep(600)
