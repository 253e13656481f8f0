"""A Ratchet in small, to be killed: takes a host over, goes through the phases of a trial, tells each on stdout."""

from __future__ import annotations

import json
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from optimizer.clock import Deadline
from optimizer.engines.base import LaunchPlan
from optimizer.remote import connect, guard, home, process
from optimizer.remote.base import HostLink
from optimizer.spec import HostEntry


def tell(phase: str) -> None:
    """Say that a phase begins."""
    print(phase, flush=True)


def keep_alive(link: HostLink, where: dict[str, Any], until: datetime, grace_s: float) -> None:
    """Renew the guard's lease until we are killed."""
    while True:
        guard.renew(link, **where, deadline_at=until, grace_s=grace_s)
        time.sleep(0.5)


def main(job: dict[str, Any]) -> None:
    """Go through stop, launch, readiness, benchmark and restore; the caller kills us in one of them."""
    link = connect.open_link(HostEntry.model_validate(job["entry"]))
    where = {"run_dir": job["run_dir"], "fence": 1}
    original = home.find(link, job["port"], Deadline.after(10), run_dir=job["run_dir"])
    until = datetime.now(UTC) + timedelta(hours=1)
    guard.arm(link, original, **where, deadline_at=until, grace_s=job["grace_s"])
    threading.Thread(target=keep_alive, args=(link, where, until, job["grace_s"]), daemon=True).start()
    tell("stop")
    home.stop(link, original, **where, deadline=Deadline.after(60))
    plan = LaunchPlan(tuple(job["trial"]), {}, None, job["port"], "127.0.0.1", "m", {})
    tell("launch")
    server = process.launch(link, plan, run_id=process.new_run_id(), **where, deadline=Deadline.after(30))
    tell("readiness")
    while b"fired up" not in process.status(link, server).log_chunk:
        time.sleep(0.1)
    tell("benchmark")
    time.sleep(0.5)
    tell("restore")
    home.restore(link, original, **where, deadline=Deadline.after(60))
    tell("over")
    time.sleep(3600)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
