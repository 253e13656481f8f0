"""Secrets are references: resolved late, masked everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from optimizer import secrets
from optimizer.engines.base import LaunchPlan
from optimizer.errors import BadInput
from optimizer.plan import command_line


def test_references_are_resolved_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATCHET_TEST_TOKEN", "hunter2")
    (tmp_path / "key").write_text("sesame\n")
    env, secret = secrets.resolve(
        {"HF": "env:RATCHET_TEST_TOKEN", "K": f"file:{tmp_path / 'key'}", "NCCL_ALGO": "Ring"}
    )
    assert env == {"HF": "hunter2", "K": "sesame", "NCCL_ALGO": "Ring"}
    assert secret == {"HF", "K"}


def test_a_plain_value_with_a_telling_name_is_masked_too() -> None:
    assert secrets.resolve({"HF_TOKEN": "abc"})[1] == {"HF_TOKEN"}


@pytest.mark.parametrize("value", ["env:RATCHET_NOT_SET_ANYWHERE", "file:/no/such/file"])
def test_a_reference_to_nothing_is_a_clear_error(value: str) -> None:
    with pytest.raises(BadInput) as caught:
        secrets.resolve({"X": value})
    assert caught.value.problems[0].path == "launch.env.X"


def test_the_shown_command_masks_secrets_and_can_be_pasted() -> None:
    plan = LaunchPlan(
        argv=("llama-server", "--alias", "a b; rm"),
        env={"HF_TOKEN": "abc", "OMP": "2"},
        cwd=None,
        port=1,
        bind_host="127.0.0.1",
        served_model="m",
        expected={},
        secret_env=frozenset({"HF_TOKEN"}),
    )
    line = command_line(plan)
    assert "abc" not in line
    assert line == "HF_TOKEN='***' OMP=2 llama-server --alias 'a b; rm'"


def test_keys_among_the_flags_of_a_command_are_masked() -> None:
    plan = LaunchPlan(
        argv=("vllm", "serve", "m", "--api-key", "sk-1", "--port", "1"),
        env={}, cwd=None, port=1, bind_host="", served_model="", expected={},
    )  # fmt: skip
    assert command_line(plan) == "vllm serve m --api-key '***' --port 1"


def test_a_long_command_is_wrapped_so_that_it_can_still_be_pasted() -> None:
    import subprocess

    from api.reports.launch import wrap

    plan = LaunchPlan(
        argv=("printf", "%s|", *[w for i in range(12) for w in (f"--flag-{i}", f"v {i}")]),
        env={"A": "b c"}, cwd="/tmp", port=1, bind_host="", served_model="", expected={},
    )  # fmt: skip
    line = command_line(plan)
    wrapped = wrap(line)
    assert "\n" in wrapped
    outputs = [subprocess.run(["sh", "-c", text], capture_output=True, check=True).stdout for text in (line, wrapped)]
    assert outputs[0] == outputs[1] and b"--flag-3|v 3|" in outputs[0]
