"""Studies and whole databases move between SQLite and PostgreSQL without loss."""

from __future__ import annotations

import gzip
import io

import pytest

from storage import events, logs, measurements, migrate, series, shares, studies, transfer, trials, verdicts, windows
from storage.engine import Database, open_database
from storage.errors import Corrupt, Duplicate, Missing
from tests.contract.storage import samples
from tests.contract.storage.filled import everything, fill
from tests.contract.storage.fixtures import BACKENDS
from tests.contract.storage.samples import NOW


def exported(db: Database) -> bytes:
    out = io.BytesIO()
    with db.read() as conn:
        transfer.export_study(conn, "s1", out)
    return out.getvalue()


def study_parts(db: Database, study_id: str = "s1") -> dict[str, object]:
    """All that is known of a study through the public functions, without the ids that databases count."""
    with db.read() as conn:
        found = trials.list_trials(conn, study_id)
        strip = {"study_id": "", "id": 0}
        return {
            "trials": [{**vars(t), **strip} for t in found],
            "measurements": [{**vars(m), **strip} for m in measurements.for_study(conn, study_id)],
            "requests": [measurements.requests_of(conn, study_id, t.number) for t in found],
            "logs": [logs.get(conn, study_id, t.number) for t in found],
            "series": [{**vars(s), **strip} for t in found for s in series.for_trial(conn, study_id, t.number)],
            "events": [{**vars(e), **strip} for e in events.since(conn, 0, study_id=study_id)],
            "verdicts": [{**vars(v), **strip} for v in verdicts.for_study(conn, study_id)],
        }


@pytest.mark.parametrize("target", BACKENDS)
def test_an_exported_study_arrives_whole_in_either_database(
    db: Database, target: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with db.write() as conn:
        fill(conn)
        windows.delete(conn, "w1")
    before, data = study_parts(db), exported(db)
    with db.read() as conn:
        study = studies.get(conn, "s1")
    other: Database
    if target == "postgres":
        other = request.getfixturevalue("postgres_db")
        if not db.is_sqlite:
            with other.write() as conn:
                studies.delete(conn, "s1")
    else:
        other = open_database(f"sqlite:///{tmp_path_factory.mktemp('other') / 'other.db'}")
        migrate.upgrade(other)
    with other.write() as conn:
        events.append(conn, "", "something before", {}, NOW)
        assert transfer.import_study(conn, io.BytesIO(data)) == study
    assert study_parts(other) == before
    assert exported(other)[:4] == data[:4]
    if other.is_sqlite:
        other.close()


def test_what_an_imported_study_had_stopped_is_not_for_this_database_to_put_back(db: Database) -> None:
    with db.write() as conn:
        fill(conn)
        shares.update(conn, "s1", samples.HOST, taken=True)
    data = exported(db)
    with db.write() as conn:
        transfer.import_study(conn, io.BytesIO(data), name="copy", new_id="s2")
        assert not shares.get(conn, "s2", samples.HOST).taken
        assert shares.get(conn, "s1", samples.HOST).taken


def test_a_study_can_be_imported_beside_itself(db: Database) -> None:
    with db.write() as conn:
        fill(conn)
    data = exported(db)
    with pytest.raises(Duplicate), db.write() as conn:
        transfer.import_study(conn, io.BytesIO(data))
    with db.write() as conn:
        copy = transfer.import_study(conn, io.BytesIO(data), name="copy", new_id="s2")
    assert (copy.id, copy.name) == ("s2", "copy")
    assert study_parts(db, "s2") == study_parts(db, "s1")


def test_a_study_at_work_arrives_paused_and_without_an_unknown_window(db: Database) -> None:
    with db.write() as conn:
        windows.put(conn, samples.window())
        studies.create(conn, samples.study(state="running", window_id="w1"))
    data = exported(db)
    with db.write() as conn:
        studies.delete(conn, "s1")
        windows.delete(conn, "w1")
        found = transfer.import_study(conn, io.BytesIO(data))
    assert (found.state, found.state_reason) == ("paused", "imported while it was at work")
    assert found.window_id is None


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda data: data[: len(data) // 2], "damaged"),
        (lambda data: b"hello", "damaged"),
        (lambda data: gzip.compress(b'{"format":"x"}\n'), "not an exported study"),
        (lambda data: gzip.compress(b'{"format":"ratchet-study","version":9}\n'), "newer Ratchet"),
        (lambda data: gzip.compress(b'{"format":"ratchet-study","version":1,"revision":"9999"}\n'), "newer Ratchet"),
        (lambda data: gzip.compress(b'{"format":"ratchet-study","version":1}\n'), "empty"),
        (lambda data: gzip.compress(b'{"format":"ratchet-study","version":1}\n{"table":"nope","row":{}}\n'), "damaged"),
    ],
)
def test_a_damaged_export_stores_nothing(db: Database, damage: object, told: str) -> None:
    assert callable(damage)
    with db.write() as conn:
        fill(conn)
    data = damage(exported(db))
    with db.write() as conn:
        studies.delete(conn, "s1")
    with pytest.raises(Corrupt, match=told), db.write() as conn:
        transfer.import_study(conn, io.BytesIO(data))
    with db.read() as conn:
        assert studies.list_studies(conn) == []


def test_exporting_an_unknown_study_says_so(db: Database) -> None:
    with pytest.raises(Missing), db.read() as conn:
        transfer.export_study(conn, "nope", io.BytesIO())


@pytest.mark.needs("postgres")
def test_a_whole_database_moves_to_the_other_kind_and_back(
    sqlite_db: Database, postgres_db: Database, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with sqlite_db.write() as conn:
        fill(conn)
        wanted = everything(conn)
    copied = transfer.copy_database(sqlite_db, postgres_db)
    assert copied["trials"] == 3
    back = open_database(f"sqlite:///{tmp_path_factory.mktemp('back') / 'back.db'}")
    migrate.upgrade(back)
    transfer.copy_database(postgres_db, back)
    with postgres_db.read() as conn, back.read() as other:
        assert everything(conn) == wanted
        assert everything(other) == wanted
    with postgres_db.write() as conn:
        last = events.last_id(conn)
        assert events.append(conn, "s1", "next", {}, NOW) > last, "the counter goes on after what was copied"
    with pytest.raises(Duplicate, match="not empty"):
        transfer.copy_database(sqlite_db, postgres_db)
    back.close()
