"""The files under deploy/ and docs/howto: what they start exists, and systemd and a shell can read them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from api.cli.main import cli

ROOT = Path(__file__).parents[3]
UNIT = ROOT / "deploy" / "ratchet.service"
COMPOSE = (ROOT / "deploy" / "compose.yaml", ROOT / "docs" / "howto" / "compose.yaml")


def accepted(words: list[str]) -> bool:
    """Say whether the command line understands a command, without running it."""
    group: Any = cli
    context = click.Context(cli)
    command = group.get_command(context, words[0])
    while isinstance(command, click.Group):
        words = words[1:]
        command = command.get_command(context, words[0])
    return command is not None and command.make_context(words[0], words[1:]) is not None


def commands_in(text: str) -> list[list[str]]:
    """Every call of `ratchet` in a shell's text."""
    found = re.findall(r"(?:^|[\s/])ratchet ((?:serve|worker|key)[^|;&\n]*)", text)
    return [call.split(" 2>")[0].split() for call in found]


def test_the_unit_starts_what_the_command_line_understands() -> None:
    start = re.search(r"^ExecStart=\S+/ratchet (.+)$", UNIT.read_text(), re.MULTILINE)
    assert start is not None and accepted(start[1].split())


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_finds_nothing_to_say_about_the_unit(tmp_path: Path) -> None:
    copy = tmp_path / "ratchet.service"
    copy.write_text(UNIT.read_text().replace("/opt/ratchet/bin/ratchet", shutil.which("true") or "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("path", COMPOSE, ids=lambda p: p.parent.name)
def test_compose_files_run_what_exists(path: Path) -> None:
    document = yaml.safe_load(path.read_text())
    assert set(document) <= {"services", "volumes", "secrets"}
    volumes, secrets = set(document.get("volumes") or {}), set(document.get("secrets") or {})
    seen = 0
    for service in document["services"].values():
        assert re.fullmatch(r"[\w/.-]+:[\w.-]+", service["image"])
        named = {v.partition(":")[0] for v in service.get("volumes", [])}
        assert {v for v in named if not v.startswith((".", "/", "~"))} <= volumes
        assert set(service.get("secrets", [])) <= secrets
        command = service.get("command")
        if command is None:
            continue
        text = command[2] if isinstance(command, list) else command.partition('"')[2].rpartition('"')[0]
        text = text.replace("$$", "$").replace('\\"', '"')
        assert subprocess.run(["sh", "-n", "-c", text], check=False).returncode == 0, text
        calls = commands_in(text)
        seen += len(calls)
        assert calls and all(accepted(call) for call in calls), calls
    assert seen >= 2
