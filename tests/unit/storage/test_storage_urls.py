"""Which URLs are databases, and where Optuna's tables go."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage import engine
from storage.engine import open_database
from storage.errors import BadDatabaseUrl


@pytest.mark.parametrize(
    "url", ["mysql://a/b", "sqlite://", "sqlite:///:memory:", "sqlite:///file:x?mode=memory", "", "hello"]
)
def test_other_urls_are_refused_with_a_remedy(url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if not url:
        monkeypatch.setenv("RATCHET_HOME", str(tmp_path))
        db = open_database(url)
        assert db.path == tmp_path / "ratchet.db", "no URL means the default"
        db.close()
        return
    with pytest.raises(BadDatabaseUrl) as told:
        open_database(url)
    assert "postgresql://" in told.value.remedy


def test_a_relative_path_is_taken_from_where_the_process_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    db = open_database("sqlite:///some.db")
    monkeypatch.chdir("/")
    assert db.path == tmp_path / "some.db"
    assert db.optuna_url == f"sqlite:///{tmp_path / 'some.optuna.db'}"
    db.close()


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_postgres_is_reached_by_psycopg_and_its_password_stays_out_of_names(scheme: str) -> None:
    db = open_database(f"{scheme}://me:secret@db.example/ratchet?sslmode=require&options=-cwork_mem%3D8MB")
    assert db.engine.url.drivername == "postgresql+psycopg"
    assert "secret" not in db.name
    assert db.optuna_url.startswith("postgresql+psycopg://me:secret@db.example/ratchet?")
    assert "work_mem%3D8MB" in db.optuna_url
    assert "search_path%3Doptuna" in db.optuna_url
    assert db.libpq_url("x").startswith("postgresql://me:secret@")
    assert db.path is None


def test_the_default_is_in_the_home_of_ratchet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "r"))
    assert engine.default_url() == f"sqlite:///{tmp_path / 'r' / 'ratchet.db'}"
    monkeypatch.delenv("RATCHET_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert engine.default_url() == f"sqlite:///{tmp_path}/.local/share/ratchet/ratchet.db"
