"""Which error answers a route documents, and the finishing touches of /openapi.json."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api.problems import MEDIA_TYPE, TITLES
from api.schemas import Problem

COMMON = (400, 401, 403, 413, 422, 429, 500, 503)
"""What any route may answer: bad JSON, credentials, size, bad input, too many failures, our fault, database busy."""
DESCRIPTION = """Tunes a remote LLM server overnight: measures, proves what is faster, puts the original back.

Errors are problem documents (RFC 9457) with every mistake in `errors`. Listings page by cursor: pass `next` on as
`after`. A POST with an `Idempotency-Key` can be repeated safely. Without any key the service answers only to its own
machine; else send `Authorization: Bearer KEY`. Scopes: a viewer reads, an operator creates and steers studies and
windows, an admin also changes hosts and keys."""


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a route: the common problems and these."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {s: {"description": TITLES[s], "content": content} for s in sorted({*COMMON, *statuses})}


def install(app: FastAPI) -> None:
    """Make the application describe its problems, its keys and its scopes."""

    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _describe(app)
        return app.openapi_schema

    app.openapi = describe  # type: ignore[method-assign]


def _describe(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes)
    parts = document.setdefault("components", {})
    schemas = parts.setdefault("schemas", {})
    schemas["Problem"] = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    parts["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "An API key made by `ratchet key create`"}
    }
    for path, operations in document["paths"].items():
        if path in OPEN_PATHS:
            continue
        for operation in operations.values():
            operation["security"] = [{"key": []}]
    return document


OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""What answers without a key, wherever the service is bound."""
