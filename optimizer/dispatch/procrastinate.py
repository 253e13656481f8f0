"""Several machines on one PostgreSQL: jobs carried by Procrastinate, one at a time for each host.

Decides what becomes of jobs whose machine died; which studies get one is decided by `workable`. A job says no more than
"look at this study": whether there is work, and who may touch the host, is decided by `worker.advance` and its lease.
So a lost, doubled or late job is harmless, and the tables of jobs (schema `procrastinate`) may be dropped at any time.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import traceback
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import psycopg
import structlog
from procrastinate import App, PsycopgConnector, exceptions, jobs
from procrastinate import __version__ as procrastinate_version

from optimizer.clock import Clock
from optimizer.dispatch.advancing import AdvancingWorker
from optimizer.dispatch.workable import Job, workable
from optimizer.settings import Settings
from storage.engine import Database
from storage.errors import StorageError

log = structlog.get_logger(__name__)

SCHEMA = "procrastinate"
MAX_HOSTS = 64
"""Hosts that one process works on side by side; the work is on the hosts, so this costs threads only."""
STALLED_S = 30.0
"""A worker whose heartbeat (every 10 s) is older than this is dead; its jobs go to others."""
RESTART_AFTER_S = 1.0
"""Pause before trying again when the database went away."""
GRACE_S = 5.0
"""How long Procrastinate waits for its own bookkeeping when it ends; the work itself is waited for by `stop`."""
SCHEMA_LOCK = 0x4A_4F_42_53
"""Key of the advisory lock under which the tables of jobs are made ("JOBS" in ASCII)."""


class ProcrastinateWorker(AdvancingWorker):
    """A background thread that advances studies whose jobs it gets. Same surface as `InlineWorker`."""

    def __init__(
        self, db: Database, *, name: str | None = None, clock: Clock | None = None, settings: Settings | None = None
    ) -> None:
        super().__init__(db, name=name, clock=clock, settings=settings)
        self._running: dict[str, Future[Any]] = {}
        self._pool = ThreadPoolExecutor(MAX_HOSTS, thread_name_prefix="study")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._look_now: asyncio.Event | None = None
        self._main: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="dispatch", daemon=True)

    def start(self) -> None:
        """Begin to look for work."""
        self._thread.start()

    def alive(self) -> bool:
        """Say whether it looks for work."""
        return self._thread.is_alive()

    def wake(self) -> None:
        """Look for work now; other machines hear of it at once."""
        loop, look_now = self._loop, self._look_now
        if loop is not None and look_now is not None:
            with contextlib.suppress(RuntimeError):  # the loop ended meanwhile
                loop.call_soon_threadsafe(look_now.set)

    def stop(self, timeout_s: float = 120.0) -> bool:
        """Pause what runs, wait until home is back everywhere, and end. False when that took too long."""
        self._interrupt()
        with self._lock:
            running = list(self._running.values())
        left = wait(running, timeout=timeout_s).not_done
        loop, main = self._loop, self._main
        if loop is not None and main is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(main.cancel)
        if self._thread.is_alive():
            self._thread.join(2 * GRACE_S)
        self._pool.shutdown(wait=False, cancel_futures=True)
        return not left

    def _run(self) -> None:
        """Serve until stopped; a database that goes away is waited for."""
        while not self._stopping.is_set():
            try:
                asyncio.run(self._serve())
            except asyncio.CancelledError:
                return
            except (psycopg.Error, exceptions.ProcrastinateException, StorageError, OSError) as error:
                log.warning("dispatch.database_unavailable", error=str(error))
            except Exception:  # noqa: BLE001 - the boundary of a thread that all studies depend on
                log.error("dispatch.crashed", traceback=traceback.format_exc())
            self._stopping.wait(RESTART_AFTER_S)

    async def _serve(self) -> None:
        self._loop, self._look_now = asyncio.get_running_loop(), asyncio.Event()
        self._main = asyncio.current_task()
        await asyncio.to_thread(ensure_schema, self._db)
        app = App(connector=PsycopgConnector(conninfo=self._db.libpq_url(SCHEMA), min_size=1, max_size=4))
        advance = self._advance_task(app)
        async with app.open_async():
            served = asyncio.create_task(
                app.run_worker_async(
                    name=self.name,
                    concurrency=MAX_HOSTS,
                    delete_jobs="always",
                    install_signal_handlers=False,
                    shutdown_graceful_timeout=GRACE_S,
                    fetch_job_polling_interval=self._settings.worker_poll_s,
                )
            )
            looked = asyncio.create_task(self._look(app, advance))
            try:
                done, _ = await asyncio.wait({served, looked}, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                for task in (looked, served):
                    task.cancel()
                await asyncio.gather(looked, served, return_exceptions=True)

    def _advance_task(self, app: App) -> Any:
        """Register the one kind of job. It runs in a thread of ours, which outlives a lost connection."""

        @app.task(name="advance", queue="studies")
        async def advance(study_id: str, host: str) -> None:
            with self._lock:
                if self._stopping.is_set() or host in self._running:
                    return
                future = self._pool.submit(self._advance, study_id, host)
                self._running[host] = future
            future.add_done_callback(lambda _: self._let_go(host))
            await asyncio.wrap_future(future)

        return advance

    def _let_go(self, host: str) -> None:
        """The host is free for the next job, also when this one was taken back before it began."""
        with self._lock:
            self._running.pop(host, None)
        self.wake()

    async def _look(self, app: App, advance: Any) -> None:
        """Give every study that could go on a job, and those of dead machines to others, again and again.

        Jobs are made from the studies' states and not only when somebody asks, so that a lost one comes back.
        """
        assert self._look_now is not None
        me = asyncio.current_task()
        # Before Python 3.12 a cancellation can be lost in `wait_for`: ask, and do not rely on the exception.
        while me is not None and not me.cancelling():
            for job in await asyncio.to_thread(workable, self._db, self._clock):
                await _defer(advance, job)
            # Ended, not retried: one for the same study may already wait, and the next look makes what is missing.
            for stalled in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=STALLED_S):
                await app.job_manager.finish_job(stalled, jobs.Status.FAILED, delete_job=True)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._look_now.wait(), self._settings.worker_poll_s)
            self._look_now.clear()


async def _defer(advance: Any, job: Job) -> None:
    """Make a job unless one for this study on this host is waiting."""
    configured = advance.configure(
        lock=f"host:{job.host}", queueing_lock=f"study:{job.study_id}:{job.host}", priority=job.priority
    )
    with contextlib.suppress(exceptions.AlreadyEnqueued):
        await configured.defer_async(study_id=job.study_id, host=job.host)


def ensure_schema(db: Database) -> None:
    """Make the tables of jobs, once. Those of another version of Procrastinate are replaced: jobs are disposable."""
    from procrastinate.schema import SchemaManager

    wanted = f"procrastinate {procrastinate_version}"
    with psycopg.connect(db.libpq_url(SCHEMA)) as conn:
        conn.execute("SELECT pg_advisory_xact_lock(%s)", (SCHEMA_LOCK,))
        row = conn.execute("SELECT obj_description(to_regnamespace(%s), 'pg_namespace')", (SCHEMA,)).fetchone()
        if row is not None and row[0] == wanted:
            return
        log.info("dispatch.schema", version=wanted, before=row[0] if row else None)
        statements: list[str] = [
            f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE",
            f"CREATE SCHEMA {SCHEMA}",
            SchemaManager.get_schema(),
            f"COMMENT ON SCHEMA {SCHEMA} IS '{wanted}'",
        ]
        for statement in statements:
            conn.execute(statement.encode())
