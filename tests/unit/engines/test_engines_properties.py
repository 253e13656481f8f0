"""Properties that hold for every engine, version and preset: suggestions are accepted, canonical forms are stable."""

from __future__ import annotations

import functools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizer.engines.base import Config, Effective, FlagValue, Hardware, Verdict
from optimizer.engines.flag_catalogue import flag_set
from optimizer.engines.hardware import known_gpu
from optimizer.engines.registry import find_engine
from optimizer.engines.resolution import read_value
from optimizer.search.canonical import CanonicalSpace
from optimizer.search.grammar import compile_expression
from optimizer.search.space import Space

VERSIONS: dict[str, tuple[str | None, ...]] = {
    "sglang": ("0.4.9.post6", "0.5.5", "0.5.12", "0.5.15", "0.5.20", "0.5.23", None),
    "vllm": ("0.32.0",),
    "llamacpp": (None,),
}
FIXED: dict[str, Config] = {
    "sglang": {"model-path": "/m", "tp-size": 2, "speculative-draft-model-path": "/d"},
    "vllm": {"model": "/m", "tensor-parallel-size": 2},
    "llamacpp": {"model": "/m", "model-draft": "/d"},
}
DRAFTED = {"eagle", "eagle3", "draft_model"}
HOSTS = (known_gpu("h100", count=8), known_gpu("rtx4090", count=2), Hardware(cpu_count=4), Hardware())
PLACES = [(engine, version) for engine, versions in VERSIONS.items() for version in versions]
PRESETS = [(e, v, name) for e, v in PLACES for name in find_engine(e).presets(v)]
QUIET = settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.filter_too_much])


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


def draws(space: Space) -> st.SearchStrategy[dict[str, FlagValue]]:
    """Requests of a space: each parameter has one of its values, or is absent."""
    each = {
        p.name: st.sampled_from((*p.ladder, None) if p.may_be_absent else p.ladder)
        for p in space.parameters
        if p.ladder
    }
    return st.fixed_dictionaries(each).map(lambda found: {k: v for k, v in found.items() if v is not None})


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
def test_effective_is_idempotent_and_suggestions_are_told_apart(engine: str, version: str | None, name: str) -> None:
    host = HOSTS[PRESETS.index((engine, version, name)) % len(HOSTS)]
    canonical = view(engine, version, name, host)
    module = find_engine(engine)
    seen: dict[str, dict[str, FlagValue]] = {}

    @QUIET
    @given(draws(canonical.space))
    def holds(config: dict[str, FlagValue]) -> None:
        candidate = canonical.check(config).candidate
        if candidate is None:
            return
        again = module.effective(candidate.effective, version, host)
        assert again.config == candidate.effective
        assert again.verdict is Verdict.ACCEPTED, again
        assert seen.setdefault(candidate.key, candidate.effective) == candidate.effective

    holds()


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
