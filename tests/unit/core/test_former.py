"""What earlier studies bring along: the same server on the same kind of host, ended before, faster than its home."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import yaml

from optimizer import former, studies
from optimizer.engines.base import Hardware
from optimizer.spec import StudySpec, parse_study
from storage import leases, trials
from storage import studies as rows
from storage.engine import Database
from storage.records import StudyRecord, TrialRecord
from tests.unit.core.test_studies import DEMO, NOW

HARDWARE = Hardware(gpu_name="NVIDIA H100", gpu_count=8, cpu_count=64)


def create(db: Database, name: str, *, hours: float, **changes: Any) -> tuple[StudyRecord, StudySpec]:
    spec = parse_study(yaml.safe_load(DEMO.read_text()) | {"name": name, **changes})
    return studies.create(db, spec, now=NOW + timedelta(hours=hours)), spec


def finished(db: Database, name: str, speeds: dict[str, float], *, hours: float = 0.0, **changes: Any) -> None:
    """An ended study with one complete start per arm; an arm is also the value of its flag."""
    record, _ = create(db, name, hours=hours, **changes)
    with db.write() as conn:
        fence = leases.claim(conn, record.host, "worker", ttl_s=60, now=NOW, study_id=record.id)
        assert fence is not None
        for arm, speed in speeds.items():
            kind = "baseline" if arm == "baseline" else "explore"
            trial = TrialRecord(
                record.id, -1, kind, "complete", arm, {"threads": arm}, NOW, canonical_key=arm, output_tok_s=speed,
                host=record.host, fence=fence,
            )  # fmt: skip
            trials.add(conn, trial, host=record.host, fence=fence)
        leases.release(conn, record.host, "worker", fence)
        rows.update(conn, record.id, hardware=vars(HARDWARE))
    studies.stop(db, record.id, now=NOW + timedelta(hours=hours + 1))


def test_the_best_of_alike_studies_come_along(db: Database) -> None:
    finished(db, "alike", {"baseline": 90.0, "a": 120.0, "b": 110.0, "c": 100.0, "d": 80.0})
    finished(db, "slower", {"baseline": 90.0, "e": 70.0})
    finished(db, "other-workload", {"baseline": 90.0, "f": 200.0}, workload={"preset": "five-prompts", "max_tokens": 7})
    finished(db, "later", {"baseline": 90.0, "g": 300.0}, hours=5)
    study, spec = create(db, "new", hours=3)
    found = former.results(db, study, spec, HARDWARE)
    assert [(k.config["threads"], k.output_tok_s) for k in found] == [("a", 120.0), ("b", 110.0)]
    assert former.results(db, study, spec, Hardware(gpu_name="NVIDIA L4", gpu_count=1, cpu_count=8)) == ()
