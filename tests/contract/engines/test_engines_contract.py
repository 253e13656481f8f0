"""One contract for every engine: what a study may rely on, whichever engine it tunes."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.engines.base import Config, FlagValue, Hardware, Verdict, canonical_key
from optimizer.engines.flag_catalogue import flag_set, read_command_line
from optimizer.engines.registry import ENGINE_NAMES, find_engine
from optimizer.errors import NotFound

COMMANDS = {
    "sglang": ["~/env/bin/python3", "-m", "sglang.launch_server"],
    "vllm": ["/opt/vllm/bin/vllm", "serve"],
    "llamacpp": ["/opt/llama/llama-server"],
}
MODEL_FLAG = {"sglang": "model-path", "vllm": "model", "llamacpp": "model"}
NAME_FLAG = {"sglang": "--served-model-name", "vllm": "--served-model-name", "llamacpp": "--alias"}
SPECULATION: dict[str, Config] = {
    "sglang": {"speculative-algorithm": "NGRAM"},
    "vllm": {"speculative-config": '{"method": "ngram", "num_speculative_tokens": 3}'},
    "llamacpp": {"spec-type": "ngram-mod"},
}
LOSSY: dict[str, Config] = {
    "sglang": {"kv-cache-dtype": "fp8_e4m3"},
    "vllm": {"kv-cache-dtype": "fp8"},
    "llamacpp": {"cache-type-k": "q4_0"},
}
each_engine = pytest.mark.parametrize("name", ENGINE_NAMES)


def asked(name: str, **more: FlagValue) -> dict[str, FlagValue]:
    return {MODEL_FLAG[name]: "/models/some one", "port": 8123, **more}


@each_engine
def test_the_plan_is_words_with_identity_port_and_no_shell(name: str) -> None:
    engine = find_engine(name)
    config = {**asked(name), "env.HF_TOKEN": "s3cret", "env.TOKENIZERS_PARALLELISM": "no", "host": "0.0.0.0"}
    effective = engine.effective(config, None, Hardware())
    plan = engine.launch_plan(COMMANDS[name], config, "/srv", effective, "ratchet-1")
    assert plan.argv[: len(COMMANDS[name])] == tuple(COMMANDS[name])
    assert "/models/some one" in plan.argv
    assert plan.argv[plan.argv.index(NAME_FLAG[name]) + 1] == "ratchet-1"
    assert plan.argv[plan.argv.index("--port") + 1] == "8123"
    assert (plan.port, plan.bind_host, plan.cwd, plan.served_model) == (8123, "0.0.0.0", "/srv", "ratchet-1")
    assert plan.env["TOKENIZERS_PARALLELISM"] == "no"
    assert plan.secret_env == {"HF_TOKEN"}
    assert plan.expected == effective.config
    assert not any(word.startswith("env.") for word in plan.argv)


@each_engine
def test_what_a_plan_says_is_what_the_engine_reads(name: str) -> None:
    engine = find_engine(name)
    config = {**asked(name), **engine.presets(None)["all"].defaults[-1]}
    flags = {k: v for k, v in config.items() if not k.startswith("env.")}
    read, rest = read_command_line(name, engine.flags_to_argv(flags), None)
    assert rest == []
    assert engine.effective(read, None, Hardware()).key == engine.effective(flags, None, Hardware()).key


@each_engine
def test_readiness_is_a_real_generation(name: str) -> None:
    engine = find_engine(name)
    config = asked(name)
    plan = engine.launch_plan(COMMANDS[name], config, None, engine.effective(config, None, Hardware()), "ratchet-1")
    ready = engine.readiness(plan)
    assert ready.health_path.startswith("/")
    assert ready.generate_path.startswith("/")
    assert ready.generate_body["model"] == "ratchet-1"
    assert ready.generate_body["temperature"] == 0
    assert 0 < ready.generate_body["max_tokens"] <= 16
    assert ready.log_hints
    for hint in ready.log_hints:
        re.compile(hint)


@each_engine
def test_identity_is_proved_by_the_model_list(name: str) -> None:
    engine = find_engine(name)
    assert engine.identity_matches({"data": [{"id": "ratchet-1"}]}, "ratchet-1")
    assert not engine.identity_matches({"data": [{"id": "another"}]}, "ratchet-1")
    assert not engine.identity_matches({}, "ratchet-1")


@each_engine
def test_unknown_flags_are_refused_with_a_reason(name: str) -> None:
    result = find_engine(name).effective({"no-such-flag-at-all": 1}, None, Hardware())
    assert result.verdict is Verdict.REJECTED
    assert result.unknown_flags == ("no-such-flag-at-all",)
    assert "no-such-flag-at-all" in result.reasons[0]


@each_engine
def test_names_are_checked_before_anything_is_rendered(name: str) -> None:
    for bad in ("x y", "--x", "a;b", "$(x)", ""):
        with pytest.raises(ValueError, match="flag name"):
            find_engine(name).flags_to_argv({bad: 1})


@each_engine
def test_speculation_and_lossy_settings_are_recognised(name: str) -> None:
    engine = find_engine(name)
    assert engine.wants_speculation(SPECULATION[name])
    assert not engine.wants_speculation(asked(name))
    assert engine.lossy_flags(LOSSY[name])
    assert engine.lossy_flags(asked(name)) == ()


@each_engine
def test_versions_and_help_are_asked_of_the_same_command(name: str) -> None:
    engine = find_engine(name)
    assert engine.help_argv(COMMANDS[name])[0] == COMMANDS[name][0]
    assert engine.version_argv(COMMANDS[name])[0] == COMMANDS[name][0]
    assert engine.parse_version("nothing here") is None


@each_engine
def test_the_key_depends_on_nothing_but_the_canonical_form(name: str) -> None:
    result = find_engine(name).effective(asked(name), None, Hardware())
    assert result.key == canonical_key(dict(reversed(result.config.items())))


VALUES = st.one_of(
    st.booleans(), st.integers(-5, 10**7), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=12)
)


@each_engine
def test_any_values_give_a_verdict_and_never_an_exception(name: str) -> None:
    engine = find_engine(name)
    names = [*sorted({f.name for f in flag_set(name, None).flags if f.searchable or f.virtual}), "nonsense"]

    @settings(max_examples=150, deadline=None, derandomize=True)
    @given(st.dictionaries(st.sampled_from(names), VALUES, max_size=6))
    def holds(config: dict[str, FlagValue]) -> None:
        result = engine.effective(config, None, Hardware(gpu_name="h100", gpu_memory_gib=79.6, gpu_count=8))
        assert result.verdict in set(Verdict)
        assert (result.verdict is Verdict.REJECTED) == bool(result.reasons)
        engine.wants_speculation(config)
        engine.lossy_flags(config)

    holds()


def test_engines_are_found_under_their_common_names() -> None:
    assert find_engine("llama.cpp").name == "llamacpp"
    assert find_engine("SGLang").name == "sglang"
    with pytest.raises(NotFound):
        find_engine("tgi")
