"""Every error leaves as `application/problem+json` (RFC 9457); this file decides which error gets which status.

Unknown errors become a 500 without details for the caller; the details go to the log with an id that the answer names.
"""

from __future__ import annotations

import traceback
import uuid
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from optimizer import errors
from storage import errors as storage_errors

log = structlog.get_logger(__name__)

TRACE_FRAMES = 15
MEDIA_TYPE = "application/problem+json"
TITLES = {
    400: "Bad request",
    401: "Not authenticated",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Not possible in this state",
    412: "Changed by somebody else",
    413: "Too large",
    415: "Unsupported media type",
    422: "Invalid input",
    429: "Too many attempts",
    500: "Internal error",
    502: "The host failed",
    503: "Not available",
    504: "The host is too slow",
    507: "The disk is full",
}


class ApiProblem(Exception):
    """An answer that a route decides itself."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        problems: list[dict[str, Any]] | None = None,
        headers: dict[str, str] | None = None,
        remedy: str = "",
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.problems = problems or []
        self.headers = headers or {}
        self.remedy = remedy


def problem_response(
    status: int,
    detail: str,
    *,
    problems: list[dict[str, Any]] | None = None,
    headers: dict[str, str] | None = None,
    remedy: str = "",
) -> JSONResponse:
    """Build one problem document; `errors` is present even when empty, so that clients need no special case."""
    title = TITLES.get(status, "Error")
    body: dict[str, Any] = {
        "type": f"urn:ratchet:problem:{title.lower().replace(' ', '-')}",
        "title": title,
        "status": status,
        "detail": detail,
        "errors": problems or [],
    }
    if remedy:
        body["remedy"] = remedy
    return JSONResponse(body, status_code=status, headers=headers, media_type=MEDIA_TYPE)


def status_of(error: errors.RatchetError) -> int:
    """Return the status for an error of the optimizer."""
    table: list[tuple[type[errors.RatchetError], int]] = [
        (errors.BadInput, 422),
        (errors.NotFound, 404),
        (errors.Conflict, 409),
        (errors.HostBusy, 409),
        (errors.PortTaken, 409),
        (errors.LeaseLost, 409),
        (errors.NeedsAttention, 409),
        (errors.CommandTimeout, 504),
        (errors.HostError, 502),
        (errors.ServerFailed, 502),
    ]
    return next((status for kind, status in table if isinstance(error, kind)), 500)


def problem_list(error: errors.RatchetError) -> list[dict[str, Any]]:
    """Return the mistakes that an input error carries, as plain data."""
    if not isinstance(error, errors.BadInput):
        return []
    return [
        {"path": p.path, "message": p.message, "value": _plain(p.value), "hint": p.hint or None} for p in error.problems
    ]


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    return str(value)


def install(app: FastAPI) -> None:
    """Make every error of the application a problem document."""

    @app.exception_handler(ApiProblem)
    async def _own(_: Request, error: ApiProblem) -> Response:
        return problem_response(
            error.status, error.detail, problems=error.problems, headers=error.headers, remedy=error.remedy
        )

    @app.exception_handler(errors.RatchetError)
    async def _known(_: Request, error: errors.RatchetError) -> Response:
        status = status_of(error)
        if status == 500:
            log.error("request.failed", error=error.message)
        return problem_response(status, error.message, problems=problem_list(error), remedy=error.remedy)

    @app.exception_handler(storage_errors.StorageError)
    async def _storage(_: Request, error: storage_errors.StorageError) -> Response:
        return _storage_problem(error)

    @app.exception_handler(RequestValidationError)
    async def _invalid(_: Request, error: RequestValidationError) -> Response:
        listed = [
            {
                "path": ".".join(str(p) for p in e["loc"]) or "(top)",
                "message": e["msg"],
                "value": _plain(e.get("input")) if not isinstance(e.get("input"), dict | list) else None,
                "hint": None,
            }
            for e in error.errors()
        ]
        count = "1 problem" if len(listed) == 1 else f"{len(listed)} problems"
        return problem_response(422, f"the request has {count}", problems=listed)

    @app.exception_handler(HTTPException)
    async def _http(_: Request, error: HTTPException) -> Response:
        return problem_response(error.status_code, str(error.detail), headers=dict(error.headers or {}))


def _storage_problem(error: storage_errors.StorageError) -> Response:
    text = str(error)
    remedy = str(getattr(error, "remedy", ""))
    if isinstance(error, storage_errors.Missing):
        return problem_response(404, text, remedy=remedy)
    if isinstance(error, storage_errors.Duplicate | storage_errors.StaleFence):
        return problem_response(409, text, remedy=remedy)
    if isinstance(error, storage_errors.DatabaseBusy):
        return problem_response(503, text, headers={"Retry-After": "2"}, remedy=remedy)
    if isinstance(error, storage_errors.DiskFull):
        return problem_response(507, text, remedy=remedy)
    if isinstance(error, storage_errors.SchemaOutdated):
        return problem_response(503, text, remedy=remedy)
    log.error("request.storage_failed", error=text)
    return problem_response(500, "the database failed; see the service's log")


class CatchAll:
    """The last line: an unexpected error is logged with an id, and the caller gets the id and nothing else."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and answer for it when it fails."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, receive, watch)
        except Exception:
            # The boundary of the service: whatever a route did wrong, the process goes on and the caller is told.
            incident = uuid.uuid4().hex[:12]
            # As plain text: a renderer that shows local variables takes minutes here, and could show secrets.
            text = traceback.format_exc(limit=-TRACE_FRAMES)
            log.error("request.crashed", incident=incident, path=scope.get("path"), traceback=text)
            if started:
                raise
            response = problem_response(500, f"unexpected error, incident {incident}; the service's log has details")
            await response(scope, receive, send)
