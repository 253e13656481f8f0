"""Plots survive what a study in the middle of its work has to show."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from api.reports import plots
from tests.contract.storage import samples


def drawn(**fields: Any) -> str:
    return plots.interval(SimpleNamespace(verdicts=[samples.verdict(**fields)]))  # type: ignore[arg-type]


@pytest.mark.parametrize("ends", [{"ci_high": None}, {"ci_high": math.inf}, {"ci_low": None}])
def test_an_interval_that_is_still_open_is_not_drawn(ends: dict[str, Any]) -> None:
    assert samples.verdict(**ends).interval is None
    assert drawn(**ends) == ""


def test_an_interval_with_both_ends_is_drawn() -> None:
    assert samples.verdict().interval == (1.02, 1.08)
    assert "6 restarts" in drawn()
