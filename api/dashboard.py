"""Optuna's dashboard at `/dashboard`: behind our keys, reading only.

The dashboard writes absolute paths into its pages and has no base path, so exactly its paths are handed to it, and only
GET and HEAD; nothing of ours lives under them (our API is under /api/v1, our files under /assets).
"""

from __future__ import annotations

import re
import threading
from typing import Any

from a2wsgi import WSGIMiddleware
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from api.auth import KeyScope
from api.deps import Services, authorise
from api.middleware import SAFE_METHODS
from api.problems import ApiProblem, problem_response

PATHS = re.compile(r"^/(dashboard(/.*)?|static/.+|favicon\.ico|csv/\d+|api/(meta|studies|trials|artifacts|llm)(/.*)?)$")
THREADS = 4
EMPTY = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Optuna dashboard</title>
<p>No study has been started yet, so Optuna has nothing to show. <a href="/">Back to Ratchet</a></p></html>"""


class Dashboard:
    """Hands the dashboard's own requests to it and everything else on."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services
        self._lock = threading.Lock()
        self._inner: Any = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of the dashboard, or pass it on."""
        if scope["type"] != "http" or not PATHS.match(scope["path"]):
            await self._app(scope, receive, send)
            return
        refusal = await run_in_threadpool(self._refusal, Request(scope))
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        inner = await run_in_threadpool(self._dashboard)
        answer = inner if inner is not None else Response(EMPTY, media_type="text/html")
        await answer(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        if request.method not in SAFE_METHODS:
            return problem_response(405, "the dashboard can look and not write", headers={"Allow": "GET, HEAD"})
        try:
            authorise(request, self._services, KeyScope.VIEWER)
        except ApiProblem as problem:
            if problem.status == 401 and request.url.path.startswith("/dashboard"):
                return RedirectResponse("/login?next=/dashboard", status_code=303)
            return problem_response(problem.status, problem.detail, headers=problem.headers, remedy=problem.remedy)
        return None

    def _dashboard(self) -> Any:
        """Return the dashboard, opened when the first study has been started; None before."""
        from optimizer.search import dashboard

        with self._lock:
            url = self._services.db.optuna_url
            if self._inner is None and dashboard.exists(url):
                self._inner = WSGIMiddleware(dashboard.dashboard_app(url), workers=THREADS)
            return self._inner
