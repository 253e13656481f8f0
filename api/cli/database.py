"""Commands that open the database themselves: which one, and brought up to date first."""

from __future__ import annotations

from pathlib import Path

from optimizer.errors import BadInput, RatchetError
from optimizer.settings import Settings
from storage import migrate
from storage.engine import Database, open_database
from storage.errors import BadDatabaseUrl, StorageError


def settings_for(db_url: str | None) -> Settings:
    """Return the settings, with the database of the command line when it is given."""
    return Settings(db_url=db_url) if db_url else Settings()


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
