"""`ratchet db`, as a user types it."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from api.cli.main import main
from storage import events, migrate, studies, transfer, trials
from storage.engine import Database, open_database
from tests.contract.storage import samples
from tests.contract.storage.filled import fill


class Cli:
    """Runs commands; returns the exit code, the JSON document and what was said."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, Any, str]:
        return self.run("db", *arguments)

    def run(self, *arguments: str) -> tuple[int, Any, str]:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        out, err = self._capsys.readouterr()
        code = ended.value.code
        return (code if isinstance(code, int) else 0), json.loads(out) if "--json" in arguments else out, err


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


def test_a_new_database_is_upgraded_and_checked(cli: Cli, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    assert cli("check", "--db", url, "--json")[:2] == (
        1,
        {
            "database": url,
            "ok": False,
            "problems": [f"{url} has no tables of Ratchet yet: run `ratchet db upgrade`"],
        },
    )
    assert cli("upgrade", "--db", url, "--json")[1]["before"] is None
    assert cli("upgrade", "--db", url, "--json")[1]["before"] == migrate.head()
    code, document, _ = cli("current", "--db", url, "--json")
    assert (code, document["up_to_date"]) == (0, True)
    assert cli("check", "--db", url)[0] == 0


def test_the_default_database_is_under_the_home_of_ratchet(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RATCHET_DB_URL", raising=False)
    monkeypatch.setenv("RATCHET_DATA_DIR", str(tmp_path / "data"))
    assert cli("upgrade")[0] == 0
    assert (tmp_path / "data" / "ratchet.db").exists()
    monkeypatch.setenv("RATCHET_DB_URL", f"sqlite:///{tmp_path / 'other.db'}")
    assert cli("upgrade", "--json")[1]["database"].endswith("other.db")


@pytest.mark.parametrize("url", ["mysql://x/y", "sqlite://", "sqlite:///:memory:", "not a url"])
def test_what_is_no_database_is_bad_input(cli: Cli, url: str) -> None:
    code, _, said = cli("current", "--db", url)
    assert code == 2
    assert "use sqlite:///PATH or postgresql://" in said


def test_damage_is_found(cli: Cli, sqlite_db: Database) -> None:
    with sqlite_db.write() as conn:
        fill(conn)
        conn.exec_driver_sql("DROP INDEX ix_trials_live")
    code, document, _ = cli("check", "--db", sqlite_db.url, "--json")
    assert code == 1
    assert "ix_trials_live" in " ".join(document["problems"])


def test_backup_restore_and_vacuum(cli: Cli, sqlite_db: Database, tmp_path: Path) -> None:
    with sqlite_db.write() as conn:
        studies.create(conn, samples.study())
    copy = str(tmp_path / "copy.db")
    assert cli("backup", copy, "--db", sqlite_db.url, "--json")[1]["files"] == [copy]
    with sqlite_db.write() as conn:
        studies.delete(conn, "s1")
    assert cli("restore", copy, "--db", sqlite_db.url)[0] == 0
    with sqlite_db.read() as conn:
        assert [s.id for s in studies.list_studies(conn)] == ["s1"]
    code, _, said = cli("restore", str(tmp_path / "nope"), "--db", sqlite_db.url)
    assert (code, "there is no backup" in said, "what to do: check the path" in said) == (1, True, True)
    document = cli("vacuum", "--db", sqlite_db.url, "--logs-days", "1", "--json")[1]
    assert document["removed"]["logs"] == 0
    assert cli("vacuum", "--db", sqlite_db.url, "--keep-all", "--json")[1]["removed"] == {}


def test_a_database_is_copied(cli: Cli, sqlite_db: Database, tmp_path: Path) -> None:
    with sqlite_db.write() as conn:
        fill(conn)
    target = f"sqlite:///{tmp_path / 'target.db'}"
    assert cli("copy", sqlite_db.url, target, "--json")[1]["rows"]["trials"] == 3
    code, _, said = cli("copy", sqlite_db.url, target)
    assert (code, "is not empty" in said) == (1, True)
    other = open_database(target)
    with other.read() as conn:
        assert studies.get(conn, "s1").name == "study-s1"
    other.close()


def test_a_whole_study_is_imported_from_a_file(cli: Cli, sqlite_db: Database, tmp_path: Path) -> None:
    with sqlite_db.write() as conn:
        fill(conn)
    exported = tmp_path / "s1.ratchet.gz"
    with exported.open("wb") as out, sqlite_db.read() as conn:
        transfer.export_study(conn, "s1", out)
    url = f"sqlite:///{tmp_path / 'other.db'}"
    wrong = tmp_path / "wrong"
    wrong.write_text("no export")
    assert cli.run("study", "import", str(exported), "--db", url, "--json")[1]["id"] == "s1"
    code, _, said = cli.run("study", "import", str(exported), "--db", url)
    assert (code, "--name" in said) == (1, True)
    beside = cli.run("study", "import", str(exported), "--db", url, "--name", "beside", "--json")[1]
    assert beside["name"] == "beside" and beside["id"] != "s1"
    for unreadable in (wrong, tmp_path / "missing"):
        assert cli.run("study", "import", str(unreadable), "--db", url)[0] == 2
    other = open_database(url)
    with other.read() as conn:
        assert len(studies.list_studies(conn)) == 2
        assert len(trials.list_trials(conn, beside["id"])) == len(trials.list_trials(conn, "s1")) == 3
    other.close()


def test_vacuum_keeps_what_the_settings_keep(cli: Cli, sqlite_db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    old = samples.NOW - timedelta(days=4000)
    with sqlite_db.write() as conn:
        events.append(conn, None, "x", {}, old)
    monkeypatch.setenv("RATCHET_KEEP_EVENTS_DAYS", "inf")
    assert "events" not in cli("vacuum", "--db", sqlite_db.url, "--json")[1]["removed"]
    assert "events" not in cli("vacuum", "--db", sqlite_db.url, "--events-days", "1e9", "--json")[1]["removed"]
    assert cli("vacuum", "--db", sqlite_db.url, "--events-days", "-1")[0] == 2
    assert cli("vacuum", "--db", sqlite_db.url, "--events-days", "5", "--json")[1]["removed"]["events"] == 1


def test_a_backup_of_the_wrong_database_is_no_success(cli: Cli, sqlite_db: Database, tmp_path: Path) -> None:
    code, _, said = cli("backup", str(tmp_path / "copy.db"), "--db", f"sqlite:///{tmp_path / 'mistyped.db'}")
    assert (code, "nothing to keep" in said) == (1, True)
    assert sqlite_db.path is not None
    assert cli("backup", str(sqlite_db.path), "--db", sqlite_db.url)[0] == 2
