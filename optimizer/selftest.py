"""The A/A test of a specification: the same study with the baseline as its only candidate.

Decides how a specification becomes its own self-test; the restarts, the statistics and the host are those of any study.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from optimizer.bench import selftest
from optimizer.bench import workload as workloads
from optimizer.bench.judging import Restart
from optimizer.spec import SpaceSection, StudySpec
from storage import measurements, trials
from storage.engine import Database


def self_test_spec(spec: StudySpec) -> StudySpec:
    """Return the self-test of a specification: nothing is explored, the baseline is confirmed against itself."""
    return spec.model_copy(
        update={
            "name": f"{spec.name[:90]}-self-test",
            "self_test": True,
            "space": SpaceSection(),
            "on_finish": "restore",
            "budget": spec.budget.model_copy(update={"confirm_restarts": max(8, spec.budget.confirm_restarts)}),
        }
    )


def noise_report(db: Database, study_id: str, spec: StudySpec) -> dict[str, Any] | None:
    """Say how noisy the host is and how many restarts a win of +2, +5 and +10 % needs there; None without restarts."""
    with db.read() as conn:
        done = trials.list_trials(conn, study_id, states=["complete"], kinds=["baseline", "confirm"])
        measured = {m.trial_number: m for m in measurements.for_study(conn, study_id)}
    restarts = [Restart(t.arm, measured[t.number].tok_s) for t in done if t.number in measured]
    prompts = [p.name for p in workloads.from_spec(spec.workload).prompts]
    if len(restarts) < 2:
        return None
    noise = selftest.estimate_noise(prompts, restarts)
    needed = {f"{100 * g:.0f}": selftest.restarts_needed(noise, g, alpha=spec.alpha) for g in (0.02, 0.05, 0.10)}
    return asdict(noise) | {"restarts_per_arm_for_pct": needed}
