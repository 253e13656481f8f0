"""A small safe language for conditions and rules; nothing is ever handed to `eval`.

Decides how an expression reads and what it means when a flag is absent; which names exist is the caller's business.

    or, and, not, ( )        comparisons == != < <= > >=        X in [a, b]   X not in [a, b]
    X is absent / present    + - * / // %   min( ) max( ) abs( )    ... where k=NAME, s=NAME

Names may hold dashes (`spec-type`) and a prefix (`env.NCCL_PROTO`). A word without quotes is a text unless it is a
known name or stands where only a name makes sense (left of a comparison, in a calculation). Spaces make a minus:
`a - b`; `k-1` is a subtraction when `k` is a known name and `k-1` is not.

An absent flag equals nothing but `false`; ordering or calculating with it gives "unknown" (None), which neither fires a
condition nor breaks a rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from optimizer.search.grammar_tokens import GrammarError, Token, split_minus, tokens
from optimizer.search.grammar_values import (
    Environment,
    Node,
    all_of,
    any_of,
    calculate,
    compare,
    member,
    number,
    truth,
)

MAX_LENGTH = 2000
"""Characters; rules are written by people, and a bound keeps a hostile one cheap."""
MAX_DEPTH = 40

_COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})
_FUNCTIONS: dict[str, tuple[Callable[..., Any], int]] = {"min": (min, 2), "max": (max, 2), "abs": (abs, 1)}


@dataclass(frozen=True)
class Expression:
    """A compiled expression. `names` are the flags that it reads."""

    text: str
    names: frozenset[str]
    _node: Node

    def evaluate(self, config: Environment) -> Any:
        """Return the value under a configuration; None where an absent flag makes it unknown."""
        return self._node(config)

    def holds(self, config: Environment) -> bool:
        """Say whether a condition is surely true."""
        return truth(self._node(config)) is True

    def violated(self, config: Environment) -> bool:
        """Say whether a rule is surely false."""
        return truth(self._node(config)) is False


def compile_expression(text: str, names: Collection[str] = ()) -> Expression:
    """Compile one condition or rule. `names` are the known flags (they decide what a word means).

    Raises:
        GrammarError: with the place and what was expected there.
    """
    if len(text) > MAX_LENGTH:
        raise GrammarError(f"longer than {MAX_LENGTH} characters")
    return _Parser(text, frozenset(names)).parse()


def quote(value: Any) -> str:
    """Write a value so that the grammar reads it back as itself."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"' if '"' not in value else f"'{value}'"
    return str(value)


@dataclass(frozen=True)
class _Operand:
    """A parsed part; `word` is set while it is not decided whether a word is a name or a text."""

    node: Node
    word: str | None = None


class _Parser:
    """Recursive descent, one method per level of binding."""

    def __init__(self, text: str, known: frozenset[str]) -> None:
        self.text = text
        self.tokens = tokens(text)
        self.known = known
        self.bound: set[str] = set()
        self.used: set[str] = set()
        self.i = 0
        self.depth = 0

    def parse(self) -> Expression:
        where = self._find_where()
        self.bound = {self.tokens[i].text for i in where}
        self.tokens = split_minus(self.tokens, self.known | self.bound)
        node = self._or()
        if self._take("where"):
            node = self._bindings(node)
        if self.i < len(self.tokens):
            self._fail("the end")
        return Expression(self.text.strip(), frozenset(self.used), node)

    def _find_where(self) -> list[int]:
        """Indexes of the names bound after `where`, needed before the body can be read."""
        starts = [i for i, t in enumerate(self.tokens) if t.kind == "keyword" and t.text == "where"]
        if not starts:
            return []
        later = range(starts[0] + 1, len(self.tokens) - 1)
        return [i for i in later if self.tokens[i].kind == "word" and self.tokens[i + 1].text == "="]

    # -- helpers -------------------------------------------------------------------------------------------------

    def _peek(self, ahead: int = 0) -> Token | None:
        i = self.i + ahead
        return self.tokens[i] if i < len(self.tokens) else None

    def _take(self, *texts: str) -> str | None:
        token = self._peek()
        if token and token.kind in {"keyword", "sign"} and token.text in texts:
            self.i += 1
            return token.text
        return None

    def _expect(self, text: str) -> None:
        if not self._take(text):
            self._fail(f"{text!r}")

    def _fail(self, expected: str) -> None:
        token = self._peek()
        found = f"{token.text!r} at character {token.at + 1}" if token else "the end"
        raise GrammarError(f"expected {expected}, found {found}")

    def _name(self, operand: _Operand) -> Node:
        """Decide that an undecided word is the name of a flag."""
        return self._reference(operand.word) if operand.word is not None else operand.node

    def _value(self, operand: _Operand) -> Node:
        """Decide what an undecided word is where a text is as good as a name: known names are names."""
        word = operand.word
        if word is None or word in self.known or word in self.bound or word.startswith("env."):
            return self._name(operand)
        return operand.node

    def _reference(self, name: str) -> Node:
        if "/" in name or ":" in name:
            raise GrammarError(f"{name!r} is not a name: quote a text, and put spaces around a division")
        if name not in self.bound:
            self.used.add(name)
        return lambda env: env.get(name)

    # -- levels --------------------------------------------------------------------------------------------------

    def _or(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise GrammarError(f"nested deeper than {MAX_DEPTH} levels")
        parts = [self._and()]
        while self._take("or"):
            parts.append(self._and())
        self.depth -= 1
        return parts[0] if len(parts) == 1 else any_of(parts)

    def _and(self) -> Node:
        parts = [self._not()]
        while self._take("and"):
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else all_of(parts)

    def _not(self) -> Node:
        if self._take("not"):
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise GrammarError(f"nested deeper than {MAX_DEPTH} levels")
            inner = self._not()
            self.depth -= 1
            return lambda env: None if (t := truth(inner(env))) is None else not t
        return self._comparison()

    def _comparison(self) -> Node:
        left = self._sum()
        token = self._peek()
        if token and token.kind == "sign" and token.text in _COMPARISONS:
            self.i += 1
            right = self._sum()
            ordering = token.text not in {"==", "!="}
            return compare(token.text, self._name(left), self._name(right) if ordering else self._value(right))
        if self._take("is"):
            negated = bool(self._take("not"))
            state = self._take("absent", "present")
            if state is None:
                self._fail("'absent' or 'present'")
            want_absent = (state == "absent") != negated
            name = self._name(left)
            return lambda env: (name(env) in (None, False)) == want_absent
        negated = bool(self._take("not"))
        if self._take("in"):
            return member(self._name(left), self._list(), negated)
        if negated:
            self._fail("'in'")
        return self._name(left)

    def _list(self) -> list[Node]:
        self._expect("[")
        items = [self._value(self._sum())]
        while self._take(","):
            items.append(self._value(self._sum()))
        self._expect("]")
        return items

    def _sum(self) -> _Operand:
        left = self._product()
        while sign := self._take("+", "-"):
            left = _Operand(calculate(sign, self._name(left), self._name(self._product())))
        return left

    def _product(self) -> _Operand:
        left = self._unary()
        while sign := self._take("*", "//", "/", "%"):
            left = _Operand(calculate(sign, self._name(left), self._name(self._unary())))
        return left

    def _unary(self) -> _Operand:
        if self._take("-"):
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise GrammarError(f"nested deeper than {MAX_DEPTH} levels")
            inner = self._name(self._unary())
            self.depth -= 1
            return _Operand(calculate("-", lambda env: 0, inner))
        return self._atom()

    def _atom(self) -> _Operand:
        token = self._peek()
        if token is None:
            raise GrammarError("expected a name or a value, found the end")
        after = self._peek(1)
        if token.kind == "word" and token.text in _FUNCTIONS and after and after.text == "(":
            return self._call(token.text)
        self.i += 1
        if token.kind == "number":
            literal = float(token.text) if re.search(r"[.eE]", token.text) else int(token.text)
            return _Operand(lambda env: literal)
        if token.kind == "text":
            text = token.text[1:-1]
            return _Operand(lambda env: text)
        if token.kind == "word":
            word = token.text
            return _Operand(lambda env: word, word)
        if token.text in {"true", "false"}:
            flag = token.text == "true"
            return _Operand(lambda env: flag)
        if token.text == "(":
            inner = self._or()
            self._expect(")")
            return _Operand(inner)
        self.i -= 1
        self._fail("a name or a value")
        raise AssertionError

    def _call(self, name: str) -> _Operand:
        self.i += 2
        function, least = _FUNCTIONS[name]
        parts = [self._name(self._sum())]
        while self._take(","):
            parts.append(self._name(self._sum()))
        self._expect(")")
        if len(parts) < least or (least == 1 and len(parts) > 1):
            raise GrammarError(f"{name}() takes {'one value' if least == 1 else 'two values or more'}")

        def call(env: Environment) -> Any:
            values = [number(p(env)) for p in parts]
            return None if None in values else function(*values)

        return _Operand(call)

    def _bindings(self, body: Node) -> Node:
        bindings: list[tuple[str, Node]] = []
        while True:
            token = self._peek()
            if token is None or token.kind != "word":
                self._fail("a name to bind")
                raise AssertionError
            self.i += 1
            self._expect("=")
            if any(token.text == done for done, _ in bindings):
                raise GrammarError(f"{token.text!r} is bound twice")
            bindings.append((token.text, self._name(self._sum())))
            if not self._take(","):
                break

        def bound(env: Environment) -> Any:
            inner = dict(env)
            for name, node in bindings:
                inner[name] = node(inner)
            return body(inner)

        return bound
