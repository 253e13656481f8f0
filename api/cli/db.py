"""`ratchet db`: bring the database up to date, look at it, and keep it in order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from api.cli.output import print_json, say
from optimizer.errors import RatchetError
from storage import migrate
from storage.engine import Database, open_database
from storage.errors import SchemaOutdated, StorageError

db_option = click.option("--db", "url", envvar="RATCHET_DB", help="Database URL; default: a SQLite file of your own.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@click.group()
def db() -> None:
    """Database migrations and upkeep."""


@contextmanager
def opened(url: str | None) -> Iterator[Database]:
    """Yield the database; what goes wrong with it leaves as an error that the command line prints."""
    try:
        database = open_database(url)
        try:
            yield database
        finally:
            database.close()
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
        say(f"{database.name}: {'in order' if not problems else f'{len(problems)} problems'}")
    if problems:
        raise SystemExit(1)


def _problems(database: Database) -> list[str]:
    try:
        migrate.check(database)
    except SchemaOutdated as error:
        return [f"{error.message}: {error.remedy}"]
    return migrate.differences(database)
