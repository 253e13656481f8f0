"""The pages at `/`: which there are, who may see them, signing in and out. What they show is `content.py`."""

from __future__ import annotations

import hmac
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote
from zoneinfo import available_timezones

from fastapi import APIRouter, Depends, FastAPI, Form, Query, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from api import auth, paging, views
from api.auth import COOKIE, SESSION_TTL, KeyScope, Principal
from api.deps import Use, authorise, failing_address, identify
from api.pages import content, places, starters, trial
from api.problems import ApiProblem, status_of
from api.reports.html import environment
from optimizer import studies as verbs
from optimizer.errors import NotFound, RatchetError
from storage import hosts, keys, windows
from storage.errors import Missing, StorageError

router = APIRouter(include_in_schema=False)
PAGE = 50
After = Annotated[str | None, Query(max_length=200)]


class ToLogin(Exception):
    """The caller must sign in first."""


def page_needs(scope: KeyScope) -> Any:
    """Return the dependency of a page that needs `scope`; without a key the caller is sent to the login."""

    def check(request: Request, use: Use) -> Principal:
        try:
            return authorise(request, use, scope)
        except ApiProblem as problem:
            if problem.status == 401:
                raise ToLogin from problem
            raise

    check.scope = scope  # type: ignore[attr-defined]
    return Depends(check)


PageViewer = Annotated[Principal, page_needs(KeyScope.VIEWER)]
PageOperator = Annotated[Principal, page_needs(KeyScope.OPERATOR)]
PageAdmin = Annotated[Principal, page_needs(KeyScope.ADMIN)]


@router.get("/")
def studies_page(use: Use, who: PageViewer, after: After = None) -> Response:
    """All studies."""
    found = content.study_list(use, PAGE, paging.decode(after))
    following = paging.encode(found["studies"][-1]["record"].id) if found["more"] else None
    return page("studies.html.j2", "/", who, **found, next=following)


@router.get("/studies/new")
def new_study_page(use: Use, who: PageOperator, origin: Annotated[str | None, Query(alias="from")] = None) -> Response:
    """The form for a new study."""
    with use.db.read() as conn:
        registered = hosts.list_hosts(conn)
        named = [w.name for w in windows.list_windows(conn)]
    offered = starters.starters(registered)
    text = starters.from_study(verbs.get(use.db, origin)) if origin else offered[0][2]
    return page("new.html.j2", "/", who, starters=offered, text=text, hosts=[h.name for h in registered], windows=named)


@router.get("/studies/{study_id}")
def study_page(study_id: str, use: Use, who: PageViewer) -> Response:
    """One study, live."""
    return page("study.html.j2", "/", who, **content.study_page(use, verbs.get(use.db, study_id)))


@router.get("/studies/{study_id}/trials/{number}")
def trial_page(study_id: str, number: int, use: Use, who: PageViewer) -> Response:
    """One trial."""
    record = verbs.get(use.db, study_id)
    if not 0 <= number < 2**31:
        raise NotFound(f"study {record.name} has no start {number}")
    return page("trial.html.j2", "/", who, **trial.trial_page(use, record, number))


@router.get("/hosts")
def hosts_page(use: Use, who: PageViewer) -> Response:
    """All hosts with the doctor's findings."""
    return page("hosts.html.j2", "/hosts", who, hosts=places.host_list(use), starter=starters.HOST_STARTER)


@router.get("/windows")
def windows_page(use: Use, who: PageViewer) -> Response:
    """All windows, what comes and what was."""
    return page("windows.html.j2", "/windows", who, windows=places.window_list(use), zones=_zones())


@router.get("/keys")
def keys_page(use: Use, who: PageAdmin) -> Response:
    """All keys."""
    with use.db.read() as conn:
        found = [views.key(k, use.now()) for k in keys.list_keys(conn)]
    return page("keys.html.j2", "/keys", who, keys=found)


@router.get("/login")
def login_page(request: Request, use: Use, next: Annotated[str, Query(max_length=500)] = "/") -> Response:  # noqa: A002
    """The login; whoever is in already goes on."""
    if identify(request, use) is not None:
        return RedirectResponse(local_path(next), status_code=303)
    return page("login.html.j2", "/login", None, next=local_path(next), error="")


@router.post("/login")
def login(
    request: Request,
    use: Use,
    key: Annotated[str, Form(max_length=500)] = "",
    next: Annotated[str, Form(max_length=500)] = "/",  # noqa: A002
) -> Response:
    """Trade a key for a cookie."""
    client = failing_address(request)
    use.limit.check(client)
    record = auth.find_key(use.db, key.strip(), use.now())
    if record is None:
        use.limit.failed(client)
        return page(
            "login.html.j2",
            "/login",
            None,
            status=401,
            next=local_path(next),
            error="This key is not valid (any more).",
        )
    answer = RedirectResponse(local_path(next), status_code=303)
    answer.set_cookie(
        COOKIE,
        use.sessions.issue(record.id, use.now()),
        max_age=int(SESSION_TTL.total_seconds()),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https",
    )
    return answer


@router.post("/logout")
def logout(request: Request, use: Use, csrf: Annotated[str, Form(max_length=200)] = "") -> Response:
    """Forget the cookie."""
    who = identify(request, use)
    if who is not None and who.csrf and not hmac.compare_digest(csrf.encode(), who.csrf.encode()):
        raise ApiProblem(403, "the request carries no valid CSRF token", remedy="reload the page")
    answer = RedirectResponse("/login", status_code=303)
    answer.delete_cookie(COOKIE, samesite="strict", httponly=True)
    return answer


def local_path(path: str) -> str:
    """Return the path when it stays on this service, else `/`."""
    safe = path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()
    return path if safe else "/"


def page(template: str, here: str, who: Principal | None, *, status: int = 200, **shown: Any) -> HTMLResponse:
    """Render one page for a caller."""
    may = {s.value: bool(who and who.may(s)) for s in KeyScope}
    text = environment("api.pages").get_template(template).render(here=here, who=who, may=may, **shown)
    return HTMLResponse(text, status_code=status, headers={"Cache-Control": "no-store"})


def wants_page(request: Request) -> bool:
    """Say whether a person's browser asks for a page, and not a program for data."""
    path = request.url.path
    return "text/html" in request.headers.get("accept", "") and not path.startswith(("/api/", "/assets/", "/metrics"))


class Assets(StaticFiles):
    """Files that may be kept for a while; they change only with the program."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Serve one file."""
        answer = await super().get_response(path, scope)
        answer.headers["Cache-Control"] = "public, max-age=300"
        return answer


def install(app: FastAPI) -> None:
    """Add the pages, their files, and errors as pages for browsers."""
    app.include_router(router)
    app.mount("/assets", Assets(directory=Path(str(files("api.pages").joinpath("static")))), name="assets")
    handlers = dict(app.exception_handlers)

    @app.exception_handler(ToLogin)
    async def _login(request: Request, _: ToLogin) -> Response:
        wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"/login?next={quote(wanted, safe='/')}", status_code=303)

    def as_page(kind: type[Exception]) -> None:
        plain: Any = handlers[kind]

        @app.exception_handler(kind)
        async def _page(request: Request, error: Exception) -> Response:
            if not wants_page(request):
                answer: Response = await plain(request, error)
                return answer
            return _error_page(error)

    for kind in (ApiProblem, RatchetError, StorageError, HTTPException, RequestValidationError):
        as_page(kind)


def _error_page(error: Exception) -> Response:
    status, detail = 500, "Something went wrong; the service's log has details."
    if isinstance(error, ApiProblem):
        status, detail = error.status, error.detail
    elif isinstance(error, HTTPException):
        status, detail = error.status_code, "There is no such page." if error.status_code == 404 else str(error.detail)
    elif isinstance(error, RequestValidationError):
        status, detail = 404, "There is no such page."
    elif isinstance(error, Missing):
        status, detail = 404, error.message
    elif isinstance(error, RatchetError):
        status, detail = status_of(error), error.message
    titles = {403: "Not allowed", 404: "Not found", 429: "Too many attempts"}
    remedy = str(getattr(error, "remedy", ""))
    return page(
        "error.html.j2",
        "",
        None,
        status=status,
        title=titles.get(status, "That did not work"),
        detail=detail,
        remedy=remedy,
    )


@cache
def _zones() -> list[str]:
    return sorted(z for z in available_timezones() if "/" in z and not z.startswith(("Etc/", "posix/", "right/")))
