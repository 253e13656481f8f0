"""Server-sent events over a real port: history, what happens, resuming, several readers, and an end at shutdown."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from api.client import Event, Ratchet
from api.routes import events as stream_routes
from api.stream import EventHub
from optimizer.clock import SystemClock
from storage import events
from storage.engine import open_database
from storage.errors import DatabaseBusy
from tests.integration.api import filled
from tests.integration.api.conftest import LiveServer, Service, wait_for

V1 = "/api/v1"


def append(service: Service, study_id: str, number: int) -> int:
    with service.db.write() as conn:
        return events.append(conn, study_id, "trial", {"number": number}, SystemClock().now())


class Reader:
    """Follows a stream in a thread and keeps what came, with its time."""

    def __init__(self, url: str, study: str | None, after: int = 0) -> None:
        self.seen: list[tuple[float, Event]] = []
        self.ratchet = Ratchet(url)
        self.stream: Iterator[Event] = self.ratchet.events(study, after=after)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            for event in self.stream:
                self.seen.append((time.monotonic(), event))
        except Exception as error:
            self.error = error

    def numbers(self) -> list[int]:
        return [e.data["number"] for _, e in self.seen if e.kind == "trial"]


def test_a_reader_gets_the_past_then_the_present_and_only_its_study(service: Service, live: LiveServer) -> None:
    filled.add_host(service.db)
    one, other = filled.add_study(service.db, "one"), filled.add_study(service.db, "other")
    for i in range(3):
        append(service, one.id, i)
    append(service, other.id, 99)
    reader, everything = Reader(live.url, "one"), Reader(live.url, None)
    wait_for(lambda: len(reader.numbers()) == 3, 15)
    for i in range(3, 30):
        append(service, one.id, i)
    wait_for(lambda: len(reader.numbers()) == 30, 15)
    assert reader.numbers() == list(range(30))
    wait_for(lambda: len(everything.numbers()) == 31, 15)


def test_a_reader_resumes_after_the_last_event_that_it_saw(service: Service, live: LiveServer) -> None:
    filled.add_host(service.db)
    study = filled.add_study(service.db, "one")
    ids = [append(service, study.id, i) for i in range(5)]
    with httpx.stream("GET", f"{live.url}{V1}/studies/one/events", headers={"Last-Event-ID": str(ids[2])}) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.iter_lines()
        got = [next(line for line in lines if line.startswith("id:")) for _ in range(2)]
    assert got == [f"id: {i}" for i in ids[3:]]


def test_events_of_another_process_arrive(service: Service, live: LiveServer) -> None:
    filled.add_host(service.db)
    study = filled.add_study(service.db, "one")
    reader = Reader(live.url, "one")
    elsewhere = open_database(service.db.url)
    try:
        with elsewhere.write() as conn:
            events.append(conn, study.id, "trial", {"number": 7}, SystemClock().now())
        wait_for(lambda: reader.numbers() == [7], 15)
    finally:
        elsewhere.close()


def test_a_reader_that_joins_late_misses_nothing_while_others_listen(service: Service, live: LiveServer) -> None:
    filled.add_host(service.db)
    study = filled.add_study(service.db, "one")
    first = Reader(live.url, "one")
    readers = []
    for i in range(40):
        append(service, study.id, i)
        if i % 10 == 5:
            readers.append(Reader(live.url, "one"))
    for reader in [first, *readers]:
        wait_for(lambda reader=reader: len(reader.numbers()) == 40, 20)
        assert reader.numbers() == list(range(40))


def test_open_streams_end_when_the_service_does(service: Service) -> None:
    server = LiveServer(service.app)
    filled.add_host(service.db)
    filled.add_study(service.db, "one")
    with httpx.stream("GET", f"{server.url}{V1}/studies/one/events", timeout=30) as stream:
        lines = stream.iter_lines()
        next(lines)
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 4
        assert not [line for line in lines if line.startswith("data")]


@pytest.mark.parametrize("bad", ["x", "-1", "1.5", "9" * 30])
def test_an_event_id_is_a_number(service: Service, bad: str) -> None:
    filled.add_host(service.db)
    filled.add_study(service.db, "one")
    assert service.call("GET", f"{V1}/studies/one/events", Last_Event_ID=bad).status_code == 422


def test_a_stream_needs_a_key_and_a_study(service: Service) -> None:
    assert service.call("GET", f"{V1}/studies/nope/events").status_code == 404
    service.make_keys()
    assert service.call("GET", f"{V1}/events").status_code == 401


def test_a_stream_ends_when_the_key_of_its_reader_is_revoked(
    service: Service, live: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_routes, "ASK_AGAIN_S", 0.0)
    filled.add_host(service.db)
    study = filled.add_study(service.db, "one")
    service.make_keys()
    append(service, study.id, 1)
    bearer = {"Authorization": f"Bearer {service.tokens['viewer']}"}
    with httpx.stream("GET", f"{live.url}{V1}/studies/one/events", headers=bearer, timeout=30) as stream:
        lines = stream.iter_lines()
        assert next(line for line in lines if line.startswith("data"))
        assert service.call("DELETE", f"{V1}/keys/viewer", key="admin").status_code == 200
        append(service, study.id, 2)
        assert not [line for line in lines if line.startswith("data")]


def test_listeners_get_news_again_after_a_database_that_was_away(
    service: Service, live: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled.add_host(service.db)
    study = filled.add_study(service.db, "one")
    newest, away = EventHub._newest, [True, True, True]

    def failing(hub: EventHub) -> int:
        if away:
            away.pop()
            raise DatabaseBusy("locked")
        return newest(hub)

    monkeypatch.setattr(EventHub, "_newest", failing)
    reader = Reader(live.url, "one")
    wait_for(lambda: not away, 15)
    append(service, study.id, 1)
    wait_for(lambda: reader.numbers() == [1], 10)
