"""Every test of this folder gets its database from `fixtures`."""

from tests.contract.storage.fixtures import (
    db,
    postgres_db,
    postgres_migrated,
    postgres_url,
    sqlite_db,
    sqlite_template,
)

__all__ = ["db", "postgres_db", "postgres_migrated", "postgres_url", "sqlite_db", "sqlite_template"]
