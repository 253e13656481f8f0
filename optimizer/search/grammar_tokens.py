"""Cuts an expression into tokens: numbers, words, texts and signs.

Decides where a name ends, and when a dash within a word is a minus. What they mean together is decided in `grammar.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![A-Za-z0-9_.]))
    | (?P<word>(?:[A-Za-z_]|/(?=[A-Za-z0-9_.~])|\d+[A-Za-z_])[A-Za-z0-9_./:]*(?:-[A-Za-z0-9_./:]+)*)
    | (?P<text>"[^"]*"|'[^']*')
    | (?P<sign>==|!=|<=|>=|//|[-<>+*/%(),=\[\]])
    )""",
    re.VERBOSE,
)
_KEYWORDS = frozenset({"and", "or", "not", "in", "is", "absent", "present", "where", "true", "false"})


class GrammarError(ValueError):
    """The text is not an expression; says where and what was expected."""


@dataclass(frozen=True)
class Token:
    """One piece of an expression; `at` is where it begins, from 0."""

    kind: str
    text: str
    at: int


def tokens(text: str) -> list[Token]:
    """Cut a text into tokens. Raises GrammarError at the first character that begins none."""
    found: list[Token] = []
    position = 0
    while position < len(text.rstrip()):
        match = _TOKEN.match(text, position)
        if not match:
            bad = text[position:].lstrip()[:10]
            raise GrammarError(f"cannot read {bad!r} at character {position + 1}")
        kind = str(match.lastgroup)
        word, start = match.group(kind), match.start(kind)
        if kind == "word" and word in _KEYWORDS:
            kind = "keyword"
        found.append(Token(kind, word, start))
        position = match.end()
    return found


def split_minus(found: list[Token], names: Collection[str]) -> list[Token]:
    """Read `k-1` and `a-b` as subtractions where their first part is a known name and the whole is not."""
    result: list[Token] = []
    for token in found:
        result += _pieces(token, names) if token.kind == "word" else [token]
    return result


def _pieces(token: Token, names: Collection[str]) -> list[Token]:
    word = token.text
    if word in names or "-" not in word:
        return [token]
    parts = word.split("-")
    for cut in range(len(parts) - 1, 0, -1):
        head, rest = "-".join(parts[:cut]), "-".join(parts[cut:])
        digits = re.fullmatch(r"\d+(\.\d+)?", rest)
        if head in names and (digits or rest.split("-")[0] in names or rest in names):
            minus = Token("sign", "-", token.at + len(head))
            tail = Token("number" if digits else "word", rest, token.at + len(head) + 1)
            return [Token("word", head, token.at), minus, *_pieces(tail, names)]
    return [token]
