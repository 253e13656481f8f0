"""The flags of every engine, for those who show or read them.

Decides only where each engine's table is and how its command line is read.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from optimizer.engines.argv import parse_argv
from optimizer.engines.base import FlagValue
from optimizer.engines.flagtable import FlagSet, FlagTable


def flag_table(engine: str) -> FlagTable:
    """Return the whole table of an engine, by its canonical name."""
    table: FlagTable = importlib.import_module(f"optimizer.engines.{engine}.flags").table()
    return table


def flag_set(engine: str, version: str | None) -> FlagSet:
    """Return the flags of one version of an engine."""
    return flag_table(engine).at(version)


def read_command_line(engine: str, words: Sequence[str], version: str | None) -> tuple[dict[str, FlagValue], list[str]]:
    """Read flags as they stand on the engine's own command line; words that belong to no flag are returned beside."""
    flags = flag_set(engine, version)
    return parse_argv(words, flags, equals=flags.reading.equals)
