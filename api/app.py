"""Puts the service together: routes, problems, middleware, pages, dashboard. Decides the order of the layers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import threading
from collections.abc import AsyncIterator, Collection
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from fastapi import FastAPI

from api import documented, problems
from api.auth import Sessions
from api.dashboard import Dashboard
from api.deps import Services
from api.middleware import BodyLimit, OwnOrigin, SecurityHeaders
from api.routes import events, health, hosts, keys, results, studies, trials, windows
from api.stream import EventHub
from optimizer.clock import Clock, SystemClock
from optimizer.settings import Settings
from storage.engine import Database

if TYPE_CHECKING:
    from optimizer.dispatch.choose import Dispatcher

log = structlog.get_logger(__name__)
SECRET_FILE = "session.key"
SECRET_BYTES = 32


def create_app(
    db: Database,
    worker: Dispatcher | None = None,
    settings: Settings | None = None,
    *,
    clock: Clock | None = None,
    open_to_local: bool = True,
    allowed_hosts: Collection[str] | None = None,
) -> FastAPI:
    """Return the application over a migrated database.

    `worker` is woken when there is work (its life is the caller's). `open_to_local` lets this machine in without a key
    while there is none. `allowed_hosts` are the names to answer to (None: any).
    """
    settings = settings or Settings()
    services = Services(
        db=db,
        settings=settings,
        clock=clock or SystemClock(),
        sessions=Sessions(session_secret(settings.data_dir)),
        hub=EventHub(db),
        stopping=threading.Event(),
        worker=worker,
        open_to_local=open_to_local,
    )
    app = FastAPI(title="Ratchet", version=version("ratchet-tune"), lifespan=_lifespan, docs_url=None, redoc_url=None)
    app.state.services = services
    problems.install(app)
    documented.install(app)
    for module in (studies, trials, results, events, hosts, windows, keys, health):
        app.include_router(module.router)
    _add_pages(app)
    # The last one added is the outermost: headers go on every answer, crashes included.
    app.add_middleware(Dashboard, services=services)
    app.add_middleware(problems.CatchAll)
    app.add_middleware(BodyLimit)
    app.add_middleware(OwnOrigin, allowed_hosts=allowed_hosts)
    app.add_middleware(SecurityHeaders)
    return app


def stop_streams(app: FastAPI) -> None:
    """End every event stream, from any thread: a server with open streams would never shut down."""
    services: Services = app.state.services
    services.stopping.set()
    loop: asyncio.AbstractEventLoop | None = getattr(app.state, "loop", None)
    if loop is not None and loop.is_running():
        loop.call_soon_threadsafe(services.hub.close)


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.loop = asyncio.get_running_loop()
    yield
    app.state.services.stopping.set()
    app.state.services.hub.close()


def _add_pages(app: FastAPI) -> None:
    from api.pages import routes as pages

    pages.install(app)


def session_secret(data_dir: Path) -> bytes:
    """Return the secret that signs cookies, made on first use and readable by its owner only."""
    path = data_dir / SECRET_FILE
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_bytes(SECRET_BYTES))
        secret = path.read_bytes()
    except OSError as error:
        log.warning("session.secret_not_kept", path=str(path), error=str(error))
        return secrets.token_bytes(SECRET_BYTES)
    # An empty file is what a full disk leaves; a short secret would make cookies forgeable.
    return secret if len(secret) >= SECRET_BYTES else secrets.token_bytes(SECRET_BYTES)
