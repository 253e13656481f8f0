"""What the operators of the grammar mean: three-valued logic, comparisons and arithmetic over flag values.

Decides what an absent flag does in an expression (see `grammar.py`); knows nothing about texts and tokens.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

Environment = Mapping[str, Any]
Node = Callable[[Environment], Any]

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}


def truth(value: Any) -> bool | None:
    """Truth of a value; None stays unknown."""
    return None if value is None else bool(value)


def any_of(parts: list[Node]) -> Node:
    """Three-valued `or`."""

    def either(env: Environment) -> bool | None:
        unknown = False
        for part in parts:
            state = truth(part(env))
            if state:
                return True
            unknown = unknown or state is None
        return None if unknown else False

    return either


def all_of(parts: list[Node]) -> Node:
    """Three-valued `and`."""

    def every(env: Environment) -> bool | None:
        unknown = False
        for part in parts:
            state = truth(part(env))
            if state is False:
                return False
            unknown = unknown or state is None
        return None if unknown else True

    return every


def member(left: Node, items: list[Node], negated: bool) -> Node:
    """`left in items`, or its contrary."""
    return lambda env: any(equal(left(env), item(env)) for item in items) != negated


def compare(sign: str, left: Node, right: Node) -> Node:
    """A comparison; ordering an absent flag is unknown."""
    if sign in {"==", "!="}:
        same = sign == "=="
        return lambda env: equal(left(env), right(env)) == same

    def ordered(env: Environment) -> bool | None:
        a, b = number(left(env)), number(right(env))
        if a is None or b is None:
            return None
        return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[sign]

    return ordered


def calculate(sign: str, left: Node, right: Node) -> Node:
    """Arithmetic; unknown when a part is, or on division by zero."""

    def calculated(env: Environment) -> Any:
        a, b = number(left(env)), number(right(env))
        if a is None or b is None:
            return None
        try:
            return OPERATORS[sign](a, b)
        except (ZeroDivisionError, OverflowError):
            return None

    return calculated


def number(value: Any) -> float | int | None:
    """Numbers, and texts that spell one; None for everything else."""
    if isinstance(value, int | float):
        return value
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return None


def equal(a: Any, b: Any) -> bool:
    """Equality of flag values: absent equals only absent and false, numbers equal their spelling."""
    if a is None or b is None:
        return (a in (None, False)) and (b in (None, False))
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, str) != isinstance(b, str):
        return (x := number(a)) is not None and x == number(b)
    return bool(a == b)
