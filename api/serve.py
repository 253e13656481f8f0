"""Runs the service in this process: where it may bind, and an end in which streams close and home is restored.

What is served is `app.py`; what runs beside it (worker, nights) is started and ended here.
"""

from __future__ import annotations

import errno
import ipaddress
import signal
import socket
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import structlog
import uvicorn
from fastapi import FastAPI

from api import auth
from api.app import create_app, stop_streams
from api.settings import ApiSettings
from optimizer.clock import SystemClock
from optimizer.errors import BadInput, Problem, RatchetError
from optimizer.housekeeping import housekeeper
from optimizer.rounds import Rounds
from optimizer.settings import Settings
from storage import keys
from storage.engine import Database

if TYPE_CHECKING:
    from optimizer.dispatch.choose import Dispatcher

log = structlog.get_logger(__name__)

RESTORE_TIMEOUT_S = 3600.0
"""At the end the worker restores home, which takes as long as the model needs to load. Whoever has not done it by then
leaves it to the guard on the host."""
STREAM_GRACE_S = 5
BACKLOG = 2048
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class Server(uvicorn.Server):
    """uvicorn that ends event streams when it is asked to stop, and tells where it listens."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, ready: Callable[[str, int], None]) -> None:
        super().__init__(config)
        self._app = app
        self._ready = ready

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the streams, then stop as uvicorn does."""
        stop_streams(self._app)
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, then say where."""
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._ready(str(host), int(port))


def configure_logging() -> None:
    """Write logs as events with fields, one line each, on stderr; tracebacks without local variables."""
    structlog.configure(
        processors=[
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"], drop_missing=True),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


def is_loopback(host: str) -> bool:
    """Say whether an address to bind to is reachable from this machine only."""
    if host in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_binding(db: Database, host: str) -> None:
    """Refuse to be reachable from elsewhere while nobody would need a key.

    Raises:
        BadInput: there is no usable key.
    """
    if is_loopback(host):
        return
    now = SystemClock().now()
    with db.read() as conn:
        if any(auth.usable(k, now) for k in keys.list_keys(conn)):
            return
    hint = "make a key first: ratchet key create NAME --scope admin"
    raise BadInput(
        "refusing to be reachable from other machines without an API key",
        [Problem("--host", "is not a loopback address, and there is no usable key", host, hint)],
    )


def listen(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on every address of a name; port 0 takes a free one of the first.

    Raises:
        BadInput: the name or address is none of this machine.
        RatchetError: the port is taken, or not for this user.
    """
    try:
        asked = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise BadInput("cannot listen", [Problem("--host", "is no address or name of one", host)]) from error
    found: list[socket.socket] = []
    failure: OSError | None = None
    for family, _, _, _, address in asked[:1] if port == 0 else asked:
        try:
            found.append(socket.create_server(address[:2], family=family, backlog=BACKLOG))
        except OSError as error:
            failure = error
            if error.errno != errno.EADDRNOTAVAIL:  # a name may have an IPv6 address that this machine does not use
                break
    if failure is not None and (not found or failure.errno != errno.EADDRNOTAVAIL):
        for sock in found:
            sock.close()
        if failure.errno == errno.EADDRNOTAVAIL:
            raise BadInput("cannot listen", [Problem("--host", "is no address of this machine", host)]) from failure
        reason = failure.strerror or str(failure)
        raise RatchetError(
            f"cannot listen on {host}, port {port}: {reason[:1].lower()}{reason[1:]}",
            remedy="is `ratchet serve` running already? else choose another port with --port",
        ) from failure
    return found


def serve(
    db: Database,
    settings: Settings,
    *,
    host: str,
    port: int,
    with_worker: bool,
    say: Callable[[str], None],
    api_settings: ApiSettings | None = None,
) -> int:
    """Serve until a signal; then end the streams, pause what runs and put home back. Returns the exit code.

    Raises:
        BadInput: the address needs a key and there is none, or it is none of this machine.
        RatchetError: something else listens there.
    """
    check_binding(db, host)
    # Before the worker begins: a service that cannot serve must not take a host's server away and put it back.
    sockets = listen(host, port)
    api_settings = api_settings or ApiSettings()
    worker = _make_worker(db, settings) if with_worker else None
    names = LOOPBACK_NAMES | {host, *(n.lower() for n in api_settings.allowed_hosts)}
    restricted = is_loopback(host) or bool(api_settings.allowed_hosts)
    app = create_app(
        db,
        worker,
        settings,
        open_to_local=is_loopback(host),
        allowed_hosts=names if restricted else None,
    )
    server = _server(app, say, f"{'with' if worker else 'without'} a worker")
    nights = _night_watch(db, api_settings)
    keeper = housekeeper(db, settings)
    # uvicorn raises the signal again when it is done; the default action would end the process before home is back.
    with _Signals(say) as signals:
        if worker is not None:
            worker.start()
        nights.start()
        keeper.start()
        try:
            server.run(sockets)
        finally:
            nights.stop()
            keeper.stop()
            clean = _stop_worker(worker, signals)
    return 0 if clean and server.started else 1


def _server(app: FastAPI, say: Callable[[str], None], beside: str) -> Server:
    """Return the HTTP server; it says where it serves, and what runs beside it, once it does."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=STREAM_GRACE_S,
    )

    def ready(bound_host: str, bound_port: int) -> None:
        shown = f"[{bound_host}]" if ":" in bound_host else bound_host
        say(f"Ratchet serves at http://{shown}:{bound_port} ({beside})")

    return Server(config, app, ready)


def _make_worker(db: Database, settings: Settings) -> Dispatcher:
    # Imported here: a process that only serves needs no SSH and no search.
    from optimizer.dispatch.choose import make_worker

    return make_worker(db, settings=settings)


def _stop_worker(worker: Dispatcher | None, signals: _Signals) -> bool:
    if worker is None:
        return True
    signals.waiting_for = "waiting until the original server is back on every host; it is not skipped"
    return worker.stop(RESTORE_TIMEOUT_S)


def _night_watch(db: Database, api_settings: ApiSettings) -> Rounds:
    from api.nights import night_watch

    return night_watch(db, api_settings, clock=SystemClock())


class _Signals:
    """Signal handlers for the time around uvicorn's own: they only say what the process is waiting for."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._before: dict[int, Any] = {}
        self.waiting_for = ""

    def __enter__(self) -> _Signals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        if self.waiting_for:
            self._say(self.waiting_for)
