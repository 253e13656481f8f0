"""The flags of vLLM: table by version, spellings, `--help`, and the JSON flags taken apart.

Decides how names and texts are read; what values do to each other is in `rules.py`.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from optimizer.engines.base import FlagValue
from optimizer.engines.flagtable import FlagTable, Reading, load_table
from optimizer.engines.resolution import read_value

HELP_OPTION = re.compile(r"(?<![\w-])--?([a-zA-Z][A-Za-z0-9-]*)")
HELP_LINE = re.compile(r"^\s{1,8}-")
VERSION = re.compile(r"(\d+\.\d+\.\d+(?:\.?(?:post|rc|dev)\d+)?)")
SPEC_KEYS = {"method": "spec-method", "model": "spec-model", "num_speculative_tokens": "spec-tokens"}
"""Keys of --speculative-config that have flags of their own."""


@functools.cache
def table() -> FlagTable:
    """Return the flag table, read once."""
    return load_table("optimizer.engines.vllm", Reading(beginnings=True, underscores=True))


@functools.cache
def virtual_names() -> Mapping[str, tuple[str, str]]:
    """Our name of a JSON key to (JSON flag, key)."""
    found: dict[str, tuple[str, str]] = {}
    for flag in table().flags:
        if flag.virtual:
            owner, _, key = flag.virtual.partition(".")
            found[flag.name] = (owner, key)
    for key, name in SPEC_KEYS.items():
        found[name] = ("speculative-config", key)
    return found


def help_names(text: str) -> frozenset[str]:
    """Return every flag that a `--help=all` text lists, and our names for the keys of JSON flags that are there."""
    names: set[str] = set()
    for line in text.splitlines():
        if HELP_LINE.match(line):
            names.update(HELP_OPTION.findall(re.split(r"\s{2,}", line.strip(), maxsplit=1)[0]))
    names.update(name for name, (owner, _) in virtual_names().items() if owner in names)
    return frozenset(names)


def version_argv(command: Sequence[str]) -> list[str]:
    """Return the command that prints the version."""
    words = list(command)
    if "-m" in words:
        python = words[: words.index("-m")]
        return [*python, "-c", "import importlib.metadata as m; print(m.version('vllm'))"]
    return [*words[:1], "--version"]


def parse_version(text: str) -> str | None:
    """Return `0.32.0` out of what was printed; the last version-like word counts."""
    found = VERSION.findall(text)
    return found[-1] if found else None


def take_apart(owner: str, text: str) -> dict[str, FlagValue]:
    """Return the keys of a JSON flag under our names; keys without a name stay behind as JSON under the flag's own.

    Raises:
        ValueError: the text is not a JSON object.
    """
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error.msg}") from None
    if not isinstance(data, dict):
        raise ValueError("must be a JSON object")
    ours = {key: name for name, (flag, key) in virtual_names().items() if flag == owner}
    found: dict[str, FlagValue] = {}
    rest: dict[str, Any] = {}
    for key, value in data.items():
        if key not in ours or value is None:
            rest[key] = value
        elif isinstance(value, dict | list):
            found[ours[key]] = json.dumps(value, sort_keys=True)
        elif value is not False:
            found[ours[key]] = value
    if rest:
        found[owner] = json.dumps(rest, sort_keys=True)
    return found


def put_together(flags: Mapping[str, FlagValue]) -> dict[str, FlagValue]:
    """Return the flags with our names for JSON keys folded back into one JSON text per flag."""
    plain: dict[str, FlagValue] = {}
    parts: dict[str, dict[str, Any]] = {}
    for name, value in flags.items():
        if name in virtual_names():
            owner, key = virtual_names()[name]
            parts.setdefault(owner, {})[key] = _json_value(name, value)
        else:
            plain[name] = value
    for owner, values in parts.items():
        given = plain.get(owner)
        base = json.loads(str(given)) if isinstance(given, str) else {}
        plain[owner] = json.dumps({**base, **values}, sort_keys=True)
    return plain


def _json_value(name: str, value: FlagValue) -> Any:
    """Return a value in the type that JSON has for it: a number that came as text is a number again."""
    flag = table().ever[name]
    try:
        return json.loads(str(value)) if flag.kind == "json" else read_value(flag, value)
    except ValueError:
        return value  # refused by the rules; whoever renders it all the same shows what was given
