"""What a shell is told while somebody types."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("ratchet wi", "window"), ("ratchet study re", "resume"), ("ratchet study report --fo", "--format")],
)
def test_commands_and_options_are_completed(typed: str, offered: str) -> None:
    code = "import sys; sys.argv[0] = 'ratchet'; from api.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        env={"_RATCHET_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))},
    )  # fmt: skip
    assert f"plain,{offered}" in done.stdout.splitlines(), done.stderr
