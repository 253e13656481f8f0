"""`ratchet space`: one JSON document on stdout, 2 for bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from api.cli.main import main


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["space", *words])
    out = capsys.readouterr()
    return int(end.value.code or 0), out.out, out.err


def test_check_prints_the_document_that_was_agreed(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3", "--speculative-eagle-topk", "1"]
    words += ["--speculative-num-draft-tokens", "8", "--num-continuous-decode-steps", "4"]
    code, out, _ = run(capsys, "check", "sglang", "--engine-version", "0.5.23", "--json", "--", *words)
    document = json.loads(out)
    assert code == 0
    assert document["verdict"] == "adjusted"
    assert document["effective"]["speculative-num-draft-tokens"] == 4
    assert [(a["flag"], a["from"], a["to"]) for a in document["adjustments"]] == [
        ("speculative-num-draft-tokens", 8, 4)
    ]
    assert document["no_effect"] == ["num-continuous-decode-steps"]
    assert document["reasons"] == document["unknown_flags"] == []
    assert document["assumed_gpu"] == "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(
    ("engine", "version", "flags", "words"),
    [
        ("sglang", "0.5.23", ["--cuda-graph-max-bs", "8"], "ambiguous"),
        ("sglang", "0.5.12", ["--cuda-graph-max-bs-decode", "8"], "no such flag"),
        ("sglang", "0.5.23", ["--attention-backend", "trtllm_mla"], "Blackwell"),
        ("sglang", "0.5.23", ["--chunked-prefill-size", "3000", "--page-size", "64"], "multiple"),
        ("vllm", "0.32.0", ["--spec-method", "ngram"], "spec-tokens"),
        ("llamacpp", None, ["-fa", "off", "-ctv", "q8_0"], "flash attention"),
        ("llamacpp", None, ["--threads=2"], "no such flag"),
    ],
)
def test_refusals_are_a_verdict_not_an_error(
    capsys: pytest.CaptureFixture[str], engine: str, version: str | None, flags: list[str], words: str
) -> None:
    asked = ["--engine-version", version] if version else []
    code, out, _ = run(capsys, "check", engine, *asked, "--json", "--", *flags)
    document = json.loads(out)
    assert code == 0
    assert document["verdict"] == "rejected"
    assert words in " ".join(document["reasons"])


def test_beginnings_count_as_names_where_the_engine_takes_them(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "check", "sglang", "--json", "--", "--tp", "4", "--max-run=16")
    document = json.loads(out)
    assert document["verdict"] == "accepted"
    assert document["effective"]["tp-size"] == 4
    assert document["effective"]["max-running-requests"] == 16


def test_the_models_own_config_decides(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["DeepseekV3ForCausalLM"], "kv_lora_rank": 512}))
    flags = ["--speculative-algorithm", "NEXTN", "--model-path", str(tmp_path)]
    _, out, _ = run(capsys, "check", "sglang", "--engine-version", "0.5.23", "--json", "--", *flags)
    effective = json.loads(out)["effective"]
    assert (effective["speculative-num-steps"], effective["speculative-eagle-topk"]) == (3, 1)
    assert effective["speculative-draft-model-path"] == str(tmp_path)


def test_a_drafter_that_cannot_fit_is_told_beside_what_the_arguments_become(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    draft = tmp_path / "draft.json"
    draft.write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "hidden_size": 64}))
    flags = ["--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "/d"]
    _, out, _ = run(capsys, "check", "sglang", "--draft-config", str(draft), "--json", "--", *flags)
    document = json.loads(out)
    assert document["verdict"] != "rejected" and "EAGLE-3" in " ".join(document["fails_at_start"])
    _, out, _ = run(capsys, "check", "sglang", "--draft-config", str(draft), "--", *flags)
    assert "a study will not start it: " in out


def test_a_model_name_that_no_file_can_have_is_no_crash(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "check", "sglang", "--json", "--", "--model-path", "m" * 300)
    assert code == 0 and json.loads(out)["verdict"] == "accepted"


@pytest.mark.parametrize(
    "words",
    [
        ["check", "tgi"],
        ["check", "sglang", "--gpu", "quantum9000"],
        ["check", "sglang", "--model-config", "/nowhere/config.json"],
        ["check", "llamacpp", "--", "stray"],
        ["show", "sglang", "--preset", "egale3"],
    ],
)
def test_bad_input_is_told_on_stderr_with_2(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert err.startswith("ratchet:")


def test_show_lists_presets_and_flags(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "show", "sglang", "--engine-version", "0.5.12", "--json")
    document = json.loads(out)
    assert code == 0
    assert {"eagle3", "eagle", "mtp", "ngram", "cuda-graphs", "nccl", "memory", "scheduling", "kernels", "all"} <= set(
        document["presets"]
    )
    assert "num-continuous-decode-steps" in document["presets"]["scheduling"]["dropped"]
    assert any(f["name"] == "cuda-graph-max-bs" for f in document["flags"])
    code, out, _ = run(capsys, "show", "llamacpp", "--preset", "batching")
    assert code == 0
    assert "rule: ubatch-size <= batch-size" in out
