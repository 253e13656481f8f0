"""Every example of a specification is valid: whole, and its baseline and known configurations are accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from optimizer.engines.base import Hardware, Verdict
from optimizer.engines.registry import find_engine
from optimizer.search import spec_space
from optimizer.spec import load_study

EXAMPLES = sorted((Path(__file__).resolve().parents[3] / "examples").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_can_be_run_as_it_is(path: Path) -> None:
    spec = load_study(path.read_text("utf-8"))
    engine = find_engine(spec.engine)
    space = spec_space.parse(
        spec.space.model_dump(exclude_none=True),
        presets=engine.presets(spec.engine_version),
        fixed=set(spec.launch.flags),
    )
    searched = set(space.names())
    assert searched
    known = [k["flags"] for k in spec.space.known]
    for config in (spec.baseline_config(), *(spec.candidate_config(k, searched) for k in known)):
        found = engine.effective(config, spec.engine_version, Hardware(cpu_count=8, gpu_count=8))
        assert found.verdict is not Verdict.REJECTED, found.reasons
