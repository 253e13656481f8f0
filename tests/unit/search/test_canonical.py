"""Only servers that may be started come out of the canonical space, each once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optimizer.engines.base import Config, Effective, Verdict
from optimizer.search.canonical import CanonicalSpace, SizeEstimate, cost_sentence
from optimizer.search.spec_space import parse
from tests.unit.search import landscape

WIDE: dict[str, Any] = {
    "parameters": {
        "algorithm": {"choice": ["none", "EAGLE3"]},
        "steps": {"int": [1, 8]},
        "topk": {"choice": [1, 2, 4, 8]},
        "tokens": {"choice": [2, 4, 8, 16, 32, 64]},
        **{f"flag-{i}": {"flag": True} for i in range(8)},
    },
    "conditions": [{"if": "algorithm == none", "then_absent": ["steps", "topk", "tokens"]}],
    "rules": ["tokens <= 1 + k + (s-1)*k*k where k=topk, s=steps", "tokens > steps"],
}


def engine(config: Config) -> Effective:
    """An engine with a silent rewrite, a flag without effect and a refusal."""
    becomes = dict(config)
    if becomes.get("topk") == 1:
        becomes["tokens"] = int(becomes["steps"]) + 1
    becomes.pop("flag-0", None)
    if becomes.get("flag-1") and becomes.get("flag-2"):
        return Effective(Verdict.REJECTED, {}, reasons=("flag-1 and flag-2 exclude each other",))
    return Effective(Verdict.ADJUSTED if becomes != dict(config) else Verdict.ACCEPTED, becomes)


def wide() -> CanonicalSpace:
    return CanonicalSpace(parse(WIDE, presets={}), engine)


def test_lists_every_server_once() -> None:
    listed = landscape.canonical().enumerate()
    assert listed is not None
    assert len({c.key for c in listed}) == len(listed)
    # memory (5) x graphs (2) x (none + ngram steps 6 + eagle3 pairs with steps * topk <= 12: 6 + 6 + 3)
    assert len(listed) == 10 * (1 + 6 + 15)


@pytest.mark.parametrize("draw", ["sample", "neighbours"])
def test_draws_are_valid_and_canonical(draw: str) -> None:
    space, rng = wide(), np.random.default_rng(0)
    for _ in range(50):
        candidate = space.sample(rng)
        assert candidate is not None
        found = [candidate] if draw == "sample" else space.neighbours(candidate.params)
        assert len({c.key for c in found}) == len(found)
        for one in found:
            assert space.check(one.params).candidate == one
            assert one.key == engine(one.params).key
            assert not (one.params.get("flag-1") and one.params.get("flag-2"))
            assert ("steps" in one.params) == (one.params["algorithm"] == "EAGLE3")
            if draw == "neighbours":
                assert one.key != candidate.key


def test_rewrites_and_flags_without_effect_are_one_server() -> None:
    space = wide()
    a = space.check({"algorithm": "EAGLE3", "steps": 3, "topk": 1, "tokens": 4}).candidate
    b = space.check({"algorithm": "EAGLE3", "steps": 3, "topk": 1, "tokens": 4, "flag-0": True}).candidate
    assert a is not None
    assert b is not None
    assert a.key == b.key
    assert a.features == b.features


def test_says_why_a_request_means_no_server() -> None:
    space = wide()
    check = space.check({"algorithm": "EAGLE3", "steps": 8, "topk": 1, "tokens": 4})
    assert check.candidate is None
    assert check.reasons == ("the space's rule is not kept: tokens > steps",)
    refused = space.check({"algorithm": "none", "flag-1": True, "flag-2": True})
    assert refused.reasons == ("flag-1 and flag-2 exclude each other",)


def test_the_fixed_flags_count_in_rules() -> None:
    space = parse({"parameters": {"batch": {"choice": [1, 8]}}, "rules": ["tp-size == 8 or batch == 1"]}, presets={})
    listed = CanonicalSpace(space, fixed={"tp-size": 4}).enumerate()
    assert listed is not None
    assert [c.params for c in listed] == [{"batch": 1}]


def test_a_pool_is_all_there_is() -> None:
    space = CanonicalSpace(landscape.space(), pool=[landscape.BEST, {"algorithm": "none", "memory": 0.7}])
    listed = space.enumerate()
    assert listed is not None
    assert len(listed) == 2
    assert space.check({"algorithm": "none", "memory": 0.8}).candidate is None
    assert space.outside_pool({"algorithm": "none", "memory": 0.8})
    assert space.neighbours(landscape.BEST) == []


def test_tight_rules_still_give_draws() -> None:
    names = [f"x{i}" for i in range(10)]
    section = {"parameters": {n: {"int": [1, 10]} for n in names}, "rules": ["x0 + x1 == 20", "x2 * x3 == 1"]}
    space = CanonicalSpace(parse(section, presets={}))
    rng = np.random.default_rng(1)
    draws = [space.sample(rng) for _ in range(20)]
    assert sum(d is not None for d in draws) >= 15
    assert all(d.params["x0"] == 10 for d in draws if d is not None)


def test_the_size_is_counted_or_estimated_well() -> None:
    rng = np.random.default_rng(0)
    assert landscape.canonical().size_estimate(rng) == SizeEstimate(220, True, 3 * 6 * 3 * 2 * 5)
    plain = CanonicalSpace(parse(WIDE, presets={}))
    listed = plain.enumerate(limit=10**6)
    assert listed is not None
    estimate = CanonicalSpace(parse(WIDE, presets={})).size_estimate(rng)
    assert not estimate.exact
    assert estimate.servers == pytest.approx(len(listed), rel=0.15)


def test_the_cost_is_a_sentence() -> None:
    assert "about 10^23 servers; 40" in cost_sentence(SizeEstimate(28 * 10**22, False, 10**30), 40, 540)
    assert cost_sentence(SizeEstimate(41_237, False, 10**6), 40, 540) == (
        "this space has about 41,000 servers; 40 starts are about 6 h here"
    )
    assert (
        cost_sentence(SizeEstimate(12, True, 20), 40, 60)
        == "this space has 12 servers; 12 starts are about 12 min here"
    )


def test_a_rule_sees_a_searched_flag_as_absent_although_the_launch_has_it() -> None:
    section = {
        "parameters": {"overlap": {"flag": True}, "batch": {"choice": [1, 8]}},
        "rules": ["overlap is absent or batch >= limit"],
    }
    space = CanonicalSpace(parse(section, presets={}), fixed={"overlap": True, "limit": 4})
    listed = [c.params for c in space.enumerate() or []]
    assert listed == [{"overlap": True, "batch": 8}, {"batch": 1}, {"batch": 8}]
