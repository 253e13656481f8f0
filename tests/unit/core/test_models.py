"""Model files on the host: read once before any launch, and a drafter that cannot fit is refused by them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from optimizer.clock import Deadline
from optimizer.engines.base import Config, Hardware, Verdict
from optimizer.engines.hardware import known_gpu
from optimizer.engines.registry import find_engine
from optimizer.engines.spaces import choice
from optimizer.models import ModelConfigs, judge, long_sequences, misfits, read_configs
from optimizer.remote.local import LocalLink
from optimizer.search.space import Space
from optimizer.spec import StudySpec, parse_study
from tests.unit.core.test_studies import DEMO

TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "vocab_size": 128256,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}
HEAD = TARGET | {
    "architectures": ["LlamaForCausalLMEagle3"],
    "draft_vocab_size": 32000,
    "max_position_embeddings": 2048,
}
NARROW = HEAD | {"hidden_size": 2048}
STEPS = {"speculative-num-steps": 3, "speculative-eagle-topk": 1, "speculative-num-draft-tokens": 4}


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Folders with a target and two heads, and one more head in a Hugging Face cache."""
    for name, config in (("target", TARGET), ("head", HEAD), ("narrow", NARROW)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    kept = tmp_path / "hf" / "hub" / "models--some--head"
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "main").write_text("abc123")
    (kept / "snapshots" / "abc123").mkdir(parents=True)
    (kept / "snapshots" / "abc123" / "config.json").write_text(json.dumps(NARROW))
    (kept / "refs" / "v2").write_text("def456")
    (kept / "snapshots" / "def456").mkdir()
    (kept / "snapshots" / "def456" / "config.json").write_text(json.dumps(HEAD))
    return tmp_path


def study(host: Path, engine: str, flags: dict[str, Any]) -> StudySpec:
    data = yaml.safe_load(DEMO.read_text())
    data["engine"], data["space"] = engine, {"parameters": {"stream-interval": {"choice": [1, 2]}}}
    data["launch"] |= {"command": ["server"], "flags": flags, "env": {"HF_HOME": str(host / "hf")}}
    data["baseline"] = {}
    return parse_study(data)


def read(host: Path, engine: str, flags: dict[str, Any]) -> tuple[Config, ModelConfigs]:
    spec = study(host, engine, flags)
    return spec.baseline_config(), read_configs(LocalLink("h"), spec, Space(()), deadline=Deadline.after(60))


def sglang(host: Path, algorithm: str, draft: str, name: str = "speculative-draft-model-path") -> dict[str, Any]:
    return {"model-path": str(host / "target"), "speculative-algorithm": algorithm, name: draft, **STEPS}


@pytest.mark.parametrize(
    ("algorithm", "draft", "flag", "words"),
    [
        ("EAGLE", "{host}/head", "speculative-draft-model-path", "ask for eagle3"),
        ("EAGLE3", "{host}/narrow", "speculative-draft-model-path", "width 2048"),
        ("EAGLE3", "{host}/narrow", "speculative-draft-model", "width 2048"),
        ("EAGLE3", "some/head", "speculative-draft-model-path", "width 2048"),
    ],
)
def test_a_drafter_that_cannot_fit_is_refused(host: Path, algorithm: str, draft: str, flag: str, words: str) -> None:
    config, models = read(host, "sglang", sglang(host, algorithm, draft.format(host=host), flag))
    result = judge(find_engine("sglang"), config, "0.5.15", Hardware(), models)
    assert result.verdict is Verdict.REJECTED
    assert words in " ".join(result.reasons)


def test_a_drafter_inside_a_json_flag_is_read_too(host: Path) -> None:
    drafter = {"method": "eagle3", "model": str(host / "narrow"), "num_speculative_tokens": 3}
    config, models = read(host, "vllm", {"model": str(host / "target"), "speculative-config": json.dumps(drafter)})
    result = judge(find_engine("vllm"), config, None, Hardware(), models)
    assert result.verdict is Verdict.REJECTED
    assert "width 2048" in " ".join(result.reasons)


@pytest.mark.parametrize(("revision", "width"), [("v2", 4096), ("def456", 4096), ("abc123", 2048), ("gone", None)])
def test_a_pinned_revision_is_the_one_that_is_read(host: Path, revision: str, width: int | None) -> None:
    pinned = {
        "sglang": sglang(host, "EAGLE3", "some/head") | {"speculative-draft-model-revision": revision},
        "vllm": {
            "model": str(host / "target"),
            "speculative-config": json.dumps({"method": "eagle3", "model": "some/head", "revision": revision}),
        },
    }
    for engine, flags in pinned.items():
        found = read(host, engine, flags)[1].by_path.get("some/head", {})
        assert found.get("hidden_size") == width, engine
    target = read(host, "sglang", {"model-path": "some/head", "revision": revision})[1].by_path.get("some/head", {})
    assert target.get("hidden_size") == width


def test_a_target_without_draft_layers_cannot_draft_alone(host: Path) -> None:
    flags = {"model-path": str(host / "target"), "speculative-algorithm": "NEXTN", **STEPS}
    config, models = read(host, "sglang", flags)
    assert "draft layers" in " ".join(judge(find_engine("sglang"), config, "0.5.15", Hardware(), models).reasons)


def test_a_kernel_for_another_kind_of_model_is_refused_before_a_start(host: Path) -> None:
    flags = {"model-path": str(host / "target"), "attention-backend": "flashmla"}
    config, models = read(host, "sglang", flags)
    refused = judge(find_engine("sglang"), config, "0.5.15", known_gpu("h100", count=1), models)
    assert refused.verdict is Verdict.REJECTED and "latent attention" in " ".join(refused.reasons)
    fits = judge(find_engine("sglang"), config | {"attention-backend": "fa3"}, "0.5.15", Hardware(), models)
    assert fits.verdict is not Verdict.REJECTED


def test_what_fits_or_cannot_be_read_is_let_through(host: Path) -> None:
    for draft in (str(host / "head"), "nobody/knows", str(host / "nowhere")):
        config, models = read(host, "sglang", sglang(host, "EAGLE3", draft))
        assert judge(find_engine("sglang"), config, "0.5.15", Hardware(), models).verdict is not Verdict.REJECTED


def test_a_head_for_short_sequences_is_a_warning(host: Path) -> None:
    flags = sglang(host, "EAGLE3", str(host / "head"))
    config, models = read(host, "sglang", flags | {"context-length": 8192})
    assert "2048" in long_sequences(models, config)[0]
    config, models = read(host, "sglang", flags | {"context-length": 2048})
    assert long_sequences(models, config) == []


def test_a_drafter_of_the_space_that_never_fits_is_named_before_the_start(host: Path) -> None:
    spec = study(host, "sglang", {"model-path": str(host / "target")})
    drafts = tuple(str(host / name) for name in ("head", "narrow"))
    space = Space((choice("speculative-algorithm", "EAGLE3"), choice("speculative-draft-model-path", *drafts)))
    models = read_configs(LocalLink("h"), spec, space, deadline=Deadline.after(60))
    told = misfits(models, spec.baseline_config(), space)
    assert len(told) == 1
    assert str(host / "narrow") in told[0] and "width 2048" in told[0]
