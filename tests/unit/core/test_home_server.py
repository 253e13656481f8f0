"""The owner's server as a study sees it: a guard that vanished, and who else uses the GPUs."""

from __future__ import annotations

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
        host = SimpleNamespace(name="box", guard=guard, run_dir="~/.ratchet", gpus=[0])
        lease = SimpleNamespace(fence=3, ends_at=None, on_renew=None, renew_s=10.0)
        super().__init__(home=HomeServer(argv=("x",)), host=host, lease=lease, link=None, told=[])

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


def test_who_else_computes_on_the_gpus_is_named_and_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home_server.gpu, "users", lambda link, gpus: [(0, "pid 7 (uid 1): python train.py", 4000)])
    run = FakeRun()
    home_server.warn_of_foreign_load(run)  # type: ignore[arg-type]
    assert "GPU 0 is also used by pid 7 (uid 1): python train.py, 4000 MiB" in run.told[0][1]["text"]
