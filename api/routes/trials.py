"""Trials of a study: listing, one with everything recorded, its server's log, raw requests, samples over time."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import PlainTextResponse

from api import paging, views
from api.deps import Use, Viewer
from api.documented import problems
from api.idempotency import ApiRoute
from api.schemas import Page, RequestOut, SeriesOut, TrialDetail, TrialOut
from optimizer import studies as verbs
from storage import logs, measurements, series, trials
from storage.errors import Missing
from storage.records import TrialRecord

router = APIRouter(prefix="/api/v1/studies/{study_id}", tags=["trials"], route_class=ApiRoute)
Number = Annotated[int, Path(ge=0, le=2**31 - 1, description="The trial's number, from 0")]
LOG_TAIL_MAX = 64 << 20
RecordT = TypeVar("RecordT")


class TrialState(StrEnum):
    """Where a trial is, or how it ended."""

    PROPOSED = "proposed"
    LAUNCHING = "launching"
    WARMING = "warming"
    MEASURING = "measuring"
    COMPLETE = "complete"
    PRUNED = "pruned"
    INFEASIBLE = "infeasible"
    INTERRUPTED = "interrupted"


class TrialKind(StrEnum):
    """What a trial was made for."""

    BASELINE = "baseline"
    EXPLORE = "explore"
    CONFIRM = "confirm"
    SELF_TEST = "self_test"


@router.get("/trials", response_model=Page[TrialOut], responses=problems(404))
def list_trials(
    study_id: str,
    use: Use,
    _: Viewer,
    limit: paging.Limit = paging.DEFAULT_LIMIT,
    after: paging.After = None,
    state: Annotated[list[TrialState] | None, Query(description="Only in these states")] = None,
    kind: Annotated[list[TrialKind] | None, Query(description="Only of these kinds")] = None,
    newest_first: bool = False,
) -> Any:
    """List trials by number."""
    study = verbs.get(use.db, study_id)
    with use.db.read() as conn:
        found = trials.list_trials(
            conn,
            study.id,
            limit=limit + 1,
            after=paging.decode_int(after),
            states=state,
            kinds=kind,
            newest_first=newest_first,
        )
        base = first_baseline(conn, study.id)
    items = [views.trial(t, study.spec, base) for t in found[:limit]]
    return {"items": items, "next": paging.encode(items[-1]["number"]) if len(found) > limit else None}


@router.get("/trials/{number}", response_model=TrialDetail, responses=problems(404))
def get_trial(study_id: str, number: Number, use: Use, _: Viewer) -> Any:
    """Read one trial with its measurements."""
    study = verbs.get(use.db, study_id)
    with use.db.read() as conn:
        record = trials.get(conn, study.id, number)
        found = measurements.for_trial(conn, study.id, number)
        base = first_baseline(conn, study.id)
    return views.trial_detail(record, study.spec, base, found)


@router.get(
    "/trials/{number}/log",
    response_class=PlainTextResponse,
    responses=problems(404) | {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def get_trial_log(
    study_id: str,
    number: Number,
    use: Use,
    _: Viewer,
    tail: Annotated[int | None, Query(ge=1, le=LOG_TAIL_MAX, description="Only the last bytes")] = None,
) -> Response:
    """Read the log of the server that the trial started."""
    study = verbs.get(use.db, study_id)
    with use.db.read() as conn:
        trials.get(conn, study.id, number)
        try:
            data = logs.get(conn, study.id, number)
        except Missing:
            data = b""
    if tail is not None:
        data = data[-tail:]
    return PlainTextResponse(data.decode("utf-8", "replace"))


@router.get("/trials/{number}/requests", response_model=Page[RequestOut], responses=problems(404))
def get_trial_requests(
    study_id: str,
    number: Number,
    use: Use,
    _: Viewer,
    limit: paging.Limit = paging.DEFAULT_LIMIT,
    after: paging.After = None,
) -> Any:
    """Read the raw requests of a trial in the order of their start."""
    study = verbs.get(use.db, study_id)
    with use.db.read() as conn:
        trials.get(conn, study.id, number)
        found = measurements.requests_of(conn, study.id, number)
    return _counted_page(found, views.request, limit, after)


@router.get("/trials/{number}/series", response_model=Page[SeriesOut], responses=problems(404))
def get_trial_series(
    study_id: str,
    number: Number,
    use: Use,
    _: Viewer,
    limit: paging.Limit = paging.DEFAULT_LIMIT,
    after: paging.After = None,
    source: Annotated[
        str | None, Query(max_length=100, description="Only of this source", examples=["engine", "gpu0"])
    ] = None,
) -> Any:
    """Read what was sampled beside a trial by source and name: the engine's telemetry, and the GPUs.

    Empty when nothing was sampled, or retention removed it.
    """
    study = verbs.get(use.db, study_id)
    with use.db.read() as conn:
        trials.get(conn, study.id, number)
        found = series.for_trial(conn, study.id, number, source=source)
    return _counted_page(found, views.series, limit, after)


def _counted_page(
    found: list[RecordT], view: Callable[[RecordT], views.JsonObject], limit: int, after: str | None
) -> views.JsonObject:
    """Return a page of what is read whole; its cursor counts records."""
    start = max(0, paging.decode_int(after) or 0)
    end = start + limit
    items = [view(record) for record in found[start:end]]
    return {"items": items, "next": paging.encode(end) if end < len(found) else None}


def first_baseline(conn: Any, study_id: str) -> TrialRecord | None:
    """Return the first start of the original configuration: what "changed" is told against."""
    found = trials.list_trials(conn, study_id, limit=1, kinds=["baseline"])
    return found[0] if found else None
