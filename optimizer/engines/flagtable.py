"""Flag tables: which flags a version has, how they are spelled, and what values they take.

Decides names and types from data files (`flags.json`: read from the engine's own parser; `knowledge.yaml`: what we
know beside it). What flags do to each other is the business of each engine's `rules.py`.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from typing import Any

import yaml

from optimizer.engines.base import FlagValue
from optimizer.engines.versions import nearest_known, version_key


@dataclass(frozen=True)
class Flag:
    """One flag in a span of versions. `name` is canonical, without dashes.

    `kind` is int, float, str, choice, bare (present or absent), switch (`--x` / `--no-x`), list (several words after
    the flag, one string here), size (a whole number, or one like 8k) or json. `default` is the parser's, `None` when
    it has none.
    """

    name: str
    kind: str
    since: str = ""
    until: str = ""
    aliases: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    negative: tuple[str, ...] = ()
    negative_short: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    default: FlagValue | None = None
    optional_value: bool = False
    env: str = ""
    item: str = "str"
    """Type of each word of a list."""
    dest: str = ""
    """Name in the engine's own records, where it is not the flag's name with underscores."""
    sets: str = ""
    """`other=value`: an old bare flag that stands for another flag's value."""
    virtual: str = ""
    """`flag.key`: a name of ours for one key of a JSON flag (`speculative-config.prompt_lookup_max`)."""
    removed: str = ""
    """What to use instead, when the parser knows the name only to refuse it."""
    minimum: float | None = None
    maximum: float | None = None
    change: str = "restart"
    """`restart`, or `hot` when a running server can take it."""
    searchable: bool = False
    cosmetic: bool = False
    """Does not make another server for our purpose (host, port, names, logging)."""
    no_effect: str = ""
    """Why this version parses the flag and never reads it."""
    risk: str = ""
    note: str = ""

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every name that means this flag, canonical first."""
        return (self.name, *self.aliases, *self.short, *self.negative, *self.negative_short)

    @property
    def record_name(self) -> str:
        """Name in the engine's own records (`tp_size`)."""
        return self.dest or self.name.replace("-", "_")

    @property
    def takes_value(self) -> bool:
        """Say whether something follows the flag on a command line."""
        return self.kind not in {"bare", "switch"}


@dataclass(frozen=True)
class Reading:
    """How an engine's parser reads names: unique beginnings, `_` for `-`, and `--name=value`."""

    beginnings: bool = False
    underscores: bool = False
    equals: bool = True


@dataclass(frozen=True)
class FlagSet:
    """The flags of one version, found by any spelling."""

    engine: str
    version: str
    flags: tuple[Flag, ...]
    reading: Reading = Reading()

    @cached_property
    def by_spelling(self) -> Mapping[str, tuple[Flag, bool]]:
        """Spelling to (flag, whether this spelling negates it)."""
        found: dict[str, tuple[Flag, bool]] = {}
        for flag in self.flags:
            for spelling in (flag.name, *flag.aliases, *flag.short):
                found.setdefault(spelling, (flag, False))
            for spelling in (*flag.negative, *flag.negative_short):
                found.setdefault(spelling, (flag, True))
        return found

    @cached_property
    def by_env(self) -> Mapping[str, Flag]:
        """Environment variable to the flag that it sets."""
        return {f.env: f for f in self.flags if f.env}

    @cached_property
    def long_names(self) -> tuple[str, ...]:
        """Every long spelling, for prefix matching and suggestions."""
        return tuple(s for f in self.flags if not f.virtual for s in (f.name, *f.aliases, *f.negative))

    def find(self, name: str) -> tuple[Flag, bool] | None:
        """Return the flag that the engine's parser takes this spelling for, and whether it is the negative form."""
        bare = name.lstrip("-")
        found = self.by_spelling.get(bare)
        if found is None and self.reading.underscores:
            found = self.by_spelling.get(bare.replace("_", "-"))
        if found is None and len(begun := self.begun(bare)) == 1:
            found = self.by_spelling[begun[0]]
        return found

    def begun(self, name: str) -> tuple[str, ...]:
        """Return the long names that begin so, where the parser takes beginnings for names."""
        if not self.reading.beginnings or not name:
            return ()
        wanted = name.replace("_", "-") if self.reading.underscores else name
        return tuple(s for s in self.long_names if s.startswith(wanted))

    def __getitem__(self, name: str) -> Flag:
        """Return a flag by its canonical name. Raises KeyError when this version has none."""
        found = self.by_spelling.get(name)
        if found is None or found[0].name != name:
            raise KeyError(name)
        return found[0]

    def __contains__(self, name: object) -> bool:
        """Say whether this version has a flag of that canonical name."""
        found = self.by_spelling.get(str(name))
        return found is not None and found[0].name == name and not found[0].removed

    def suggest(self, name: str) -> str:
        """Return the nearest known name, or an empty text."""
        near = difflib.get_close_matches(name.lstrip("-"), self.long_names, n=1, cutoff=0.6)
        return near[0] if near else ""


@dataclass(frozen=True)
class FlagTable:
    """All flags of an engine over all known versions (ascending)."""

    engine: str
    versions: tuple[str, ...]
    flags: tuple[Flag, ...]
    reading: Reading = Reading()
    _sets: dict[str, FlagSet] = field(default_factory=dict, compare=False)

    def at(self, version: str | None) -> FlagSet:
        """Return the flags of the newest known version that is not newer than `version` (None: newest)."""
        known = nearest_known(version, self.versions)
        if known not in self._sets:
            key = version_key(known)
            inside = [f for f in self.flags if _within(f, key)]
            self._sets[known] = FlagSet(self.engine, known, tuple(inside), self.reading)
        return self._sets[known]

    @property
    def ever(self) -> FlagSet:
        """Return the flags of all versions, the newest meaning of each name first: enough to write a command line."""
        if "" not in self._sets:
            newest_first = sorted(self.flags, key=lambda f: version_key(f.until) if f.until else LAST, reverse=True)
            self._sets[""] = FlagSet(self.engine, self.versions[-1], tuple(newest_first), self.reading)
        return self._sets[""]

    def gone(self, name: str, version: str | None) -> str:
        """Say in which versions a flag exists, when `version` has it not; empty when it never existed."""
        spans = [f"{f.since or 'the first'} to {f.until or 'today'}" for f in self.flags if name in f.spellings]
        return f"known in versions {', '.join(dict.fromkeys(spans))}" if spans else ""


LAST = (10**9,)


def _within(flag: Flag, key: tuple[int, ...]) -> bool:
    return (not flag.since or version_key(flag.since) <= key) and (not flag.until or key <= version_key(flag.until))


TUPLES = ("aliases", "short", "negative", "negative_short", "choices")


def load_table(package: str, reading: Reading) -> FlagTable:
    """Read `flags.json`, `knowledge.yaml` and, where there is one, `virtual.yaml` of an engine package."""
    root = resources.files(package)
    data: dict[str, Any] = json.loads(root.joinpath("flags.json").read_text("utf-8"))
    knowledge: dict[str, dict[str, Any]] = yaml.safe_load(root.joinpath("knowledge.yaml").read_text("utf-8")) or {}
    rows: list[dict[str, Any]] = data["flags"]
    virtual = root.joinpath("virtual.yaml")
    if virtual.is_file():
        rows = rows + [{"name": k, **v} for k, v in (yaml.safe_load(virtual.read_text("utf-8")) or {}).items()]
    flags = tuple(_flag(row, knowledge.get(row["name"], {})) for row in rows)
    strays = set(knowledge) - {f.name for f in flags}
    if strays:
        raise ValueError(f"{package}: knowledge.yaml names unknown flags: {', '.join(sorted(strays))}")
    return FlagTable(data["engine"], tuple(data["versions"]), flags, reading)


def _flag(row: Mapping[str, Any], known: Mapping[str, Any]) -> Flag:
    fields: dict[str, Any] = {k: tuple(v) if k in TUPLES else v for k, v in {**row, **known}.items()}
    return Flag(**fields)
