"""Says why a winner won, from the models: what each flag brought, which do nothing, where the space ends too early.

Decides on predictions only; what it says is a reading of the model, to be measured where the budget allows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.engines.base import FlagValue
from optimizer.search import policy
from optimizer.search.canonical import Candidate, CanonicalSpace
from optimizer.search.encoding import Encoder
from optimizer.search.history import Observation
from optimizer.search.ranking import measured
from optimizer.search.speed import SpeedModel, fit_speed

SURE = 2.0
"""Standard deviations that a contribution must be away from nothing to be called one."""
NOTHING = 0.005
"""A flag that moves the speed by less than this fraction, surely, does nothing."""


@dataclass(frozen=True)
class Contribution:
    """What one changed flag brought: the winner against the winner with this flag undone.

    `gain` is a fraction (0.08: 8 % faster with it), `sd` its uncertainty. `possible` is false where undoing the flag
    alone gives a configuration that cannot run; then the nearest one that can is compared, named in `against`.
    """

    name: str
    home: FlagValue | None
    winner: FlagValue | None
    gain: float
    sd: float
    sure: bool
    possible: bool
    against: dict[str, FlagValue]


@dataclass(frozen=True)
class Edge:
    """A parameter whose best value is the last one of its range."""

    name: str
    value: FlagValue
    side: str
    advice: str


@dataclass(frozen=True)
class Account:
    """The whole explanation of one configuration against home."""

    contributions: tuple[Contribution, ...]
    no_effect: tuple[str, ...]
    """Searched flags that, as far as the model is sure, change nothing anywhere near the winner."""
    edges: tuple[Edge, ...]


def account(
    space: CanonicalSpace,
    history: Sequence[Observation],
    winner: Mapping[str, FlagValue],
    home: Mapping[str, FlagValue],
    *,
    options: policy.Options | None = None,
) -> Account:
    """Explain a winner against home. Empty while fewer than three starts were measured."""
    seen = measured(history)
    if len(seen) < 3:
        return Account((), (), edges(space, winner))
    options = options or policy.Options()
    encoder = Encoder(space)
    model = fit_speed(encoder, seen, parts=options.parts, levels=options.levels)
    best, base = space.normalise(winner), space.normalise(home)
    changed = [n for n in space.names if best.get(n) != base.get(n)]
    found = [c for n in changed if (c := _undone(space, encoder, model, best, base, n)) is not None]
    found.sort(key=lambda c: -c.gain)
    return Account(tuple(found), _idle(space, encoder, model, best), edges(space, best))


def _undone(
    space: CanonicalSpace,
    encoder: Encoder,
    model: SpeedModel,
    best: dict[str, FlagValue],
    base: dict[str, FlagValue],
    name: str,
) -> Contribution | None:
    """Compare the winner with itself, one flag put back as it was at home."""
    own = space.check(best).candidate
    step: dict[str, FlagValue | None] = {**best, name: base.get(name)}
    step |= {n: v for n, v in base.items() if n not in best and n != name}
    other = space.check(step).candidate
    possible = other is not None
    if other is None:
        near = [c for c in space.neighbours(best) if c.params.get(name) == base.get(name)]
        other = min(near, key=lambda c: sum(c.params.get(n) != best.get(n) for n in space.names), default=None)
    if own is None or other is None or own.key == other.key:
        return None
    gain, sd = _difference(model, encoder, own.features, other.features)
    sure = abs(gain) > SURE * sd
    return Contribution(
        name, base.get(name), best.get(name), math.expm1(gain), sd, sure, possible, dict(other.effective)
    )


def _difference(
    model: SpeedModel, encoder: Encoder, a: tuple[FlagValue | None, ...], b: tuple[FlagValue | None, ...]
) -> tuple[float, float]:
    """Log ratio of what the flags of two configurations do, with its standard deviation, from the joint posterior."""
    one, two = encoder.encode([a]), encoder.encode([b])
    if model.levels:
        mean, sd = model.predict(encoder.encode([a, b]))
        return float(mean[0] - mean[1]), float(math.hypot(sd[0], sd[1]))
    mean, sd = model.whole.systematic().predict_mix([(1.0, one), (-1.0, two)])
    return float(mean[0]), float(sd[0])


def _idle(space: CanonicalSpace, encoder: Encoder, model: SpeedModel, best: dict[str, FlagValue]) -> tuple[str, ...]:
    """Flags of which every other value would surely leave the winner's speed as it is."""
    own = space.check(best).candidate
    idle = []
    for name in space.names:
        steps = [space.check({**best, name: v}).candidate for v in space.values[name] if v != best.get(name)]
        others = [c for c in steps if c is not None and own is not None and c.key != own.key and name in _moved(own, c)]
        if own is None or not others:
            continue
        gaps = [_difference(model, encoder, own.features, c.features) for c in others]
        if all(abs(gain) + sd < NOTHING for gain, sd in gaps):
            idle.append(name)
    return tuple(idle)


def _moved(a: Candidate, b: Candidate) -> set[str]:
    return {n for n in {*a.params, *b.params} if a.params.get(n) != b.params.get(n)}


def edges(space: CanonicalSpace, winner: Mapping[str, FlagValue]) -> tuple[Edge, ...]:
    """Return the ordered parameters whose winning value is the lowest or highest that was allowed."""
    found = []
    for name, value in space.normalise(winner).items():
        parameter = space.parameters[name]
        numbers = [v for v in space.values[name] if isinstance(v, int | float) and not isinstance(v, bool)]
        plain = np.array([float(v) for v in numbers if v not in parameter.special])
        if not parameter.ordered or len(plain) < 3 or value in parameter.special or isinstance(value, str):
            continue
        if float(value) == plain.max():
            found.append(Edge(name, value, "highest", f"raise the limit of {name} above {value} and search again"))
        elif float(value) == plain.min():
            found.append(Edge(name, value, "lowest", f"lower the limit of {name} below {value} and search again"))
    return tuple(found)
