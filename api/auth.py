"""Who is asking, and what they may do.

Keys carry 256 random bits, so one SHA-256 is enough to keep; they are compared in constant time. Scopes contain each
other: admin > operator > viewer. A browser trades a key for a signed cookie (no table: the cookie names the key, which
is looked up on every request, so that revoking works at once). Without any key the service is open, but only to this
machine. What each route needs is written at the route.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from api.problems import ApiProblem
from optimizer.clock import Clock
from storage import keys
from storage.engine import Database
from storage.records import KeyRecord

COOKIE = "ratchet_session"
CSRF_HEADER = "X-CSRF-Token"
SESSION_TTL = timedelta(hours=12)
TOKEN_PREFIX = "rk"
USED_EVERY = timedelta(minutes=1)
"""How exactly `last_used_at` is kept: a write per request would make every read a write."""
FAILURES_ALLOWED = 10
FAILURE_WINDOW_S = 60.0
CLIENTS_REMEMBERED = 4096


class KeyScope(StrEnum):
    """What a key may do. A viewer reads, an operator starts and stops, an admin changes hosts and keys."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


RANK = {KeyScope.VIEWER: 0, KeyScope.OPERATOR: 1, KeyScope.ADMIN: 2}


@dataclass(frozen=True)
class Principal:
    """Who asks: a key's name and its scopes, and how it came (`key`, `cookie`, `anonymous`)."""

    name: str
    scopes: frozenset[KeyScope]
    via: str
    key_id: str | None = None
    csrf: str | None = None

    def may(self, scope: KeyScope) -> bool:
        """Say whether `scope` is contained in what this caller has."""
        return any(RANK[own] >= RANK[scope] for own in self.scopes)


ANONYMOUS = Principal("anonymous (this machine)", frozenset({KeyScope.ADMIN}), "anonymous")


def new_key(name: str, scopes: list[str], *, now: datetime, expires_at: datetime | None) -> tuple[KeyRecord, str]:
    """Make a key. The text is shown once and not kept."""
    key_id = secrets.token_hex(4)
    token = f"{TOKEN_PREFIX}_{key_id}_{secrets.token_urlsafe(32)}"
    record = KeyRecord(
        id=key_id,
        name=name,
        prefix=f"{TOKEN_PREFIX}_{key_id}",
        hash=hash_token(token),
        scopes=[KeyScope(s).value for s in scopes],
        created_at=now,
        expires_at=expires_at,
    )
    return record, token


def hash_token(token: str) -> str:
    """Return what is kept of a key."""
    return hashlib.sha256(token.encode()).hexdigest()


def usable(record: KeyRecord, now: datetime) -> bool:
    """Say whether a key is neither revoked nor expired."""
    return record.revoked_at is None and (record.expires_at is None or now < record.expires_at)


def find_key(db: Database, token: str, now: datetime) -> KeyRecord | None:
    """Return the usable key that `token` is, and note its use."""
    parts = token.split("_", 2)
    if len(parts) != 3 or parts[0] != TOKEN_PREFIX or not parts[1].isalnum() or len(parts[1]) > 32:
        return None
    with db.read() as conn:
        record = keys.by_prefix(conn, f"{TOKEN_PREFIX}_{parts[1]}")
    if record is None or not hmac.compare_digest(record.hash, hash_token(token)) or not usable(record, now):
        return None
    note_use(db, record, now)
    return record


def note_use(db: Database, record: KeyRecord, now: datetime) -> None:
    """Keep when a key was last used, to the minute."""
    if record.last_used_at is None or now - record.last_used_at >= USED_EVERY:
        with db.write() as conn:
            keys.touch(conn, record.id, now)


def principal_of(record: KeyRecord, via: str, csrf: str | None = None) -> Principal:
    """Return the caller that a key stands for."""
    return Principal(record.name, frozenset(KeyScope(s) for s in record.scopes), via, record.id, csrf)


class Sessions:
    """Signed cookies for browsers. The secret belongs to one data directory."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def issue(self, key_id: str, now: datetime) -> str:
        """Return a cookie for a key that was just proved."""
        body = {"key": key_id, "until": int((now + SESSION_TTL).timestamp()), "nonce": secrets.token_hex(8)}
        packed = base64.urlsafe_b64encode(json.dumps(body).encode()).decode()
        return f"{packed}.{self._sign('session', packed)}"

    def read(self, cookie: str, now: datetime) -> tuple[str, str] | None:
        """Return (key id, CSRF token) of a cookie that we signed and that has not ended."""
        packed, _, signature = cookie.partition(".")
        if not hmac.compare_digest(signature.encode(), self._sign("session", packed).encode()):
            return None
        body = json.loads(base64.urlsafe_b64decode(packed))
        if body["until"] <= now.timestamp():
            return None
        return body["key"], self._sign("csrf", packed)

    def _sign(self, purpose: str, text: str) -> str:
        return hmac.new(self._secret, f"{purpose}:{text}".encode(), hashlib.sha256).hexdigest()


class LoginLimit:
    """Counts failed attempts by client address; more than a few a minute are refused unread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[str, deque[float]] = {}
        self._lock = threading.Lock()

    def check(self, client: str) -> None:
        """Raise ApiProblem 429 while `client` has failed too often."""
        with self._lock:
            wait_s = self._wait_s(client)
        if wait_s > 0:
            raise ApiProblem(
                429, "too many failed logins from this address", headers={"Retry-After": str(int(wait_s) + 1)}
            )

    def failed(self, client: str) -> None:
        """Note one failure."""
        with self._lock:
            if client not in self._failures and len(self._failures) >= CLIENTS_REMEMBERED:
                self._failures.pop(next(iter(self._failures)))
            self._failures.setdefault(client, deque(maxlen=FAILURES_ALLOWED)).append(self._clock.monotonic())

    def _wait_s(self, client: str) -> float:
        failures = self._failures.get(client)
        if failures is None:
            return 0.0
        now = self._clock.monotonic()
        while failures and now - failures[0] > FAILURE_WINDOW_S:
            failures.popleft()
        if not failures:
            del self._failures[client]
        return FAILURE_WINDOW_S - (now - failures[0]) if len(failures) >= FAILURES_ALLOWED else 0.0
