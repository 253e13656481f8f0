"""The method itself: a history in, the next server to start out. No state, no Optuna, no I/O.

Decides by models of speed and of feasibility over candidates that are valid, canonical and not yet measured. Everything
it brings is documented, with what each part is worth, in docs/design/search.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from optimizer.errors import RatchetError
from optimizer.search import feasibility
from optimizer.search.canonical import Candidate, CanonicalSpace
from optimizer.search.encoding import Encoder, Floats
from optimizer.search.history import INFEASIBLE, Observation
from optimizer.search.speed import SpeedModel, fit_speed


class SpaceExhausted(RatchetError):
    """Every configuration of the space has been measured; nothing new can be proposed."""

    def __init__(self) -> None:
        super().__init__("every configuration of the space has been measured", remedy="widen the space, or confirm")


@dataclass(frozen=True)
class Options:
    """What the method uses; the defaults are what helped (see the ablation in docs/design/search.md)."""

    design: str = "spread"
    """How the first starts are chosen after the defaults: spread | random | probes."""
    design_size: int = 4
    parts: str = "auto"
    """The objective by its parts: auto (by predictive weight) | never | always."""
    feasibility: str = "causes"
    """causes | none"""
    max_listed: int = 2000
    draws: int = 600


def propose(
    space: CanonicalSpace, history: Sequence[Observation], *, seed: int, options: Options | None = None
) -> Candidate:
    """Return the next server to start: same history and seed, same answer.

    Raises:
        SpaceExhausted: nothing valid is left that was not measured.
    """
    options = options or Options()
    taken = {o.key for o in history}
    for default in space.space.defaults:
        first = space.check(default).candidate
        if first is not None and first.key not in taken:
            return first
    rng = np.random.default_rng([seed, len(history)])
    encoder = Encoder(space)
    measured = [o for o in history if o.kind in ("complete", "partial")]
    model = fit_speed(encoder, measured, parts=options.parts) if measured else None
    candidates = candidate_set(space, encoder, history, model, seed=seed, rng=rng, options=options)
    if not candidates:
        raise SpaceExhausted
    rows = encoder.encode([c.features for c in candidates])
    score = rng.uniform(0.0, 1e-6, len(candidates))
    if model is None:
        return candidates[int(np.argmax(score))]
    mean, sd = model.predict(rows)
    chance = success_chance(encoder, history, options, [c.features for c in candidates])
    if len(measured) + sum(o.kind == INFEASIBLE for o in history) < options.design_size + 1:
        score += _design_score(options.design, sd, candidates, measured)
    else:
        score += log_expected_gain(mean, sd, model.incumbent())
    return candidates[int(np.argmax(score + 1.0 * np.log(chance)))]


def candidate_set(
    space: CanonicalSpace,
    encoder: Encoder,
    history: Sequence[Observation],
    model: SpeedModel | None,
    *,
    seed: int,
    rng: np.random.Generator,
    options: Options,
) -> list[Candidate]:
    """Return what may be started next: all of it where it can be listed, else draws and neighbours of the best."""
    taken = {o.key for o in history}
    listed = space.enumerate()
    if listed is not None and len(listed) <= options.max_listed:
        return [c for c in listed if c.key not in taken]
    found: dict[str, Candidate] = {}
    fixed = np.random.default_rng([seed, 0xD1CE])
    draws = [space.sample(fixed) for _ in range(options.draws)] + [space.sample(rng) for _ in range(100)]
    around: list[Candidate] = []
    if model is not None:
        for place in model.best(6):
            around += space.neighbours(place)
    for candidate in [*draws, *around]:
        if candidate is not None and candidate.key not in taken:
            found.setdefault(candidate.key, candidate)
    return list(found.values())


def success_chance(
    encoder: Encoder, history: Sequence[Observation], options: Options, features: Sequence[tuple[object, ...]]
) -> Floats:
    """Return the probability that each configuration starts and survives its measurement."""
    failed = [o for o in history if o.kind == INFEASIBLE]
    good = [o for o in history if o.kind in ("complete", "partial")]
    if options.feasibility == "none" or not failed:
        return np.ones(len(features))
    model = feasibility.learn(
        encoder.encode([o.features for o in failed]),
        [o.label for o in failed],
        encoder.encode([o.features for o in good]),
    )
    return model.success_probability(encoder.encode(features))  # type: ignore[arg-type]


def log_expected_gain(mean: Floats, sd: Floats, incumbent: float) -> Floats:
    """Return the logarithm of the expected improvement over the incumbent, stable far below it."""
    z = (mean - incumbent) / sd
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    direct = density + z * ndtr(z)
    tail = -0.5 * z**2 - 0.5 * np.log(2 * np.pi) - 2 * np.log(np.maximum(np.abs(z), 1.0))
    return np.asarray(np.log(sd) + np.where(z > -6, np.log(np.maximum(direct, 1e-300)), tail))


def _design_score(design: str, sd: Floats, candidates: Sequence[Candidate], measured: Sequence[Observation]) -> Floats:
    if design == "random":
        return np.zeros(len(candidates))
    if design == "probes":
        home = measured[0].features
        apart = np.array([sum(a != b for a, b in zip(c.features, home, strict=True)) for c in candidates], float)
        return np.log(sd) - 3.0 * (apart - 1.0)
    return np.log(sd)


def expected_gain(
    space: CanonicalSpace, history: Sequence[Observation], *, seed: int, options: Options | None = None
) -> float | None:
    """Return the largest expected gain of one more start over the posterior best, as a fraction.

    None when nothing was measured yet; 0 when nothing is left to measure.
    """
    options = options or Options()
    measured = [o for o in history if o.kind in ("complete", "partial")]
    if not measured:
        return None
    encoder = Encoder(space)
    model = fit_speed(encoder, measured, parts=options.parts)
    rng = np.random.default_rng([seed, len(history)])
    candidates = candidate_set(space, encoder, history, model, seed=seed, rng=rng, options=options)
    if not candidates:
        return 0.0
    features = [c.features for c in candidates]
    mean, sd = model.predict(encoder.encode(features))
    gain = np.exp(log_expected_gain(mean, sd, model.incumbent())) * success_chance(encoder, history, options, features)
    return float(np.expm1(np.max(gain)))
