"""A finalist under load for a while."""

from __future__ import annotations

import threading
import time

import pytest

from optimizer.bench.soak import soak
from optimizer.bench.workload import from_spec
from optimizer.clock import Deadline
from optimizer.errors import Stopped
from tests.integration.bench.conftest import Server
from tests.unit.bench.fakes import FakeEngine

WORKLOAD = from_spec({"max_tokens": 10, "concurrency": [1, 4]})


def test_a_steady_server_stands_it(server: Server) -> None:
    begun = time.monotonic()
    result = soak(
        server.url,
        engine=FakeEngine(),
        model="itl=0.01,n=10",
        workload=WORKLOAD,
        duration_s=1.0,
        deadline=Deadline.after(30),
    )
    assert result.ok and result.requests >= 15 and not result.problems
    assert 1.0 <= time.monotonic() - begun < 10
    assert result.first_tok_s > 0 and result.last_tok_s > 0


def test_a_server_that_dies_under_load_does_not(server: Server) -> None:
    threading.Timer(0.7, server.process.kill).start()
    result = soak(
        server.url,
        engine=FakeEngine(),
        model="itl=0.02,n=10",
        workload=WORKLOAD,
        duration_s=20,
        deadline=Deadline.after(30),
    )
    assert not result.ok and result.errors and "requests failed after" in result.problems[0]


def test_a_soak_can_be_cancelled(server: Server) -> None:
    begun = time.monotonic()
    with pytest.raises(Stopped):
        soak(
            server.url,
            engine=FakeEngine(),
            model="itl=0.02,n=10",
            workload=WORKLOAD,
            duration_s=60,
            deadline=Deadline.after(90),
            cancelled=lambda: time.monotonic() - begun > 0.5,
        )
    assert time.monotonic() - begun < 3
