"""Overnight windows: create, list, read, switch, remove; their past openings and the report of each night."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from api import etags, morning, paging, views
from api.deps import Operator, Services, Use, Viewer
from api.documented import problems
from api.idempotency import ApiRoute
from api.problems import ApiProblem
from api.schemas import Page, WindowIn, WindowOut, WindowPatch
from optimizer import studies as verbs
from optimizer import windows as rules
from optimizer.studies import StudyState
from storage import studies, windows
from storage.records import StudyRecord, WindowRecord

router = APIRouter(prefix="/api/v1", tags=["windows"], route_class=ApiRoute)
SHOWN_RUNS = 14
ATTACHED_SHOWN = 500
UNFINISHED = frozenset(StudyState) - {StudyState.FINISHED}
LocalDate = Annotated[str, Path(pattern=r"^\d{4}-\d{2}-\d{2}$", description="Date of the opening in the zone")]


class NightFormat(StrEnum):
    """How a night's report is written."""

    HTML = "html"
    MD = "md"
    JSON = "json"


@router.post("/windows", status_code=201, response_model=WindowOut, responses=problems(409))
def create_window(body: WindowIn, response: Response, use: Use, _: Operator) -> Any:
    """Create a window; the answer shows the next five openings."""
    rule = rules.check(body.model_dump())
    record = WindowRecord(
        id=uuid.uuid4().hex[:12],
        name=body.name,
        start_cron=rule.start_cron,
        timezone=rule.timezone,
        until=rule.until,
        duration_min=rule.duration_min,
        enabled=body.enabled,
        created_at=use.now(),
    )
    with use.db.write() as conn:
        windows.put(conn, record)
    response.headers["Location"] = f"/api/v1/windows/{record.id}"
    response.headers["ETag"] = etags.tag(record.version)
    return _view(use, record)


@router.get("/windows", response_model=Page[WindowOut], responses=problems())
def list_windows(use: Use, _: Viewer, limit: paging.Limit = paging.DEFAULT_LIMIT, after: paging.After = None) -> Any:
    """List windows by name."""
    with use.db.read() as conn:
        found = windows.list_windows(conn, limit=limit + 1, after=paging.decode(after))
    items = [_view(use, w) for w in found[:limit]]
    return {"items": items, "next": paging.encode(items[-1]["name"]) if len(found) > limit else None}


@router.get("/windows/{window_id}", response_model=WindowOut, responses=problems(404))
def get_window(window_id: str, response: Response, use: Use, _: Viewer) -> Any:
    """Read a window by id or name."""
    record = _get(use, window_id)
    response.headers["ETag"] = etags.tag(record.version)
    return _view(use, record)


@router.patch("/windows/{window_id}", response_model=WindowOut, responses=problems(404, 412))
def change_window(
    window_id: str, body: WindowPatch, request: Request, response: Response, use: Use, _: Operator
) -> Any:
    """Switch a window on or off."""
    with use.db.write() as conn:
        record = windows.get(conn, window_id)
        etags.check(request, record.version)
        record = windows.update(conn, record.id, enabled=body.enabled)
        waiting = studies.list_studies(conn, limit=None, window_id=record.id, state=StudyState.WAITING_WINDOW)
        verbs.look_anew(conn, [s.id for s in waiting], use.now())
    use.wake_worker()
    response.headers["ETag"] = etags.tag(record.version)
    return _view(use, record)


@router.delete("/windows/{window_id}", status_code=204, responses=problems(404, 409, 412))
def delete_window(window_id: str, request: Request, use: Use, _: Operator) -> Response:
    """Remove a window that no unfinished study waits for."""
    record = _get(use, window_id)
    etags.check(request, record.version)
    waiting = [s.name for s in attached(use, record.id, UNFINISHED)]
    if waiting:
        raise ApiProblem(
            409, f"studies use this window: {', '.join(waiting[:5])}", remedy="stop them, or give them another window"
        )
    with use.db.write() as conn:
        windows.delete(conn, record.id)
    return Response(status_code=204)


@router.get(
    "/windows/{window_id}/nights/{local_date}",
    responses=problems(404)
    | {
        200: {
            "description": "The report of one night",
            "content": {
                "application/json": {"schema": {"type": "object"}},
                "text/html": {"schema": {"type": "string"}},
                "text/markdown": {"schema": {"type": "string"}},
            },
        }
    },
    response_class=Response,
)
def get_night(
    window_id: str,
    local_date: LocalDate,
    use: Use,
    _: Viewer,
    format: NightFormat = NightFormat.JSON,  # noqa: A002
) -> Response:
    """Read the morning report of one opening."""
    record = _get(use, window_id)
    report = morning.stored_or_built(use.db, record, local_date, now=use.now())
    if report is None:
        raise ApiProblem(404, f"window {record.name} did not open on {local_date}")
    return morning.answer(report, format.value)


def attached(use: Services, window_id: str, states: Iterable[str] | None = None) -> list[StudyRecord]:
    """Return the newest studies that work in a window only, all or those in some states."""
    with use.db.read() as conn:
        return studies.list_studies(conn, limit=ATTACHED_SHOWN, window_id=window_id, state=states)


def _get(use: Services, window_id: str) -> WindowRecord:
    with use.db.read() as conn:
        return windows.get(conn, window_id)


def _view(use: Services, record: WindowRecord) -> dict[str, Any]:
    with use.db.read() as conn:
        runs = windows.list_runs(conn, record.id, limit=SHOWN_RUNS)
    return views.window(record, runs, attached(use, record.id), use.now())
