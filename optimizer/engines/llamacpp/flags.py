"""The flags of llama-server: table, spellings, `--help`.

Decides how names and help texts are read; what values do to each other is in `rules.py`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from optimizer.engines.flagtable import FlagTable, Reading, load_table

HELP_NAMES = re.compile(r"^((?:-{1,2}[A-Za-z][\w.-]*(?:,\s*|\s+|$))+)")
VERSION = re.compile(r"version:\s*(\d+)(?:\s*\(([0-9a-f]+)\))?")
REMOVED_TEXT = "argument has been removed"


@functools.cache
def table() -> FlagTable:
    """Return the flag table, read once."""
    return load_table("optimizer.engines.llamacpp", Reading(underscores=True, equals=False))


def help_names(text: str) -> frozenset[str]:
    """Return every spelling that a `--help` text lists, without dashes; refused ones are left out."""
    names: set[str] = set()
    pending: list[str] = []
    for line in text.splitlines():
        match = HELP_NAMES.match(line)
        if match:
            pending = [word.strip().lstrip("-") for word in re.split(r",\s*|\s+", match.group(1)) if word.strip()]
            names.update(pending)
        if REMOVED_TEXT in line:
            names.difference_update(pending)
    return frozenset(names)


def version_argv(command: Sequence[str]) -> list[str]:
    """Return the command that prints the build."""
    return [*command, "--version"]


def parse_version(text: str) -> str | None:
    """Return `b10068-571d0d5` out of `version: 10068 (571d0d5)`; None when there is no such line."""
    match = VERSION.search(text)
    if not match:
        return None
    return f"b{match.group(1)}" + (f"-{match.group(2)}" if match.group(2) else "")
