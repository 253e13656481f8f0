"""llama-server: what is refused, forced, merged; how it is started and recognised."""

from __future__ import annotations

import pytest

from optimizer.engines.base import Config, FailureContext, Hardware, Verdict
from optimizer.engines.flag_catalogue import read_command_line
from optimizer.engines.registry import find_engine

ENGINE = find_engine("llamacpp")
CPU = Hardware(cpu_count=4)
UNKNOWN = Hardware()


def key(config: Config, hardware: Hardware = UNKNOWN) -> str:
    return ENGINE.effective(config, None, hardware).key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"threads": 4}, {"threads": 4, "threads-batch": 4}),
        ({}, {"spec-type": "none"}),
        ({"t": 2, "ctk": "q8_0"}, {"threads": 2, "cache-type-k": "q8_0"}),
        ({"flash_attn": "on"}, {"flash-attn": "on"}),
        ({"env.LLAMA_ARG_THREADS": "3"}, {"threads": 3}),
        ({"spec-type": "ngram-simple"}, {"spec-type": "ngram-simple", "spec-ngram-simple-size-n": 12}),
        ({"batch-size": 512, "ubatch-size": 0}, {"batch-size": 512, "ubatch-size": 512}),
        ({"cache-type-v": "q8_0", "flash-attn": "auto"}, {"cache-type-v": "q8_0", "flash-attn": "on"}),
        ({"parallel": 4, "kv-unified": True}, {"parallel": -1}),
        ({"spec-default": True}, {"spec-type": "ngram-mod"}),
        ({"no-mmap": True, "host": "0.0.0.0"}, {"no-mmap": True, "port": 9000, "alias": "x"}),
        ({"threads": 4, "flash-attn": True}, {"threads": 4, "flash-attn": "on"}),
    ],
)
def test_equal_servers_have_one_key(one: Config, other: Config) -> None:
    assert key(one) == key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"threads": 4}, {"threads": 4, "threads-batch": 2}),
        ({"no-mmap": True}, {}),
        ({"spec-type": "ngram-simple"}, {"spec-type": "ngram-mod"}),
        ({"cache-type-k": "q8_0"}, {"cache-type-v": "q8_0"}),
        ({"env.OMP_NUM_THREADS": "1"}, {}),
        ({"parallel": 4}, {"parallel": 4, "kv-unified": True}),
    ],
)
def test_different_servers_have_different_keys(one: Config, other: Config) -> None:
    assert key(one) != key(other)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"cache-type-v": "q8_0", "flash-attn": "off"}, "flash attention"),
        ({"spec-type": "draft-simple"}, "model-draft"),
        ({"draft-max": 4}, "spec-draft-n-max"),
        ({"spec-type": "ngram-magic"}, "ngram-magic"),
        ({"cache-type-k": "q3_k"}, "not one of"),
        ({"spec-ngram-simple-size-n": 0}, "below the least"),
        ({"spec-ngram-mod-n-max": 2000}, "above the most"),
        ({"batch-size": 0}, "batch-size"),
        ({"parallel": 0}, "parallel"),
        ({"port": 99999}, "above the most"),
        ({"threads": "many"}, "whole number"),
        ({"metrics": "5"}, "takes no value"),
        ({"model": True}, "needs a value"),
        (
            {"spec-type": "draft-simple", "md": "x", "flash-attn": "off", "cache-type-v-draft": "q4_0"},
            "cache-type-v-draft",
        ),
    ],
)
def test_refusals_say_why(config: Config, words: str) -> None:
    result = ENGINE.effective(config, None, UNKNOWN)
    assert result.verdict is Verdict.REJECTED
    assert words in " ".join(result.reasons)


def test_an_unknown_flag_comes_with_the_nearest_name() -> None:
    result = ENGINE.effective({"thread": 2}, None, UNKNOWN)
    assert result.unknown_flags == ("thread",)
    assert "did you mean threads" in result.reasons[0]


def test_a_physical_batch_is_cut_to_the_logical_one() -> None:
    result = ENGINE.effective({"batch-size": 64, "ubatch-size": 512}, None, UNKNOWN)
    assert result.verdict is Verdict.ADJUSTED
    assert [(a.flag, a.asked, a.becomes) for a in result.adjustments] == [("ubatch-size", 512, 64)]


def test_batches_are_cut_to_a_context_that_is_rounded_up() -> None:
    result = ENGINE.effective({"ctx-size": 300}, None, UNKNOWN)
    assert result.config["ctx-size"] == 512
    assert result.config["batch-size"] == 512


@pytest.mark.parametrize(
    ("config", "flag"),
    [
        ({"model-draft": "d.gguf"}, "model-draft"),
        ({"spec-ngram-simple-size-n": 4, "spec-type": "ngram-mod"}, "spec-ngram-simple-size-n"),
        ({"spec-type": "ngram-simple", "spec-ngram-simple-min-hits": 2}, "spec-ngram-simple-min-hits"),
        ({"spec-draft-n-max": 8, "spec-type": "ngram-simple"}, "spec-draft-n-max"),
    ],
)
def test_what_is_never_read_is_named_and_dropped(config: Config, flag: str) -> None:
    result = ENGINE.effective(config, None, UNKNOWN)
    assert result.verdict is Verdict.ACCEPTED
    assert result.no_effect == (flag,)
    assert flag not in result.config


def test_automatic_flash_attention_is_on_where_there_is_no_gpu() -> None:
    assert key({}, CPU) == key({"flash-attn": "on"}, CPU)
    assert key({}, UNKNOWN) != key({"flash-attn": "on"}, UNKNOWN)


def test_speculation_is_seen_under_every_spelling() -> None:
    assert ENGINE.wants_speculation({"spec-type": "ngram-mod"})
    assert ENGINE.wants_speculation({"spec-default": True})
    assert not ENGINE.wants_speculation({"md": "d.gguf"})
    assert not ENGINE.wants_speculation({"spec-type": "none"})


def test_lossy_settings() -> None:
    assert ENGINE.lossy_flags({"ctk": "q8_0", "cache-type-v": "f16"}) == ("cache-type-k=q8_0",)


def test_the_plan_adds_only_what_identity_and_measuring_need() -> None:
    config: Config = {
        "m": "model.gguf",
        "port": 8123,
        "t": 2,
        "flash-attn": "on",
        "alias": "old",
        "env.HF_TOKEN": "secret",
    }
    effective = ENGINE.effective(config, None, CPU)
    plan = ENGINE.launch_plan(["llama-server"], config, "/srv", effective, "ratchet-7")
    assert plan.argv == (
        *("llama-server", "-m", "model.gguf", "-t", "2", "--flash-attn", "on"),
        *("--host", "127.0.0.1", "--port", "8123", "--alias", "ratchet-7", "--metrics", "--slots", "--fit", "off"),
    )
    assert (plan.port, plan.bind_host, plan.cwd) == (8123, "127.0.0.1", "/srv")
    assert plan.secret_env == {"HF_TOKEN"}


def test_a_build_without_fit_is_started_without_it() -> None:
    effective = ENGINE.effective({"model": "m"}, "b6000", Hardware())
    old = frozenset({"model", "host", "port", "alias", "metrics"})
    plan = ENGINE.launch_plan(["llama-server"], {"model": "m"}, None, effective, "r", installed=old)
    assert "--metrics" in plan.argv and "--alias" in plan.argv
    assert not {"--fit", "--slots"} & set(plan.argv)


def test_a_value_that_looks_like_a_flag_is_read_as_the_server_reads_it() -> None:
    words = ENGINE.flags_to_argv({"api-key": "-x7Q", "threads": 4})
    assert words == ["--api-key", "-x7Q", "--threads", "4"]
    assert read_command_line("llamacpp", words, None) == ({"api-key": "-x7Q", "threads": "4"}, [])


def test_a_flag_given_twice_is_started_once_with_the_last_value() -> None:
    assert ENGINE.flags_to_argv({"t": 2, "model": "m", "threads": 4}) == ["--model", "m", "--threads", "4"]


@pytest.mark.parametrize("name", ["a b", "-m", "x;rm", "", "$(x)", "--port"])
def test_names_outside_the_grammar_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a flag name"):
        ENGINE.flags_to_argv({name: 1})


def test_values_stay_one_word() -> None:
    assert ENGINE.flags_to_argv({"model": "a b; rm -rf /"}) == ["--model", "a b; rm -rf /"]


HELP = """\
----- common params -----

-t,    --threads N                      number of CPU threads
                                        (env: LLAMA_ARG_THREADS)
-kvo,  --kv-offload, -nkvo, --no-kv-offload
                                        whether to offload, see --threads
--draft, --draft-n, --draft-max N       the argument has been removed. use --spec-draft-n-max or
                                        --spec-ngram-mod-n-max
--spec-ngram-size-n N                   the argument has been removed. use the respective
                                        --spec-ngram-*-size-n
"""


def test_help_lists_every_spelling_and_leaves_out_removed_ones() -> None:
    names = ENGINE.check_help(HELP)
    assert names == {"t", "threads", "kvo", "kv-offload", "nkvo", "no-kv-offload"}


def test_the_build_is_read() -> None:
    assert ENGINE.parse_version("version: 10068 (571d0d5)\nbuilt with GNU 11.4.0") == "b10068-571d0d5"
    assert ENGINE.parse_version("no such option") is None


def test_identity_and_running_config() -> None:
    props = {"model_alias": "ratchet-7", "total_slots": 2}
    assert ENGINE.identity_matches(props, "ratchet-7")
    assert not ENGINE.identity_matches(props, "ratchet-8")
    assert ENGINE.identity_matches({"data": [{"id": "x", "aliases": ["ratchet-7"]}]}, "ratchet-7")
    assert ENGINE.running_config(props) == {"parallel": 2}


def test_a_file_that_is_missing_is_named_whatever_it_is_for() -> None:
    text = (
        "0.04.199.195 E gguf_init_from_file: failed to open GGUF file '/data/style.gguf' (No such file or directory)\n"
    )
    found = ENGINE.explain(text, FailureContext(exit_code=1, phase="startup"))
    assert found.label == "model_not_found"
    assert "/data/style.gguf" in found.summary and "--lora" in found.remedy
