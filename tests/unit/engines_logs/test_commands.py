"""`ratchet explain` and `ratchet telemetry` as others call them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from api.cli.main import cli
from optimizer.engines.detect import detect_engine
from tests.unit.engines_logs.cases import CASES, LLAMA_READY, SGLANG_READY, VLLM_READY
from tests.unit.engines_logs.test_telemetry import DECODE, DECODE_VALUES


def run(*args: str, stdin: str | bytes = "") -> Any:
    result = CliRunner().invoke(cli, args, input=stdin, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_explain_json(tmp_path: Path) -> None:
    case = next(c for c in CASES if c.name == "graph")
    log = tmp_path / "server.log"
    log.write_text(case.text)
    found = run("explain", str(log), "--json")
    assert set(found) >= {
        "label",
        "engine",
        "summary",
        "remedy",
        "evidence",
        "blame",
        "retry",
        "stop_study",
        "confidence",
    }
    assert (found["label"], found["engine"], found["blame"]) == ("oom_cuda_graph_capture", "sglang", "config")
    assert found["retry"] is False and isinstance(found["evidence"], list) and 0 <= found["confidence"] <= 1


def test_explain_from_standard_input_with_any_bytes() -> None:
    found = run(
        "explain", "-", "--engine", "llama.cpp", "--exit-code", "139", "--json", stdin=b"\xff\xfe\x00garb\xc3age\n"
    )
    assert (found["label"], found["engine"]) == ("scheduler_crash", "llamacpp")


def test_explain_of_an_engine_that_is_not_ours() -> None:
    found = run(
        "explain", "-", "--engine", "other-engine", "--json", stdin="OSError: [Errno 98] Address already in use\n"
    )
    assert (found["label"], found["engine"], found["retry"]) == ("port_in_use", "unknown", True)


def test_telemetry_json() -> None:
    found = run("telemetry", "-", "--json", stdin=DECODE)
    assert found["engine"] == "sglang"
    assert found["records"] == [{"line": 1, **DECODE_VALUES}]
    assert found["summary"]["records"] == {"decode": 1}


def test_telemetry_of_nothing() -> None:
    assert run("telemetry", "-", "--json", stdin="nothing here\n") == {
        "engine": "unknown",
        "records": [],
        "summary": {},
    }


def test_human_output_and_missing_file(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["explain", "-"], input="vllm: error: unrecognized arguments: --x\n")
    assert result.exit_code == 0 and "invalid_flag" in result.output and "what to do" in result.output
    result = CliRunner().invoke(cli, ["telemetry", "-"], input=DECODE)
    assert "gen_throughput=1310.25" in result.output
    assert CliRunner().invoke(cli, ["explain", str(tmp_path / "nope")]).exit_code != 0


@pytest.mark.parametrize(
    ("text", "engine"), ((SGLANG_READY, "sglang"), (VLLM_READY, "vllm"), (LLAMA_READY, "llamacpp"), ("hello\n", None))
)
def test_detect(text: str, engine: str | None) -> None:
    assert detect_engine(text) == engine


@pytest.mark.parametrize("case", [c for c in CASES if len(c.text) > 600], ids=lambda c: c.name)
def test_detect_in_failures(case: Any) -> None:
    assert detect_engine(case.text) == case.engine
