"""A service over a fresh database: in this process through its ASGI door, or on a real port."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from starlette.testclient import TestClient

from api import auth
from api.app import create_app, stop_streams
from optimizer.clock import SystemClock
from optimizer.settings import Settings
from storage import keys
from storage.engine import Database
from tests.integration.api import filled


@dataclass
class FakeWorker:
    """Stands in for the worker's bell."""

    woken: int = 0
    name: str = "fake"
    living: bool = True

    def alive(self) -> bool:
        return self.living

    def wake(self) -> None:
        self.woken += 1


@dataclass
class Service:
    """An application, a client of it, and its database."""

    app: FastAPI
    client: TestClient
    db: Database
    worker: FakeWorker
    tokens: dict[str, str] = field(default_factory=dict)

    def call(self, method: str, path: str, body: Any = None, *, key: str | None = None, **headers: str) -> Any:
        named = {k.replace("_", "-"): v for k, v in headers.items()}
        if key:
            named["Authorization"] = f"Bearer {self.tokens[key]}"
        return self.client.request(method, path, json=body, headers=named)

    def make_keys(self) -> None:
        """Make one key of each scope; from then on nobody gets in without one."""
        for scope in auth.KeyScope:
            record, token = auth.new_key(scope.value, [scope.value], now=SystemClock().now(), expires_at=None)
            with self.db.write() as conn:
                keys.put(conn, record)
            self.tokens[scope.value] = token
        self.app.state.services.keys_changed()


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    database = filled.new_database(tmp_path)
    yield database
    database.close()


@pytest.fixture
def service(db: Database, tmp_path: Path) -> Iterator[Service]:
    worker = FakeWorker()
    app = create_app(db, worker, Settings(data_dir=tmp_path))  # type: ignore[arg-type]
    with TestClient(app, raise_server_exceptions=False) as client:
        yield Service(app, client, db, worker)


class LiveServer:
    """The application on a real port, in a thread of this process."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self.server = uvicorn.Server(
            uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=5)
        )
        self.thread = threading.Thread(target=self.server.run, args=([listener],), daemon=True)
        self.thread.start()
        wait_for(lambda: self.server.started, 20)

    def stop(self) -> None:
        stop_streams(self.app)
        self.server.should_exit = True
        self.thread.join(20)
        assert not self.thread.is_alive(), "the server did not end"


@pytest.fixture
def live(service: Service) -> Iterator[LiveServer]:
    server = LiveServer(service.app)
    yield server
    server.stop()


def wait_for(what: Callable[[], Any], timeout_s: float) -> Any:
    """Return what becomes true within the time."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {timeout_s} s")
