"""One study in the foreground: the service's own worker code, watched in a terminal, ended cleanly by Ctrl-C.

Decides what an interrupt does: the first asks for a clean end, later ones say what is waited for. A terminal that goes
away (a connection that breaks) interrupts as well, unless `nohup` says otherwise.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import structlog

from api.cli.live import View, follow
from api.cli.output import say
from optimizer import studies
from optimizer.clock import SystemClock
from optimizer.lease import LeaseKeeper
from optimizer.settings import Settings
from optimizer.spec import StudySpec
from optimizer.studies import StudyState
from optimizer.worker import advance_everywhere, worker_name
from storage.engine import Database
from storage.records import StudyRecord

RETRY_S = 1.0
INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = "interrupted in the terminal; run the same command again to go on"
ENDED = {StudyState.FINISHED, StudyState.FAILED, StudyState.NEEDS_ATTENTION, StudyState.PAUSED}


def log_quietly() -> None:
    """Keep the service's own log out of a terminal that shows the study itself, except what is Ratchet's fault."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


class Foreground:
    """A study that runs in a thread of this process until it ends or is interrupted."""

    def __init__(self, db: Database, study: StudyRecord, settings: Settings) -> None:
        self._db = db
        self._study_id = study.id
        self._settings = settings
        self._owner = worker_name()
        self._keepers: list[LeaseKeeper] = []
        self._interrupts = 0
        self._reason = ""
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="foreground", daemon=True)

    def run(self, view: View, *, plain: bool | None = None) -> StudyRecord:
        """Work until the study ends; return its last row."""
        with self._signals():
            self._thread.start()
            try:
                follow(view, lambda: not self._thread.is_alive(), plain=plain)
            finally:
                self._see_to_the_end()
        if self._error is not None:
            raise self._error
        return studies.get(self._db, self._study_id)

    def _see_to_the_end(self) -> None:
        """Whatever became of the view, the host gets its server back before this process ends."""
        if self._thread.is_alive():
            if not self._interrupts:
                self._interrupt("the view broke; run the same command again to go on")
            self._thread.join()

    def _work(self) -> None:
        clock = SystemClock()
        try:
            while (study := studies.get(self._db, self._study_id)).state not in ENDED:
                advance_everywhere(self._db, study, owner=self._owner, settings=self._settings, on_lease=self._leased)
                if self._interrupts:
                    return
                if studies.get(self._db, self._study_id).state not in ENDED:
                    clock.sleep(RETRY_S)
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            self._error = error

    def _leased(self, keeper: LeaseKeeper) -> None:
        self._keepers.append(keeper)
        if self._interrupts:
            keeper.interrupt(self._reason)

    def _interrupt(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._interrupts += 1
        for keeper in self._keepers:
            keeper.interrupt(self._reason)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        caught = [n for n in INTERRUPTS if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
        before = {n: signal.signal(n, self._interrupted) for n in caught}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        self._interrupt(INTERRUPTED)
        with contextlib.suppress(OSError):  # the terminal may be gone, and what is waited for must not be left for that
            if self._interrupts == 1:
                say("stopping: a trial that runs here ends now, and the server that was there before is put back")
            else:
                say("still waiting until the server that was there before serves again; it would be lost otherwise")


def run_in_foreground(
    db: Database, study: StudyRecord, spec: StudySpec, settings: Settings, *, plain: bool | None = None
) -> StudyRecord:
    """Start (or resume) a study and work on it here until it ends."""
    log_quietly()
    if study.state not in {StudyState.FINISHED, StudyState.STOPPING}:
        # One that was asked to stop when its process died has its home put back first, by the same code.
        studies.start(db, study.id, now=SystemClock().now())
    planned = spec.baseline.restarts + spec.budget.trials + spec.budget.trials // 8 + spec.budget.confirm_restarts
    view = View(db, study.id, planned)
    return Foreground(db, study, settings).run(view, plain=plain)
