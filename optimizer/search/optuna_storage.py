"""Opens Optuna's own database beside ours, so that any Optuna tool can read a study.

Decides the connection settings (WAL and a busy timeout on SQLite, live connections on PostgreSQL), and that Optuna's
tables are made by one at a time: Optuna looks first and creates then, and two hosts of a new database would collide.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna

from storage.opening import one_at_a_time

BUSY_TIMEOUT_S = 30.0
SQLITE = "sqlite:///"


def open_storage(url: str) -> optuna.storages.BaseStorage:
    """Open (and create when new) the storage at `url`; `memory` keeps everything in this process."""
    if url == "memory":
        return optuna.storages.InMemoryStorage()
    arguments: dict[str, Any] = {"pool_pre_ping": True}
    if url.startswith(SQLITE):
        arguments = {"connect_args": {"timeout": BUSY_TIMEOUT_S}}
        _use_wal(Path(url.removeprefix(SQLITE)))
    with one_at_a_time(url):
        return optuna.storages.RDBStorage(url, engine_kwargs=arguments)


def close_storage(storage: optuna.storages.BaseStorage) -> None:
    """Let go of a storage's connections."""
    storage.remove_session()
    if isinstance(storage, optuna.storages.RDBStorage):
        storage.engine.dispose()


def _use_wal(path: Path) -> None:
    """Switch the file to WAL once (it stays so): readers such as the dashboard then never block the writer."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_S)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
