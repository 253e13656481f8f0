"""What came out of a study: best, verdict, importance, report, export."""

from __future__ import annotations

import io
from enum import StrEnum
from typing import Any

from fastapi import APIRouter, Response

from api import views
from api.auth import KeyScope
from api.deps import Use, Viewer
from api.documented import problems
from api.idempotency import ApiRoute
from api.problems import ApiProblem
from api.reports import build, export, html, markdown
from api.reports.importance import importance
from api.reports.optuna_file import optuna_file
from api.schemas import BestOut, ImportanceOut, VerdictOut
from optimizer import studies as verbs
from storage import transfer
from storage.engine import Database

router = APIRouter(prefix="/api/v1/studies/{study_id}", tags=["results"], route_class=ApiRoute)
REPORT_CSP = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; frame-ancestors 'self'; sandbox"
)
"""The report is one file with its style inside and without any script."""


class ReportFormat(StrEnum):
    """How a report is written."""

    HTML = "html"
    MD = "md"
    JSON = "json"


class ExportFormat(StrEnum):
    """How a study is exported."""

    CSV = "csv"
    JSON = "json"
    OPTUNA = "optuna"
    WHOLE = "whole"


@router.get("/best", response_model=BestOut, responses=problems(404))
def get_best(study_id: str, use: Use, _: Viewer) -> Any:
    """Read the best configuration known, with its launch command and what it changes."""
    return views.best(build.collect(use.db, study_id))


@router.get("/verdict", response_model=VerdictOut, responses=problems(404))
def get_verdict(study_id: str, use: Use, _: Viewer) -> Any:
    """Read what the evidence shows, and every look that led to it."""
    return views.verdict(build.collect(use.db, study_id))


@router.get("/importance", response_model=ImportanceOut, responses=problems(404))
def get_importance(study_id: str, use: Use, _: Viewer) -> Any:
    """Read how much each searched parameter explains of the differences in speed."""
    return importance(build.collect(use.db, study_id).candidates)


@router.get(
    "/report",
    responses=problems(404)
    | {
        200: {
            "description": "The report",
            "content": {
                "text/html": {"schema": {"type": "string"}},
                "text/markdown": {"schema": {"type": "string"}},
                "application/json": {"schema": {"type": "object"}},
            },
        }
    },
    response_class=Response,
)
def get_report(study_id: str, use: Use, _: Viewer, format: ReportFormat = ReportFormat.HTML) -> Response:  # noqa: A002
    """Read the report: one HTML file, Markdown, or JSON."""
    data = build.collect(use.db, study_id)
    if format is ReportFormat.HTML:
        return Response(
            html.render(data), media_type="text/html; charset=utf-8", headers={"Content-Security-Policy": REPORT_CSP}
        )
    if format is ReportFormat.MD:
        return Response(markdown.render(data), media_type="text/markdown; charset=utf-8")
    return Response(export.to_json(data), media_type="application/json")


@router.get(
    "/export",
    responses=problems(404)
    | {
        200: {
            "description": "The study as a file",
            "content": {
                "text/csv": {"schema": {"type": "string"}},
                "application/json": {"schema": {"type": "object"}},
                "application/vnd.sqlite3": {"schema": {"type": "string", "format": "binary"}},
                "application/gzip": {"schema": {"type": "string", "format": "binary"}},
            },
        }
    },
    response_class=Response,
)
def get_export(study_id: str, use: Use, who: Viewer, format: ExportFormat = ExportFormat.JSON) -> Response:  # noqa: A002
    """Read the study as CSV (a line per start), JSON, an SQLite file that Optuna opens, or whole, to be imported."""
    if format is ExportFormat.WHOLE:
        if not who.may(KeyScope.OPERATOR):
            raise ApiProblem(
                403, "a whole study is for a key with the scope operator: it has values of home's environment"
            )
        return _whole(use.db, study_id)
    data = build.collect(use.db, study_id)
    name = data.study.name
    if format is ExportFormat.CSV:
        return _file(export.to_csv(data).encode(), "text/csv; charset=utf-8", f"{name}.csv")
    if format is ExportFormat.OPTUNA:
        return _file(optuna_file(use.db, data.study), "application/vnd.sqlite3", f"{name}.optuna.db")
    return _file(export.to_json(data).encode(), "application/json", f"{name}.json")


def _whole(db: Database, study_id: str) -> Response:
    name, content = verbs.get(db, study_id).name, io.BytesIO()
    with db.read() as conn:
        transfer.export_study(conn, name, content)
    return _file(content.getvalue(), "application/gzip", f"{name}.ratchet.gz")


def _file(content: bytes, media_type: str, name: str) -> Response:
    return Response(content, media_type=media_type, headers={"Content-Disposition": f'attachment; filename="{name}"'})
