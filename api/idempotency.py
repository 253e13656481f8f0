"""`Idempotency-Key`: a POST that is repeated with the same key gets the first answer again and does nothing.

Decides what counts as the same request (caller, method, path, query, body). Refusals are not kept: whoever corrects a
request may use its key again. Answers that carry a secret never come through here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from api.auth import KeyScope
from api.deps import Services, authorise
from api.problems import ApiProblem
from storage import idempotency

HEADER = "Idempotency-Key"
MAX_LENGTH = 200
SHOWS_SECRETS = frozenset({"/api/v1/keys"})
"""Answers that must not be kept."""
STUCK = timedelta(minutes=15)
"""After this long a request that never ended belongs to a process that died."""
KEPT_HEADERS = ("location", "etag", "content-type")
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class ApiRoute(APIRoute):
    """A route that asks who is there before it reads anything, and whose POSTs honour the key."""

    def get_route_handler(self) -> Handler:
        """Wrap the route's own handler."""
        original = super().get_route_handler()
        found = (getattr(d.call, "scope", None) for d in self.dependant.dependencies)
        scopes: list[KeyScope] = [s for s in found if s is not None]

        async def handle(request: Request) -> Response:
            use: Services = request.app.state.services
            if not scopes:
                return await original(request)
            # A stranger learns nothing, not even whether the body could be read.
            who = await run_in_threadpool(authorise, request, use, scopes[0])
            key = request.headers.get(HEADER)
            if request.method != "POST" or key is None or self.path in SHOWS_SECRETS:
                return await original(request)
            return await _once(original, request, use, who.key_id or "anonymous", _checked(key))

        return handle


async def _once(original: Handler, request: Request, use: Services, caller: str, key: str) -> Response:
    digest = await _digest(request)
    kept = await run_in_threadpool(_begin, use, caller, key, digest)
    if kept is not None:
        return kept
    try:
        response = await original(request)
    except BaseException:
        await run_in_threadpool(_forget, use, caller, key)
        raise
    if response.status_code >= 300:
        await run_in_threadpool(_forget, use, caller, key)
    else:
        await run_in_threadpool(_keep, use, caller, key, response)
    return response


def _checked(key: str) -> str:
    if not key or len(key) > MAX_LENGTH or not key.isascii() or not key.isprintable():
        item = {"path": f"header.{HEADER}", "message": f"must be 1 to {MAX_LENGTH} printable characters", "value": None}
        raise ApiProblem(422, "the request has 1 problem", problems=[item | {"hint": "a UUID is a good key"}])
    return key


async def _digest(request: Request) -> str:
    head = f"{request.method} {request.url.path}?{request.url.query}\n".encode()
    return hashlib.sha256(head + await request.body()).hexdigest()


def _begin(use: Services, caller: str, key: str, digest: str) -> Response | None:
    """Reserve the key, or return the answer that it already has."""
    with use.db.write() as conn:
        found = idempotency.begin(conn, caller, key, digest, now=use.now())
        if found is not None and found.status is None and use.now() - found.created_at > STUCK:
            idempotency.forget(conn, caller, key)
            found = idempotency.begin(conn, caller, key, digest, now=use.now())
    if found is None:
        return None
    if found.request_hash != digest:
        item = {"path": f"header.{HEADER}", "message": "was used for another request", "value": key, "hint": None}
        raise ApiProblem(422, "the request has 1 problem", problems=[item], remedy="use a new key")
    if found.status is None or found.response is None:
        raise ApiProblem(409, "a request with this key is being worked on", headers={"Retry-After": "1"})
    headers = {**found.response["headers"], "Idempotency-Replayed": "true"}
    return Response(found.response["body"], status_code=found.status, headers=headers)


def _keep(use: Services, caller: str, key: str, response: Response) -> None:
    headers = {k: v for k, v in response.headers.items() if k in KEPT_HEADERS}
    body = bytes(response.body).decode()
    with use.db.write() as conn:
        idempotency.finish(conn, caller, key, status=response.status_code, response={"body": body, "headers": headers})


def _forget(use: Services, caller: str, key: str) -> None:
    with use.db.write() as conn:
        idempotency.forget(conn, caller, key)
