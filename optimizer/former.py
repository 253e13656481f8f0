"""What earlier studies found for the same server: where a new search looks first, never evidence.

Decides which studies are alike (engine, launch, workload, kind of host) and what of them is worth a start.
"""

from __future__ import annotations

from dataclasses import asdict
from statistics import fmean
from typing import Any

from optimizer.engines.base import Hardware
from optimizer.search.space import KnownResult
from optimizer.spec import StudySpec
from storage import studies, trials
from storage.engine import Database
from storage.records import StudyRecord, TrialRecord

BEST_OF_EACH = 2
"""Configurations that one earlier study brings along."""
LOOKED_AT = 200
"""Newest finished studies that are compared."""
KIND = ("gpu_name", "gpu_count", "cpu_count")


def results(db: Database, study: StudyRecord, spec: StudySpec, hardware: Hardware) -> tuple[KnownResult, ...]:
    """Return the best configurations of studies that had ended when this one was created, the fastest first.

    Only those: what is brought along must be the same whenever this study is taken up again.
    """
    wanted = _mark(spec.model_dump(mode="json", exclude_none=False), asdict(hardware))
    found: list[KnownResult] = []
    with db.read() as conn:
        for other in studies.list_studies(conn, limit=LOOKED_AT, state="finished"):
            ended = other.finished_at is not None and other.finished_at <= study.created_at
            if ended and _mark(other.spec, other.hardware or {}) == wanted:
                found += _best(trials.list_trials(conn, other.id, states=["complete"]))
    return tuple(sorted(found, key=lambda k: -(k.output_tok_s or 0.0)))


def _mark(spec: dict[str, Any], hardware: dict[str, Any]) -> list[Any]:
    launch = dict(spec["launch"])
    launch["flags"] = {k: v for k, v in launch["flags"].items() if k != "port"}
    return [spec["engine"], launch, spec["workload"], *(hardware.get(name) for name in KIND)]


def _best(rows: list[TrialRecord]) -> list[KnownResult]:
    """The fastest by the mean of all their starts, as far as faster than home and answering as home did."""
    speeds: dict[str, list[float]] = {}
    asked: dict[str, dict[str, Any]] = {}
    for trial in rows:
        trusted = trial.output_check is None or trial.output_check.get("ok")
        if trial.arm != "baseline" and trial.canonical_key and trial.output_tok_s and trusted:
            speeds.setdefault(trial.canonical_key, []).append(trial.output_tok_s)
            asked[trial.canonical_key] = trial.params
    home = [t.output_tok_s for t in rows if t.arm == "baseline" and t.output_tok_s]
    faster = [key for key in speeds if home and fmean(speeds[key]) > fmean(home)]
    best = sorted(faster, key=lambda key: -fmean(speeds[key]))[:BEST_OF_EACH]
    return [KnownResult(asked[key], fmean(speeds[key])) for key in best]
