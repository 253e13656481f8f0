"""Command lines: from flags to words and back. Never a shell string.

Decides how a flag is spelled in argv (long `--x`, short `-x`, lists as several words) and how words are read back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from optimizer.engines.base import Config, FlagValue
from optimizer.engines.flagtable import Flag, FlagSet
from optimizer.secrets import SECRET_NAME

NAME = re.compile(r"^[A-Za-z][A-Za-z0-9.\-_]*$")
NEGATIVE_NUMBER = re.compile(r"^-\d+(\.\d+)?$")


def render_flags(flags: Mapping[str, FlagValue], known: FlagSet) -> list[str]:
    """Return the words for these flags in the order given; a flag given under two spellings counts once, the last.

    Raises:
        ValueError: a name is outside the grammar of flags.
    """
    last: dict[str, str] = {}
    for name in flags:
        if not NAME.match(name):
            raise ValueError(f"{name!r} is not a flag name: letters, digits and dashes, without dashes in front")
        found = known.find(name)
        last[found[0].name if found else name] = name
    words: list[str] = []
    for name in (n for n in flags if n in last.values()):
        words += _render_one(name, flags[name], known.find(name), equals=known.reading.equals)
    return words


def _render_one(name: str, value: FlagValue, found: tuple[Flag, bool] | None, *, equals: bool) -> list[str]:
    flag = found[0] if found else None
    is_long = flag is None or name in (flag.name, *flag.aliases, *flag.negative)
    is_short = flag is not None and not is_long and name in (*flag.short, *flag.negative_short)
    word = f"-{name}" if is_short else f"--{name}"
    if flag is not None and isinstance(value, bool) and flag.takes_value and "on" in flag.choices:
        return [word, "on" if value else "off"]
    if value is True:
        return [word]
    if value is False:
        return []
    if flag is not None and flag.kind == "list":
        return [word, *list_words(str(value))]
    text = str(value)
    if equals and text.startswith("-") and not NEGATIVE_NUMBER.match(text):
        return [f"{word}={text}"]  # as a word of its own it would be read as the next flag
    return [word, text]


def list_words(text: str) -> list[str]:
    """Split the words of a list: at blanks, but a JSON object or array is one word whatever blanks are in it."""
    words: list[str] = []
    rest = text.strip()
    while rest:
        end = _json_end(rest) if rest[0] in "{[" else 0
        words.append(rest[:end] if end else rest.split(None, 1)[0])
        rest = rest[len(words[-1]) :].lstrip()
    return words


def _json_end(text: str) -> int:
    try:
        return json.JSONDecoder().raw_decode(text)[1]
    except ValueError:
        return 0


def parse_argv(words: Sequence[str], known: FlagSet, *, equals: bool = True) -> tuple[dict[str, FlagValue], list[str]]:
    """Read flags out of words as they stand on the engine's command line; leftovers are returned beside them.

    `equals` says whether the engine understands `--name=value`. Unknown flags are kept, under the name given, with the
    words that follow.
    """
    config: dict[str, FlagValue] = {}
    rest: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if not word.startswith("-") or NEGATIVE_NUMBER.match(word):
            rest.append(word)
            continue
        name, eq, inline = word.lstrip("-").partition("=")
        if eq and not equals:
            config[word.lstrip("-")] = True
            continue
        found = known.find(name)
        taken = [inline] if eq else _values(words[position:], found[0] if found else None, equals=equals)
        position += 0 if eq else len(taken)
        config[name] = " ".join(taken) if taken else True
    return config, rest


def _values(following: Sequence[str], flag: Flag | None, *, equals: bool) -> list[str]:
    """Words that belong to a flag: none for a bare one, all up to the next flag for a list, else one."""
    if flag is not None and not flag.takes_value:
        return []
    if flag is not None and not equals:
        return list(following[:1])  # a parser without `--name=value` takes the next word, whatever it looks like
    taken: list[str] = []
    for word in following:
        if word.startswith("-") and not NEGATIVE_NUMBER.match(word) and not (flag and _negative_choice(flag, word)):
            break
        taken.append(word)
        if flag is None or flag.kind != "list":
            break
    return taken


def _negative_choice(flag: Flag, word: str) -> bool:
    return word in flag.choices


def secret_names(env: Iterable[str]) -> frozenset[str]:
    """Return the variables whose values must not be shown."""
    return frozenset(name for name in env if SECRET_NAME.search(name))


def drop_flags(config: Config, names: Iterable[str], known: FlagSet) -> dict[str, FlagValue]:
    """Return the configuration without these flags, under whatever spelling they stand there."""
    canonical = set(names)
    kept: dict[str, FlagValue] = {}
    for name, value in config.items():
        found = known.find(name)
        if (found[0].name if found else name) not in canonical:
            kept[name] = value
    return kept
