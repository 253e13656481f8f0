"""The declared search space: parameters, conditions, rules, and nothing about any engine.

Decides what a parameter is and which raw configurations satisfy the spec's conditions and rules. What an engine
makes of a configuration is `canonical.py`'s business. Expressions are parsed by `grammar.py` (no `eval`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from optimizer.engines.base import Config, FlagValue


@dataclass(frozen=True)
class Parameter:
    """One searched flag or variable.

    `ladder` lists every value it may take, in order, when that is finite (ints, choices, stepped floats, flags);
    `ordered` says that neighbours on the ladder are near each other. For a `flag` parameter the values are
    `True` (present) and None is expressed by absence: `may_be_absent` is then true.
    """

    name: str
    kind: str
    """int | float | choice | flag"""
    ladder: tuple[FlagValue, ...] = ()
    """Every value, `special` ones included (at the end); empty for a continuous range."""
    low: float | None = None
    high: float | None = None
    step: float | None = None
    log: bool = False
    ordered: bool = False
    may_be_absent: bool = False
    special: tuple[FlagValue, ...] = ()
    """Values that are a category of their own (0 = off, -1 = auto), whatever number spells them."""
    why: str = ""


@dataclass(frozen=True)
class Condition:
    """When `when` holds, the parameters in `then_absent` are absent."""

    when: str
    then_absent: tuple[str, ...]


@dataclass(frozen=True)
class KnownResult:
    """A configuration that somebody measured before, with the speed they saw (None: only believed to be good)."""

    config: Config
    output_tok_s: float | None = None


@dataclass(frozen=True)
class Space:
    """Parameters with the conditions and rules between them. `defaults` are values known to be sensible."""

    parameters: tuple[Parameter, ...]
    conditions: tuple[Condition, ...] = ()
    rules: tuple[str, ...] = ()
    defaults: tuple[Config, ...] = ()
    dropped: dict[str, str] = field(default_factory=dict)
    """Parameters left out, with the reason (never read by this version, ...)."""

    known: tuple[KnownResult, ...] = ()
    """Results brought along from elsewhere: where to look first, never evidence."""

    def names(self) -> tuple[str, ...]:
        """Names of the parameters, in order."""
        return tuple(p.name for p in self.parameters)
