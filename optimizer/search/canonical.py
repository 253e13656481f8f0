"""The servers a search may really start: valid under the spec, accepted by the engine, each exactly once.

Decides which requests are the same server (`effective`), draws and neighbours among them, and how many there are.
Nothing invalid and nothing twice comes out, so that no start is wasted on it. Holds no state but memoised facts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.engines.base import Config, Effective, FlagValue, Verdict, canonical_key
from optimizer.search.grammar import Expression, compile_expression
from optimizer.search.parameters import rungs
from optimizer.search.space import Parameter, Space

MAX_RAW = 8_000
"""Raw combinations that are listed one by one; above it the space is sampled."""
MAX_TRIES = 60
"""Uniform draws before a draw is repaired instead (a rule that one draw in 60 satisfies is tight)."""
MAX_REPAIRS = 200
MEMO_LIMIT = 16_000
"""Remembered answers; they are only facts, so forgetting costs time and nothing else."""
SNAP_DIGITS = 9
"""0.7000000000000001 and 0.7 are one value: sums of steps must not look like new servers."""
ESTIMATE_DRAWS = 2_000
HUGE = 10**12
"""Above it only the power of ten is told."""
OUTSIDE = "it is outside the given pool"


@dataclass(frozen=True)
class Candidate:
    """One server that may be started: what is asked for, what will run, and the key that tells servers apart."""

    params: dict[str, FlagValue]
    """The searched parameters as asked, absent ones left out."""
    effective: dict[str, FlagValue]
    key: str
    features: tuple[FlagValue | None, ...]
    """Effective values of the searched parameters, in the order of the space (None: absent)."""


@dataclass(frozen=True)
class Check:
    """What the space says about a request: its candidate, or why there is none."""

    candidate: Candidate | None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class SizeEstimate:
    """How many different servers a space has; `exact` when they were counted."""

    servers: int
    exact: bool
    raw: int
    """Combinations of values before conditions and rules."""


class CanonicalSpace:
    """A declared space seen through an engine: only valid canonical configurations come out.

    `effective` says which server runs for the searched parameters of one suggestion. `fixed` are flags outside the
    space that conditions and rules may read; a searched one is absent where a suggestion does not have it. `pool`, when
    given, restricts the space to these requests.
    """

    def __init__(
        self,
        space: Space,
        effective: Callable[[Config], Effective] | None = None,
        *,
        fixed: Config | None = None,
        pool: Sequence[Config] | None = None,
    ) -> None:
        self.space = space
        self.names = space.names()
        self.parameters: dict[str, Parameter] = {p.name: p for p in space.parameters}
        self.values: dict[str, tuple[FlagValue | None, ...]] = {p.name: rungs(p) for p in space.parameters}
        self._effective = effective or identity
        self._fixed = {n: v for n, v in (fixed or {}).items() if n not in self.names}
        vocabulary = {*self.names, *self._fixed}
        self._snap = {p.name: _rounded_values(p) for p in space.parameters if p.kind == "float" and p.ladder}
        self._conditions = [(compile_expression(c.when, vocabulary), c) for c in space.conditions]
        self._switches = frozenset(n for when, _ in self._conditions for n in when.names)
        self._rules = [compile_expression(r, vocabulary) for r in space.rules]
        self._memo: dict[tuple[FlagValue | None, ...], Check] = {}
        self._pool: list[Candidate] | None = None
        self._pool_keys: frozenset[str] = frozenset()
        if pool is not None:
            self._pool = _unique(self.check(c).candidate for c in pool)
            self._pool_keys = frozenset(c.key for c in self._pool)
            self._memo.clear()
        self._listed: list[Candidate] | None = None
        self._drawn: dict[tuple[int, int], list[Candidate]] = {}

    # -- one configuration ---------------------------------------------------------------------------------------

    def normalise(self, params: Mapping[str, FlagValue | None]) -> dict[str, FlagValue]:
        """Return the request with what its conditions make absent left out, and `False` and None as absence."""
        config = {n: v for n in self.names if (v := params.get(n)) is not None and v is not False}
        for name, rounded in self._snap.items():
            value = config.get(name)
            if isinstance(value, float):
                config[name] = rounded.get(round(value, SNAP_DIGITS), value)
        while True:
            gone = self._gone(config)
            for name in gone:
                config.pop(name, None)
            if not self._switches & gone:
                return config

    def _gone(self, config: dict[str, FlagValue]) -> set[str]:
        """Parameters that are given although a condition makes them absent."""
        view = {**self._fixed, **config} if self._fixed else config
        gone: set[str] = set()
        for when, condition in self._conditions:
            given = [n for n in condition.then_absent if n in config]
            if given and when.holds(view):
                gone.update(given)
        return gone

    def check(self, params: Mapping[str, FlagValue | None]) -> Check:
        """Say which server a request means, or why it means none: every broken rule and the engine's reasons."""
        asked = tuple([None if (v := params.get(n)) is False else v for n in self.names])
        found = self._memo.get(asked)
        if found is None:
            config = self.normalise(params)
            point = tuple([config.get(n) for n in self.names])
            if len(self._memo) >= MEMO_LIMIT:
                self._memo.clear()
            found = self._memo.get(point) or self._checked(config)
            self._memo[asked] = self._memo[point] = found
        return found

    def _checked(self, config: dict[str, FlagValue]) -> Check:
        view = {**self._fixed, **config}
        broken = tuple(f"the space's rule is not kept: {r.text}" for r in self._rules if r.violated(view))
        if broken:
            return Check(None, broken)
        result = self._effective(config)
        if result.verdict is Verdict.REJECTED:
            return Check(None, result.reasons or ("the engine rejects it",))
        if self._pool is not None and result.key not in self._pool_keys:
            return Check(None, (OUTSIDE,))
        features = tuple(result.config.get(n) for n in self.names)
        return Check(Candidate(config, dict(result.config), result.key, features))

    def outside_pool(self, params: Mapping[str, FlagValue | None]) -> bool:
        """Say whether the only thing against a request is that the given pool does not have it."""
        return self._pool is not None and OUTSIDE in self.check(params).reasons

    # -- many ----------------------------------------------------------------------------------------------------

    @property
    def raw_size(self) -> int:
        """Combinations of values before conditions and rules."""
        return math.prod(len(v) for v in self.values.values())

    def enumerate(self, limit: int = MAX_RAW) -> list[Candidate] | None:
        """Return every server once, in a fixed order, or None when more than `limit` combinations must be tried."""
        if self._pool is not None:
            return self._pool
        if self.raw_size > limit:
            return None
        if self._listed is None:
            points = itertools.product(*self.values.values())
            self._listed = _unique(self.check(dict(zip(self.names, p, strict=True))).candidate for p in points)
        return self._listed

    def sample(self, rng: np.random.Generator) -> Candidate | None:
        """Draw one server: uniformly where all are listed, else uniformly over requests, repaired when rules are tight.

        Returns None when no valid request was found.
        """
        listed = self.enumerate()
        if listed is not None:
            return listed[int(rng.integers(len(listed)))] if listed else None
        params: dict[str, FlagValue | None] = {}
        for _ in range(MAX_TRIES):
            places = rng.random(len(self.names))
            params = {n: v[int(u * len(v))] for u, (n, v) in zip(places, self.values.items(), strict=True)}
            if (candidate := self.check(params).candidate) is not None:
                return candidate
        return self._repaired(params, rng)

    def draws(self, seed: int, count: int) -> list[Candidate]:
        """Return the draws that a seed always gives, remembered."""
        found = self._drawn.get((seed, count))
        if found is None:
            rng = np.random.default_rng([seed, 0])
            found = self._drawn[seed, count] = _unique(self.sample(rng) for _ in range(count))
        return found

    def _repaired(self, params: dict[str, FlagValue | None], rng: np.random.Generator) -> Candidate | None:
        """Mend one broken rule at a time: of a parameter in it, take a value that leaves the fewest rules broken."""
        for _ in range(MAX_REPAIRS):
            broken = self._broken(params)
            involved = sorted(broken[int(rng.integers(len(broken)))].names & set(self.names)) if broken else []
            name = (involved or list(self.names))[int(rng.integers(len(involved or self.names)))]
            values = self.values[name]
            left = np.array([len(self._broken({**params, name: v})) for v in values])
            best = np.flatnonzero(left == left.min())
            params = {**params, name: values[int(best[int(rng.integers(len(best)))])]}
            if (candidate := self.check(params).candidate) is not None:
                return candidate
        return None

    def _broken(self, params: Mapping[str, FlagValue | None]) -> list[Expression]:
        view = {**self._fixed, **self.normalise(params)}
        return [r for r in self._rules if r.violated(view)]

    def neighbours(self, config: Mapping[str, FlagValue | None]) -> list[Candidate]:
        """Return the servers that differ in one parameter, each once, without the given one.

        Where a change brings in parameters that were absent, each of their values is one neighbour; where it breaks a
        rule, one further change that mends the rule is tried.
        """
        base = self.normalise(config)
        own = self.check(base).candidate
        found = _unique(self.check(step).candidate for step in self._steps(base))
        return [c for c in found if own is None or c.key != own.key]

    def _steps(self, base: dict[str, FlagValue]) -> Iterator[dict[str, FlagValue | None]]:
        for name, values in self.values.items():
            for value in values:
                if value == base.get(name) and (value is not True or base.get(name) is True):
                    continue
                step: dict[str, FlagValue | None] = {**base, name: value}
                freed = self._freed(step, name) if name in self._switches else []
                if freed:
                    yield from self._filled(step, freed)
                elif self.check(step).candidate is not None:
                    yield step
                else:
                    yield from self._mended(step, name)

    def _freed(self, step: Mapping[str, FlagValue | None], changed: str) -> list[str]:
        """Parameters that were absent and apply after this change."""
        absent = [n for n in self.names if n != changed and n not in step and None not in self.values[n]]
        return [n for n in absent if self._applies(n, step)]

    def _applies(self, name: str, step: Mapping[str, FlagValue | None]) -> bool:
        """Say whether a parameter that is absent now would be kept if it were given."""
        return name in self.normalise({**step, name: self.values[name][0]})

    def _filled(self, step: dict[str, FlagValue | None], freed: list[str]) -> Iterator[dict[str, FlagValue | None]]:
        """Give values to parameters that a change brought in: all combinations of few, each on its own of many."""
        choices = [self.values[n] for n in freed]
        if math.prod(len(c) for c in choices) <= 64:
            for combination in itertools.product(*choices):
                yield {**step, **dict(zip(freed, combination, strict=True))}
            return
        middle = {n: self.values[n][len(self.values[n]) // 2] for n in freed}
        for name in freed:
            for value in self.values[name]:
                yield {**step, **middle, name: value}

    def _mended(self, step: dict[str, FlagValue | None], changed: str) -> Iterator[dict[str, FlagValue | None]]:
        view = {**self._fixed, **self.normalise(step)}
        involved = {n for r in self._rules if r.violated(view) for n in r.names} & set(self.names) - {changed}
        for name in sorted(involved):
            for value in self.values[name]:
                if value != step.get(name):
                    yield {**step, name: value}

    # -- size ----------------------------------------------------------------------------------------------------

    def size_estimate(self, rng: np.random.Generator) -> SizeEstimate:
        """Count the servers, or estimate them from draws (the engine's own merging then counts only as far as seen)."""
        listed = self.enumerate()
        if listed is not None:
            return SizeEstimate(len(listed), True, self.raw_size)
        weights = 0.0
        requests: set[tuple[FlagValue | None, ...]] = set()
        keys: set[str] = set()
        for _ in range(ESTIMATE_DRAWS):
            params = {n: v[int(rng.integers(len(v)))] for n, v in self.values.items()}
            candidate = self.check(params).candidate
            if candidate is None:
                continue
            dropped = [n for n, v in params.items() if v is not None and n not in candidate.params]
            weights += 1.0 / math.prod(len(self.values[n]) for n in dropped if params[n] is not False)
            requests.add(tuple(candidate.params.get(n) for n in self.names))
            keys.add(candidate.key)
        merged = len(keys) / len(requests) if requests else 1.0
        return SizeEstimate(round(self.raw_size * weights / ESTIMATE_DRAWS * merged), False, self.raw_size)


def identity(config: Config) -> Effective:
    """Take every request as it is: the `effective` of spaces without an engine."""
    return Effective(Verdict.ACCEPTED, dict(config))


def cost_sentence(size: SizeEstimate, starts: int, start_s: float, where: str = "here") -> str:
    """Say what a search costs, like "this space has 41,000 servers; 40 starts are about 6 h here"."""
    about = "" if size.exact else "about "
    servers = size.servers if size.exact else _rounded(size.servers)
    shown = f"{servers:,}" if servers < HUGE else f"10^{len(str(servers)) - 1}"
    starts = min(starts, size.servers) if size.exact else starts
    return f"this space has {about}{shown} servers; {starts} starts are about {_duration(starts * start_s)} {where}"


def _rounded_values(parameter: Parameter) -> dict[float, FlagValue]:
    return {round(v, SNAP_DIGITS): v for v in parameter.ladder if isinstance(v, float)}


def _rounded(count: int) -> int:
    """Two significant digits: an estimate must not look exact."""
    digits = max(0, len(str(count)) - 2)
    return round(count, -digits) if digits else count


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h".replace(".0 h", " h")


def _unique(candidates: Iterator[Candidate | None]) -> list[Candidate]:
    found: dict[str, Candidate] = {}
    for candidate in candidates:
        if candidate is not None:
            found.setdefault(candidate.key, candidate)
    return list(found.values())


__all__ = ["Candidate", "CanonicalSpace", "Check", "SizeEstimate", "canonical_key", "cost_sentence", "identity"]
