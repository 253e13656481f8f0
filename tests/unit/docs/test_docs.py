"""What the documentation says is true: commands, options, examples, links, fields."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner
from pydantic import BaseModel

from api.cli.main import cli
from api.cli.summary import summary
from api.settings import ApiSettings
from optimizer import spec, studies
from optimizer.clock import SystemClock
from optimizer.engines.registry import ENGINE_NAMES
from optimizer.settings import Settings
from storage.engine import open_database
from storage.migrate import upgrade
from tests.unit.docs import pages as docs
from tests.unit.docs.pages import ROOT, Block, Command

PAGES = docs.pages()
CLI_PAGE = ROOT / "docs/reference/cli.md"
SPEC_PAGE = ROOT / "docs/reference/spec.md"
TREE = docs.tree()
NAMES = {page: str(page.relative_to(ROOT)) for page in PAGES}
COMMANDS = [c for page in PAGES for c in docs.commands(page)]
LOG = """[2026-11-29 22:10:01] server_args=ServerArgs(model_path='/shared/model', tp_size=8)
[2026-11-29 22:10:05] ModuleNotFoundError: No module named 'sgl_kernel'
"""
HOST: dict[str, Any] = {"name": "gpu-box", "connection": "ssh", "ssh": {"alias": "gpu-box"}}
STUDY: dict[str, Any] = {
    "name": "s",
    "host": "gpu-box",
    "engine": "sglang",
    "launch": {"command": ["python3", "-m", "sglang.launch_server"], "flags": {"model-path": "/m", "port": 8000}},
}
SECTIONS: dict[str, tuple[type[BaseModel], ...]] = {
    "The study": (spec.StudySpec,),
    "launch": (spec.Launch,),
    "baseline": (spec.Baseline,),
    "space": (spec.SpaceSection,),
    "objective": (spec.Objective, spec.Limit),
    "budget": (spec.Budget,),
    "The host file": (spec.HostEntry,),
    "ssh": (spec.SshEntry,),
    "http": (spec.HttpEntry,),
    "home": (spec.HomeEntry,),
    "guard": (spec.GuardEntry,),
}


def name_of(item: Command | Block) -> str:
    return f"{item.page.relative_to(ROOT)}:{item.line}"


def find(words: tuple[str, ...]) -> tuple[str, click.Command, list[str]]:
    """The longest path of words that names a command, and the words after it."""
    for length in (2, 1):
        path = " ".join(words[:length])
        if path in TREE:
            return path, TREE[path], list(words[length:])
    raise AssertionError(f"no command: ratchet {' '.join(words)}")


def test_pages_call_ratchet() -> None:
    assert len(COMMANDS) > 120
    assert {str(c.page.name) for c in COMMANDS} >= {"README.md", "tutorial.md", "cli.md", "hosts.md", "backup.md"}


@pytest.mark.parametrize("command", COMMANDS, ids=name_of)
def test_commands_exist_with_their_options(command: Command) -> None:
    if not command.words or command.words[0] in {"--help", "--version", "-h", "COMMAND"}:
        return
    _, found, rest = find(command.words)
    if isinstance(found, click.Group):
        assert not rest or rest[0] in {"--help", "list"} or rest[0].isupper(), f"not a command: {command.written}"
        return
    if "--help" in rest:
        return
    options = {o for p in found.params for o in p.opts + p.secondary_opts}
    given = rest[: rest.index("--")] if "--" in rest else rest
    for word in given:
        if re.match(r"^--?[a-z]", word):
            assert word.split("=")[0] in options, f"{command.written}: no option {word}"
    if not command.form and rest and not written_in_text(command):
        found.make_context("x", list(rest)).close()  # arguments, choices and ranges too


def written_in_text(command: Command) -> bool:
    """In running text a command may be named without its arguments."""
    return f"`{command.written}`" in command.page.read_text("utf-8")


@pytest.mark.parametrize("name", ["deploy/compose.yaml", "deploy/ratchet.service", "docs/howto/compose.yaml"])
def test_deployments_call_what_exists(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    if name.endswith(".yaml"):
        assert yaml.safe_load(text)["services"]
    calls = re.findall(r"ratchet ((?:serve|worker|key|db)\b[^;&|\n\"']*)", text)
    assert calls
    for call in calls:
        words = tuple(call.split())
        test_commands_exist_with_their_options(Command(ROOT / name, 1, call, words, form="NAME" in words))


def test_a_wrong_command_would_be_found() -> None:
    with pytest.raises(AssertionError, match="no command"):
        find(("stduy", "list"))
    invented = Command(ROOT / "README.md", 1, "ratchet serve --prot 1", ("serve", "--prot", "1"), form=False)
    with pytest.raises(AssertionError, match="no option --prot"):
        test_commands_exist_with_their_options(invented)


HARMLESS = [
    c for c in COMMANDS if c.words[:2] in {("space", "show"), ("space", "check")} and not c.form and len(c.words) > 2
]


@pytest.mark.parametrize("command", HARMLESS, ids=name_of)
def test_harmless_commands_run(command: Command) -> None:
    result = CliRunner().invoke(cli, list(command.words))
    assert result.exit_code == 0, result.output
    assert result.stdout


def test_the_tutorial_says_what_the_check_says() -> None:
    command = next(c for c in HARMLESS if c.page.name == "tutorial.md" and c.words[1] == "check")
    document = json.loads(CliRunner().invoke(cli, ["space", "check", "--json", *command.words[2:]]).stdout)
    assert document["verdict"] == "adjusted"
    assert document["effective"]["speculative-num-draft-tokens"] == 4


@pytest.mark.parametrize("words", [("explain",), ("telemetry",)], ids=" ".join)
def test_logs_are_read(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(LOG)
    result = CliRunner().invoke(cli, [*words, str(tmp_path / "server.log"), "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    expected = docs.sections(ROOT / f"docs/reference/{words[0]}.md")
    named = set(re.findall(r"`(\w+)`", "\n".join(expected.values()))) | {"engine", "records", "summary"}
    assert set(document) <= named


def test_the_example_of_verdict_is_judged() -> None:
    text = TREE["verdict"].help or ""
    example = text[text.index("{") : text.rindex("...")].rstrip(" ,\n") + "]}"
    result = CliRunner().invoke(cli, ["verdict", "--json"], input=example)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["next"] in {"baseline", "candidate"}


@pytest.mark.parametrize("path", ["", *TREE])
def test_every_help_works(path: str) -> None:
    result = CliRunner().invoke(cli, [*path.split(), "--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.stdout


def yaml_examples() -> list[Block]:
    """Blocks of YAML, and snippets in running text that begin with a field of a specification or of a host."""
    found = [b for page in PAGES for b in docs.blocks(page) if b.language == "yaml" or _is_section(b.text)]
    for page in PAGES:
        for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
            spans = [s for s in docs.SPAN.findall(line) if re.match(r"^[a-z_]+: \{.*\}$", s) and "..." not in s]
            found += [Block(page, number, "yaml", s) for s in spans if _is_section(s)]
    return found


def _is_section(text: str) -> bool:
    first = re.match(r"^([a-z_]+):", text)
    return bool(first) and first[1] in {*spec.StudySpec.model_fields, *spec.HostEntry.model_fields}  # type: ignore[index]


YAML_EXAMPLES = yaml_examples()


def test_there_are_yaml_examples() -> None:
    assert len(YAML_EXAMPLES) >= 8


@pytest.mark.parametrize("block", YAML_EXAMPLES, ids=name_of)
def test_yaml_examples_are_valid(block: Block) -> None:
    data = yaml.safe_load(block.text)
    assert isinstance(data, Mapping), block.text
    if set(data) <= set(spec.HostEntry.model_fields):
        spec.parse_host(HOST | data)
    else:
        spec.parse_study(STUDY | data)


@pytest.mark.parametrize("page", PAGES, ids=NAMES.get)
def test_files_that_are_named_exist(page: Path) -> None:
    named = re.findall(
        r"`((?:docs|deploy|examples|benchmarks|optimizer|api|storage|tests|alembic)/[\w./-]+)`", page.read_text()
    )
    made = {"storage/alembic_tree"}  # in the wheel only
    assert [n for n in named if not (ROOT / n).exists() and n not in made and not re.search(r"NAME|ENGINE", n)] == []


def test_python_examples_compile_and_import_what_exists() -> None:
    examples = [b for page in PAGES for b in docs.blocks(page) if re.search(r"^from api\.", b.text, re.MULTILINE)]
    assert examples
    for block in examples:
        compile(block.text, name_of(block), "exec")
        for module, name in re.findall(r"^from (api[\w.]*) import (\w+)", block.text, re.MULTILINE):
            assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize("engine", ENGINE_NAMES)
def test_engines_page_names_the_versions_of_the_table(engine: str) -> None:
    text = (ROOT / "docs/reference/engines.md").read_text("utf-8")
    row = next(r for r in docs.rows(text, "engine") if r[0].lower().replace(".", "") == engine)
    table = json.loads((ROOT / f"optimizer/engines/{engine}/flags.json").read_text("utf-8"))
    assert re.findall(r"\d[\w.]*", row[1]) == [str(v) for v in table["versions"]]


@pytest.mark.parametrize("page", PAGES, ids=NAMES.get)
def test_links_resolve(page: Path) -> None:
    for target in docs.links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{NAMES[page]}: {target}"
        assert ROOT in file.parents
        if anchor:
            assert anchor in docs.slugs(file), f"{NAMES[page]}: {target}"


def test_the_index_names_every_page() -> None:
    index = ROOT / "docs/README.md"
    named = {(index.parent / t.partition("#")[0]).resolve() for t in docs.links(index)}
    assert set((ROOT / "docs").rglob("*.md")) - {index} <= named


@pytest.mark.parametrize("heading", SECTIONS)
def test_spec_page_lists_exactly_the_fields(heading: str) -> None:
    fields = {name: info for model in SECTIONS[heading] for name, info in model.model_fields.items()}
    listed = {row[0].strip("`"): row for row in docs.rows(docs.sections(SPEC_PAGE)[heading], "field")}
    assert set(listed) == set(fields)
    for name, info in fields.items():
        cell, default = listed[name][1].strip("`"), info.default
        if info.is_required():
            assert cell == "needed", name
        elif isinstance(default, bool):
            assert cell == str(default).lower(), name
        elif isinstance(default, int | float):
            assert cell == f"{default:g}", name
        elif isinstance(default, str):
            assert cell == default, name


def test_spec_page_lists_the_keys_of_the_final_document(tmp_path: Path) -> None:
    db = open_database(f"sqlite:///{tmp_path / 'r.db'}")
    try:
        upgrade(db)
        study = studies.create(db, spec.parse_study(STUDY | {"host": HOST}), now=SystemClock().now())
        document = summary(db, study, Settings(data_dir=tmp_path))
    finally:
        db.close()
    heading = "The document of `ratchet run --json` and `ratchet demo --json`"
    table = docs.sections(SPEC_PAGE)[heading].split("`verdict`, once")[0]
    listed = {name for row in docs.rows(table, "key") for name in re.findall(r"`(\w+)`", row[0])}
    assert listed == set(document) | {"noise", "home_answers"}


def test_cli_page_lists_exactly_the_commands() -> None:
    headings = {h.removeprefix("ratchet ") for h in docs.sections(CLI_PAGE) if h.startswith("ratchet ")}
    assert headings == set(TREE)


@pytest.mark.parametrize("path", [p for p, c in TREE.items() if not isinstance(c, click.Group)])
def test_cli_page_lists_exactly_the_options(path: str) -> None:
    text = docs.sections(CLI_PAGE)[f"ratchet {path}"]
    also = re.search(r"^Also (.+)\.$", text, re.MULTILINE)
    listed = {o for row in docs.rows(text, "option") for o in re.findall(r"`(--?[a-z-]+)`", row[0])}
    listed |= set(re.findall(r"`(--[a-z]+)`", also[1])) if also else set()
    options = {o for p in TREE[path].params if isinstance(p, click.Option) for o in p.opts}
    assert listed == options
    undescribed = [p.name for p in TREE[path].params if isinstance(p, click.Option) and not p.help]
    assert not undescribed


def test_cli_page_lists_the_environment() -> None:
    listed = set(re.findall(r"`(RATCHET_\w+)`", docs.sections(CLI_PAGE)["Environment"]))
    settings = {f"RATCHET_{name.upper()}" for model in (Settings, ApiSettings) for name in model.model_fields}
    assert settings <= listed
    source = "\n".join(
        p.read_text("utf-8") for part in ("api", "optimizer", "storage") for p in (ROOT / part).rglob("*.py")
    )
    assert {name for name in listed - settings if name not in source} == set()
