"""Something that is done again and again in the background, until it is stopped.

Decides only when; a database that is away is waited for, and a round that crashes is logged and followed by the next.
What a round does must bear to be cut off at any point.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable

import structlog

from storage.errors import StorageError

log = structlog.get_logger(__name__)

STOP_PATIENCE_S = 10.0


class Rounds:
    """A thread. It can be stopped and started at any time: nothing is remembered between two rounds."""

    def __init__(self, name: str, once: Callable[[], None], *, every_s: float, first_after_s: float = 0.0) -> None:
        self._name = name
        self._once = once
        self._every_s = every_s
        self._first_after_s = first_after_s
        self._done = threading.Event()
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)

    def start(self) -> None:
        """Begin; the first round comes after `first_after_s` seconds."""
        self._thread.start()

    def alive(self) -> bool:
        """Say whether rounds go on."""
        return self._thread.is_alive()

    def wake(self) -> None:
        """Have the next round now."""
        self._woken.set()

    def stop(self) -> None:
        """End; a long round is not waited for."""
        self._done.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(timeout=STOP_PATIENCE_S)

    def _loop(self) -> None:
        wait_s = self._first_after_s
        while True:
            self._woken.wait(wait_s)
            self._woken.clear()
            if self._done.is_set():
                return
            try:
                self._once()
            except StorageError as error:
                log.warning("round.database_unavailable", of=self._name, error=str(error))
            except Exception:  # noqa: BLE001 - see below
                # The boundary of a thread that nobody watches: one bad row must not end every night to come.
                log.error("round.crashed", of=self._name, traceback=traceback.format_exc())
            wait_s = self._every_s
