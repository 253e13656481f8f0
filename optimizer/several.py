"""What the hosts of one study know of each other: who is at work, and what all of them wait for.

Decides when one host waits for another; each runs its own phases, and what it knows of others is in the database.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from optimizer.evidence import Evidence, objective_of
from optimizer.run import StudyRun
from storage import leases, shares

LOOK_EVERY_S = 1.0


def hosts(run: StudyRun) -> list[str]:
    """Return the names of the study's hosts, its own one first."""
    with run.db.read() as conn:
        return [part.host for part in shares.for_study(conn, run.study.id)]


def working(run: StudyRun) -> set[str]:
    """Return the other hosts on which somebody works on this study now."""
    now = run.clock.now()
    with run.db.read() as conn:
        held = [lease for lease in leases.list_leases(conn) if lease.until > now]
    return {lease.host for lease in held if lease.study_id == run.study.id} - {run.host.name}


def explores_elsewhere(run: StudyRun, seen: Evidence) -> bool:
    """Say whether another host is at a trial that may still change who is confirmed. A dead one is not waited for."""
    return bool({t.host for t in seen.explored_elsewhere_now} & working(run))


def at_work_elsewhere(run: StudyRun, more_to_come: Sequence[bool]) -> bool:
    """Say whether another host will still add to the evidence; `more_to_come` says of each host that it should."""
    with run.db.read() as conn:
        parts = shares.for_study(conn, run.study.id)
    return any(
        more and not part.ending and part.host != run.host.name for part, more in zip(parts, more_to_come, strict=True)
    )


def wait(run: StudyRun) -> None:
    """Let a moment pass. Raises what `lease.check` raises."""
    run.lease.check()
    run.clock.sleep(LOOK_EVERY_S)


def reference_tok_s(run: StudyRun, seen: Evidence) -> float:
    """Return the baseline's speed: of this host, or the geometric mean over hosts as the search's model has it."""
    speeds: dict[str, list[float]] = {}
    for trial in seen.trials:
        if trial.kind == "baseline" and trial.state == "complete" and (speed := objective_of(run, trial)):
            speeds.setdefault(trial.host, []).append(speed)
    if set(speeds) <= {run.host.name}:
        return run.reference_tok_s or 0.0
    return statistics.geometric_mean(statistics.fmean(found) for found in speeds.values())
