"""What the search knows at any moment: the best by posterior, what matters, whether more starts are worth it.

Decides by the same models that choose the next start; proves nothing (that is the verdict's).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.engines.base import FlagValue
from optimizer.search import policy
from optimizer.search.canonical import CanonicalSpace
from optimizer.search.encoding import Encoded, Encoder, Floats
from optimizer.search.gp import Fit
from optimizer.search.history import Observation
from optimizer.search.limits import keeps
from optimizer.search.speed import MAX_FOR_PARTS, fit_speed, references

RUNNING_STARTS = 4
"""Starts in a row whose promise must be below the minimum effect before exploring stops."""
MAX_BASES = 60
"""Measured configurations around which the importance is averaged."""


@dataclass(frozen=True)
class Ranked:
    """One measured configuration with what the model believes of it.

    `mean` is the posterior of the objective (tok/s) with the interval of one standard deviation `low`..`high`;
    `values` are the numbers measured.
    """

    params: dict[str, FlagValue]
    effective: dict[str, FlagValue]
    canonical_key: str
    mean: float
    low: float
    high: float
    values: tuple[float, ...]


def measured(history: Sequence[Observation]) -> list[Observation]:
    """Return the observations that carry a speed."""
    return [o for o in history if o.kind in ("complete", "partial") and o.value]


def top(
    space: CanonicalSpace, history: Sequence[Observation], count: int, *, options: policy.Options | None = None
) -> list[Ranked]:
    """Return the best measured configurations by posterior mean, best first.

    Partial measurements cannot be among them, nor what does not keep the limits.
    """
    options = options or policy.Options()
    seen = measured(history)
    if not seen:
        return []
    model = fit_speed(Encoder(space), seen, parts=options.parts, levels=options.levels, prior=options.prior)
    return _ranked(space, seen, *model.predict(model.rows), count, options)


def top_at_level(
    space: CanonicalSpace, history: Sequence[Observation], level: int, count: int, *, options: policy.Options
) -> list[Ranked]:
    """Return the best measured configurations at one of the options' concurrency levels, by one model over all."""
    seen = measured(history)
    model = fit_speed(Encoder(space), seen, levels=options.levels) if seen else None
    if model is None or level not in model.levels:
        return []
    return _ranked(space, seen, *model.predict_level(model.rows, level), count, options)


def _ranked(
    space: CanonicalSpace, seen: Sequence[Observation], mean: Floats, sd: Floats, count: int, options: policy.Options
) -> list[Ranked]:
    unit = references(seen)[-1]
    found: dict[str, Ranked] = {}
    for i in np.argsort(-mean, kind="stable"):
        o = seen[i]
        if o.kind != "complete" or o.key in found or not keeps(o, options.limits):
            continue
        candidate = space.check(o.params).candidate
        values = tuple(float(other.value) for other in seen if other.key == o.key and other.value)
        low, middle, high = (unit * math.exp(mean[i] + z * sd[i]) for z in (-1.0, 0.0, 1.0))
        effective = candidate.effective if candidate else o.params
        found[o.key] = Ranked(o.params, effective, o.key, middle, low, high, values)
        if len(found) == count:
            break
    return list(found.values())


def importance(space: CanonicalSpace, history: Sequence[Observation]) -> dict[str, dict[str, float]]:
    """Return the share of each parameter in the variation that the model sees, per output."""
    seen = measured(history)
    if len(seen) < 3:
        return {}
    model = fit_speed(Encoder(space), seen[-MAX_FOR_PARTS:], parts="always")
    fits: dict[str, Fit | None] = {"output_tok_s": model.whole, "accept_len": model.accept, "step_ms": model.step}
    return {output: _shares(space, fit) for output, fit in fits.items() if fit is not None}


def _shares(space: CanonicalSpace, fit: Fit) -> dict[str, float]:
    """Variance of the posterior mean when one parameter moves and the others stay as measured, normalised."""
    fit = fit.systematic()
    base = fit.rows.take(np.arange(min(len(fit.rows), MAX_BASES)))
    moved: dict[str, float] = {}
    for j, name in enumerate(space.names):
        variants = []
        for code in np.unique(fit.rows.codes[:, j]):
            codes = base.codes.copy()
            codes[:, j] = code
            variants.append(fit.predict(Encoded(codes))[0])
        moved[name] = float(np.mean(np.var(np.array(variants), axis=0)))
    total = sum(moved.values())
    return {name: (value / total if total > 0 else 0.0) for name, value in moved.items()}


def should_stop(
    space: CanonicalSpace,
    history: Sequence[Observation],
    *,
    min_effect: float,
    seed: int,
    options: policy.Options | None = None,
) -> bool:
    """Say whether the expected gain of another start stayed below `min_effect` for several starts running.

    Never while nothing measured keeps the limits: then there is no best yet that a start could fail to improve on.
    """
    options = options or policy.Options()
    done = [o for o in history if o.kind != "pending"]
    if len(done) < options.design_size + 2 + RUNNING_STARTS:
        return False
    for back in range(RUNNING_STARTS):
        gain = policy.expected_gain(space, done[: len(done) - back], seed=seed, options=options)
        if gain is None or gain >= min_effect:
            return False
    return True


__all__ = ["Ranked", "importance", "measured", "should_stop", "top", "top_at_level"]
