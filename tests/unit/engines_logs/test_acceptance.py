"""Acceptance from counters and responses, and what is silently wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.engines import silent
from optimizer.engines.base import SpeculationSample
from optimizer.engines.llamacpp import speculation as llamacpp
from optimizer.engines.prometheus import difference, parse
from optimizer.engines.sglang import speculation as sglang
from optimizer.engines.vllm import speculation as vllm


def vllm_metrics(drafts: int, drafted: int, accepted: int) -> str:
    return (
        "# HELP vllm:spec_decode_num_drafts_total Number of drafts\n"
        f'vllm:spec_decode_num_drafts_total{{engine="0",model_name="m"}} {drafts}.0\n'
        f'vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="m"}} {drafted}.0\n'
        f'vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="m"}} {accepted}.0\n'
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 5.0\n'
    )


def test_counters_are_differences() -> None:
    found = vllm.from_counters(vllm_metrics(100, 300, 150), vllm_metrics(300, 900, 450))
    assert (found.verify_steps, found.drafted_tokens, found.accepted_tokens) == (200, 600, 300)
    assert (found.accept_len, found.accept_rate) == (2.5, 0.5)
    assert "1 + accepted / drafts" in found.definition


def test_counters_that_ran_backwards_or_are_missing_tell_nothing() -> None:
    assert vllm.from_counters(vllm_metrics(9, 9, 9), vllm_metrics(1, 1, 1)).accept_len is None
    for module in (vllm, sglang, llamacpp):
        sample = module.from_counters("", "")
        assert sample.accept_len is None and sample.drafted_tokens is None and "not told" in sample.definition


def test_counters_without_drafts_have_no_ratio() -> None:
    found = vllm.from_counters(vllm_metrics(5, 5, 5), vllm_metrics(5, 5, 5))
    assert (found.drafted_tokens, found.accept_len, found.accept_rate) == (0, None, None)


def test_ranks_are_summed_and_damaged_lines_left_out() -> None:
    totals = parse('a{r="0"} 1\na{r="1"} 2.5\nb NaN\nbroken{ 7\nc 1e3 1712345678\n')
    assert totals == {"a": 3.5, "c": 1000.0}
    assert difference({"a_total": 1.0}, {"a_total": 4.0}, "a") == 3.0


def test_vllm_per_request() -> None:
    part = {"num_spec_steps": 10, "num_accepted_draft_tokens": 14, "num_draft_tokens": 30}
    found = vllm.from_responses(
        [{"metrics": {"speculative_decoding": part}}, {"metrics": {"speculative_decoding": part}}]
    )
    assert (found.verify_steps, found.accept_len, found.accept_rate) == (20, 2.4, round(28 / 60, 6))


def test_sglang_counters_and_meta_info() -> None:
    def metrics(tokens: int, verified: int, requests: int) -> str:
        return (
            f"sglang:generation_tokens_total {tokens}\nsglang:spec_verify_calls_total {verified}\n"
            f"sglang:num_requests_total {requests}\nsglang:spec_accept_length 9.9\n"
        )

    found = sglang.from_counters(metrics(1000, 400, 10), metrics(1000 + 510, 400 + 200, 20))
    assert (found.verify_steps, found.accept_len) == (200, 2.5)
    info = {"meta_info": {"completion_tokens": 101, "spec_verify_ct": 40, "spec_num_proposed_drafts": 120}}
    found = sglang.from_responses([info, info])
    assert (found.accept_len, found.accepted_tokens, found.drafted_tokens, found.accept_rate) == (2.5, 120, 240, 0.5)
    old = sglang.from_responses([{"completion_tokens": 11, "spec_verify_ct": 10}])
    assert (old.accept_len, old.drafted_tokens) == (1.0, None)
    nothing = sglang.from_responses([{"meta_info": {"completion_tokens": 11}}])
    assert nothing.accept_len is None


def test_llamacpp_timings() -> None:
    drafting = {"predicted_n": 96, "draft_n": 76, "draft_n_accepted": 75}
    found = llamacpp.from_responses([{"timings": drafting}])
    assert (found.verify_steps, found.accept_len) == (20, 4.75)
    plain = llamacpp.from_responses([{"predicted_n": 33}])
    assert (plain.drafted_tokens, plain.accept_len, plain.accept_rate) == (0, 1.0, None)
    assert llamacpp.from_responses([]).verify_steps is None


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(
                [
                    "predicted_n",
                    "draft_n",
                    "draft_n_accepted",
                    "timings",
                    "meta_info",
                    "completion_tokens",
                    "spec_verify_ct",
                    "metrics",
                ]
            ),
            st.one_of(st.none(), st.text(max_size=3), st.booleans(), st.floats(), st.integers(), st.just({})),
            max_size=5,
        ),
        max_size=4,
    )
)
def test_any_response_is_survived(responses: list[dict[str, object]]) -> None:
    for module in (sglang, vllm, llamacpp):
        sample = module.from_responses(responses)
        assert sample.accept_len is None or sample.accept_len >= 1.0


EAGLE = {"speculative-algorithm": "EAGLE", "speculative-draft-model-path": "/m/EAGLE3-head"}


def sample(
    drafted: int | None, length: float | None, rate: float | None = None, steps: int | None = 100
) -> SpeculationSample:
    return SpeculationSample(drafted, None, steps, length, rate, "test")


@pytest.mark.parametrize(
    ("engine", "config", "found", "label"),
    (
        ("sglang", EAGLE, sample(900, 2.4, 0.5), None),
        ("sglang", EAGLE, sample(900, 1.02, 0.01), "low_acceptance"),
        ("sglang", EAGLE, sample(None, 1.02), "low_acceptance"),
        ("sglang", EAGLE, sample(10, 1.0, 0.0), None),
        ("sglang", {}, sample(0, None), None),
        ("sglang", EAGLE, sample(None, None, steps=0), "spec_inactive"),
        ("vllm", {"speculative-config": '{"method": "ngram"}'}, sample(300, 1.03, 0.3), None),
        ("vllm", {"speculative-config": '{"method": "ngram"}'}, sample(300, 1.0, 0.001), "low_acceptance"),
        ("vllm", {"speculative-config": '{"method": "ngram"}'}, sample(0, None, steps=0), "spec_inactive"),
        ("llamacpp", {"model-draft": "/m/d.gguf"}, sample(0, 1.0), "spec_inactive"),
        ("llamacpp", {"spec-type": "none"}, sample(0, 1.0), None),
        ("llamacpp", {"spec-type": "ngram-mod"}, sample(72, 2.5, 1.0), None),
    ),
)
def test_silent_speculation(engine: str, config: dict[str, str], found: SpeculationSample, label: str | None) -> None:
    result = silent.check(engine, config, found, "", [])
    assert (result.label if result else None) == label


def test_silent_reasons() -> None:
    eagle = silent.check("sglang", EAGLE, sample(900, 1.0, 0.0), "", [])
    assert eagle is not None and "EAGLE3" in eagle.remedy
    bare = silent.check("llamacpp", {"model-draft": "/m/d.gguf"}, sample(0, 1.0), "", [])
    assert bare is not None and "--spec-type" in bare.remedy
    log = "srv load_model: failed to initialize speculative decoding context: no such type\n"
    off = silent.check("llamacpp", {"spec-type": "draft-simple"}, sample(None, None, steps=None), log, [])
    assert off is not None and off.label == "spec_inactive" and off.evidence


def test_device_fallback() -> None:
    log = "ggml_cuda_init: failed to initialize CUDA: forward compatibility was attempted on non supported "
    "HW\nready\n"
    found = silent.check("llamacpp", {}, SpeculationSample(), log, [])
    assert found is not None and found.label == "driver_cuda_mismatch" and found.stop_study
    ignored = "warning: no usable GPU found, --gpu-layers option will be ignored\n"
    assert silent.check("llamacpp", {}, SpeculationSample(), ignored, []) is None
    asked = silent.check("llamacpp", {"gpu-layers": 99}, SpeculationSample(), ignored, [])
    assert asked is not None


def test_garbage_is_only_the_extreme() -> None:
    good = [
        "The sky is blue because of scattering of light in the air.",
        "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14",
    ]
    bad = ["!" * 80, "the the the the the the the the the the the the the the", "\ufffd" * 40]
    assert silent.check("vllm", {}, SpeculationSample(), "", good) is None
    found = silent.check("vllm", {}, SpeculationSample(), "", bad)
    assert found is not None and found.label == "garbage_output"
    assert silent.check("vllm", {}, SpeculationSample(), "", [*good, bad[0]]) is None
