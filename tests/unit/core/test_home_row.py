"""Secrets of the home server's environment stay on the host; the stored home is whole again with a link to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from optimizer import home_row
from optimizer.errors import NeedsAttention
from optimizer.remote.base import HomeServer
from optimizer.remote.local import LocalLink

HOME = HomeServer(argv=("server", "--x"), env={"HF_TOKEN": "hunter2", "OMP": "2"}, cwd="/", port=8000)


def test_secret_values_never_reach_the_row_and_come_back(tmp_path: Path) -> None:
    link, run_dir = LocalLink("box"), str(tmp_path / "run")
    row = home_row.keep(link, HOME, run_dir=run_dir)
    assert "hunter2" not in json.dumps(row)
    assert row["env"]["OMP"] == "2"
    assert home_row.load(link, row, run_dir=run_dir) == HOME
    kept = next((tmp_path / "run").rglob("home-env"))
    assert kept.stat().st_mode & 0o077 == 0


def test_a_lost_vault_is_said_and_not_guessed(tmp_path: Path) -> None:
    link = LocalLink("box")
    row = home_row.keep(link, HOME, run_dir=str(tmp_path / "run"))
    with pytest.raises(NeedsAttention, match="HF_TOKEN"):
        home_row.load(link, row, run_dir=str(tmp_path / "elsewhere"))


def test_a_home_without_secrets_needs_no_vault(tmp_path: Path) -> None:
    link = LocalLink("box")
    plain = HomeServer(argv=("s",), env={"A": "b c;$(d)"}, port=1)
    row = home_row.keep(link, plain, run_dir=str(tmp_path / "run"))
    assert home_row.load(link, row, run_dir=str(tmp_path / "run")) == plain
    assert not (tmp_path / "run").exists()
