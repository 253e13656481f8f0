"""`ratchet db`: bring the database up to date, look at it, and keep it in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from api.cli.database import settings_for
from api.cli.output import print_json, say
from optimizer.clock import SystemClock
from optimizer.errors import BadInput, RatchetError
from storage import backup as copies
from storage import migrate, transfer, upkeep
from storage.engine import Database, open_database
from storage.errors import BadDatabaseUrl, InvalidValue, SchemaOutdated, StorageError

F = TypeVar("F", bound=Callable[..., Any])

db_option = click.option(
    "--db", "url", metavar="URL", help="Database URL (or RATCHET_DB_URL); default: a SQLite file of your own."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def days_option(kind: str, what: str) -> Callable[[F], F]:
    """Make the option of how long one kind of data is kept: as the service does it, unless it is given."""
    return click.option(
        f"--{kind}-days",
        type=click.FloatRange(min=0),
        help=f"Keep {what} for N days; default: RATCHET_KEEP_{kind.upper()}_DAYS, or 180.",
    )


@click.group()
def db() -> None:
    """Database migrations and upkeep."""


@contextmanager
def opened(url: str | None) -> Iterator[Database]:
    """Yield the database; what goes wrong with it leaves as an error that the command line prints."""
    try:
        database = open_database(settings_for(url).database_url)
        try:
            yield database
        finally:
            database.close()
    except (BadDatabaseUrl, InvalidValue) as error:
        raise BadInput(error.message, remedy=error.remedy) from error
    except StorageError as error:
        raise RatchetError(error.message, remedy=error.remedy) from error


@db.command()
@db_option
@json_option
def upgrade(url: str | None, as_json: bool) -> None:
    """Make or bring up to date the tables. Harmless when they are."""
    with opened(url) as database:
        before = migrate.current(database)
        after = migrate.upgrade(database)
    if as_json:
        print_json({"database": database.name, "before": before, "after": after})
    else:
        say(f"{database.name}: revision {after}" + ("" if before == after else f" (was {before or 'empty'})"))


@db.command()
@db_option
@json_option
def current(url: str | None, as_json: bool) -> None:
    """Show the revision of the database and the one of this program."""
    with opened(url) as database:
        revision, head = migrate.current(database), migrate.head()
    if as_json:
        print_json({"database": database.name, "current": revision, "head": head, "up_to_date": revision == head})
    else:
        click.echo(f"{revision or 'empty'} (this program: {head})")


@db.command()
@db_option
@json_option
def check(url: str | None, as_json: bool) -> None:
    """Check the revision, and that the tables are as this program expects them; exit 1 when not."""
    with opened(url) as database:
        problems = _problems(database)
    if as_json:
        print_json({"database": database.name, "ok": not problems, "problems": problems})
    else:
        for problem in problems:
            say(problem)
        say(f"{database.name}: {'in order' if not problems else f'not in order ({len(problems)})'}")
    if problems:
        raise SystemExit(1)


@db.command()
@db_option
@json_option
@days_option("requests", "raw requests")
@days_option("logs", "server logs")
@days_option("series", "telemetry and GPU samples")
@days_option("events", "events")
@click.option("--keep-all", is_flag=True, help="Remove nothing; only give free space back.")
def vacuum(url: str | None, as_json: bool, keep_all: bool, **days: float | None) -> None:
    """Remove old evidence of ended studies and give the space back. Results are never removed.

    Days count from the end of a study, and a study that has not ended keeps its evidence; those of events count from
    when they happened.
    """
    retention = replace(settings_for(url).retention, **{name: n for name, n in days.items() if n is not None})
    with opened(url) as database:
        migrate.check(database)
        removed = {} if keep_all else upkeep.prune(database, retention, SystemClock().now())
        before, after = upkeep.vacuum(database)
    if as_json:
        print_json({"database": database.name, "removed": removed, "bytes_before": before, "bytes_after": after})
        return
    for table, rows in removed.items():
        say(f"{table}: {rows} rows removed")
    say(f"{database.name}: {before:,} bytes, now {after:,}")


@db.command()
@click.argument("target", type=click.Path(path_type=Path))
@db_option
@json_option
def backup(target: Path, url: str | None, as_json: bool) -> None:
    """Copy the database to TARGET while it is in use: a SQLite file, or a dump of PostgreSQL."""
    with opened(url) as database:
        written = copies.backup(database, target)
    if as_json:
        print_json({"database": database.name, "files": [str(path) for path in written]})
    else:
        for path in written:
            say(f"wrote {path} ({path.stat().st_size:,} bytes)")


@db.command()
@click.argument("source", type=click.Path(path_type=Path))
@db_option
@json_option
@click.option("--force", is_flag=True, help="Even while a worker holds a host.")
def restore(source: Path, url: str | None, as_json: bool, force: bool) -> None:
    """Put the backup SOURCE in place of everything in the database.

    Stop workers first. What was stored since the backup is gone; `ratchet db backup` keeps it if you want it.
    """
    with opened(url) as database:
        copies.restore(database, source, now=SystemClock().now(), force=force)
        revision = migrate.current(database)
    if as_json:
        print_json({"database": database.name, "source": str(source), "revision": revision})
    else:
        say(f"{database.name}: restored from {source}, revision {revision}")
        if revision != migrate.head():
            say("what to do: run `ratchet db upgrade`")


@db.command()
@click.argument("source")
@click.argument("target")
@json_option
def copy(source: str, target: str, as_json: bool) -> None:
    """Copy everything from the database URL SOURCE into the empty TARGET, of the same kind or the other."""
    with opened(source) as old, opened(target) as new:
        migrate.upgrade(new)
        copied = transfer.copy_database(old, new)
    if as_json:
        print_json({"source": old.name, "target": new.name, "rows": copied})
    else:
        say(f"{new.name}: {sum(copied.values()):,} rows copied from {old.name}")


def _problems(database: Database) -> list[str]:
    try:
        migrate.check(database)
    except SchemaOutdated as error:
        return [f"{error.message}: {error.remedy}"]
    return migrate.differences(database) + upkeep.damage(database)
