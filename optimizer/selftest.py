"""The A/A test of a specification: the same study with the baseline as its only candidate.

Decides how a specification becomes its own self-test; the restarts, the statistics and the host are those of any study.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from typing import Any

from optimizer.bench import selftest
from optimizer.bench import workload as workloads
from optimizer.bench.judging import Restart, common_prompts
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
    """Say how noisy the host is and how many restarts a win of +2, +5 and +10 % needs there; None without restarts.

    Of several hosts the noisiest counts, since a candidate has to win on each.
    """
    with db.read() as conn:
        done = trials.list_trials(conn, study_id, states=["complete"], kinds=["baseline", "confirm"])
        measured = {m.trial_number: m for m in measurements.for_study(conn, study_id)}
    by_host: defaultdict[str, list[Restart]] = defaultdict(list)
    for trial in done:
        if trial.number in measured:
            by_host[trial.host].append(Restart(trial.arm, measured[trial.number].tok_s))
    prompts = [p.name for p in workloads.from_spec(spec.workload).prompts]
    enough = [runs for runs in by_host.values() if len(runs) > 1 and common_prompts(prompts, runs)]
    if not enough:
        return None
    noise = max((selftest.estimate_noise(prompts, runs) for runs in enough), key=lambda found: found.restart)
    needed = {f"{100 * g:.0f}": selftest.restarts_needed(noise, g, alpha=spec.alpha) for g in (0.02, 0.05, 0.10)}
    return asdict(noise) | {"restarts_per_arm_for_pct": needed}
