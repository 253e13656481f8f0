"""A short demo through real SSH and a real llama-server: a verdict, everything recorded, nothing left behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import optuna
import pytest

from storage import measurements, studies, trials
from storage.engine import open_database

pytestmark = [pytest.mark.needs("llama_server"), pytest.mark.slow]


def ratchet(*args: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "api.cli.main", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        **options,
    )


def servers() -> dict[int, str]:
    """Every llama-server and demo SSH server on this machine, by pid."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if "llama-server" in command.split(" ")[0] or "api.demo.sshd" in command or "xllamacpp_server" in command:
            found[int(entry.name)] = command
    return found


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The final document of one short demo."""
    before = set(servers())
    folder = tmp_path_factory.mktemp("demo")
    process = ratchet("demo", "--trials", "4", "--json", "--dir", str(folder))
    out, err = process.communicate(timeout=280)
    assert process.returncode == 0, err[-3000:]
    document: dict[str, Any] = json.loads(out)
    document["stderr"] = err
    document["left"] = {p: c for p, c in servers().items() if p not in before}
    return document


def test_it_ends_with_a_verdict_and_home_answers(finished: dict[str, Any]) -> None:
    assert finished["state"] == "finished"
    assert finished["verdict"]["outcome"] in {"win", "no_significant_win", "worse", "undecided"}
    assert finished["sentence"]
    assert finished["home_answers"] is True
    assert Path(finished["report"]).read_text().startswith("<!doctype html>")


def test_no_process_is_left(finished: dict[str, Any]) -> None:
    assert finished["left"] == {}


def test_every_trial_has_its_command_and_samples(finished: dict[str, Any]) -> None:
    db = open_database(finished["database"])
    try:
        with db.read() as conn:
            study = studies.get(conn, finished["study"])
            rows = trials.list_trials(conn, study.id)
            counts = {t.number: len(measurements.requests_of(conn, study.id, t.number)) for t in rows}
    finally:
        db.close()
    assert study.state == "finished"
    assert study.home is not None and "--model" in study.home["argv"]
    assert {"baseline", "explore"} <= {t.kind for t in rows}
    for trial in rows:
        assert "--port" in trial.launch_command
        assert trial.effective and trial.canonical_key
        if trial.state == "complete":
            assert counts[trial.number] >= 5
            assert trial.timings["launch_s"] >= 0 and trial.timings["ready_s"] > 0 and trial.timings["stop_s"] > 0
            assert trial.output_tok_s and trial.output_tok_s > 1
    explored = [t.canonical_key for t in rows if t.kind == "explore" and t.state != "interrupted"]
    assert len(explored) == len(set(explored)), "one effective configuration was restarted twice"


def test_optuna_itself_loads_the_same_values(finished: dict[str, Any]) -> None:
    names = optuna.study.get_all_study_names(finished["optuna_storage"])
    assert len(names) == 1
    loaded = optuna.load_study(study_name=names[0], storage=finished["optuna_storage"])
    db = open_database(finished["database"])
    try:
        with db.read() as conn:
            rows = {t.optuna_number: t for t in trials.list_trials(conn, finished["study"]) if t.kind == "explore"}
    finally:
        db.close()
    told = {t.number: t for t in loaded.trials if t.number in rows}
    assert told.keys() == rows.keys()
    for number, row in rows.items():
        if row.state == "complete":
            assert told[number].value == pytest.approx(row.output_tok_s)


def test_ctrl_c_in_the_middle_puts_home_back_and_says_so(tmp_path: Path) -> None:
    before = set(servers())
    process = ratchet("demo", "--trials", "8", "--json", "--dir", str(tmp_path), start_new_session=True)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("trial"):
            break
    asked = time.monotonic()
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - asked < 20
    document = json.loads(out)
    assert process.returncode == 1
    assert document["state"] == "paused"
    assert document["home_answers"] is True
    assert "still waiting" in err
    assert {p for p in servers() if p not in before} == set()


def test_a_server_that_is_no_server_is_one_clear_line(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"no model")
    process = ratchet("demo", "--llama-server", "/bin/true", "--model", str(model), "--dir", str(tmp_path / "d"))
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    lines = [line for line in err.splitlines() if line.startswith("ratchet: ")]
    assert len(lines) == 1 and "ended with status 0" in lines[0]
    assert "Traceback" not in err
    assert not (tmp_path / "d" / "ratchet.db").exists()
