"""How long an outage is waited for, and by whom."""

from __future__ import annotations

import time
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from optimizer import readiness
from optimizer.clock import Deadline
from optimizer.engines.base import Blame, Explanation
from optimizer.errors import BenchmarkFailed, CommandTimeout, ConnectionLost, ServerFailed
from optimizer.measuring import steady
from optimizer.remote import scripts

CRASH = Explanation("scheduler_crash", "sglang", "it crashed", "look at its log")


class Away:
    """A host that cannot be reached for a while; remembers how much time each attempt had."""

    name = "box"

    def __init__(self, away_s: float, *, outage_s: float = 0.0, connections: int = 1) -> None:
        self.outage_s = outage_s
        self.connections = connections
        self.back_at = time.monotonic() + away_s
        self.left_s: list[float] = []

    def ask(self, deadline: Deadline) -> str:
        self.left_s.append(deadline.left_s)
        if time.monotonic() < self.back_at:
            raise ConnectionLost(self.name, "box: gone")
        return "here"


def persist(link: Any, seconds: float, **more: Any) -> str:
    return scripts.persist(link, link.ask, Deadline.after(seconds), **more)


def test_an_outage_within_the_deadline_is_waited_for() -> None:
    assert persist(Away(0.5), 30) == "here"


def test_an_outage_beyond_the_deadline_is_the_caller_s() -> None:
    with pytest.raises(ConnectionLost):
        persist(Away(60), 0.5)


def test_patience_goes_beyond_the_deadline_and_gives_the_work_its_whole_time_again() -> None:
    link = Away(1.0, outage_s=30)
    assert persist(link, 0.5) == "here"
    assert link.left_s[-1] == pytest.approx(0.5, abs=0.1)


def test_patience_can_be_declined() -> None:
    with pytest.raises(ConnectionLost):
        persist(Away(60, outage_s=600), 0.5, outage_s=0.0)


def test_a_host_that_was_never_reached_is_not_waited_for() -> None:
    link = Away(60, outage_s=600, connections=0)
    with pytest.raises(ConnectionLost):
        persist(link, 30)
    assert len(link.left_s) == 1


def test_a_slow_command_is_not_repeated() -> None:
    link = Away(0, outage_s=600)
    asked = []

    def slow(deadline: Deadline) -> str:
        asked.append(deadline)
        raise CommandTimeout("box", "box: a command did not end in time")

    with pytest.raises(CommandTimeout):
        scripts.persist(link, slow, Deadline.after(30))  # type: ignore[arg-type]
    assert len(asked) == 1


def study(disturbances: int = 1) -> Any:
    return SimpleNamespace(link=SimpleNamespace(disturbances=disturbances), host=SimpleNamespace(name="box"))


@pytest.mark.parametrize("failure", [None, BenchmarkFailed("9 requests failed"), ServerFailed(CRASH)])
def test_what_was_measured_while_the_connection_broke_is_void_whatever_it_showed(failure: Exception | None) -> None:
    run = study()
    with pytest.raises(BenchmarkFailed, match="SSH connection to box"), steady(run, "tunnel"):
        run.link.disturbances = 2
        if failure:
            raise failure


def test_a_failure_over_a_steady_connection_is_told_as_it_is() -> None:
    with pytest.raises(ServerFailed), steady(study(), "tunnel"):
        raise ServerFailed(CRASH)


def test_a_measurement_that_takes_another_way_is_not_void() -> None:
    run = study()
    with steady(run, "direct"):
        run.link.disturbances = 2


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a link, and the question of the readiness proof that is put over it."""
    link = study().link
    monkeypatch.setattr(readiness.process, "status", lambda *_, **__: None)
    watch = readiness._Watch((), lambda _: None)
    return link, partial(readiness._answer, link, None, watch, "sglang", Deadline.after(30))


def test_a_question_under_which_the_connection_broke_is_put_again(asking: Any) -> None:
    link, ask = asking
    answers = iter([None, 200])

    def question() -> int | None:
        link.disturbances += 1
        return next(answers)

    assert ask(question) == 200


def test_no_answer_over_a_steady_connection_is_the_answer(asking: Any) -> None:
    assert asking[1](lambda: None) is None


def test_a_connection_that_breaks_until_the_time_is_over_is_no_fault_of_the_configuration(asking: Any) -> None:
    link, ask = asking

    def question() -> None:
        link.disturbances += 1

    late = partial(ask.func, *ask.args[:-1], Deadline.after(0))
    with pytest.raises(ServerFailed) as caught:
        late(question)
    assert caught.value.explanation.blame is Blame.INFRASTRUCTURE
