"""Home is put back whatever the database does."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from optimizer import evidence, home_server
from optimizer.errors import LeaseLost, NeedsAttention
from storage.errors import DatabaseUnavailable, DiskFull


class Failing:
    """A database that can do nothing."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    @contextmanager
    def read(self) -> Any:
        raise self.error
        yield

    write = read


def run_on(error: Exception) -> Any:
    def say(*_: Any, **__: Any) -> None:
        raise error

    lease = SimpleNamespace(confirm=lambda: None, fence=3, on_renew=None)
    host = SimpleNamespace(name="box", run_dir="~/.ratchet", guard=SimpleNamespace(enabled=True))
    spec = SimpleNamespace(on_finish="restore")
    study = SimpleNamespace(id="s1", verdict=None)
    return SimpleNamespace(
        db=Failing(error), say=say, lease=lease, host=host, spec=spec, study=study, link=None, home="home"
    )


@pytest.mark.parametrize("error", [DiskFull("no room"), DatabaseUnavailable("gone")])
def test_a_database_that_fails_does_not_keep_home_down(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    done: list[str] = []
    monkeypatch.setattr(home_server.home, "restore", lambda *_, **__: done.append("home"))
    monkeypatch.setattr(home_server.guard, "disarm", lambda *_, **__: done.append("guard"))
    run = run_on(error)
    home_server.finish(run, finished=False)
    assert done == ["home", "guard"]
    assert home_server.patience_s(run) == 3 * evidence.UNKNOWN_S + home_server.START_RESERVE_S


@pytest.mark.parametrize("home", ["home", None])
def test_a_winner_that_does_not_start_again_does_not_keep_home_down(
    monkeypatch: pytest.MonkeyPatch, home: str | None
) -> None:
    done: list[str] = []

    def restore(link: object, server: str, **_: object) -> None:
        done.append(server)
        if server == "winner":
            raise NeedsAttention("box", "box: the winner does not serve: it ended with status 1")

    monkeypatch.setattr(home_server.home, "restore", restore)
    monkeypatch.setattr(home_server, "winner_to_adopt", lambda run: "winner")
    monkeypatch.setattr(home_server, "stored_home", lambda run: None)
    monkeypatch.setattr(home_server.guard, "disarm", lambda *_, **__: done.append("guard"))
    run = run_on(DiskFull("no room"))
    run.home = home
    if home is None:
        with pytest.raises(NeedsAttention):
            home_server.finish(run, finished=True)
        return
    assert "not adopted" in home_server.finish(run, finished=True)
    assert done == ["winner", "home", "guard"]


def test_a_host_that_another_worker_has_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home_server.home, "restore", lambda *_, **__: pytest.fail("it is not ours"))

    def lost() -> None:
        raise LeaseLost("the lease on box is lost")

    run = run_on(DiskFull("no room"))
    run.lease.confirm = lost
    with pytest.raises(LeaseLost):
        home_server.finish(run, finished=False)
