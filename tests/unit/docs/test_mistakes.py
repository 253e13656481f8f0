"""What a newcomer gets wrong, and what the command line says: the exit code, what happened, and what to do."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from api.cli.main import main
from api.demo.assets import free_port

GOOD = """name: s
host: gpu-box
engine: sglang
launch: {command: [python3, -m, sglang.launch_server], flags: {model-path: /m, port: 8000}}
"""
WRONG = """name: first night
host: gpu-box
engine: sglan
launch: {command: []}
objective: {maximize: ttft, subject_to: {}}
budgett: {trials: 3}
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, a data folder of its own, and nobody at the service's address."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RATCHET_DB_URL", f"sqlite:///{tmp_path / 'r.db'}")
    monkeypatch.setenv("RATCHET_API_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("RATCHET_API_KEY", raising=False)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    return tmp_path


def ratchet(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Run a command line; return its exit code and what it says on stderr. Nothing may be on stdout."""
    with pytest.raises(SystemExit) as left:
        main(list(words))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Traceback" not in shown.err
    code = left.value.code
    assert isinstance(code, int)
    return code, shown.err


BAD_INPUT = [
    ("run nothere.yaml", "cannot read the specification nothere.yaml: No such file"),
    ("run .", "Is a directory"),
    ("host add nothere.yaml", "cannot read the host file"),
    ("study create nothere.yaml", "cannot read the specification"),
    ("run s.yaml --db nonsense", "use sqlite:///PATH"),
    ("study list --api foo", "must begin with http://"),
    ("key create x --scope boss", "one of viewer, operator, admin"),
    ("space show sglan", "one of llamacpp, sglang, vllm"),
    ("space show sglang --preset eagle33", "did you mean eagle3?"),
    ("explain nothere.log", "No such file"),
    ("telemetry nothere.log", "No such file"),
    ("replay nothere.csv", "cannot read the table nothere.csv"),
    ("verdict", "stdin is not JSON"),
    ("bench ftp://x", "must begin with http://"),
    ("bench http://x --concurrency some", "must be whole numbers"),
    ("serve --host 0.0.0.0", "make a key first"),
    ("stduy list", "No such command"),
    ("run", "Missing argument 'SPEC.yaml'"),
    ("serve --prot 1", "--prot"),
    ("demo --model m.gguf", "--llama-server and --model go together"),
]
FAILED = [
    ("study list", "is `ratchet serve` running there?"),
    ("host check gpu-box", "is `ratchet serve` running there?"),
    ("window list", "is `ratchet serve` running there?"),
    ("key revoke nobody", "`ratchet key list` shows what exists"),
    ("db vacuum --db sqlite:///new.db", "ratchet db upgrade"),
]


@pytest.mark.parametrize(("line", "text"), BAD_INPUT, ids=[line for line, _ in BAD_INPUT])
def test_bad_input_leaves_with_2(line: str, text: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "s.yaml").write_text(GOOD)
    code, told = ratchet(capsys, *line.split())
    assert text in told
    assert code == 2


@pytest.mark.parametrize(("line", "text"), FAILED, ids=[line for line, _ in FAILED])
def test_work_that_fails_leaves_with_1(line: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = ratchet(capsys, *line.split())
    assert text in told
    assert code == 1


def test_bad_yaml_is_told_with_its_place(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "s.yaml").write_text("name: x\nhost: [a\n")
    code, told = ratchet(capsys, "run", "s.yaml")
    assert code == 2 and "line 3, column 1" in told


@pytest.mark.parametrize(("text", "what"), [("", "is empty"), ("only text", "not a text"), ("- a\n- b", "not a list")])
def test_a_file_without_fields_is_told(text: str, what: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "s.yaml").write_text(text)
    code, told = ratchet(capsys, "run", "s.yaml")
    assert code == 2 and what in told


def test_every_mistake_of_a_specification_is_told_at_once(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "s.yaml").write_text(WRONG)
    code, told = ratchet(capsys, "run", "s.yaml")
    assert code == 2
    assert "name: use letters" in told
    assert "did you mean sglang?" in told
    assert "launch.command: must not be empty" in told
    assert "objective.maximize: must be 'output_tok_s'" in told
    assert "budgett: no such field; did you mean budget?" in told


def test_a_misspelt_limit_would_exclude_everything_and_is_refused(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "s.yaml").write_text(GOOD + "objective: {subject_to: {ttft_p99: {max: 800}}}\n")
    code, told = ratchet(capsys, "run", "s.yaml")
    assert code == 2 and "did you mean ttft_p99_ms?" in told


def test_a_host_that_is_only_a_name_is_told(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "s.yaml").write_text(GOOD)
    code, told = ratchet(capsys, "run", "s.yaml")
    assert code == 2
    assert "host: is not registered in this database (got 'gpu-box')" in told
    assert "ratchet host add" in told


def test_a_measured_server_that_is_away_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    code, told = ratchet(capsys, "bench", f"http://127.0.0.1:{free_port()}")
    assert code == 1 and "no server answers at" in told
