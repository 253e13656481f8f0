"""One study as an SQLite file that Optuna opens by itself."""

from __future__ import annotations

import tempfile
from pathlib import Path

from optimizer.search.optuna_file import copy_study
from optimizer.search.study import name_in_optuna
from storage.engine import Database
from storage.records import StudyRecord


def optuna_file(db: Database, study: StudyRecord) -> bytes:
    """Return the file's content.

    Raises:
        NotFound: the study was never started, so there is no Optuna study.
    """
    with tempfile.TemporaryDirectory(prefix="ratchet-export-") as folder:
        path = Path(folder) / "study.db"
        copy_study(db.optuna_url, name_in_optuna(study.name, study.id), path)
        return path.read_bytes()
