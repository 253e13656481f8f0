"""A killed Ratchet goes on where it was: nothing measured twice, nothing lost, home back, Optuna equal to our rows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
import yaml

from api.demo import assets
from api.demo.stage import Stage, build_spec, set_stage
from storage import trials
from storage.engine import open_database

pytestmark = [pytest.mark.needs("llama_server"), pytest.mark.slow]

SHORT_LEASE = {"RATCHET_LEASE_TTL_S": "4", "RATCHET_LEASE_RENEW_S": "1"}


@pytest.fixture
def stage() -> Iterator[Stage]:
    with set_stage(assets.prepare(lambda _: None), lambda _: None) as standing:
        yield standing


def short_spec(stage: Stage, *, trials: int, name: str) -> dict[str, Any]:
    """The demo's specification with short answers."""
    spec = build_spec(stage, trials=trials, name=name).model_dump(mode="json")
    spec["workload"]["max_tokens"] = 32
    return spec


def run(spec: Path, db: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "api.cli.main", "run", str(spec), "--db", f"sqlite:///{db}", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
        env={**os.environ, **SHORT_LEASE, "RATCHET_DATA_DIR": str(db.parent)}, start_new_session=True,
    )  # fmt: skip


def rows(db: Path) -> list[Any]:
    database = open_database(f"sqlite:///{db}")
    try:
        with database.read() as conn:
            from storage import studies

            return trials.list_trials(conn, studies.list_studies(conn)[0].id)
    finally:
        database.close()


def kill_when(process: subprocess.Popen[str], marks: int) -> None:
    """SIGKILL once so many trials have ended."""
    assert process.stderr is not None
    seen = 0
    for line in process.stderr:
        seen += line.startswith("trial")
        if seen >= marks:
            break
    time.sleep(0.7)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_a_study_killed_twice_ends_as_if_undisturbed(stage: Stage, tmp_path: Path) -> None:
    spec = short_spec(stage, trials=5, name="killed")
    spec["budget"]["confirm_restarts"] = 4
    path, db = tmp_path / "spec.yaml", tmp_path / "r.db"
    path.write_text(yaml.safe_dump(spec))
    kill_when(run(path, db), marks=1)
    kill_when(run(path, db), marks=3)
    process = run(path, db)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err[-2000:]
    document = json.loads(out)
    assert document["state"] == "finished"
    assert stage.home_answers()
    ended = [t for t in rows(db) if t.state in {"complete", "pruned", "infeasible"}]
    assert sum(t.kind == "baseline" for t in ended) == 2
    keys = [t.canonical_key for t in ended if t.kind == "explore"]
    assert len(keys) == 5 and len(set(keys)) == 5
    interrupted = [t for t in rows(db) if t.state not in {"complete", "pruned", "infeasible"}]
    assert {t.state for t in interrupted} <= {"interrupted"}
    loaded = optuna.load_study(
        study_name=optuna.study.get_all_study_names(document["optuna_storage"])[0], storage=document["optuna_storage"]
    )
    values = {t.number: t.value for t in loaded.trials if t.state is optuna.trial.TrialState.COMPLETE}
    ours = {t.optuna_number: t.output_tok_s for t in ended if t.state == "complete" and t.optuna_number is not None}
    assert values == pytest.approx(ours)
    assert not [t for t in loaded.trials if not t.state.is_finished()]


def test_running_a_finished_study_again_changes_nothing(stage: Stage, tmp_path: Path) -> None:
    spec = short_spec(stage, trials=1, name="again")
    path, db = tmp_path / "spec.yaml", tmp_path / "r.db"
    path.write_text(yaml.safe_dump(spec))
    assert run(path, db).communicate(timeout=120)[0]
    before = rows(db)
    process = run(path, db)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and json.loads(out)["state"] == "finished"
    assert rows(db) == before
