"""`ratchet verdict` and the arguments of `ratchet bench`."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from api.cli.bench import _base, _headers, _section, bench
from api.cli.bench_view import histogram, show
from api.cli.verdict import verdict
from optimizer.bench.base import Measurement
from optimizer.bench.workload import from_spec
from optimizer.errors import BadInput
from tests.unit.bench.test_judging import restarts


def ratchet(*args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "api.cli.main", *args]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)


def pairs(ratio: float, count: int) -> dict[str, Any]:
    rows = [{"arm": r.arm, "tok_s": r.tok_s} for r in restarts(ratio, count)]
    return {"alpha": 0.05, "min_effect": 0.01, "prompts": list("abcde"), "restarts": rows}


def test_verdict_prints_one_json_document() -> None:
    done = ratchet("verdict", "--json", stdin=json.dumps(pairs(1.12, 5)))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["outcome"] == "win" and document["next"] == "stop" and document["restarts"] == 10
    assert document["ci_low"] <= document["ratio"] <= document["ci_high"]


def judged(stdin: str) -> Any:
    """Run the command in this process: loading the numerical libraries once is enough."""
    return CliRunner().invoke(verdict, ["--json"], input=stdin)


def test_verdict_says_what_comes_next() -> None:
    document = json.loads(judged(json.dumps(pairs(1.12, 1))).stdout)
    assert document["outcome"] == "undecided" and document["next"] == "candidate" and document["ci_high"] is None
    assert json.loads(judged('{"restarts": []}').stdout)["next"] == "baseline"


def test_prompts_that_are_left_out_are_named() -> None:
    data = pairs(1.12, 5)
    data["restarts"][3]["tok_s"]["b"] = [0]
    data["prompts"].append("typo")
    result = judged(json.dumps(data))
    assert json.loads(result.stdout)["prompts"] == ["a", "c", "d", "e"]
    assert "left out: b, typo" in result.stderr


def test_the_most_extreme_speeds_are_judged() -> None:
    rows = [{"arm": arm, "tok_s": {"a": v}} for arm, v in (("baseline", 1e-6), ("candidate", 1e9)) * 4]
    assert json.loads(judged(json.dumps({"restarts": rows})).stdout)["outcome"] == "win"


def test_verdict_speaks_to_people_too() -> None:
    result = CliRunner().invoke(verdict, input=json.dumps(pairs(1.12, 5)))
    assert result.stdout.startswith("win: +1") and "10 restarts" in result.stdout


@pytest.mark.parametrize(
    ("stdin", "text"),
    [
        ("", "not JSON"),
        ("[]", "one JSON object"),
        ("{}", "restarts: must be a list"),
        ('{"restarts": [], "alpha": "x", "foo": 1}', "alpha: must be a number"),
        ('{"restarts": [1]}', "restarts[0].arm: is not known"),
        ('{"restarts": [], "prompts": "abc"}', "prompts: must be a list"),
        ('{"restarts": [], "max_restarts": -1}', "max_restarts: must be a whole number"),
        ('{"restarts": [], "max_restarts": 1000000000000}', "max_restarts: must be a whole number"),
        ('{"restarts": [], "prompts": ["a", "a"]}', "prompts: names a prompt twice"),
        ('{"restarts": [{"arm": "baseline", "tok_s": {"a": [1], "a": [2]}}]}', "a: is given twice"),
        ('{"restarts": [{"arm": "baseline", "tok_s": {"a": [1e400]}}]}', "restarts[0].tok_s.a: must be 0 or from"),
        ('{"restarts": [{"arm": "baseline", "tok_s": {"a": [-1]}}]}', "restarts[0].tok_s.a: must be 0 or from"),
        ('{"restarts": [{"arm": "baseline", "tok_s": {"a": 1' + "0" * 400 + "}}]}", "restarts[0].tok_s.a: must be 0"),
        ('{"restarts": [{"arm": "baseline", "tok_s": {"a": [NaN]}}]}', "restarts[0].tok_s.a: must be 0 or from"),
        ('{"restarts": [{"arm": "baseline", "tok_s": {"a": 0}}]}', "restarts: have no prompt in common"),
        ("[" * 100_000, "not JSON"),
        ('{"restarts": [{"arm": "baseline", "tok_s": {"a": 1' + "0" * 5000 + "}}]}", "not JSON"),
    ],
)
def test_verdict_refuses_bad_input(stdin: str, text: str) -> None:
    error = judged(stdin).exception
    assert isinstance(error, BadInput)
    assert text in "\n".join([error.message, *(f"{p.path}: {p.message}" for p in error.problems)])


def test_bad_input_ends_with_status_two_and_no_traceback() -> None:
    done = ratchet("verdict", "--json", stdin="[]")
    assert done.returncode == 2 and done.stdout == "" and "Traceback" not in done.stderr


def test_bench_takes_any_form_of_the_url() -> None:
    for url in (
        "localhost:8000",
        "http://localhost:8000/",
        "http://localhost:8000/v1",
        "localhost:8000/v1/completions",
    ):
        assert _base(url) == "http://localhost:8000"
    assert _base("https://host/prefix/v1") == "https://host/prefix"
    assert _base("HTTP://[::1]:8000/v1/") == "http://[::1]:8000"


@pytest.mark.parametrize(
    "url", ["ftp://x", "http://", "http://x:99999", "http://x:port", "http://[::1", "x:8000/?a=1", "http://me:key@x"]
)
def test_bench_refuses_what_is_no_address(url: str) -> None:
    with pytest.raises(BadInput, match="bad URL"):
        _base(url)


def test_a_key_that_cannot_be_a_header_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATCHET_BENCH_KEY", "abc\r\nX: y")
    with pytest.raises(BadInput, match="bad key"):
        _headers()
    monkeypatch.setenv("RATCHET_BENCH_KEY", "abc\n")
    assert _headers() == {"Authorization": "Bearer abc"}


def test_bench_reads_workloads_in_every_form(tmp_path: Any) -> None:
    assert _section("random-tokens") == {"preset": "random-tokens"}
    assert _section("{max_tokens: 5}") == {"max_tokens": 5}
    (tmp_path / "w.yaml").write_text("workload: {repeats: 2}\n")
    assert _section(str(tmp_path / "w.yaml")) == {"repeats": 2}
    assert _section("mine.jsonl") == {"jsonl": "mine.jsonl"}


@pytest.mark.parametrize("text", ["- 1", "workload: five-prompts", "just words"])
def test_a_file_that_is_no_workload_is_not_taken_for_the_default(tmp_path: Any, text: str) -> None:
    (tmp_path / "w.yaml").write_text(text)
    with pytest.raises(BadInput, match="bad workload"):
        _section(str(tmp_path / "w.yaml"))


def test_names_of_prompts_are_shown_as_they_are_and_what_is_left_out_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = ["[/b] [red]odd[/red]", *(f"prompt-{i}" for i in range(24))]
    asked = replace(from_spec({"prompts": [{"name": n, "prompt": "x"} for n in names]}), name="[/x].jsonl")
    tok_s = {name: [10.0] * 12 for name in names}
    show(Measurement(asked.fingerprint, "direct", tok_s, {"output_tok_s@1": 10.0}, ()), asked)
    shown = capsys.readouterr().out
    assert "[/b] [red]odd[/red]" in shown and "[/x].jsonl" in shown
    assert "and 5 more (all with --json)" in shown and "and 2 more" in shown


@pytest.mark.parametrize(
    "args", [["http://x", "--concurrency", "a"], ["http://x", "--workload", "nope"], ["http://x", "--rate", "0"]]
)
def test_bench_refuses_bad_input(args: list[str]) -> None:
    result = CliRunner().invoke(bench, args)
    assert isinstance(result.exception, BadInput)


def test_bench_has_help() -> None:
    result = CliRunner().invoke(bench, ["--help"])
    assert result.exit_code == 0 and "--concurrency" in result.output


def test_histograms_show_every_value_once() -> None:
    lines = histogram([1.0] * 5 + [2.0] * 3 + [50.0])
    assert sum(int(line.rsplit(" ", 1)[1]) for line in lines) == 9
    assert histogram([3.0, 3.0])
