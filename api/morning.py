"""The morning report: what one opening of a window brought, as data, Markdown and HTML.

Decides what a person wants to know at breakfast: what was tried, what is proved, what serves now, who must look.
When it is made and where it is sent is `nights.py` and `deliver.py`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import Response

from api import views
from api.reports import build, html, sentences
from api.reports.build import StudyReportData
from api.reports.export import finite
from storage import hosts, shares, studies, windows
from storage.engine import Database
from storage.errors import Missing
from storage.records import StudyRecord, TrialRecord, WindowRecord, WindowRunRecord

NIGHT_CSP = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'self'; sandbox"
NEEDS_A_HUMAN = frozenset({"failed", "needs_attention"})
Report = dict[str, Any]


@dataclass(frozen=True)
class Span:
    """The time that a report is about."""

    opened_at: datetime
    closes_at: datetime

    def covers(self, trial: TrialRecord) -> bool:
        """Say whether a trial was worked on in this time."""
        began = trial.started_at or trial.created_at
        ended = trial.finished_at or self.closes_at
        return began < self.closes_at and ended > self.opened_at


def stored_or_built(db: Database, window: WindowRecord, local_date: str, *, now: datetime) -> Report | None:
    """Return the report of an opening: the one that was stored when it closed, else one made now; None if unknown."""
    with db.read() as conn:
        run = windows.get_run(conn, window.id, local_date)
    if run is None:
        return None
    return run.report or build_report(db, window, run, now=now)


def build_report(db: Database, window: WindowRecord, run: WindowRunRecord, *, now: datetime) -> Report:
    """Collect what happened in one opening."""
    span = Span(run.opened_at, run.closes_at)
    told = [_study(db, s, span) for s in studies_of(db, window, run) if not ended_before(s, span)]
    worked = [s for s in told if s["starts"] > 0]
    report = {
        "schema": "ratchet-night",
        "schema_version": 1,
        "window": window.name,
        "timezone": window.timezone,
        "local_date": run.local_date,
        "opened": views.local(run.opened_at, window.timezone),
        "closed": views.local(run.closes_at, window.timezone),
        "opened_at": run.opened_at.isoformat(),
        "closes_at": run.closes_at.isoformat(),
        "made_at": now.isoformat(),
        "status": run.status,
        "reason": run.reason,
        "studies": told,
        "attention": _attention(db, told),
    }
    report["headline"] = _headline(report, worked)
    clean: Report = json.loads(json.dumps(finite(report), default=str))
    return clean


def ended_before(study: StudyRecord, span: Span) -> bool:
    """Say whether a study was over when the window opened: it is history, and no part of that night."""
    return study.finished_at is not None and study.finished_at <= span.opened_at


def studies_of(db: Database, window: WindowRecord, run: WindowRunRecord) -> list[StudyRecord]:
    """Return the studies of an opening: those recorded with it, and those attached to its window."""
    with db.read() as conn:
        attached = studies.list_studies(conn, limit=None, window_id=window.id)
        seen = {s.id for s in attached}
        for name in run.studies:
            try:
                record = studies.get(conn, name)
            except Missing:
                continue
            if record.id not in seen:
                attached.append(record)
                seen.add(record.id)
    return attached


def to_markdown(report: Report) -> str:
    """Write a report as Markdown."""
    return _environment().get_template("night.md.j2").render(report=report).strip() + "\n"


def to_html(report: Report) -> str:
    """Write a report as one HTML file."""
    style = files("api.reports").joinpath("templates", "report.css").read_text(encoding="utf-8")
    return _environment().get_template("night.html.j2").render(report=report, style=style)


def answer(report: Report, form: str) -> Response:
    """Return a report as a response in the form `html`, `md` or `json`."""
    if form == "html":
        return Response(
            to_html(report), media_type="text/html; charset=utf-8", headers={"Content-Security-Policy": NIGHT_CSP}
        )
    if form == "md":
        return Response(to_markdown(report), media_type="text/markdown; charset=utf-8")
    return Response(json.dumps(report, ensure_ascii=False), media_type="application/json")


def _study(db: Database, study: StudyRecord, span: Span) -> Report:
    data = build.collect(db, study.id, with_measurements=False)
    with db.read() as conn:
        worked_on = [part.host for part in shares.for_study(conn, study.id)]
    tonight = [t for t in data.trials if span.covers(t)]
    states: dict[str, int] = {}
    for trial in tonight:
        states[trial.state] = states.get(trial.state, 0) + 1
    best = max((t for t in tonight if t.state == "complete"), key=lambda t: t.output_tok_s or 0.0, default=None)
    return {
        "id": study.id,
        "name": study.name,
        "host": study.host,
        "hosts": worked_on,
        "state": study.state,
        "state_reason": study.state_reason,
        "phase": study.phase,
        "sentence": html.sentence(data),
        "starts": len(tonight),
        "starts_by_state": states,
        "baseline_tok_s": data.baseline_tok_s,
        "best_tonight_tok_s": best.output_tok_s if best else None,
        "best_tonight": data.changed_flags(best) if best else {},
        "failures": [
            {"label": g.label, "count": g.count, "summary": g.summary, "remedy": g.remedy}
            for g in html.failures(StudyReportData(study, tonight))
        ],
        "serves_now": serves_now(data),
    }


def serves_now(data: StudyReportData) -> str:
    """Say which server the host should have now, as far as the study knows."""
    study = data.study
    if study.state in {"running", "stopping"}:
        return "a trial of this study (it is still at work)"
    if study.state == "needs_attention":
        return "not known: a human must look"
    won = (data.verdict or {}).get("outcome") == "win"
    if study.state == "finished" and won and study.spec.get("on_finish") == "adopt" and not study.state_reason:
        return "the proven configuration (adopted)"
    if study.home is None and not data.trials:
        return "the original server (nothing was touched)"
    return "the original server" if study.home else "nothing: no server was there before"


def _attention(db: Database, told: list[Report]) -> list[str]:
    lines = [
        f"{s['name']} is {s['state'].replace('_', ' ')}: {s['state_reason']}"
        for s in told
        if s["state"] in NEEDS_A_HUMAN
    ]
    with db.read() as conn:
        for host in sorted({host for s in told for host in s["hosts"]}):
            record = hosts.find(conn, host)
            if record is not None and record.needs_attention:
                lines.append(f"host {host}: {record.needs_attention}")
    return lines


def _headline(report: Report, worked: list[Report]) -> str:
    if report["status"] == "missed":
        return f"Nothing ran: {report['reason'] or 'the window was missed'}."
    if not worked:
        return "Nothing was started."
    starts = sum(s["starts"] for s in worked)
    names = ", ".join(s["name"] for s in worked[:3]) + (" and others" if len(worked) > 3 else "")
    wins = [s["name"] for s in worked if s["sentence"].startswith("Proven faster")]
    end = f" Proven faster: {', '.join(wins)}." if wins else ""
    return f"{starts} start{'s' if starts != 1 else ''} for {names}.{end}"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("api.reports"),
        autoescape=lambda name: bool(name and ".html" in name),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=sentences.number)
    environment.globals["flag_text"] = sentences.flag_text
    return environment
