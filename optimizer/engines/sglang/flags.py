"""The flags of SGLang: table by version, spellings, `--help`.

Decides how names and help texts are read; what values do to each other is in `rules.py`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from optimizer.engines.flagtable import FlagTable, Reading, load_table

HELP_OPTION = re.compile(r"(?<![\w-])--([a-z0-9][A-Za-z0-9-]*)")
HELP_LINE = re.compile(r"^\s{1,8}-")
VERSION = re.compile(r"(\d+\.\d+\.\d+(?:\.?(?:post|rc|dev)\d+)?)")


@functools.cache
def table() -> FlagTable:
    """Return the flag table, read once."""
    return load_table("optimizer.engines.sglang", Reading(beginnings=True))


def help_names(text: str) -> frozenset[str]:
    """Return every long flag that a `--help` text lists, without dashes (option lines and usage, not the prose)."""
    names: set[str] = set()
    usage = True
    for line in text.splitlines():
        if not line.strip():
            usage = False
        if usage or HELP_LINE.match(line):
            option_part = line if usage else re.split(r"\s{2,}", line.strip(), maxsplit=1)[0]
            names.update(HELP_OPTION.findall(option_part))
    return frozenset(names)


def version_argv(command: Sequence[str]) -> list[str]:
    """Return the command that prints the version: the launch command's own interpreter is asked."""
    words = list(command)
    if "-m" in words:
        python = words[: words.index("-m")]
        return [*python, "-c", "import importlib.metadata as m; print(m.version('sglang'))"]
    return [*words[:1], "version"] if words and words[0].rsplit("/", 1)[-1] == "sglang" else [*words, "--version"]


def parse_version(text: str) -> str | None:
    """Return `0.5.12` out of what was printed; the last version-like word counts."""
    found = VERSION.findall(text)
    return found[-1] if found else None
