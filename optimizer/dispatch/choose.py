"""Which worker a process runs: in-process for one machine, Procrastinate for several on one PostgreSQL."""

from __future__ import annotations

from typing import Protocol

from optimizer.settings import Settings
from storage.engine import Database


class Dispatcher(Protocol):
    """Something in the background that finds studies and advances them."""

    name: str

    def start(self) -> None:
        """Begin to look for work."""

    def wake(self) -> None:
        """Look for work now."""

    def alive(self) -> bool:
        """Say whether it looks for work."""

    def stop(self, timeout_s: float = 120.0) -> bool:
        """Pause what runs, wait until home is back everywhere, and end. False when that took too long."""


def make_worker(db: Database, *, name: str | None = None, settings: Settings | None = None) -> Dispatcher:
    """Return the worker for a database. It is not started yet."""
    if db.is_sqlite:
        from optimizer.dispatch.inline import InlineWorker

        return InlineWorker(db, name=name, settings=settings)
    from optimizer.dispatch.procrastinate import ProcrastinateWorker

    return ProcrastinateWorker(db, name=name, settings=settings)
