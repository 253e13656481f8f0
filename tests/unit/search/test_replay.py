"""Recorded tables and replays on them, through the command as well."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from api.cli.main import cli, main
from optimizer.errors import BadInput
from optimizer.search import replay
from optimizer.search.table import load, write
from tests.unit.search import landscape

KEYS = {
    "table", "sampler", "budget", "seeds", "best_true", "median_starts_to_2pct", "median_regret_pct",
    "never_within_2pct", "starts_wasted_invalid", "starts_wasted_duplicate", "declared_winner_regret_pct",
    "ask_ms_p50", "ask_ms_p99",
}  # fmt: skip


def rows(*, keep: int | None = None) -> list[dict[str, Any]]:
    rng = np.random.default_rng(5)
    found = []
    listed = landscape.canonical().enumerate() or []
    for candidate in listed if keep is None else [listed[i] for i in rng.permutation(len(listed))[:keep]]:
        cells = {f"p.{k}": ("true" if v is True else v) for k, v in candidate.params.items()}
        for restart in (1, 2):
            if landscape.crashes(candidate.params):
                found.append({**cells, "restart": restart, "failed": "oom_kv_cache"})
            else:
                speed = landscape.speed(candidate.params) * float(np.exp(0.02 * rng.standard_normal()))
                found.append({**cells, "restart": restart, "tok_s": round(speed, 3), "accept_len": 2.0})
    return found


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    write(path, {**landscape.SECTION, "baseline": {"algorithm": "none", "memory": 0.8}}, rows())
    return path


def test_a_table_is_read_as_it_was_written(table: Path) -> None:
    loaded = load(table)
    assert loaded.complete
    assert loaded.servers == 220
    assert loaded.baseline is not None
    assert loaded.true_speed(loaded.baseline) == pytest.approx(landscape.speed(loaded.baseline.params), rel=0.05)
    best = loaded.space.check(landscape.BEST).candidate
    assert best is not None
    assert loaded.best == max(loaded.truth.values())
    assert loaded.true_speed(best) > 0.95 * loaded.best


def test_replays_of_all_samplers_have_the_agreed_keys(table: Path) -> None:
    loaded = load(table)
    reports = {n: replay.run(loaded, n, budget=25, seeds=3) for n in ("ratchet", "tpe-raw", "random")}
    for report in reports.values():
        assert set(report) >= KEYS
        assert set(report["median_regret_pct"]) == {"5", "10", "20", "40"}
        assert report["median_regret_pct"]["40"] is None
    assert reports["ratchet"]["starts_wasted_invalid"] == 0
    assert reports["ratchet"]["starts_wasted_duplicate"] == 0
    assert reports["tpe-raw"]["starts_wasted_invalid"] > 0
    assert reports["ratchet"]["median_regret_pct"]["20"] < reports["random"]["median_regret_pct"]["20"]
    assert reports["ratchet"]["declared_winner_regret_pct"] < 1.5
    regrets = reports["ratchet"]["median_regret_pct"]
    assert regrets["5"] >= regrets["10"] >= regrets["20"]


def test_replays_repeat_exactly(table: Path) -> None:
    loaded = load(table)
    one, two = (replay.run(loaded, "ratchet", budget=8, seeds=2) for _ in range(2))
    timing = {"ask_ms_p50", "ask_ms_p99"}
    assert {k: v for k, v in one.items() if k not in timing} == {k: v for k, v in two.items() if k not in timing}


def test_a_partial_table_is_searched_within_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    write(path, landscape.SECTION, rows(keep=60))
    loaded = load(path)
    assert not loaded.complete
    report = replay.run(loaded, "ratchet", budget=80, seeds=1)
    assert report["servers"] == 60
    assert report["starts_wasted_invalid"] == 0
    assert report["never_within_2pct"] == 0
    raw = replay.run(loaded, "tpe-raw", budget=10, seeds=1)
    assert raw["unrecorded"] > 0


def test_the_default_is_the_answer_where_it_is_best(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    home = {"algorithm": "none", "memory": 0.8}
    kept = []
    for row in rows():
        if row.get("tok_s"):
            row["tok_s"] = 60.0 + row["tok_s"] / 10
            if row["p.algorithm"] == "none" and row["p.memory"] == 0.8 and "p.graphs" not in row:
                row["tok_s"] = 90.0
        kept.append(row)
    write(path, {**landscape.SECTION, "baseline": home}, kept)
    assert replay.run(load(path), "ratchet", budget=20, seeds=3)["declared_winner_regret_pct"] == 0


def test_the_command_prints_one_document(table: Path) -> None:
    run = CliRunner().invoke(cli, ["replay", str(table), "--budget", "6", "--seeds", "1", "--json"])
    assert run.exit_code == 0
    assert set(json.loads(run.stdout)) >= KEYS
    several = CliRunner().invoke(
        cli, ["replay", str(table), "--sampler", "random,tpe-raw", "--budget", "6", "--seeds", "1", "--json"]
    )
    assert [r["sampler"] for r in json.loads(several.stdout)] == ["random", "tpe-raw"]
    text = CliRunner().invoke(cli, ["replay", str(table), "--sampler", "random", "--budget", "6", "--seeds", "1"])
    assert "starts to within 2 %" in text.stdout


def test_bad_tables_and_samplers_are_told_with_exit_code_2(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    beside = tmp_path / "t.space.yaml"
    section = yaml.safe_load(beside.read_text())
    cases = {
        "no such sampler": ["replay", str(table), "--sampler", "magic"],
        "cannot read": ["replay", str(tmp_path / "missing.csv")],
    }
    for text, arguments in cases.items():
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
        assert text in capsys.readouterr().err
    del section["parameters"]["memory"]
    beside.write_text(yaml.safe_dump(section))
    with pytest.raises(BadInput) as bad:
        load(table)
    assert bad.value.problems[0].path == "p.memory"
    section["parameters"]["memory"] = {"choice": [0.7]}
    beside.write_text(yaml.safe_dump(section))
    with pytest.raises(BadInput) as cell:
        load(table)
    assert cell.value.problems[0].path.endswith("p.memory")


def test_a_replay_that_asks_for_nothing_recorded_is_told_and_does_not_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "MAX_UNRECORDED", 2)
    path = tmp_path / "sparse.csv"
    write(path, landscape.SECTION, rows(keep=2))
    document = replay.run(load(path), "tpe-raw", budget=5, seeds=1)
    assert document["unrecorded"] == 2
    assert document["median_regret_pct"]["5"] == 100.0


def test_a_baseline_that_was_never_recorded_is_not_replayed(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    write(path, {**landscape.SECTION, "baseline": {"algorithm": "none", "memory": 0.82}}, rows())
    recorded = load(path)
    assert recorded.complete
    assert recorded.baseline is None
    assert replay.run(recorded, "random", budget=2, seeds=1)["baseline_true"] is None


def test_a_mistyped_sampler_is_told_before_the_first_is_replayed(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "run", lambda *_, **__: pytest.fail("minutes of work would be thrown away"))
    with pytest.raises(SystemExit) as ended:
        main(["replay", str(table), "--sampler", "ratchet,magic"])
    assert ended.value.code == 2
