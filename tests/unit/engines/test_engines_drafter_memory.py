"""Drafters that cannot fit, and memory fractions that cannot work."""

from __future__ import annotations

from typing import Any

import pytest

from optimizer.engines.drafter import draft_fit, draft_warnings
from optimizer.engines.memory_fraction import memory_interval

TARGET: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "vocab_size": 128256,
    "num_attention_heads": 32,
}
HEAD3: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "hidden_size": 4096,
    "vocab_size": 128256,
    "draft_vocab_size": 32000,
    "num_attention_heads": 32,
    "max_position_embeddings": 2048,
}
HEAD1: dict[str, Any] = {"architectures": ["LlamaForCausalLMEagle"], "hidden_size": 4096, "vocab_size": 128256}


def asked(method: str, **more: Any) -> dict[str, Any]:
    return {"speculative-algorithm": method, "speculative-draft-model-path": "/d", **more}


def test_a_fitting_head_has_no_problems() -> None:
    assert draft_fit(TARGET, HEAD3, asked("EAGLE3")) == []
    assert draft_fit(TARGET, HEAD1, asked("EAGLE")) == []
    assert draft_fit(TARGET, None, {"speculative-algorithm": "NGRAM"}) == []
    assert draft_fit(TARGET, HEAD3, {"spec-method": "eagle3", "spec-model": "/d"}) == []


@pytest.mark.parametrize(
    ("draft", "config", "words"),
    [
        (HEAD3, asked("EAGLE"), "ask for eagle3"),
        (HEAD1, asked("EAGLE3"), "no EAGLE-3 head"),
        ({**HEAD3, "hidden_size": 2048}, asked("EAGLE3"), "width 2048"),
        ({**HEAD3, "draft_vocab_size": 200000}, asked("EAGLE3"), "200000"),
        ({**HEAD1, "vocab_size": 32000}, asked("EAGLE"), "32000"),
        ({"vocab_size": 49152}, asked("STANDALONE"), "49152"),
        ({**HEAD3, "num_attention_heads": 12}, asked("EAGLE3", **{"tp-size": 8}), "12 attention heads"),
        (None, {"speculative-algorithm": "EAGLE3"}, "none is named"),
        (None, {"speculative-algorithm": "NEXTN"}, "has none"),
        (HEAD3, {"spec-method": "draft_model", "spec-model": "/d"}, "whole small model"),
    ],
)
def test_what_cannot_fit_is_said_before_a_launch(draft: Any, config: dict[str, Any], words: str) -> None:
    assert words in " ".join(draft_fit(TARGET, draft, config))


def test_a_checkpoint_with_draft_layers_needs_no_second_one() -> None:
    assert draft_fit({**TARGET, "num_nextn_predict_layers": 1}, None, {"speculative-algorithm": "NEXTN"}) == []


def test_long_sequences_are_a_warning() -> None:
    long = asked("EAGLE3", **{"context-length": 8192})
    assert draft_fit(TARGET, HEAD3, long) == []
    assert "2048" in draft_warnings(HEAD3, long)[0]
    assert draft_warnings(HEAD3, asked("EAGLE3", **{"context-length": 1000})) == []
    assert draft_warnings(HEAD3, asked("EAGLE3")) == []


def test_opposite_failures_narrow_the_interval() -> None:
    found = memory_interval("sglang", [(0.7, "oom_kv_cache"), (0.9, "oom_cuda_graph_capture"), (0.8, "crash")], {})
    assert found is not None
    assert (found.low, found.high, found.empty) == (0.7, 0.9, False)
    assert found.allows(0.8)
    assert not found.allows(0.9)
    assert found.advice == ()


def test_an_empty_interval_names_other_flags() -> None:
    failures = [(0.84, "oom_kv_cache"), (0.85, "oom_runtime")]
    plain = memory_interval("sglang", failures, {})
    drafted = memory_interval("sglang", failures, {"speculative-algorithm": "EAGLE3"})
    assert plain is not None
    assert drafted is not None
    assert plain.empty
    assert plain.advice[0].startswith("max-running-requests")
    assert not any("speculative" in text for text in plain.advice)
    assert any("speculative-num-draft-tokens" in text for text in drafted.advice)
    assert memory_interval("llamacpp", failures, {}) is None
