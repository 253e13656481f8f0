"""Ratchet's figures in Prometheus' text format, read from the database when asked.

Decides names and units. Finished studies do not change, so their sums are kept by version between two scrapes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from threading import Lock

from prometheus_client import CONTENT_TYPE_LATEST as CONTENT_TYPE
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from api.deps import Services
from api.reports.build import is_phase
from optimizer import metrics as counters
from optimizer.studies import StudyState
from storage import leases, studies, trials
from storage.records import StudyRecord, TrialRecord

__all__ = ["CONTENT_TYPE", "exposition"]

PAGE = 500
WASTED = frozenset({"infeasible", "interrupted"})
_sums: dict[tuple[str, str], tuple[tuple[int, int], Sums]] = {}
_lock = Lock()


@dataclass
class Sums:
    """What one study adds to the totals."""

    by_state: dict[str, int] = field(default_factory=dict)
    wasted: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def exposition(use: Services) -> bytes:
    """Return the whole text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Now(use))
    return generate_latest(registry)


class _Now(Collector):
    """Reads the database once for one scrape."""

    def __init__(self, use: Services) -> None:
        self._use = use

    def collect(self) -> list[Metric]:
        """Return every family."""
        found = _all_studies(self._use)
        return [*_studies(found), *_trials(self._use, found), _leases(self._use), *_counted()]


def _all_studies(use: Services) -> list[StudyRecord]:
    found: list[StudyRecord] = []
    with use.db.read() as conn:
        while True:
            page = studies.list_studies(conn, limit=PAGE, after=found[-1].id if found else None)
            found += page
            if len(page) < PAGE:
                return found


def _studies(found: list[StudyRecord]) -> list[Metric]:
    states = GaugeMetricFamily("ratchet_studies", "Studies by state", labels=["state"])
    for state in StudyState:
        states.add_metric([state.value], sum(1 for s in found if s.state == state))
    ratio = GaugeMetricFamily(
        "ratchet_study_best_ratio", "Confirmed speed of the best over the original's", labels=["study", "outcome"]
    )
    for study in found:
        verdict = study.verdict or {}
        if isinstance(verdict.get("ratio"), int | float):
            ratio.add_metric([study.name, str(verdict.get("outcome", ""))], float(verdict["ratio"]))
    return [states, ratio]


def _trials(use: Services, found: list[StudyRecord]) -> list[Metric]:
    total = Sums()
    for study in found:
        part = _sums_of(use, study)
        for source, target in ((part.by_state, total.by_state), (part.wasted, total.wasted)):
            for name, count in source.items():
                target[name] = target.get(name, 0) + count
        for name, seconds in part.seconds.items():
            total.seconds[name] = total.seconds.get(name, 0.0) + seconds
    states = GaugeMetricFamily("ratchet_trials", "Trials by state", labels=["state"])
    for name, count in sorted(total.by_state.items()):
        states.add_metric([name], count)
    wasted = GaugeMetricFamily("ratchet_starts_wasted", "Starts that gave no measurement, by cause", labels=["cause"])
    for name, count in sorted(total.wasted.items()):
        wasted.add_metric([name], count)
    phases = GaugeMetricFamily("ratchet_phase_seconds", "Seconds spent, by phase of a trial", labels=["phase"])
    for name, seconds in sorted(total.seconds.items()):
        phases.add_metric([name], seconds)
    return [states, wasted, phases]


def _sums_of(use: Services, study: StudyRecord) -> Sums:
    with use.db.read() as conn:
        by_state = trials.count_by_state(conn, study.id)
        mark = (study.version, sum(by_state.values()))
        key = (use.db.name, study.id)
        with _lock:
            kept = _sums.get(key)
        if kept is not None and kept[0] == mark and study.state in {StudyState.FINISHED, StudyState.PAUSED}:
            return kept[1]
        sums = _add_up(by_state, trials.list_trials(conn, study.id))
    with _lock:
        _sums[key] = (mark, sums)
    return sums


def _add_up(by_state: dict[str, int], rows: list[TrialRecord]) -> Sums:
    sums = Sums(by_state=dict(by_state))
    for trial in rows:
        if trial.state in WASTED:
            cause = str((trial.failure or {}).get("label", trial.state))
            sums.wasted[cause] = sums.wasted.get(cause, 0) + 1
        for name, seconds in trial.timings.items():
            if is_phase(name) and isinstance(seconds, int | float):
                sums.seconds[name.removesuffix("_s")] = sums.seconds.get(name.removesuffix("_s"), 0.0) + seconds
    return sums


def _leases(use: Services) -> Metric:
    family = GaugeMetricFamily(
        "ratchet_lease_left_seconds", "Seconds until the lease of a host runs out (negative: it did)", labels=["host"]
    )
    with use.db.read() as conn:
        for lease in leases.list_leases(conn):
            family.add_metric([lease.host], (lease.until - use.now()).total_seconds())
    return family


def _counted() -> list[Metric]:
    """Counters of this process (`optimizer.metrics`), such as `ssh_errors_total`."""
    families: dict[str, CounterMetricFamily] = {}
    for (name, labels), value in sorted(counters.snapshot().items()):
        base = "ratchet_" + re.sub(r"[^a-zA-Z0-9_]", "_", name).removesuffix("_total")
        names = [k for k, _ in labels]
        key = base + "|" + ",".join(names)
        if key not in families:
            families[key] = CounterMetricFamily(base, "Counted by this process since it started", labels=names)
        families[key].add_metric([v for _, v in labels], value)
    return list(families.values())
