"""Worker processes that kill themselves: `Nights` starts one a time and says how it ended.

Every commit of ours and of Optuna's, and every remote command, is two points, just before and just after. At point
`kill_at` the process gets SIGKILL; without it, it works to the end. The processes are forked from one that has imported
everything, because imports would take most of the time: `python -m benchmarks.chaos.night` is that process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import structlog
from optuna.storages import RDBStorage
from sqlalchemy import Connection

from optimizer import share, worker
from optimizer.remote.local import LocalLink
from optimizer.settings import Settings
from storage import studies
from storage.engine import Database, open_database

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = Settings(lease_ttl_s=3.0, lease_renew_s=0.5)
"""Short leases, so that the next worker need not wait long."""
OPTUNA_WRITES = (
    "create_new_study",
    "create_new_trial",
    "set_study_user_attr",
    "set_trial_state_values",
    "set_trial_user_attr",
    "set_trial_intermediate_value",
)


@dataclass(frozen=True)
class Night:
    """How one worker process ended: its exit code (negative: the signal), and its points when it came to an end."""

    code: int
    points: int | None = None

    @property
    def killed(self) -> bool:
        """Say whether it got to the point of its death."""
        return self.code == -signal.SIGKILL


class Nights:
    """The warm process, and what it forks. Use as a context manager."""

    def __init__(self, log: Path) -> None:
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.chaos.night"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT, text=True,
            )  # fmt: skip

    def __enter__(self) -> Nights:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def run(self, url: str, study_id: str, kill_at: int | None = None) -> Night:
        """Work on a study until it ends or the process does."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps([url, study_id, kill_at]), file=self._process.stdin, flush=True)
        return Night(**json.loads(self._process.stdout.readline()))


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
    write = Database.write

    @contextmanager
    def counted_write(self: Database) -> Iterator[Connection]:
        with write(self) as conn:
            yield conn
            points.here()
        points.here()

    def counted(work: Callable[..., Any]) -> Callable[..., Any]:
        def both(*args: Any, **kwargs: Any) -> Any:
            points.here()
            answer = work(*args, **kwargs)
            points.here()
            return answer

        return both

    Database.write = counted_write  # type: ignore[method-assign, assignment]
    LocalLink._talk = counted(LocalLink._talk)  # type: ignore[method-assign]
    for name in OPTUNA_WRITES:
        setattr(RDBStorage, name, counted(getattr(RDBStorage, name)))


def work(url: str, study_id: str, points: Points) -> None:
    """Work on one study until it ends."""
    db = open_database(url)
    while at_work(db, study_id):
        worker.advance(db, study_id, owner=worker.worker_name(), settings=SETTINGS)
        time.sleep(0.1)  # the lease of the one that was killed has to run out
    db.close()


def at_work(db: Database, study_id: str) -> bool:
    """Say whether the study still wants work."""
    with db.read() as conn:
        return studies.get(conn, study_id).state in share.WORKABLE


def forked(url: str, study_id: str, kill_at: int | None) -> dict[str, int | None]:
    """Run `work` in a child process and return how it ended."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        points = Points(kill_at)
        install(points)
        try:
            work(url, study_id, points)
            os.write(writer, str(points.count).encode())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader) as said:
        counted = said.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return {"code": code, "points": int(counted) if counted else None}


def main() -> None:
    """Fork a worker for each line on stdin; stdout is for how they ended, so logs go to stderr."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    for line in sys.stdin:
        print(json.dumps(forked(*json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
