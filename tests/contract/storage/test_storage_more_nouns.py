"""Series, idempotency keys and messages to the outside, on both databases."""

from __future__ import annotations

import pytest

from storage import idempotency, leases, series, shares, studies, webhooks
from storage.engine import Database
from storage.errors import InvalidValue, Missing, StaleFence
from storage.records import SeriesRecord, WebhookRecord
from tests.contract.storage import samples
from tests.contract.storage.samples import HOST, NOW, later


def power(values: list[float], *, source: str = "gpu0") -> SeriesRecord:
    return SeriesRecord("s1", 0, source, "power_w", NOW, [index * 0.1 for index in range(len(values))], values)


def test_series_come_back_exactly_and_are_replaced(db: Database) -> None:
    wanted = [power([400.0, 401.5, 1 / 3, -1e300]), power([], source="gpu1")]
    with db.write() as conn:
        fence = samples.leased_study(conn)
        samples.stored_trial(conn, fence)
        series.put(conn, [power([1.0]), *wanted], host=HOST, fence=fence)
        assert series.for_trial(conn, "s1", 0) == wanted
        assert series.for_trial(conn, "s1", 0, source="gpu1") == wanted[1:]
        assert series.for_trial(conn, "s1", 7) == []
        with pytest.raises(ValueError, match="one value for each time"):
            series.put(conn, [SeriesRecord("s1", 0, "a", "b", NOW, [1.0], [])], host=HOST, fence=fence)


def test_series_are_guarded_by_the_fence(db: Database) -> None:
    with db.write() as conn:
        fence = samples.leased_study(conn)
        samples.stored_trial(conn, fence)
        leases.release(conn, HOST, "worker-1", fence)
    with pytest.raises(StaleFence), db.write() as conn:
        series.put(conn, [power([1.0])], host=HOST, fence=fence)


def test_a_repeated_request_gets_the_first_answer(db: Database) -> None:
    with db.write() as conn:
        assert idempotency.begin(conn, "k1", "abc", "h1", now=NOW) is None
        waiting = idempotency.begin(conn, "k1", "abc", "h2", now=later(1))
        assert waiting is not None
        assert (waiting.request_hash, waiting.status, waiting.created_at) == ("h1", None, NOW)
        idempotency.finish(conn, "k1", "abc", status=201, response={"body": "{}"})
        done = idempotency.begin(conn, "k1", "abc", "h1", now=later(2))
        assert done is not None
        assert (done.status, done.response) == (201, {"body": "{}"})
        assert idempotency.begin(conn, "k2", "abc", "h1", now=NOW) is None, "keys of others are others"


def test_a_forgotten_key_is_free_again(db: Database) -> None:
    with db.write() as conn:
        idempotency.begin(conn, "k1", "abc", "h1", now=NOW)
        idempotency.forget(conn, "k1", "abc")
        assert idempotency.get(conn, "k1", "abc") is None
        with pytest.raises(Missing):
            idempotency.finish(conn, "k1", "abc", status=200, response={})
        assert idempotency.begin(conn, "k1", "abc", "h2", now=NOW) is None


def message(**changes: object) -> WebhookRecord:
    fields: dict[str, object] = {"target": "ops", "kind": "finished", "payload": {"a": 1}, "created_at": NOW}
    return WebhookRecord(**{**fields, "next_at": NOW, "study_id": "s1", **changes})  # type: ignore[arg-type]


def test_messages_are_taken_by_one_and_come_back_when_he_dies(db: Database) -> None:
    with db.write() as conn:
        studies.create(conn, samples.study())
        first = webhooks.enqueue(conn, message())
        webhooks.enqueue(conn, message(next_at=later(100), study_id=""))
        assert webhooks.take_due(conn, NOW, hold_s=30) == [message(id=first)]
        assert webhooks.take_due(conn, later(29), hold_s=30) == []
        assert [m.attempts for m in webhooks.take_due(conn, later(30), hold_s=30)] == [1]
        webhooks.sent(conn, first, later(31))
        assert [m.study_id for m in webhooks.take_due(conn, later(1000), hold_s=30)] == [""]


def test_messages_that_fail_are_due_later_or_given_up(db: Database) -> None:
    with db.write() as conn:
        studies.create(conn, samples.study())
        first = webhooks.enqueue(conn, message())
        webhooks.failed(conn, first, "HTTP 500", again_at=later(60))
        assert webhooks.take_due(conn, later(59), hold_s=1) == []
        assert [m.last_error for m in webhooks.take_due(conn, later(60), hold_s=1)] == ["HTTP 500"]
        webhooks.failed(conn, first, "HTTP 410", again_at=None)
        assert webhooks.take_due(conn, later(999), hold_s=1) == []
        assert [m.state for m in webhooks.list_messages(conn, study_id="s1")] == ["given_up"]
        with pytest.raises(Missing):
            webhooks.sent(conn, 99, NOW)


def test_a_study_has_a_part_on_each_of_its_hosts(db: Database) -> None:
    with db.write() as conn:
        studies.create(conn, samples.study(), hosts=["one", "two"])
        shares.update(conn, "s1", "two", home={"argv": ["x"]}, taken=True, ending="paused", reason="asked")
        shares.update(conn, "s1", "one", ending="finished")
    with db.read() as conn:
        one, two = shares.for_study(conn, "s1")
        assert (one.host, one.position, one.home, one.taken, one.ending) == ("one", 0, None, False, "finished")
        assert shares.get(conn, "s1", "two") == two
        assert (two.position, two.home, two.taken, two.reason) == (1, {"argv": ["x"]}, True, "asked")
        assert [s.id for s in studies.list_studies(conn, host="two")] == ["s1"]
        assert studies.list_studies(conn, host="three") == []
    with db.write() as conn:
        shares.begin_again(conn, "s1")
    with db.read() as conn:
        assert [p.ending for p in shares.for_study(conn, "s1")] == ["finished", ""], (
            "what has its result is not done again"
        )
        assert shares.get(conn, "s1", "two").taken
    for wrong in ({"host": "three"}, {"study_id": "s9"}):
        which = {"study_id": "s1", "host": "one", **wrong}
        with pytest.raises(Missing), db.write() as conn:
            shares.update(conn, **which, taken=True)
        with pytest.raises(Missing), db.read() as conn:
            shares.get(conn, **which)
    with pytest.raises(InvalidValue), db.write() as conn:
        shares.update(conn, "s1", "one", ending="tired")
