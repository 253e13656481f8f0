"""Server-sent events of one study or of all. The stream itself is `api.stream`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from api.auth import Principal
from api.deps import Services, Use, Viewer, still_allowed
from api.documented import problems
from api.idempotency import ApiRoute
from api.problems import ApiProblem
from api.stream import encode
from optimizer import studies as verbs

router = APIRouter(prefix="/api/v1", tags=["events"], route_class=ApiRoute)
RETRY_MS = 2000
ASK_AGAIN_S = 10.0
"""How often a stream, which may last for days, asks whether its reader's key is still good."""
STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "A stream without end", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
}
AfterId = Annotated[int | None, Query(ge=0, le=2**62, description="Only events after this id")]
LastEventId = Annotated[str | None, Header(description="The id of the last event seen; wins over `after`")]


@router.get("/studies/{study_id}/events", responses=problems(404) | STREAM, response_class=StreamingResponse)
def study_events(
    study_id: str, use: Use, who: Viewer, after: AfterId = None, last_event_id: LastEventId = None
) -> StreamingResponse:
    """Follow one study: everything that happened, then what happens."""
    record = verbs.get(use.db, study_id)
    return _stream(use, who, record.id, _start(last_event_id, after))


@router.get("/events", responses=problems() | STREAM, response_class=StreamingResponse)
def all_events(use: Use, who: Viewer, after: AfterId = None, last_event_id: LastEventId = None) -> StreamingResponse:
    """Follow everything that the service records."""
    return _stream(use, who, None, _start(last_event_id, after))


def _start(last_event_id: str | None, after: int | None) -> int:
    if last_event_id is None or last_event_id == "":
        return after or 0
    if not last_event_id.isascii() or not last_event_id.isdecimal() or len(last_event_id) > 18:
        item = {"path": "header.Last-Event-ID", "message": "is not an event id", "value": last_event_id, "hint": None}
        raise ApiProblem(422, "the request has 1 problem", problems=[item])
    return int(last_event_id)


def _stream(use: Services, who: Principal, study_id: str | None, after_id: int) -> StreamingResponse:
    async def lines() -> AsyncIterator[bytes]:
        yield f"retry: {RETRY_MS}\n\n".encode()
        asked_at = use.clock.monotonic()
        async with aclosing(use.hub.follow(study_id, after_id)) as found:
            async for event in found:
                if use.clock.monotonic() - asked_at >= ASK_AGAIN_S:
                    if not await run_in_threadpool(still_allowed, use, who):
                        return
                    asked_at = use.clock.monotonic()
                yield b": still here\n\n" if event is None else encode(event)

    return StreamingResponse(lines(), media_type="text/event-stream", headers=STREAM_HEADERS)
