"""Studies: create, list, read, change, delete, and the four verbs that steer them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from api import etags, paging, views
from api.auth import KeyScope, Principal
from api.bodies import HOST_BODY, SPEC_BODY, Document
from api.deps import Operator, Services, Use, Viewer
from api.documented import problems
from api.idempotency import ApiRoute
from api.problems import ApiProblem, problem_list
from api.schemas import CheckOut, Page, StudyDetail, StudyOut, StudyPatch
from optimizer import studies as verbs
from optimizer.errors import BadInput, Problem
from optimizer.spec import HostEntry, StudySpec, parse_host, parse_study
from optimizer.studies import StudyState
from storage import errors as storage_errors
from storage import hosts, studies, trials, windows
from storage.records import StudyRecord

router = APIRouter(prefix="/api/v1", tags=["studies"], route_class=ApiRoute)
Verb = Callable[..., StudyRecord]


@router.post(
    "/studies", status_code=201, response_model=StudyDetail, responses=problems(404, 409, 415), openapi_extra=SPEC_BODY
)
def create_study(body: Document, response: Response, use: Use, who: Operator, start: bool = False) -> Any:
    """Create a study from a specification; with `start=true` also queue it."""
    spec = parse_study(body)
    _check_hosts(spec, use, who)
    record = verbs.create(use.db, spec, now=use.now())
    if start:
        record = verbs.start(use.db, record.id, now=use.now())
        use.wake_worker()
    response.headers["Location"] = f"/api/v1/studies/{record.id}"
    response.headers["ETag"] = etags.tag(record.version)
    return views.study_detail(record, {})


@router.get("/studies", response_model=Page[StudyOut], responses=problems(404))
def list_studies(
    use: Use,
    _: Viewer,
    limit: paging.Limit = paging.DEFAULT_LIMIT,
    after: paging.After = None,
    state: Annotated[StudyState | None, Query()] = None,
) -> Any:
    """List studies, newest first."""
    with use.db.read() as conn:
        found = studies.list_studies(conn, limit=limit + 1, after=paging.decode(after), state=state)
        items = [views.study(s, trials.count_by_state(conn, s.id)) for s in found[:limit]]
    return {"items": items, "next": paging.encode(items[-1]["id"]) if len(found) > limit else None}


@router.post("/studies/check", response_model=CheckOut, responses=problems(415), openapi_extra=SPEC_BODY)
def check_study(body: Document, use: Use, _: Viewer) -> Any:
    """Say everything that would be refused in a specification, without creating anything."""
    try:
        spec = parse_study(body)
    except BadInput as error:
        return {"valid": False, "errors": problem_list(error)}
    found = [{"path": p.path, "message": p.message, "value": p.value, "hint": p.hint} for p in _names(spec, use)]
    return {"valid": not found, "errors": found}


@router.post(
    "/hosts/check-entry", response_model=CheckOut, responses=problems(415), tags=["hosts"], openapi_extra=HOST_BODY
)
def check_host_entry(body: Document, _: Viewer) -> Any:
    """Say everything that is wrong with a host entry, without storing or contacting anything."""
    try:
        parse_host(body)
    except BadInput as error:
        return {"valid": False, "errors": problem_list(error)}
    return {"valid": True, "errors": []}


@router.get("/studies/{study_id}", response_model=StudyDetail, responses=problems(404))
def get_study(study_id: str, response: Response, use: Use, _: Viewer) -> Any:
    """Read a study by id or name."""
    record = verbs.get(use.db, study_id)
    with use.db.read() as conn:
        counts = trials.count_by_state(conn, record.id)
    response.headers["ETag"] = etags.tag(record.version)
    return views.study_detail(record, counts)


@router.patch("/studies/{study_id}", response_model=StudyDetail, responses=problems(404, 409, 412))
def change_study(study_id: str, body: StudyPatch, request: Request, response: Response, use: Use, _: Operator) -> Any:
    """Change the priority or the window of a study that is not finished."""
    with use.db.write() as conn:  # one transaction: nobody edits between the check and the change
        record = studies.get(conn, study_id)
        etags.check(request, record.version)
        record = verbs.change_in(conn, record, window=body.window, priority=body.priority, now=use.now())
        counts = trials.count_by_state(conn, record.id)
    use.wake_worker()
    response.headers["ETag"] = etags.tag(record.version)
    return views.study_detail(record, counts)


@router.delete("/studies/{study_id}", status_code=204, responses=problems(404, 409, 412))
def delete_study(study_id: str, request: Request, use: Use, _: Operator) -> Response:
    """Forget a study and everything measured for it; it must not be active."""
    etags.check(request, verbs.get(use.db, study_id).version)
    verbs.delete(use.db, study_id)
    return Response(status_code=204)


@router.post("/studies/{study_id}/start", status_code=202, response_model=StudyOut, responses=problems(404, 409))
def start_study(study_id: str, use: Use, _: Operator) -> Any:
    """Queue a study; harmless when it is queued or running."""
    return _steer(use, verbs.start, study_id)


@router.post("/studies/{study_id}/pause", status_code=202, response_model=StudyOut, responses=problems(404, 409))
def pause_study(study_id: str, use: Use, _: Operator) -> Any:
    """End the running trial, put the original server back, and wait to be resumed."""
    return _steer(use, verbs.pause, study_id)


@router.post("/studies/{study_id}/resume", status_code=202, response_model=StudyOut, responses=problems(404, 409))
def resume_study(study_id: str, use: Use, _: Operator) -> Any:
    """Go on with a paused or failed study where it was."""
    return _steer(use, verbs.resume, study_id)


@router.post("/studies/{study_id}/stop", status_code=202, response_model=StudyOut, responses=problems(404, 409))
def stop_study(study_id: str, use: Use, _: Operator) -> Any:
    """End a study for good: the original server is put back and the evidence so far is judged."""
    return _steer(use, verbs.stop, study_id)


def _names(spec: StudySpec, use: Services) -> Iterator[Problem]:
    """What a valid specification names and the service does not know, or knows already."""
    with use.db.read() as conn:
        if isinstance(spec.host, str) and hosts.find(conn, spec.host) is None:
            yield Problem("host", "is not registered", spec.host, "add it on the page Hosts, or write it in here")
        if spec.window and spec.window not in {key for w in windows.list_windows(conn) for key in (w.name, w.id)}:
            yield Problem("window", "does not exist", spec.window, "the page Windows shows all")
        try:
            studies.get(conn, spec.name)
        except storage_errors.Missing:
            return
    yield Problem("name", "is taken by another study", spec.name, "choose another name")


def _steer(use: Services, verb: Verb, study_id: str) -> Any:
    now: datetime = use.now()
    record = verb(use.db, study_id, now=now)
    use.wake_worker()
    with use.db.read() as conn:
        return views.study(record, trials.count_by_state(conn, record.id))


def _check_hosts(spec: StudySpec, use: Services, who: Principal) -> None:
    """An inline host is a new host, or a changed one: that is an admin's to say."""
    if who.may(KeyScope.ADMIN):
        return
    inline = [host for host in spec.all_hosts if isinstance(host, HostEntry)]
    with use.db.read() as conn:
        known = {host.name: hosts.find(conn, host.name) for host in inline}
    stored = {name: record.entry for name, record in known.items() if record is not None}
    if any(stored.get(host.name) != host.model_dump(mode="json") for host in inline):
        raise ApiProblem(
            403,
            "a specification that brings its own host needs a key with the scope admin",
            remedy="have an admin register the host, then name it",
        )
