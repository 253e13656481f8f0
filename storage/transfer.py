"""A study as one portable file, and a whole database copied into another, of the same kind or the other.

Decides the file format: gzip of JSON lines, a header first, then rows by table in the order of their references.
Everything of the study comes back exactly, with four exceptions: ids that the database counts are given anew, a window
that the target does not have is dropped, a study that was at work arrives paused, and the servers that it had stopped
are not this database's to put back: the one that it comes from does that.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, BinaryIO

import sqlalchemy as sa
from sqlalchemy import Connection, Table

from storage import migrate, studies, tables, windows
from storage.engine import Database
from storage.errors import Corrupt, Duplicate, Missing, StorageError
from storage.records import StudyRecord
from storage.rows import execute
from storage.types import UtcTime

FORMAT = "ratchet-study"
VERSION = 1
AT_WORK = ("queued", "running", "waiting_window", "stopping")
BATCH = 200
"""Rows inserted at once."""
PARTS: tuple[Table, ...] = (
    tables.shares,
    tables.trials,
    tables.measurements,
    tables.request_batches,
    tables.logs,
    tables.series,
    tables.events,
    tables.verdicts,
)
COUNTED = {tables.measurements, tables.events, tables.verdicts}
"""Tables whose ids are counted by the database."""


def export_study(conn: Connection, id_or_name: str, out: BinaryIO) -> int:
    """Write a study with everything measured for it; return the number of rows.

    Raises:
        Missing: there is no such study.
    """
    study = studies.get(conn, id_or_name)
    header = {"format": FORMAT, "version": VERSION, "revision": migrate.head()}
    count = 0
    with gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as packed:
        packed.write(_line(header))
        row = execute(conn, sa.select(tables.studies).where(tables.studies.c.id == study.id)).mappings().one()
        packed.write(_line({"table": "studies", "row": _plain(row)}))
        for table in PARTS:
            for row in _rows_of(conn, table, study.id):
                packed.write(_line({"table": table.name, "row": _plain(row)}))
                count += 1
    return count + 1


def import_study(
    conn: Connection, source: BinaryIO, *, name: str | None = None, new_id: str | None = None
) -> StudyRecord:
    """Store an exported study and return it; `name` and `new_id` put it beside one that is there already.

    Raises:
        Corrupt: the file is not a whole export.
        Duplicate: the id or the name is taken; nothing was stored.
    """
    lines = _read(source)
    study = _study(next(lines, None), name=name, new_id=new_id)
    try:
        windows.get(conn, study.window_id or "")
    except Missing:
        study = replace(study, window_id=None)
    studies.create(conn, study)
    execute(conn, sa.delete(tables.shares).where(tables.shares.c.study_id == study.id))  # the export brings them
    measurement_ids: dict[int, int] = {}
    for table, rows in _grouped(lines):
        for row in rows:
            if "study_id" in row:
                row["study_id"] = study.id
            if table is tables.shares:
                row["taken"] = False
            if table is tables.request_batches:
                row["measurement_id"] = measurement_ids[row["measurement_id"]]
        _insert(conn, table, rows, measurement_ids)
    return study


def copy_database(source: Database, target: Database) -> dict[str, int]:
    """Copy every row of our tables into an empty, migrated database; return the rows by table.

    Optuna's tables are not copied: the search is told again from our rows when a study goes on.

    Raises:
        Duplicate: the target has rows already.
        SchemaOutdated: one of both has not this program's revision.
    """
    migrate.check(source)
    migrate.check(target)
    copied: dict[str, int] = {}
    with source.read() as old, target.write() as new:
        for table in tables.metadata.sorted_tables:
            if execute(new, sa.select(sa.literal(1)).select_from(table).limit(1)).first() is not None:
                raise Duplicate(f"{target.name} is not empty: {table.name} has rows", remedy="copy into a new database")
            copied[table.name] = 0
            rows = execute(old, sa.select(table).execution_options(yield_per=BATCH)).mappings()
            for batch in rows.partitions():
                execute(new, sa.insert(table), [dict(row) for row in batch])
                copied[table.name] += len(batch)
            if not target.is_sqlite and table.autoincrement_column is not None:
                _count_on(new, table)
    return copied


def _count_on(conn: Connection, table: Table) -> None:
    """Let PostgreSQL count on from the highest id that was copied."""
    execute(
        conn,
        sa.text(
            f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), max(id)) FROM {table.name} HAVING max(id) > 0"
        ),
    )


def _rows_of(conn: Connection, table: Table, study_id: str) -> Iterator[Any]:
    query = sa.select(table)
    if table is tables.request_batches:
        of = tables.measurements
        query = query.join(of, of.c.id == table.c.measurement_id).where(of.c.study_id == study_id)
    else:
        query = query.where(table.c.study_id == study_id)
    yield from execute(conn, query.order_by(*table.primary_key.columns).execution_options(yield_per=BATCH)).mappings()


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"


def _plain(row: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, datetime):
            value = value.isoformat()
        elif isinstance(value, bytes):
            value = base64.b85encode(value).decode("ascii")
        plain[name] = value
    return plain


def _from_plain(table: Table, row: dict[str, Any]) -> dict[str, Any]:
    values = dict(row)
    for name, value in row.items():
        kind = table.c[name].type
        if value is not None and isinstance(kind, UtcTime):
            values[name] = datetime.fromisoformat(value)
        elif isinstance(kind, sa.LargeBinary):
            values[name] = base64.b85decode(value)
    return values


def _read(source: BinaryIO) -> Iterator[tuple[Table, dict[str, Any]]]:
    """Yield tables and rows of an export, whatever is wrong with it as `Corrupt`."""
    known = {table.name: table for table in (tables.studies, *PARTS)}
    try:
        with gzip.GzipFile(fileobj=source, mode="rb") as packed:
            header = json.loads(packed.readline() or b"null")
            if not isinstance(header, dict) or header.get("format") != FORMAT:
                raise Corrupt("the file is not an exported study", remedy="make one with `ratchet study export`")
            if header.get("version") != VERSION or header.get("revision", migrate.head()) not in migrate.revisions():
                raise Corrupt("a newer Ratchet wrote this export", remedy="upgrade Ratchet, then import it")
            for line in packed:
                item = json.loads(line)
                table = known[item["table"]]
                yield table, _from_plain(table, item["row"])
    except StorageError:
        raise
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"the exported study is damaged: {error}", remedy="export it again") from error


def _study(first: tuple[Table, dict[str, Any]] | None, *, name: str | None, new_id: str | None) -> StudyRecord:
    if first is None or first[0] is not tables.studies:
        raise Corrupt("the exported study is empty", remedy="export it again")
    study = StudyRecord(**first[1])
    if study.state in AT_WORK:
        study = replace(study, state="paused", state_reason="imported while it was at work")
    return replace(study, name=name or study.name, id=new_id or study.id)


def _grouped(lines: Iterable[tuple[Table, dict[str, Any]]]) -> Iterator[tuple[Table, list[dict[str, Any]]]]:
    """Yield runs of rows of one table, at most a batch long."""
    current: Table | None = None
    rows: list[dict[str, Any]] = []
    for table, row in lines:
        if rows and (table is not current or len(rows) >= BATCH):
            assert current is not None
            yield current, rows
            rows = []
        current = table
        rows.append(row)
    if rows and current is not None:
        yield current, rows


def _insert(conn: Connection, table: Table, rows: list[dict[str, Any]], measurement_ids: dict[int, int]) -> None:
    if table is tables.measurements:
        for row in rows:
            old = row.pop("id")
            statement = sa.insert(table).values(row).returning(table.c.id)
            measurement_ids[old] = int(execute(conn, statement).scalar_one())
        return
    if table in COUNTED:
        rows = [{name: value for name, value in row.items() if name != "id"} for row in rows]
    execute(conn, sa.insert(table), rows)
