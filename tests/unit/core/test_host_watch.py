"""What the server's log of the measured windows says, also when the host could not be asked in between."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from optimizer import host_watch
from optimizer.errors import CommandTimeout
from optimizer.host_watch import HostWatch

LOG = b"gggg" + b"eeee" + b"gggg"
"""A level with graphs, the warm-up of the next one without, and that level: one letter for each decode step."""


def watch(monkeypatch: pytest.MonkeyPatch, marks: list[int | None]) -> HostWatch:
    told = iter(marks)

    def status(*args: Any, **more: Any) -> Any:
        size = next(told)
        if size is None:
            raise CommandTimeout("gpu-box", "no answer")
        return SimpleNamespace(log_size=size)

    def read_log(*args: Any, offset: int, limit: int, **more: Any) -> bytes:
        return LOG[offset : offset + limit]

    monkeypatch.setattr(host_watch.process, "status", status)
    monkeypatch.setattr(host_watch.process, "read_log", read_log)
    engine = SimpleNamespace(telemetry=lambda text: [{"kind": "decode", "graph": letter == "g"} for letter in text])
    found = HostWatch(SimpleNamespace(engine=engine, link=None), None)  # type: ignore[arg-type]
    for _ in marks:
        found.mark()
    return found


def test_only_the_measured_windows_count(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watch(monkeypatch, [0, 4, 8, 12]).graph_share() == 1.0


@pytest.mark.parametrize("marks", [[None, 4, 8, 12], [0, None, 8, 12]])
def test_a_window_without_its_mark_is_left_out_and_shifts_no_other(
    monkeypatch: pytest.MonkeyPatch, marks: list[int | None]
) -> None:
    assert watch(monkeypatch, marks).graph_share() == 1.0


def test_without_any_whole_window_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watch(monkeypatch, [0, None]).graph_share() is None
