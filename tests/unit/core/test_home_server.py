"""The owner's server as a study sees it: a guard that vanished, and who else uses the GPUs."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from optimizer import home_server
from optimizer.errors import ConnectionLost, NotFound
from optimizer.remote.base import HomeServer


class FakeRun(SimpleNamespace):
    """As much of a study's run as arming a guard needs."""

    def __init__(self) -> None:
        guard = SimpleNamespace(enabled=True, grace_s=5.0)
        host = SimpleNamespace(name="box", guard=guard, run_dir="~/.ratchet", gpus=[0], takeover=True)
        lease = SimpleNamespace(fence=3, ends_at=None, on_renew=None, renew_s=10.0)
        super().__init__(home=HomeServer(argv=("x",)), host=host, lease=lease, link=None, port=1, told=[])

    def say(self, kind: str, **data: Any) -> None:
        self.told.append((kind, data))

    def warn(self, text: str) -> None:
        self.told.append(("warning", {"text": text}))


def test_a_guard_that_somebody_removed_is_armed_again_and_no_failure_ends_the_renewals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    armed: list[float] = []
    answers = iter([None, NotFound("no guard is armed"), ConnectionLost("box", "cut"), None])

    def renew(link: object, **_: object) -> bool:
        answer = next(answers)
        if answer is not None:
            raise answer
        return True

    monkeypatch.setattr(home_server.guard, "arm", lambda link, home, **more: armed.append(more["grace_s"]))
    monkeypatch.setattr(home_server.guard, "renew", renew)
    run = FakeRun()
    home_server.arm_guard(run)  # type: ignore[arg-type]
    for _ in range(4):
        run.lease.on_renew()
    assert armed == [30.0, 30.0]  # never shorter than three renewals


def test_what_the_guard_did_is_told_once_although_the_hosts_clock_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [
        {"at": "2026-05-02T00:00:00Z", "uptime_s": 10, "event": "fired", "detail": "no sign of life"},
        {"at": "2026-05-02T00:00:00Z", "uptime_s": 10, "event": "stopped", "detail": "run a"},
        {"at": "2026-05-01T00:00:00Z", "uptime_s": 11, "event": "home_serving", "detail": "port 1"},
    ]
    record = SimpleNamespace(facts={"cpus": 2})
    monkeypatch.setattr(home_server.hosts, "get", lambda conn, name: record)
    monkeypatch.setattr(home_server.hosts, "update", lambda conn, name, facts: setattr(record, "facts", facts))
    run = FakeRun()
    run.db = SimpleNamespace(read=lambda: nullcontext(), write=lambda: nullcontext())
    for count in (1, 3, 3):
        monkeypatch.setattr(home_server.guard, "history", lambda *_, count=count, **__: entries[:count])
        home_server.report_guard(run)  # type: ignore[arg-type]
    assert [data["event"] for _, data in run.told] == ["fired", "stopped", "home_serving"]
    assert record.facts["cpus"] == 2


def test_who_else_computes_on_the_gpus_is_named_and_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home_server.gpu, "users", lambda link, gpus: [(0, "pid 7 (uid 1): python train.py", 4000)])
    run = FakeRun()
    home_server.warn_of_foreign_load(run)  # type: ignore[arg-type]
    assert "GPU 0 is also used by pid 7 (uid 1): python train.py, 4000 MiB" in run.told[0][1]["text"]


@pytest.mark.parametrize(
    ("now", "changed"),
    [
        ({}, False),
        ({"pid": 9, "start_ticks": 9}, False),
        ({"argv": ("server", "--new-flag")}, True),
        ({"env": {"A": "2"}}, True),
        ({"cwd": "/new"}, True),
        ({"user": "other"}, True),
        ({"systemd_unit": "llm.service"}, True),
    ],
)
def test_a_home_that_its_owner_changed_between_two_nights_is_put_back_as_it_is_now(
    monkeypatch: pytest.MonkeyPatch, now: dict[str, Any], changed: bool
) -> None:
    stored = HomeServer(argv=("server",), env={"A": "1"}, cwd="/old", found="proc", pid=7, start_ticks=7)
    seen = replace(stored, **now)
    monkeypatch.setattr(home_server.home, "find", lambda *_, **__: seen)
    run = FakeRun()
    assert home_server.changed_home(run, stored) == (seen if changed else None)  # type: ignore[arg-type]


def test_a_home_that_is_gone_or_given_stays_what_was_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(*_: object, **__: object) -> HomeServer:
        raise NotFound("nothing listens")

    monkeypatch.setattr(home_server.home, "find", find)
    assert home_server.changed_home(FakeRun(), HomeServer(argv=("x",), found="proc")) is None  # type: ignore[arg-type]
    assert home_server.changed_home(FakeRun(), HomeServer(argv=("x",), found="given")) is None  # type: ignore[arg-type]
