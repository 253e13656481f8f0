"""Results of two engine versions or kinds of GPUs are never mixed, whether of two hosts or of one that was upgraded."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from optimizer import kinds, run, studies
from optimizer.clock import SystemClock
from optimizer.errors import BadInput
from optimizer.models import ModelConfigs
from optimizer.studies import StudyState as S
from storage import leases, trials
from storage.engine import Database
from storage.records import StudyRecord, TrialRecord
from tests.unit.core.test_former import HARDWARE, create
from tests.unit.core.test_several import document
from tests.unit.core.test_studies import NOW


def opened(db: Database, **changes: Any) -> StudyRecord:
    """A study whose host was found to have version 0.5.20 and eight GPUs."""
    study, _ = create(db, "s", hours=0, **changes)
    return kinds.settle(db, study, "box", "0.5.20", HARDWARE)[0]


def measure(db: Database, study: StudyRecord) -> None:
    with db.write() as conn:
        fence = leases.claim(conn, study.host, "worker", ttl_s=60, now=NOW, study_id=study.id)
        assert fence is not None
        trial = TrialRecord(study.id, -1, "baseline", "complete", "baseline", {}, NOW, host=study.host, fence=fence)
        trials.add(conn, trial, host=study.host, fence=fence)


def test_what_a_host_is_may_change_until_something_was_measured(db: Database) -> None:
    study = opened(db)
    now, warning = kinds.settle(db, study, "box", "0.5.23", replace(HARDWARE, gpu_count=4))
    assert (now.engine_version, now.hardware, warning) == ("0.5.23", vars(replace(HARDWARE, gpu_count=4)), "")


@pytest.mark.parametrize(
    ("version", "hardware", "told"),
    [
        ("0.5.23", {}, ["engine_version: is 0.5.23, and was 0.5.20 for the study's results"]),
        ("0.5.20", {"gpu_count": 4}, ["gpus: is 4 x NVIDIA H100, and was 8 x NVIDIA H100 for the study's results"]),
        (None, {"gpu_count": 0, "gpu_name": ""}, ["engine_version: is not known", "gpus: is none"]),
    ],
)
def test_an_engine_upgraded_between_two_nights_does_not_mix_its_results_with_the_old_ones(
    db: Database, version: str | None, hardware: dict[str, Any], told: list[str]
) -> None:
    study = opened(db)
    measure(db, study)
    kinds.settle(db, study, "box", "0.5.20", HARDWARE)
    with pytest.raises(BadInput) as raised:
        kinds.settle(db, study, "box", version, replace(HARDWARE, **hardware))
    assert "create a new one" in raised.value.remedy
    for problem, text in zip(raised.value.problems, told, strict=True):
        assert f"{problem.path}: {problem.message}".startswith(text)
    assert studies.get(db, "s").engine_version == "0.5.20"


def test_a_second_host_of_another_kind_is_refused_before_anything_was_measured(db: Database) -> None:
    data = document()
    study = opened(db, hosts=data["hosts"], host=data["hosts"][0])
    with pytest.raises(BadInput, match="left is not of the kind"):
        kinds.settle(db, study, "left", "0.5.23", HARDWARE)


def test_a_new_driver_and_rules_of_another_version_are_told(db: Database) -> None:
    study = opened(db)
    measure(db, study)
    _, warning = kinds.settle(db, study, "box", "0.5.20", replace(HARDWARE, driver_version="590.1"))
    assert warning == ""  # it was not known before
    _, warning = kinds.settle(db, study, "box", "0.5.20", replace(HARDWARE, driver_version="595.2"))
    assert warning == "the driver of box is 595.2 now, it was 590.1"
    _, spec = create(db, "pinned", hours=0, engine_version="0.5.23")
    assert "0.5.20 is installed, and the rules of 0.5.23" in kinds.pinned(spec, "0.5.20")
    assert kinds.pinned(spec, "0.5.23") == kinds.pinned(spec, None) == ""


@pytest.mark.parametrize("state", [S.RUNNING, S.STOPPING])
def test_an_upgraded_host_still_gets_its_home_back_from_a_study_that_stops(
    db: Database, monkeypatch: pytest.MonkeyPatch, state: S
) -> None:
    study = opened(db)
    measure(db, study)
    study = replace(study, state=state)
    link = SimpleNamespace(close=lambda: None)
    monkeypatch.setattr(run.connect, "open_link", lambda *_, **__: link)
    monkeypatch.setattr(run.facts, "hardware", lambda *_, **__: HARDWARE)
    monkeypatch.setattr(run, "learn_version", lambda *_: ("0.5.23", frozenset({"--none-of-ours"})))
    monkeypatch.setattr(run, "read_configs", lambda *_, **__: ModelConfigs())
    monkeypatch.setattr(run, "open_study", lambda *_, **__: None)
    lease: Any = SimpleNamespace(host=study.host)
    if state == S.RUNNING:
        with pytest.raises(BadInput, match="not of the kind"):
            run.open_run(db, study, studies.load_spec(study), lease, SystemClock())
    else:
        assert run.open_run(db, study, studies.load_spec(study), lease, SystemClock()).link is link
