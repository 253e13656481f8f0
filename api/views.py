"""Rows as answers: which fields of a record leave the service, and in which form (secrets never do)."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from api.auth import usable
from api.reports import html, launch, learnt
from api.reports.build import StudyReportData
from api.reports.export import finite
from optimizer import windows as rules
from storage.records import (
    HostRecord,
    KeyRecord,
    LeaseRecord,
    MeasurementRecord,
    RequestRecord,
    SeriesRecord,
    StudyRecord,
    TrialRecord,
    VerdictRecord,
    WindowRecord,
    WindowRunRecord,
)

SHOWN_OPENINGS = 5
JsonObject = dict[str, Any]


def study(record: StudyRecord, counts: dict[str, int]) -> JsonObject:
    """A study in a listing."""
    names = (
        "id", "name", "state", "state_reason", "phase", "host", "engine", "engine_version", "priority", "window_id",
        "best_trial", "created_at", "started_at", "finished_at", "updated_at", "version",
    )  # fmt: skip
    return {n: getattr(record, n) for n in names} | {"verdict": finite(record.verdict), "trials": counts}


def study_detail(record: StudyRecord, counts: dict[str, int]) -> JsonObject:
    """A study with its specification."""
    return study(record, counts) | {
        "spec": finite(record.spec),
        "fingerprint": record.fingerprint,
        "home": launch.shown_home(record.home),
        "hardware": finite(record.hardware),
    }


def trial(record: TrialRecord, spec: JsonObject, base: TrialRecord | None) -> JsonObject:
    """A trial in a listing; `base` is the study's first baseline, `spec` its specification."""
    data = {**vars(record), **launch.shown_flags(vars(record))}
    for hidden in ("run_id", "optuna_number", "told", "fence", "running_config"):
        data.pop(hidden)
    data["changed"] = launch.changed_parameters(record, base, spec)
    clean: JsonObject = finite(data)
    return clean


def trial_detail(
    record: TrialRecord, spec: JsonObject, base: TrialRecord | None, found: list[MeasurementRecord]
) -> JsonObject:
    """A trial with its measurements."""
    return trial(record, spec, base) | {
        "running_config": finite(launch.shown_flags(vars(record)).get("running_config", record.running_config)),
        "measurements": [measurement(m) for m in found],
    }


def measurement(record: MeasurementRecord) -> JsonObject:
    """One benchmark."""
    data = dict(vars(record))
    data.pop("study_id")
    data.pop("id")
    clean: JsonObject = finite(data)
    return clean


def request(record: RequestRecord) -> JsonObject:
    """One raw request of a measurement."""
    clean: JsonObject = finite(asdict(record))
    return clean


def series(record: SeriesRecord) -> JsonObject:
    """One quantity over time."""
    names = ("source", "name", "started_at", "times_s", "values")
    return {n: finite(getattr(record, n)) for n in names}


def verdict_look(record: VerdictRecord) -> JsonObject:
    """One look at the evidence."""
    data = dict(vars(record))
    data.pop("study_id")
    data.pop("id")
    clean: JsonObject = finite(data)
    return clean


def best(data: StudyReportData) -> JsonObject:
    """The best configuration of a study."""
    found = data.best
    before, after = data.baseline_tok_s, data.best_tok_s
    return {
        "trial": trial(found, data.study.spec, data.first_baseline) if found else None,
        "output_tok_s": finite(after),
        "baseline_tok_s": finite(before),
        "ratio": after / before if after and before else None,
        "launch_command": found.launch_command or None if found else None,
        "changes": [asdict(c) for c in data.changes],
        "proven": (data.verdict or {}).get("outcome") == "win",
    }


def verdict(data: StudyReportData) -> JsonObject:
    """The verdict of a study, with every look that led to it."""
    found = data.verdict or {}
    return {
        "outcome": found.get("outcome"),
        "sentence": html.sentence(data),
        "ratio": finite(found.get("ratio")),
        "ci_low": finite(found.get("ci_low")),
        "ci_high": finite(found.get("ci_high")),
        "restarts": int(found.get("restarts") or 0),
        "baseline_tok_s": finite(data.baseline_tok_s),
        "best_tok_s": finite(data.best_tok_s),
        "looks": [verdict_look(v) for v in data.verdicts],
        "learnt": learnt.lines(found),
        "changes": finite(found.get("changes")),
        "importance": finite(found.get("importance") or {}),
        "best_by_level": finite(found.get("best_by_level") or {}),
    }


def host(record: HostRecord, lease: LeaseRecord | None, now: datetime) -> JsonObject:
    """A host; help texts of engines are left out of its facts, they are long and of no use here."""
    facts = {k: v for k, v in record.facts.items() if k != "help"}
    held = lease is not None and lease.until > now
    return {
        "name": record.name,
        "entry": finite(record.entry),
        "host_key": record.host_key,
        "needs_attention": record.needs_attention,
        "facts": finite(facts),
        "home": launch.shown_home(record.home),
        "lease": {"owner": lease.owner, "study_id": lease.study_id, "until": lease.until, "fence": lease.fence}
        if held and lease
        else None,
        "created_at": record.created_at,
        "version": record.version,
    }


def opening(found: rules.Opening, zone: str) -> JsonObject:
    """One opening, in UTC and on the wall clock of its zone."""
    return {
        "local_date": found.local_date,
        "opens_at": found.opens_at,
        "closes_at": found.closes_at,
        "opens_local": local(found.opens_at, zone),
        "closes_local": local(found.closes_at, zone),
    }


def local(at: datetime, zone: str) -> str:
    """Write an instant on a zone's wall clock, with the zone's short name."""
    return at.astimezone(ZoneInfo(zone)).strftime("%a %Y-%m-%d %H:%M %Z")


def window(record: WindowRecord, runs: list[WindowRunRecord], attached: list[StudyRecord], now: datetime) -> JsonObject:
    """A window with what comes and what was."""
    names = ("id", "name", "start_cron", "timezone", "until", "duration_min", "enabled", "created_at", "version")
    return {n: getattr(record, n) for n in names} | {
        "open_now": record.enabled and rules.is_open(record, now),
        "next_openings": [opening(o, record.timezone) for o in rules.openings(record, now, SHOWN_OPENINGS)],
        "studies": [s.name for s in attached],
        "runs": [window_run(r) for r in runs],
    }


def window_run(record: WindowRunRecord) -> JsonObject:
    """One opening that was."""
    names = ("local_date", "opened_at", "closes_at", "status", "reason", "studies")
    return {n: getattr(record, n) for n in names} | {"has_report": record.report is not None}


def key(record: KeyRecord, now: datetime) -> JsonObject:
    """A key without its hash."""
    names = ("id", "name", "prefix", "scopes", "created_at", "expires_at", "revoked_at", "last_used_at")
    return {n: getattr(record, n) for n in names} | {"usable": usable(record, now)}
