"""`ratchet worker`: a worker alone, for a machine that serves no pages."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType

import click

from api.cli.output import say


@click.command()
@click.option(
    "--db", "db_url", metavar="URL", help="Database URL (or RATCHET_DB_URL); PostgreSQL when several machines share it."
)
@click.option("--name", help="The worker's name in leases; default: machine, process and a random part.")
def worker(db_url: str | None, name: str | None) -> None:
    """Work on queued studies until stopped; then pause what runs and put the original servers back."""
    from api.cli.database import open_migrated, settings_for
    from api.serve import RESTORE_TIMEOUT_S, configure_logging
    from optimizer.dispatch.choose import make_worker
    from optimizer.housekeeping import housekeeper

    configure_logging()
    settings = settings_for(db_url)
    db = open_migrated(settings)
    asked = threading.Event()

    def note(_number: int, _frame: FrameType | None) -> None:
        if asked.is_set():
            say("waiting until the original server is back on every host; it is not skipped")
        asked.set()

    before = {n: signal.signal(n, note) for n in (signal.SIGINT, signal.SIGTERM)}
    works, keeper = make_worker(db, name=name, settings=settings), housekeeper(db, settings)
    works.start()
    keeper.start()
    say(f"worker {works.name} on {db.name}")
    try:
        while not asked.wait(1.0):
            pass
        say("stopping: what runs is paused and home is put back")
        keeper.stop()
        clean = works.stop(RESTORE_TIMEOUT_S)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        db.close()
    sys.exit(0 if clean else 1)
