"""One owner per host, and no write by anybody else, on both databases."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection

from storage import leases, logs, measurements, studies, trials
from storage.engine import Database
from storage.errors import StaleFence
from tests.contract.storage import samples
from tests.contract.storage.samples import HOST, NOW, later


def claim(conn: Connection, owner: str, at: float) -> int | None:
    return leases.claim(conn, HOST, owner, ttl_s=60, now=later(at))


def test_a_host_has_one_owner_until_the_lease_ends(db: Database) -> None:
    with db.write() as conn:
        assert claim(conn, "a", 0) == 1
        assert claim(conn, "b", 59.9) is None
        assert claim(conn, "a", 59.9) is None, "a restarted process waits like any other"
        assert claim(conn, "b", 60) == 2
        found = leases.get(conn, HOST)
    assert found is not None
    assert (found.owner, found.fence, found.until) == ("b", 2, later(120))


def test_only_the_owner_renews_and_releases(db: Database) -> None:
    with db.write() as conn:
        fence = claim(conn, "a", 0)
        assert fence is not None
        assert not leases.renew(conn, HOST, "b", fence, ttl_s=60, now=later(30))
        assert not leases.renew(conn, HOST, "a", fence + 1, ttl_s=60, now=later(30))
        assert leases.renew(conn, HOST, "a", fence, ttl_s=60, now=later(30))
        assert claim(conn, "b", 80) is None
        assert not leases.release(conn, HOST, "b", fence)
        assert leases.release(conn, HOST, "a", fence)
        assert leases.get(conn, HOST) is None
        assert claim(conn, "b", 80) == 2, "the fence grows over a release too"
        assert not leases.renew(conn, HOST, "a", fence, ttl_s=60, now=later(81))


def test_a_lease_that_ran_out_unnoticed_goes_on_if_nobody_took_it(db: Database) -> None:
    with db.write() as conn:
        fence = claim(conn, "a", 0)
        assert fence is not None
        assert leases.renew(conn, HOST, "a", fence, ttl_s=60, now=later(500))


def test_a_deleted_study_leaves_the_fence(db: Database) -> None:
    with db.write() as conn:
        fence = samples.leased_study(conn)
        studies.delete(conn, "s1")
        found = leases.get(conn, HOST)
    assert found is not None
    assert (found.fence, found.study_id) == (fence, None)


WRITES: dict[str, Callable[[Connection, int], Any]] = {
    "add": lambda conn, fence: trials.add(conn, samples.trial(), host=HOST, fence=fence),
    "update": lambda conn, fence: trials.update(conn, "s1", 0, host=HOST, fence=fence, state="complete"),
    "measure": lambda conn, fence: measurements.add(conn, samples.measurement(), [], host=HOST, fence=fence),
    "log": lambda conn, fence: logs.put(conn, "s1", 0, b"late", host=HOST, fence=fence),
}


@pytest.mark.parametrize("write", list(WRITES))
def test_who_lost_the_host_writes_nothing(db: Database, write: str) -> None:
    with db.write() as conn:
        old = samples.leased_study(conn)
        samples.stored_trial(conn, old, state="measuring")
        logs.put(conn, "s1", 0, b"early")
        new = leases.claim(conn, HOST, "worker-2", ttl_s=60, now=later(61))
        assert new == old + 1
    with pytest.raises(StaleFence, match="carries fence 2"), db.write() as conn:
        WRITES[write](conn, old)
    with db.read() as conn:
        assert [t.state for t in trials.list_trials(conn, "s1")] == ["measuring"]
        assert measurements.for_study(conn, "s1") == []
        assert logs.get(conn, "s1", 0) == b"early"
    with db.write() as conn:
        WRITES[write](conn, new)


@pytest.mark.parametrize("write", list(WRITES))
def test_who_released_the_host_writes_nothing(db: Database, write: str) -> None:
    with db.write() as conn:
        fence = samples.leased_study(conn)
        samples.stored_trial(conn, fence)
        leases.release(conn, HOST, "worker-1", fence)
    with pytest.raises(StaleFence, match="nobody holds it"), db.write() as conn:
        WRITES[write](conn, fence)


def test_a_host_that_was_never_claimed_takes_no_write(db: Database) -> None:
    with db.write() as conn:
        studies.create(conn, samples.study())
    with pytest.raises(StaleFence), db.write() as conn:
        trials.add(conn, samples.trial(), host=HOST, fence=1)


def test_an_update_moves_the_trial_to_the_writers_fence(db: Database) -> None:
    with db.write() as conn:
        samples.stored_trial(conn, samples.leased_study(conn))
        new = leases.claim(conn, HOST, "worker-2", ttl_s=60, now=later(61))
        assert new is not None
        trials.update(conn, "s1", 0, host=HOST, fence=new, state="interrupted")
        assert trials.get(conn, "s1", 0).fence == new


def test_many_that_claim_at_once_get_one_owner(db: Database) -> None:
    winners: list[int] = []
    barrier = threading.Barrier(8)

    def run(index: int) -> None:
        barrier.wait()
        with db.write() as conn:
            fence = leases.claim(conn, HOST, f"w{index}", ttl_s=60, now=NOW)
        if fence is not None:
            winners.append(fence)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert winners == [1]


def test_an_owner_cannot_lose_the_host_between_its_check_and_its_commit(db: Database) -> None:
    with db.write() as conn:
        fence = samples.leased_study(conn)
    claimed: list[int | None] = []

    def take_over() -> None:
        with db.write() as conn:
            claimed.append(leases.claim(conn, HOST, "worker-2", ttl_s=60, now=later(61)))

    with db.write() as conn:
        trials.add(conn, samples.trial(), host=HOST, fence=fence)
        other = threading.Thread(target=take_over)
        other.start()
        other.join(0.3)
        assert other.is_alive(), "the claim waits for the commit"
    other.join(10)
    assert claimed == [fence + 1]
