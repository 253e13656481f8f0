"""Rounds in the background: what ends them, and what must not."""

from __future__ import annotations

import threading

import structlog

from optimizer.rounds import Rounds


def test_a_round_that_crashes_is_followed_by_the_next_one() -> None:
    seen, enough = [], threading.Event()

    def once() -> None:
        seen.append(len(seen))
        if len(seen) == 3:
            enough.set()
        raise ValueError("one bad row")

    rounds = Rounds("test", once, every_s=0.001)
    with structlog.testing.capture_logs() as logs:
        rounds.start()
        assert enough.wait(20)
        rounds.stop()
    assert {(e["event"], e["of"]) for e in logs} == {("round.crashed", "test")}
    assert "one bad row" in logs[0]["traceback"]
