"""Commands that open the database themselves: which one, and brought up to date first."""

from __future__ import annotations

import uuid
from pathlib import Path

from pydantic import ValidationError

from optimizer.errors import BadInput, Conflict, Problem, RatchetError
from optimizer.settings import Settings
from storage import migrate, transfer
from storage.engine import Database, open_database
from storage.errors import BadDatabaseUrl, Corrupt, Duplicate, StorageError
from storage.records import StudyRecord


def settings_for(db_url: str | None) -> Settings:
    """Return the settings, with the database of the command line when it is given.

    Raises:
        BadInput: a variable of the environment cannot be used.
    """
    try:
        return Settings(db_url=db_url) if db_url else Settings()
    except ValidationError as error:
        problems = [
            Problem(f"RATCHET_{e['loc'][0]}".upper(), e["msg"].removeprefix("Value error, "), e["input"])
            for e in error.errors()
        ]
        raise BadInput("the environment cannot be used", problems) from error


def open_migrated(settings: Settings) -> Database:
    """Open the database and bring its schema up to date.

    Raises:
        BadInput: the URL is not usable.
        RatchetError: the database cannot be opened or upgraded.
    """
    if settings.database_url.startswith("sqlite:///"):
        Path(settings.database_url.removeprefix("sqlite:///")).expanduser().parent.mkdir(parents=True, exist_ok=True)
    try:
        db = open_database(settings.database_url)
        migrate.upgrade(db)
    except BadDatabaseUrl as error:
        raise BadInput(error.message, remedy=error.remedy) from error
    except StorageError as error:
        raise RatchetError(error.message, remedy=error.remedy) from error
    return db


def import_study(db_url: str | None, source: Path, *, name: str | None) -> StudyRecord:
    """Store an exported study in the database; under another name it gets another id too.

    Raises:
        BadInput: the file cannot be read or is no export.
        Conflict: the study is there already.
    """
    db = open_migrated(settings_for(db_url))
    try:
        with source.open("rb") as file, db.write() as conn:
            return transfer.import_study(conn, file, name=name, new_id=uuid.uuid4().hex[:12] if name else None)
    except OSError as error:
        raise BadInput(f"cannot read {source}: {error.strerror}", remedy="check the path") from error
    except Corrupt as error:
        raise BadInput(f"{source}: {error.message}", remedy=error.remedy) from error
    except Duplicate as error:
        raise Conflict(
            error.message, remedy="give it another name with --name, or delete the one that is there"
        ) from error
    finally:
        db.close()
