"""Keys, cookies, the limit on failures, cursors and addresses, each by itself."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta

import pytest

from api import auth, paging
from api.auth import KeyScope, LoginLimit, Principal, Sessions
from api.middleware import host_name
from api.pages.routes import local_path
from api.problems import ApiProblem
from api.serve import is_loopback

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


class FakeClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def test_a_key_is_kept_only_as_a_hash() -> None:
    record, token = auth.new_key("ci", ["operator"], now=NOW, expires_at=None)
    assert token.startswith(f"{record.prefix}_") and len(token) > 50
    assert token not in repr(record) and token.rsplit("_", 1)[1] not in repr(record)
    assert record.hash == auth.hash_token(token)


def test_two_keys_differ() -> None:
    assert (
        auth.new_key("a", ["viewer"], now=NOW, expires_at=None)[1]
        != auth.new_key("a", ["viewer"], now=NOW, expires_at=None)[1]
    )


def test_a_key_ends_by_time_or_revocation() -> None:
    record, _ = auth.new_key("ci", ["viewer"], now=NOW, expires_at=NOW + timedelta(days=1))
    assert auth.usable(record, NOW)
    assert not auth.usable(record, NOW + timedelta(days=1))


@pytest.mark.parametrize(
    ("own", "allowed"),
    [("viewer", ["viewer"]), ("operator", ["viewer", "operator"]), ("admin", ["viewer", "operator", "admin"])],
)
def test_scopes_contain_each_other(own: str, allowed: list[str]) -> None:
    who = Principal("x", frozenset({KeyScope(own)}), "key")
    assert [s.value for s in KeyScope if who.may(s)] == allowed


def test_a_cookie_is_read_back_until_it_ends() -> None:
    sessions = Sessions(b"s" * 32)
    cookie = sessions.issue("abc", NOW)
    found = sessions.read(cookie, NOW)
    assert found is not None and found[0] == "abc" and len(found[1]) == 64
    assert sessions.read(cookie, NOW + auth.SESSION_TTL) is None


def test_a_cookie_that_was_touched_is_worth_nothing() -> None:
    sessions = Sessions(b"s" * 32)
    cookie = sessions.issue("abc", NOW)
    packed, _, signature = cookie.partition(".")
    body = json.loads(base64.urlsafe_b64decode(packed)) | {"key": "other"}
    forged = base64.urlsafe_b64encode(json.dumps(body).encode()).decode()
    for bad in (f"{forged}.{signature}", f"{packed}.", packed, "", ".", "x.y", f"{packed}.{signature[:-1]}é"):
        assert sessions.read(bad, NOW) is None
    assert Sessions(b"t" * 32).read(cookie, NOW) is None


def test_failures_are_limited_by_address_and_forgotten_in_time() -> None:
    clock = FakeClock()
    limit = LoginLimit(clock)
    for _ in range(auth.FAILURES_ALLOWED):
        limit.check("a")
        limit.failed("a")
    with pytest.raises(ApiProblem) as caught:
        limit.check("a")
    assert caught.value.status == 429 and 0 < int(caught.value.headers["Retry-After"]) <= 61
    limit.check("b")
    clock.sleep(auth.FAILURE_WINDOW_S + 1)
    limit.check("a")


def test_the_limit_remembers_a_bounded_number_of_addresses() -> None:
    limit = LoginLimit(FakeClock())
    for i in range(auth.CLIENTS_REMEMBERED + 50):
        limit.failed(f"address-{i}")
    assert len(limit._failures) == auth.CLIENTS_REMEMBERED


@pytest.mark.parametrize("position", [0, 7, "abc", "a:b c"])
def test_cursors_come_back(position: str | int) -> None:
    assert paging.decode(paging.encode(position)) == str(position)


@pytest.mark.parametrize("bad", ["", "x", "%%%", "djI6MQ", "é", "AAAA", paging.encode("a\x00b")])
def test_other_texts_are_no_cursors(bad: str) -> None:
    with pytest.raises(ApiProblem) as caught:
        paging.decode(bad)
    assert caught.value.status == 422


@pytest.mark.parametrize("bad", [paging.encode("x"), paging.encode("9" * 30), paging.encode("--1"), paging.encode("")])
def test_a_counting_cursor_is_a_number(bad: str) -> None:
    with pytest.raises(ApiProblem):
        paging.decode_int(bad)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("192.168.1.5", False), ("gpu-box", False), ("", False)],
)  # fmt: skip
def test_what_is_reachable_from_this_machine_only(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_host_names_out_of_headers() -> None:
    assert [host_name(h) for h in ("A.b:80", "[::1]:90", "x", "")] == ["a.b", "::1", "x", ""]


@pytest.mark.parametrize(
    ("path", "kept"),
    [("/studies/x?a=1", True), ("//evil.example", False), ("https://evil.example", False), ("/\\evil", False),
     ("", False), ("/a\nb", False)],
)  # fmt: skip
def test_after_the_login_one_stays_here(path: str, kept: bool) -> None:
    assert local_path(path) == (path if kept else "/")
