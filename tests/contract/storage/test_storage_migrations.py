"""The migrations lead to exactly the tables, up and down, with data, and next to Optuna's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import optuna
import pytest
import sqlalchemy as sa

from storage import events, migrate, shares, studies, tables, trials
from storage.engine import Database, open_database
from storage.errors import SchemaOutdated
from tests.contract.storage import samples
from tests.contract.storage.samples import NOW


@contextmanager
def optuna_storage(db: Database) -> Iterator[optuna.storages.RDBStorage]:
    storage = optuna.storages.RDBStorage(db.optuna_url)
    try:
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()


def test_the_migrations_lead_to_the_tables(db: Database) -> None:
    migrate.check(db)
    assert migrate.differences(db) == []


def test_the_migrations_make_the_checks_of_the_tables(db: Database) -> None:
    # Alembic does not compare checks.
    found = sa.inspect(db.engine)
    for table in tables.metadata.tables.values():
        wanted = {str(c.name) for c in table.constraints if isinstance(c, sa.CheckConstraint)}
        assert {str(c["name"]) for c in found.get_check_constraints(table.name)} == wanted, table.name


def test_an_empty_database_says_what_to_do(db: Database) -> None:
    migrate.downgrade(db, "base")
    try:
        assert migrate.current(db) is None
        with pytest.raises(SchemaOutdated, match="no tables") as told:
            migrate.check(db)
        assert told.value.remedy == "run `ratchet db upgrade`"
        with pytest.raises(SchemaOutdated), db.read() as conn:
            studies.list_studies(conn)
    finally:
        migrate.upgrade(db)


def test_a_database_of_a_newer_program_is_left_alone(db: Database) -> None:
    rename = sa.text(f"UPDATE {migrate.VERSION_TABLE} SET version_num = :to")
    with db.write() as conn:
        conn.execute(rename, {"to": "9999"})
    try:
        for refuse in (migrate.check, migrate.upgrade):
            with pytest.raises(SchemaOutdated, match="does not know"):
                refuse(db)
    finally:
        with db.write() as conn:
            conn.execute(rename, {"to": migrate.head()})


def test_down_and_up_again_with_data_leaves_optuna_untouched(db: Database) -> None:
    with db.write() as conn:
        fence = samples.leased_study(conn)
        samples.stored_trial(conn, fence)
        events.append(conn, "s1", "x", {}, NOW)
    with optuna_storage(db) as kept:
        study = optuna.create_study(storage=kept, study_name="night")
        study.tell(study.ask(), 1.0)
        assert migrate.downgrade(db, "base") is None
        assert not set(tables.metadata.tables) & set(sa.inspect(db.engine).get_table_names())
        assert migrate.upgrade(db) == migrate.head()
        assert migrate.differences(db) == []
        assert [t.value for t in optuna.load_study(storage=kept, study_name="night").trials] == [1.0]
        optuna.delete_study(storage=kept, study_name="night")
    with db.read() as conn:
        assert studies.list_studies(conn) == []
        assert trials.list_trials(conn, "s1") == []


def test_several_that_start_at_once_make_one_schema(db: Database) -> None:
    migrate.downgrade(db, "base")
    results: list[object] = []

    def start() -> None:
        mine = open_database(db.url)
        try:
            results.append(migrate.upgrade(mine))
        except Exception as error:
            results.append(error)
        finally:
            mine.close()

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [migrate.head()] * 4
    assert migrate.differences(db) == []


def test_studies_of_before_get_the_part_of_their_one_host(db: Database) -> None:
    home = {"argv": ["serve"], "port": 1}
    with db.write() as conn:
        studies.create(conn, samples.study(home=home, state="running"))
        studies.create(conn, samples.study(id="s2", name="other", home=home, state="finished"))
        studies.create(conn, samples.study(id="s3", name="third", home=None, state="running"))
    migrate.downgrade(db, "0001")
    assert "shares" not in sa.inspect(db.engine).get_table_names()
    assert migrate.upgrade(db) == migrate.head()
    assert migrate.differences(db) == []
    with db.read() as conn:
        parts = {study: shares.for_study(conn, study) for study in ("s1", "s2", "s3")}
    host = samples.study().host
    assert [(p.host, p.home, p.taken) for p in parts["s1"]] == [(host, home, True)]
    assert [(p.host, p.home, p.taken) for p in parts["s2"]] == [(host, home, False)]
    assert [(p.host, p.home, p.taken) for p in parts["s3"]] == [(host, None, False)]
