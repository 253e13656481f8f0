"""A worker process that kills itself: `python -m benchmarks.chaos.night URL STUDY [KILL_AT]`.

Every commit and every remote command is two points, just before and just after. At point KILL_AT the process gets
SIGKILL; without it, it works to the end and prints how many points there were.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection

from optimizer import worker
from optimizer.remote.local import LocalLink
from optimizer.settings import Settings
from storage import studies
from storage.engine import Database, open_database

SETTINGS = Settings(lease_ttl_s=3.0, lease_renew_s=0.5)
"""Short leases, so that the next worker need not wait long."""


class Points:
    """Counts points of the main thread and kills the process at one of them."""

    def __init__(self, kill_at: int | None) -> None:
        self.count = 0
        self.kill_at = kill_at

    def here(self) -> None:
        """Be at one point. The lease's own thread does not count: its moments are not the same each time."""
        if threading.current_thread() is not threading.main_thread():
            return
        self.count += 1
        if self.count == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


def install(points: Points) -> None:
    """Put points around every commit and every remote command."""
    write, talk = Database.write, LocalLink._talk

    @contextmanager
    def counted_write(self: Database) -> Iterator[Connection]:
        with write(self) as conn:
            yield conn
            points.here()
        points.here()

    def counted_talk(self: LocalLink, *args: Any, **kwargs: Any) -> Any:
        points.here()
        answer = talk(self, *args, **kwargs)
        points.here()
        return answer

    Database.write = counted_write  # type: ignore[method-assign, assignment]
    LocalLink._talk = counted_talk  # type: ignore[method-assign]


def at_work(db: Database, study_id: str) -> bool:
    """Say whether the study still wants work."""
    with db.read() as conn:
        return studies.get(conn, study_id).state in worker.WORKABLE


def main() -> None:
    """Work on one study until it ends or this process does."""
    url, study_id, *rest = sys.argv[1:]
    points = Points(int(rest[0]) if rest else None)
    install(points)
    db = open_database(url)
    ending = None
    while ending is None and at_work(db, study_id):
        ending = worker.advance(db, study_id, owner=worker.worker_name(), settings=SETTINGS)
        time.sleep(0.2)  # the lease of the one that was killed has to run out
    print(json.dumps({"points": points.count, "ending": str(ending)}), flush=True)


if __name__ == "__main__":
    main()
