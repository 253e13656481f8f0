"""What engines answered, recorded: their own argument code on command lines drawn from our presets."""

from __future__ import annotations

import pytest

from benchmarks.engines.recorded import ENGINES, disagreement, rows

GROUPS = sorted({(engine, row["version"], row["gpu"]) for engine in ENGINES for row in rows(engine)})


@pytest.mark.parametrize(("engine", "version", "gpu"), GROUPS)
def test_we_say_what_the_engine_says(engine: str, version: str, gpu: str) -> None:
    chosen = [row for row in rows(engine) if (row["version"], row["gpu"]) == (version, gpu)]
    assert any(row["rejected"] for row in chosen)
    assert any(row.get("changes") or row.get("final") for row in chosen)
    wrong = [text for row in chosen if (text := disagreement(engine, row))]
    assert not wrong, "\n".join(wrong)
