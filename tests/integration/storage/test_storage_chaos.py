"""A short run of the crash harness (benchmarks/chaos has the long one): one study, killed again and again."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import psycopg
import pytest

from benchmarks.chaos.night import Nights
from benchmarks.chaos.stage import set_stage, verdict_on
from storage.engine import open_database
from tests.contract.storage.fixtures import BACKENDS

KILL_AFTER = [30, 75, 140]
"""Points (commits and remote commands) after each start: home is being stopped, a server loads, one is measured."""


@pytest.fixture(params=BACKENDS)
def url(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """A database of its own: the worker processes migrate nothing and empty nothing."""
    if request.param == "sqlite":
        yield None
        return
    server = open_database(request.getfixturevalue("postgres_url"))
    name = f"chaos_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(server.libpq_url("public"), autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {name}".encode())
    yield server.engine.url.set(database=name).render_as_string(hide_password=False)
    with psycopg.connect(server.libpq_url("public"), autocommit=True) as conn:
        conn.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
    server.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_study_whose_worker_is_killed_three_times_ends_as_if_nothing_had_been(url: str | None) -> None:
    stage = set_stage(url)
    try:
        with Nights(stage.folder / "errors") as nights:
            for kill_after in KILL_AFTER:
                assert nights.run(stage.db.url, stage.study_id, kill_after).killed
            assert nights.run(stage.db.url, stage.study_id).code == 0
        assert verdict_on(stage) == []
    finally:
        stage.close()
