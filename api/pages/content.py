"""What the pages of studies show, gathered from rows; the templates only lay it out."""

from __future__ import annotations

from datetime import datetime
from statistics import fmean
from typing import Any

from api import views
from api.deps import Services
from api.pages import starters
from api.pages.feed import feed_line, stage_of, trial_steps
from api.reports import build, html, plots, sentences
from api.reports.build import LIVE, StudyReportData
from api.reports.export import finite
from api.reports.importance import importance
from optimizer import windows as rules
from optimizer.studies import StudyState
from storage import events, hosts, logs, studies, trials, windows
from storage.errors import Missing
from storage.records import StudyRecord, TrialRecord, WindowRecord

S = StudyState
SHOWN_TRIALS = 250
SHOWN_POINTS = 2000
FEED = 30
LOG_TAIL = 6000
PHASES = (("baseline", "original"), ("explore", "exploring"), ("confirm", "confirming"), ("finish", "done"))
VERBS: dict[str, list[tuple[str, str, str]]] = {
    S.CREATED: [("start", "Start", "primary"), ("stop", "Stop", "danger")],
    S.QUEUED: [("pause", "Pause", ""), ("stop", "Stop", "danger")],
    S.RUNNING: [("pause", "Pause", ""), ("stop", "Stop", "danger")],
    S.WAITING_WINDOW: [("pause", "Pause", ""), ("stop", "Stop", "danger")],
    S.STOPPING: [("stop", "Stop", "danger")],
    S.PAUSED: [("resume", "Resume", "primary"), ("stop", "Stop", "danger")],
    S.FAILED: [("resume", "Try again", "primary"), ("stop", "Stop", "danger")],
    S.NEEDS_ATTENTION: [("resume", "Resume", "primary"), ("stop", "Stop", "danger")],
    S.FINISHED: [],
}
"""The buttons of each state: only moves that the state machine allows."""
Context = dict[str, Any]


def study_list(use: Services, limit: int, after: str | None) -> Context:
    """The list of studies with what is worth knowing at a glance."""
    with use.db.read() as conn:
        last = events.last_id(conn)
        found = studies.list_studies(conn, limit=limit + 1, after=after)
        rows = []
        for record in found[:limit]:
            counts = trials.count_by_state(conn, record.id)
            top = trials.best(conn, record.id, kinds=("baseline", "explore"))
            rows.append(
                {
                    "record": record,
                    "starts": sum(counts.values()),
                    "failed": counts.get("infeasible", 0) + counts.get("interrupted", 0),
                    "best": top[0].output_tok_s if top else None,
                    "verdict": short_verdict(record),
                }
            )
        registered = hosts.list_hosts(conn)
    return {
        "studies": rows,
        "more": len(found) > limit,
        "last_event": last,
        "hosts": registered,
        "attention": [h for h in registered if h.needs_attention],
    }


def short_verdict(record: StudyRecord) -> str:
    """The verdict in a table's cell."""
    found = record.verdict or {}
    outcome = found.get("outcome")
    if not outcome:
        return "-"
    ratio = found.get("ratio")
    shown = f" {sentences.percent(ratio)}" if isinstance(ratio, int | float) and ratio > 0 else ""
    names = {"win": "proven faster", "no_significant_win": "no proven win", "worse": "original is faster"}
    return f"{names.get(outcome, outcome)}{shown}"


def study_page(use: Services, record: StudyRecord) -> Context:
    """Everything of the page of one study."""
    with use.db.read() as conn:
        last = events.last_id(conn, study_id=record.id)
        recent = events.since(conn, max(0, last - 50 * FEED), study_id=record.id, limit=50 * FEED)
    data = build.collect(use.db, record.id, with_measurements=False)
    study, verdict = data.study, data.verdict or {}
    live = next((t for t in reversed(data.trials) if t.state in LIVE), None)
    log_of, log_tail = last_log(use, data)
    window = _window(use, study)
    return {
        "study": study,
        "data": data,
        "best": data.best,
        "sentence": html.sentence(data),
        "outcome": str(verdict.get("outcome", study.state)),
        "excluded": verdict.get("excluded") or {},
        "lossy": verdict.get("lossy") or [],
        "elapsed": f"worked for {html.elapsed(data)}" if data.trials else "not started",
        "verbs": VERBS.get(study.state, []),
        "steps": steps(study),
        "planned": planned_starts(study),
        "left": time_left(data),
        "current": live,
        "current_changed": data.changed_flags(live) if live else {},
        "current_steps": trial_steps(recent, live.number) if live else [],
        "stage": stage_of(recent, live.number) if live else "",
        "feed": [line for e in reversed(recent[-FEED:]) if (line := feed_line(e))],
        "chart": chart(data),
        "interval": plots.interval(data),
        "shown": data.trials[::-1][:SHOWN_TRIALS],
        "live_states": LIVE,
        "log_of": log_of,
        "log_tail": log_tail,
        "spec_yaml": starters.to_yaml(study.spec),
        "last_event": last,
        "window": window,
        "opening": opening_text(window, use.now()) if window else "",
        **dict(zip(("importance", "importance_note"), _importance(data), strict=True)),
    }


def _importance(data: StudyReportData) -> tuple[dict[str, float], str]:
    found = importance(data.candidates)
    return found["importance"], found["note"]


def steps(study: StudyRecord) -> list[tuple[str, str]]:
    """The phases with a mark: done, now, or nothing yet."""
    names = [name for name, _ in PHASES]
    at = len(names) if study.state == S.FINISHED else names.index(study.phase) if study.phase in names else -1
    return [(title, "done" if i < at else "now" if i == at else "") for i, (_, title) in enumerate(PHASES)]


def planned_starts(study: StudyRecord) -> int:
    """Starts that the budget allows: baselines, explored ones, restarts for the verdict."""
    budget = study.spec.get("budget") or {}
    baseline = study.spec.get("baseline") or {}
    return int(budget.get("trials", 40)) + int(budget.get("confirm_restarts", 10)) + int(baseline.get("restarts", 2))


def time_left(data: StudyReportData) -> str:
    """At most how long the study still works, from the mean of its starts so far and its budget of hours."""
    study = data.study
    if study.state in {S.FINISHED, S.FAILED}:
        return "-"
    spans = [(t.finished_at - t.started_at).total_seconds() for t in data.trials if t.finished_at and t.started_at]
    if not spans:
        return "not known yet"
    left = max(0, planned_starts(study) - len(spans)) * fmean(spans)
    hours = (study.spec.get("budget") or {}).get("hours")
    if isinstance(hours, int | float):
        left = min(left, max(0.0, hours * 3600 - sum(spans)))
    return sentences.duration(left)


def chart(data: StudyReportData) -> Context:
    """The points of the charts, the latest ones when there are very many."""
    best = data.best
    points = [
        {
            "x": t.number,
            "y": t.output_tok_s,
            "accept": t.accept_len,
            "step": t.step_ms,
            "state": t.state,
            "kind": t.kind if t.arm != build.BASELINE_ARM else "baseline",
            "arm": t.arm,
            "best": bool(best and best.number == t.number),
            "title": point_title(data, t),
        }
        for t in data.trials[-SHOWN_POINTS:]
    ]
    clean: Context = finite({"points": points, "band": data.baseline_band})
    return clean


def point_title(data: StudyReportData, trial: TrialRecord) -> str:
    """What the pointer over a dot says."""
    speed = f"{trial.output_tok_s:.1f} tok/s" if trial.output_tok_s is not None else trial.state
    changed = ", ".join(sentences.flag_text(k, v) for k, v in data.changed_flags(trial).items()) or "as the original"
    return f"start {trial.number}: {speed}; {changed}"


def last_log(use: Services, data: StudyReportData) -> tuple[int | None, str]:
    """The end of the newest log that was kept."""
    with use.db.read() as conn:
        for trial in data.trials[:-6:-1]:
            try:
                return trial.number, logs.get(conn, data.study.id, trial.number)[-LOG_TAIL:].decode("utf-8", "replace")
            except Missing:
                continue
    return None, ""


def _window(use: Services, study: StudyRecord) -> WindowRecord | None:
    named = study.window_id or study.spec.get("window")
    if not named:
        return None
    try:
        with use.db.read() as conn:
            return windows.get(conn, str(named))
    except Missing:
        return None


def opening_text(window: WindowRecord, now: datetime) -> str:
    """When a window opens or closes next, on its own wall clock."""
    opening = rules.current(window, now) if window.enabled else None
    if opening is not None:
        return f"open until {views.local(opening.closes_at, window.timezone)}"
    upcoming = rules.next_open(window, now) if window.enabled else None
    return f"opens {views.local(upcoming.opens_at, window.timezone)}" if upcoming else "switched off"
