"""What tests of a study's course share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.engine import Database, open_database
from storage.migrate import upgrade


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    database = open_database(f"sqlite:///{tmp_path / 'r.db'}")
    upgrade(database)
    yield database
    database.close()
