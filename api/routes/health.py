"""Whether the process lives, whether it can work, and its figures for Prometheus."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from api.deps import Use, Viewer
from api.documented import problems
from api.exposition import CONTENT_TYPE, exposition
from api.idempotency import ApiRoute
from api.problems import problem_response
from api.schemas import HealthOut
from storage import migrate
from storage.errors import StorageError

router = APIRouter(tags=["health"], route_class=ApiRoute)


@router.get("/healthz", response_model=HealthOut)
def healthz() -> Any:
    """Say that the process answers; looks at nothing else."""
    return {"status": "ok", "checks": {}}


@router.get("/readyz", response_model=HealthOut, responses={503: problems()[503]})
def readyz(use: Use) -> Any:
    """Say whether the database answers with the right schema and the worker, if there is one, is alive."""
    checks = {"database": _database(use), "worker": _worker(use)}
    if use.stopping.is_set():
        checks["service"] = "is shutting down"
    bad = [f"{name}: {text}" for name, text in checks.items() if text not in {"ok", "none here"}]
    if bad:
        return problem_response(503, "; ".join(bad))
    return {"status": "ok", "checks": checks}


@router.get(
    "/metrics",
    response_class=Response,
    responses=problems() | {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics(use: Use, _: Viewer) -> Response:
    """Figures for Prometheus."""
    return Response(exposition(use), headers={"Content-Type": CONTENT_TYPE})


def _worker(use: Use) -> str:
    if use.worker is None:
        return "none here"
    return "ok" if use.worker.alive() else "has ended; the log says why, restart the service"


def _database(use: Use) -> str:
    try:
        migrate.check(use.db)
    except StorageError as error:
        return error.message
    return "ok"
