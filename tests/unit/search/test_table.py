"""Tables as people write them: booleans, empty cells, spellings of numbers, fields that are not the space's."""

from __future__ import annotations

from pathlib import Path

import pytest

from optimizer.errors import BadInput
from optimizer.search import replay
from optimizer.search.table import Table, load

SPACE = """
engine: sglang
hardware: 8 x H100
notes: {recorded: yesterday}
baseline: {mode: quite slow, graphs: false, flash-attn: on, n_batch: 64, env.NCCL_ALGO: Ring}
space:
  parameters:
    mode: {choice: [very fast, quite slow]}
    graphs: {choice: [true, false]}
    flash-attn: {choice: [on, off]}
    n_batch: {choice: [64, 128, null]}
    share: {choice: [1e-3, 0.5]}
    env.NCCL_ALGO: {choice: [Ring, Tree]}
  conditions: [{if: "graphs == false", then_absent: [share]}]
  rules: ["flash-attn == on or n_batch != 128"]
"""
HEADER = "p.mode,p.graphs,p.flash-attn,p.n_batch,p.share,p.env.NCCL_ALGO,restart,tok_s,failed,tok_s.code,accept_len\n"
ROWS = """quite slow,False,on,64.0,,Ring,1,100.0,,99,
quite slow,False,on,64.0,,Ring,2,101.0,none,99,nan
very fast,TRUE,on,128,0.001,Tree,1,150.5,,99,NA
very fast,true,off,,5e-1,Tree,1,,oom_weights,,
very fast,true,off,,5e-1,Ring,1,140,,,
very fast,true,off,128,0.5,Ring,1,999,,,
"""


def table(tmp_path: Path, space: str = SPACE, rows: str = ROWS) -> Table:
    (tmp_path / "t.csv").write_text("\ufeff" + HEADER + rows, encoding="utf-8")
    (tmp_path / "t.space.yaml").write_text(space)
    return load(tmp_path / "t.csv")


def test_what_is_written_is_understood(tmp_path: Path) -> None:
    loaded = table(tmp_path)
    assert loaded.servers == 4
    assert loaded.rows_outside == 1
    assert loaded.baseline is not None
    assert loaded.baseline.params["flash-attn"] == "on"
    assert "graphs" not in loaded.baseline.params
    assert loaded.true_speed(loaded.baseline) == pytest.approx(100.5)
    assert loaded.best == 150.5


@pytest.mark.parametrize("sampler", ["ratchet", "tpe-raw", "random"])
def test_and_every_sampler_replays_it(tmp_path: Path, sampler: str) -> None:
    report = replay.run(table(tmp_path), sampler, budget=4, seeds=2)
    assert report["median_starts_to_2pct"] is not None or sampler == "tpe-raw"


def test_a_specification_may_name_the_baseline_its_own_way(tmp_path: Path) -> None:
    flags = "{flags: {mode: very fast, graphs: true, flash-attn: off, share: 0.5}, env: {NCCL_ALGO: Ring}}"
    lines = [f"baseline: {flags}" if line.startswith("baseline") else line for line in SPACE.splitlines()]
    loaded = table(tmp_path, "\n".join(lines))
    assert loaded.baseline is not None
    assert loaded.true_speed(loaded.baseline) == 140


def test_misspelt_fields_and_impossible_values_are_mistakes(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as field:
        table(tmp_path, SPACE.replace("  rules:", "  ruels:"))
    assert field.value.problems[0].hint == "did you mean rules?"
    with pytest.raises(BadInput) as cell:
        table(tmp_path, rows=ROWS.replace("128,0.001", "129,0.001"))
    assert cell.value.problems[0].path == "line 4, p.n_batch"
