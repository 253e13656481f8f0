"""Properties of every engine, known version and preset: suggestions are accepted, canonical forms are stable."""

from __future__ import annotations

import functools
import itertools
import random

import pytest

from optimizer.engines.base import Config, Effective, Hardware, Verdict
from optimizer.engines.flag_catalogue import flag_set, flag_table
from optimizer.engines.hardware import known_gpu
from optimizer.engines.registry import ENGINE_NAMES, find_engine
from optimizer.engines.resolution import read_value
from optimizer.search.canonical import Candidate, CanonicalSpace
from optimizer.search.grammar import compile_expression
from optimizer.search.space import Space

FIXED: dict[str, Config] = {
    "sglang": {"model-path": "/m", "tp-size": 2, "speculative-draft-model-path": "/d"},
    "vllm": {"model": "/m", "tensor-parallel-size": 2},
    "llamacpp": {"model": "/m", "model-draft": "/d"},
}
DRAFTED = {"eagle", "eagle3", "draft_model"}
HOSTS = (known_gpu("h100", count=8), known_gpu("rtx4090", count=2), Hardware(cpu_count=4), Hardware())
PLACES: list[tuple[str, str | None]] = [(e, v) for e in ENGINE_NAMES for v in (*flag_table(e).versions, None)]
PRESETS = [(e, v, name) for e, v in PLACES for name in find_engine(e).presets(v)]
DRAWS, TRIES = 8, 400


@functools.cache
def preset(engine: str, version: str | None, name: str) -> Space:
    return find_engine(engine).presets(version)[name]


def view(engine: str, version: str | None, name: str, host: Hardware) -> CanonicalSpace:
    space = preset(engine, version, name)
    base = FIXED[engine]
    module = find_engine(engine)
    drafter = {"spec-model": "/d"} if any(d.get("spec-method") in DRAFTED for d in space.defaults) else {}

    def server(params: Config) -> Effective:
        own = drafter if "spec-method" in params else {}
        return module.effective({**base, **own, **params}, version, host)

    return CanonicalSpace(space, server, fixed=base)


def suggestions(canonical: CanonicalSpace, rng: random.Random) -> list[Candidate]:
    """Servers that a search may propose: valid draws over the whole space, as the sampler makes them."""
    drawn = ({n: rng.choice(v) for n, v in canonical.values.items()} for _ in range(TRIES))
    found = (candidate for params in drawn if (candidate := canonical.check(params).candidate) is not None)
    return list(itertools.islice(found, DRAWS))


@pytest.mark.parametrize(("engine", "version", "name"), PRESETS)
def test_presets_are_well_formed(engine: str, version: str | None, name: str) -> None:
    space = preset(engine, version, name)
    flags = flag_set(engine, version)
    assert space.parameters
    names = set(space.names())
    for parameter in space.parameters:
        assert len(parameter.ladder) >= 1, parameter.name
        if parameter.name.startswith("env."):
            continue
        found = flags.find(parameter.name)
        assert found is not None, parameter.name
        assert not found[0].no_effect, parameter.name
        for value in parameter.ladder:
            assert read_value(found[0], value, negated=found[1]) is not None
    for text in (*space.rules, *(c.when for c in space.conditions)):
        assert compile_expression(text, names).names <= names
    for condition in space.conditions:
        assert set(condition.then_absent) <= {*names, "spec-model"}


@pytest.mark.parametrize(("engine", "version", "name"), PRESETS)
def test_first_values_are_accepted(engine: str, version: str | None, name: str) -> None:
    for host in HOSTS:
        canonical = view(engine, version, name, host)
        for config in canonical.space.defaults:
            assert canonical.check(config).candidate is not None, (config, canonical.check(config).reasons)


@pytest.mark.parametrize(("engine", "version", "name"), PRESETS)
def test_suggestions_are_accepted_and_no_two_are_one_server(engine: str, version: str | None, name: str) -> None:
    """What the search proposes runs as it says: `effective` of it changes nothing, and no form occurs twice."""
    module, turn = find_engine(engine), PRESETS.index((engine, version, name))
    host = HOSTS[turn % len(HOSTS)]
    canonical = view(engine, version, name, host)
    servers: dict[str, Config] = {}
    for suggestion in suggestions(canonical, random.Random(turn)):
        again = module.effective(suggestion.effective, version, host)
        assert again.verdict is Verdict.ACCEPTED, (suggestion.params, again)
        assert again.config == suggestion.effective, suggestion.params
        assert again.key == suggestion.key
        assert servers.setdefault(suggestion.key, suggestion.effective) == suggestion.effective
    assert servers
    assert len({repr(sorted(e.items())) for e in servers.values()}) == len(servers)


@pytest.mark.parametrize(("engine", "version"), PLACES)
def test_the_order_of_flags_does_not_matter(engine: str, version: str | None) -> None:
    module = find_engine(engine)
    config = {**FIXED[engine], **module.presets(version)["all"].defaults[-1]}
    backwards = dict(reversed(config.items()))
    for host in HOSTS:
        assert module.effective(config, version, host).key == module.effective(backwards, version, host).key


@pytest.mark.parametrize(("engine", "version"), PLACES)
def test_host_port_and_name_do_not_make_another_server(engine: str, version: str | None) -> None:
    module = find_engine(engine)
    host = HOSTS[0]
    moved = {**FIXED[engine], "host": "0.0.0.0", "port": 9123}
    assert module.effective(FIXED[engine], version, host).key == module.effective(moved, version, host).key


@pytest.mark.parametrize(("engine", "version"), PLACES)
def test_a_default_and_its_absence_are_one_server(engine: str, version: str | None) -> None:
    """A default that is written out makes no other server: nothing is started twice for it."""
    module = find_engine(engine)
    flags = flag_set(engine, version)
    plain = module.effective(FIXED[engine], version, HOSTS[0])
    written = {
        f.name: f.default
        for f in flags.flags
        if f.searchable and f.takes_value and f.default is not None and not f.removed and not f.name.startswith("spec")
    }
    assert written
    for name, default in written.items():
        result = module.effective({**FIXED[engine], name: default}, version, HOSTS[0])
        assert result.key == plain.key, (name, default)
