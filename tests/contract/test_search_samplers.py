"""What every sampler promises, whichever method it uses."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from optimizer.search.canonical import CanonicalSpace
from optimizer.search.policy import SpaceExhausted
from optimizer.search.spec_space import parse
from optimizer.search.study import Outcome, Result, SearchStudy, open_study
from tests.unit.search import landscape

GP = pytest.param("gp", marks=pytest.mark.skipif(find_spec("torch") is None, reason="gp needs torch"))


@pytest.fixture(params=["ratchet", "tpe", "random", GP])
def sampler(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def study(sampler: str, *, seed: int = 0) -> SearchStudy:
    return open_study("memory", "contract", space=landscape.canonical(), sampler=sampler, seed=seed)


def test_proposes_only_what_is_valid_canonical_and_new(sampler: str) -> None:
    search = study(sampler)
    seen = set()
    for _ in range(12):
        s = search.ask()
        candidate = search.space.check(s.params).candidate
        assert candidate is not None
        assert candidate.key == s.canonical_key
        assert s.canonical_key not in seen
        seen.add(s.canonical_key)
        search.tell(s.number, landscape.result(s.params))


def test_never_asks_twice_what_is_still_running(sampler: str) -> None:
    search = study(sampler)
    landscape.drive(search, 4)
    keys = [search.ask(host=f"host-{i}").canonical_key for i in range(6)]
    assert len(set(keys)) == 6


def test_same_history_and_seed_same_suggestion(sampler: str) -> None:
    searches = [study(sampler, seed=7) for _ in range(2)]
    assert landscape.drive(searches[0], 8) == landscape.drive(searches[1], 8)
    assert searches[0].ask().params == searches[1].ask().params


def test_another_seed_searches_elsewhere(sampler: str) -> None:
    assert landscape.drive(study(sampler, seed=1), 8) != landscape.drive(study(sampler, seed=2), 8)


def test_lives_through_a_night_of_failures(sampler: str) -> None:
    search = study(sampler)
    for _ in range(6):
        search.tell(search.ask().number, Result(None, Outcome.INFEASIBLE, failure="oom_weights"))
    assert search.best() is None
    assert search.ask().canonical_key


def test_says_when_everything_was_measured(sampler: str) -> None:
    space = CanonicalSpace(parse({"parameters": {"a": {"choice": ["x", "y"]}, "b": {"flag": True}}}, presets={}))
    search = open_study("memory", "tiny", space=space, sampler=sampler)
    for _ in range(4):
        search.tell(search.ask().number, Result(5.0))
    with pytest.raises(SpaceExhausted):
        search.ask()
