"""The files under deploy/ and docs/howto as systemd and a shell read them; what they call is tested with the docs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
UNIT = ROOT / "deploy" / "ratchet.service"
COMPOSE = (ROOT / "deploy" / "compose.yaml", ROOT / "docs" / "howto" / "compose.yaml")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_finds_nothing_to_say_about_the_unit(tmp_path: Path) -> None:
    copy = tmp_path / "ratchet.service"
    copy.write_text(UNIT.read_text().replace("/opt/ratchet/bin/ratchet", shutil.which("true") or "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("path", COMPOSE, ids=lambda p: p.parent.name)
def test_compose_files_are_whole(path: Path) -> None:
    document = yaml.safe_load(path.read_text())
    volumes, secrets = set(document.get("volumes") or {}), set(document.get("secrets") or {})
    for service in document["services"].values():
        named = {v.partition(":")[0] for v in service.get("volumes", [])}
        assert {v for v in named if not v.startswith((".", "/", "~"))} <= volumes
        assert set(service.get("secrets", [])) <= secrets
        assert all(name in document["services"] for name in service.get("depends_on", {}))
        command = service.get("command")
        if command is None:
            continue
        text = command[2] if isinstance(command, list) else command.partition('"')[2].rpartition('"')[0]
        script = text.replace("$$", "$").replace('\\"', '"')
        assert subprocess.run(["sh", "-n", "-c", script], check=False).returncode == 0, script
