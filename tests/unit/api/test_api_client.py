"""The client against scripted answers: errors by kind, paging, repeated posts, resumed streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest

from api import client
from api.client import Event, Ratchet, Refused, TransportError
from optimizer.errors import BadInput, Conflict, NotFound, RatchetError

Handler = Callable[[httpx.Request], httpx.Response]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client.time, "sleep", lambda _: None)
    monkeypatch.delenv("RATCHET_API_URL", raising=False)
    monkeypatch.delenv("RATCHET_API_KEY", raising=False)


def ratchet(handler: Handler, key: str | None = None) -> Ratchet:
    return Ratchet("http://service", key, transport=httpx.MockTransport(handler))


@pytest.mark.parametrize(
    ("status", "kind"),
    [(404, NotFound), (409, Conflict), (422, BadInput), (401, Refused), (403, Refused), (500, Refused)],
)
def test_answers_become_the_errors_that_the_command_line_tells(status: int, kind: type[RatchetError]) -> None:
    body = {"detail": "no", "remedy": "do", "errors": [{"path": "a.b", "message": "bad", "value": 1, "hint": "x?"}]}
    with ratchet(lambda _: httpx.Response(status, json=body)) as service, pytest.raises(kind) as caught:
        service.study("x")
    assert caught.value.message == "no" and caught.value.remedy == "do"
    if isinstance(caught.value, BadInput):
        assert [(p.path, p.message, p.value, p.hint) for p in caught.value.problems] == [("a.b", "bad", 1, "x?")]


def test_an_answer_that_is_not_json_is_told_by_its_status() -> None:
    with ratchet(lambda _: httpx.Response(502, text="<html>")) as service, pytest.raises(Refused, match="502"):
        service.study("x")


def test_names_are_quoted_and_the_key_is_sent() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={})

    with ratchet(answer, "rk_1") as service:
        service.study("a/../b ?")
    assert seen[0].url.raw_path == b"/api/v1/studies/a%2F..%2Fb%20%3F"
    assert seen[0].headers["authorization"] == "Bearer rk_1"


def test_pages_are_followed_to_the_end() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        after = request.url.params.get("after")
        pages = {None: ([1, 2], "x"), "x": ([3], "y"), "y": ([], None)}
        items, following = pages[after]
        return httpx.Response(200, json={"items": items, "next": following})

    with ratchet(answer) as service:
        assert list(service.trials("s", state="complete")) == [1, 2, 3]


def test_a_post_that_breaks_is_repeated_with_the_same_key() -> None:
    keys: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        keys.append(request.headers["idempotency-key"])
        if len(keys) < 3:
            raise httpx.ReadError("broken")
        return httpx.Response(202, json={"state": "queued"})

    with ratchet(answer) as service:
        assert service.start("s")["state"] == "queued"
    assert len(keys) == 3 and len(set(keys)) == 1


def test_a_service_that_is_away_is_told_with_what_to_do() -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with ratchet(answer) as service, pytest.raises(TransportError) as caught:
        service.start("s")
    assert "http://service" in caught.value.message and "ratchet serve" in caught.value.remedy


def test_a_refusal_is_not_repeated() -> None:
    calls: list[int] = []

    def answer(_: httpx.Request) -> httpx.Response:
        calls.append(1)
        return httpx.Response(409, json={"detail": "no"})

    with ratchet(answer) as service, pytest.raises(Conflict):
        service.start("s")
    assert len(calls) == 1


def test_a_broken_stream_goes_on_after_the_last_event() -> None:
    asked: list[str] = []
    parts = [
        b'retry: 2000\n\n: still here\n\nid: 1\nevent: study\ndata: {"a": 1}\n\nid: 2\nevent: trial\ndata: {"b":',
        b'id: 2\nevent: trial\ndata: {"b": 2}\n\n',
    ]

    class Part(httpx.SyncByteStream):
        def __init__(self, data: bytes, fails: bool) -> None:
            self.data, self.fails = data, fails

        def __iter__(self) -> Iterator[bytes]:
            yield self.data
            if self.fails:
                raise httpx.ReadError("cut")

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["last-event-id"])
        return httpx.Response(200, stream=Part(parts[len(asked) - 1], fails=len(asked) == 1))

    with ratchet(answer) as service:
        stream = service.events("s")
        assert [next(stream), next(stream)] == [Event(1, "study", {"a": 1}), Event(2, "trial", {"b": 2})]
    assert asked == ["0", "1"]


def test_a_stream_that_stays_away_ends_with_an_error() -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with ratchet(answer) as service, pytest.raises(TransportError):
        next(service.events("s"))


def test_a_url_that_is_none_is_bad_input() -> None:
    with pytest.raises(BadInput):
        Ratchet("http://service:port")


@pytest.mark.parametrize(
    ("answer", "remedy"),
    [
        (httpx.Response(200, text="<html>welcome"), "--api"),
        (httpx.Response(301, headers={"Location": "https://service/api/v1/me"}), "--api"),
    ],
)
def test_an_address_that_is_not_ratchets_is_told(answer: httpx.Response, remedy: str) -> None:
    with ratchet(lambda _: answer) as service, pytest.raises(RatchetError) as caught:
        service.me()
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("key", ["rk_schlüssel", "rk_1\nX-Other: 1"])
def test_a_key_that_cannot_be_sent_is_bad_input(key: str) -> None:
    with pytest.raises(BadInput, match="characters"):
        Ratchet("http://service", key)
