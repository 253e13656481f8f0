"""Server-sent events: one reader of the events table for all listeners of this process.

Events come from the database, so they pass between processes; each listener gets what it missed first (`Last-Event-ID`)
and then what the one poller finds. A listener that does not read fast enough falls back to reading the table itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator

import structlog

from storage import events
from storage.engine import Database
from storage.errors import StorageError
from storage.records import EventRecord

log = structlog.get_logger(__name__)

POLL_S = 0.05
"""How often the table is read while somebody listens; well under the 200 ms promised."""
BACKLOG_PAGE = 500
QUEUE_LENGTH = 1000
KEEPALIVE_S = 15.0


class EventHub:
    """The one poller, and its listeners. Start it in the loop that serves; `close` ends every stream."""

    def __init__(self, db: Database, *, poll_s: float = POLL_S) -> None:
        self._db = db
        self._poll_s = poll_s
        self._listeners: set[asyncio.Queue[EventRecord | None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def follow(self, study_id: str | None, after_id: int) -> AsyncGenerator[EventRecord | None, None]:
        """Yield events after `after_id` for ever; None when nothing happened for a while (send a comment then)."""
        queue: asyncio.Queue[EventRecord | None] = asyncio.Queue(QUEUE_LENGTH)
        self._listeners.add(queue)
        self._ensure_poller()
        position = after_id
        behind = True
        try:
            while not self._closed:
                if behind:
                    behind = False
                    async for missed in self._backlog(study_id, position):
                        position = missed.id
                        yield missed
                try:
                    event = await asyncio.wait_for(queue.get(), KEEPALIVE_S)
                except TimeoutError:
                    self._ensure_poller()  # one that died would leave this listener without news for ever
                    yield None
                    continue
                if event is None:
                    behind = True
                elif event.id > position and study_id in (None, event.study_id):
                    position = event.id
                    yield event
        finally:
            self._listeners.discard(queue)

    def close(self) -> None:
        """End every stream. Callable from the loop only."""
        self._closed = True
        for queue in self._listeners:
            _lag(queue)
        if self._task is not None:
            self._task.cancel()

    async def _backlog(self, study_id: str | None, position: int) -> AsyncIterator[EventRecord]:
        while True:
            page = await asyncio.to_thread(self._read, position, study_id, BACKLOG_PAGE)
            for event in page:
                yield event
            if len(page) < BACKLOG_PAGE:
                return
            position = page[-1].id

    def _read(self, after_id: int, study_id: str | None, limit: int) -> list[EventRecord]:
        with self._db.read() as conn:
            return list(events.since(conn, after_id, study_id=study_id, limit=limit))

    def _ensure_poller(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._poll(), name="event-hub")

    async def _poll(self) -> None:
        """Read what is new and hand it to every listener; ends by itself when the last listener has gone."""
        last: int | None = None
        while self._listeners and not self._closed:
            try:
                if last is None:
                    last = await asyncio.to_thread(self._newest)
                    # Between a listener's own first reading and this one nothing may fall through.
                    for queue in self._listeners:
                        _lag(queue)
                await asyncio.sleep(self._poll_s)
                found = await asyncio.to_thread(self._read, last, None, BACKLOG_PAGE)
            except StorageError as error:
                log.warning("events.unreadable", error=str(error))
                await asyncio.sleep(self._poll_s)
                continue
            for event in found:
                last = event.id
                self._hand_out(event)

    def _newest(self) -> int:
        with self._db.read() as conn:
            return events.last_id(conn)

    def _hand_out(self, event: EventRecord) -> None:
        for queue in self._listeners:
            if queue.full():
                _lag(queue)
            else:
                queue.put_nowait(event)


def _lag(queue: asyncio.Queue[EventRecord | None]) -> None:
    """Empty a queue and leave the mark that sends its listener back to the table."""
    with contextlib.suppress(asyncio.QueueEmpty):
        while True:
            queue.get_nowait()
    queue.put_nowait(None)


def encode(event: EventRecord) -> bytes:
    """Write one event in the wire format; the data carries study, kind and time too."""
    data = {"study_id": event.study_id, "kind": event.kind, "at": event.at.isoformat(), **event.data}
    text = json.dumps(data, ensure_ascii=False, default=str)
    return f"id: {event.id}\nevent: {event.kind}\ndata: {text}\n\n".encode()
