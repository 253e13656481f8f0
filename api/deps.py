"""What routes get handed: the services of this process, and the caller with the scope that the route needs.

Decides how a caller is recognised (bearer key, cookie with CSRF token, anonymous on this machine).
"""

from __future__ import annotations

import hmac
import ipaddress
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Request

from api import auth
from api.auth import ANONYMOUS, COOKIE, CSRF_HEADER, KeyScope, LoginLimit, Principal, Sessions
from api.middleware import SAFE_METHODS
from api.problems import ApiProblem
from optimizer.clock import Clock
from optimizer.settings import Settings
from storage import keys
from storage.engine import Database
from storage.errors import Missing

if TYPE_CHECKING:
    from api.stream import EventHub
    from optimizer.dispatch.choose import Dispatcher

FORWARDING_HEADERS = ("x-forwarded-for", "forwarded", "x-real-ip", "via")
LIVE_KEYS_TTL_S = 1.0


@dataclass
class Services:
    """Everything a request may use. `open_to_local` allows callers without a key while there is none."""

    db: Database
    settings: Settings
    clock: Clock
    sessions: Sessions
    hub: EventHub
    stopping: threading.Event
    worker: Dispatcher | None = None
    open_to_local: bool = True
    limit: LoginLimit = field(init=False)
    _keys_seen: tuple[float, bool] | None = None

    def __post_init__(self) -> None:
        self.limit = LoginLimit(self.clock)

    def now(self) -> datetime:
        """The time, aware UTC."""
        return self.clock.now()

    def wake_worker(self) -> None:
        """Tell this process's worker that there is something to do."""
        if self.worker is not None:
            self.worker.wake()

    def has_keys(self) -> bool:
        """Say whether any usable key exists (looked up at most once a second)."""
        seen = self._keys_seen
        moment = self.clock.monotonic()
        if seen is not None and moment - seen[0] < LIVE_KEYS_TTL_S:
            return seen[1]
        with self.db.read() as conn:
            found = any(auth.usable(k, self.now()) for k in keys.list_keys(conn))
        self._keys_seen = (moment, found)
        return found

    def keys_changed(self) -> None:
        """Forget what was looked up about keys."""
        self._keys_seen = None


def services(request: Request) -> Services:
    """Return the services of the application that got the request."""
    found: Services = request.app.state.services
    return found


Use = Annotated[Services, Depends(services)]


def client_address(request: Any) -> str:
    """Return the address of the other end of the connection."""
    return request.client.host if request.client else "?"


def failing_address(request: Any) -> str:
    """Return the address that failed logins are counted for.

    Behind a proxy on this machine that is the one which the proxy names last, its own word: else one stranger who
    guesses would lock out everybody.
    """
    address = client_address(request)
    named: str = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
    return named[:64] if named and _is_loopback(address) else address


def from_this_machine(request: Any) -> bool:
    """Say whether the connection comes from this machine and was not passed on by a proxy."""
    if any(name in request.headers for name in FORWARDING_HEADERS):
        return False
    host = client_address(request)
    return _is_loopback(host)


def _is_loopback(host: str) -> bool:
    if host == "testclient":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def still_allowed(use: Services, who: Principal) -> bool:
    """Say whether a caller that was let in before would be let in now."""
    if who.key_id is None:
        return not use.has_keys()
    try:
        with use.db.read() as conn:
            return auth.usable(keys.get(conn, who.key_id), use.now())
    except Missing:
        return False


def identify(request: Request, use: Services) -> Principal | None:
    """Return who asks, or None without (usable) credentials.

    Raises:
        ApiProblem: 429 after too many failures from this address.
    """
    header = request.headers.get("authorization", "")
    client = failing_address(request)
    if header:
        use.limit.check(client)
        scheme, _, token = header.partition(" ")
        record = auth.find_key(use.db, token.strip(), use.now()) if scheme.lower() == "bearer" else None
        if record is None:
            use.limit.failed(client)
            return None
        return auth.principal_of(record, "key")
    cookie = request.cookies.get(COOKIE)
    who = _from_cookie(cookie, use) if cookie else None
    if who is not None:
        return who
    # A cookie that ended says nothing: browsers keep one for all ports of this machine.
    if use.open_to_local and from_this_machine(request) and not use.has_keys():
        return ANONYMOUS
    return None


def _from_cookie(cookie: str, use: Services) -> Principal | None:
    session = use.sessions.read(cookie, use.now())
    if session is None:
        return None
    key_id, csrf = session
    with use.db.read() as conn:
        record = keys.by_prefix(conn, f"{auth.TOKEN_PREFIX}_{key_id}")
    if record is None or not auth.usable(record, use.now()):
        return None
    auth.note_use(use.db, record, use.now())
    return auth.principal_of(record, "cookie", csrf)


def authorise(request: Request, use: Services, scope: KeyScope) -> Principal:
    """Return the caller when it may do what needs `scope`.

    Raises:
        ApiProblem: 401 without a usable key, 403 without the scope or the CSRF token, 429 after too many failures.
    """
    # Asked once a request, however many layers want to know: a failed login is counted once.
    known = getattr(request.state, "principal", None)
    who = known if known is not None else identify(request, use)
    request.state.principal = who
    if who is None:
        raise ApiProblem(
            401,
            "a usable API key is needed",
            headers={"WWW-Authenticate": 'Bearer realm="ratchet"'},
            remedy="send `Authorization: Bearer KEY` (the command line: RATCHET_API_KEY or --key); "
            "the service's own machine makes one with `ratchet key create NAME --scope operator`",
        )
    if who.via == "cookie" and request.method not in SAFE_METHODS:
        given = request.headers.get(CSRF_HEADER, "")
        if not who.csrf or not hmac.compare_digest(given.encode(), who.csrf.encode()):
            raise ApiProblem(403, "the request carries no valid CSRF token", remedy="reload the page")
    if not who.may(scope):
        raise ApiProblem(403, f"this needs a key with the scope {scope.value}", remedy="use another key")
    return who


def needs(scope: KeyScope) -> Callable[[Request, Services], Principal]:
    """Return the dependency of a route that needs `scope`; the scope can be read from it by tests."""

    def check(request: Request, use: Use) -> Principal:
        return authorise(request, use, scope)

    check.scope = scope  # type: ignore[attr-defined]
    return check


Viewer = Annotated[Principal, Depends(needs(KeyScope.VIEWER))]
Operator = Annotated[Principal, Depends(needs(KeyScope.OPERATOR))]
Admin = Annotated[Principal, Depends(needs(KeyScope.ADMIN))]
