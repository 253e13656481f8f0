"""Copies one Optuna study out of our storage into a file of its own."""

from __future__ import annotations

from pathlib import Path

import optuna

from optimizer.errors import NotFound
from optimizer.search.dashboard import exists


def copy_study(source_url: str, name: str, target: Path) -> None:
    """Copy the study `name` into a new SQLite file that holds nothing else.

    Raises:
        NotFound: there is no such Optuna study yet.
    """
    missing = NotFound(f"there is no Optuna study {name}", remedy="start the study first")
    if not exists(source_url):
        raise missing
    source = optuna.storages.RDBStorage(source_url)
    copy = optuna.storages.RDBStorage(f"sqlite:///{target}")
    try:
        optuna.copy_study(from_study_name=name, from_storage=source, to_storage=copy)
    except KeyError as error:
        raise missing from error
    finally:
        for storage in (source, copy):
            storage.remove_session()
            storage.engine.dispose()
