"""The method itself: a history in, the next server to start out. No state, no Optuna, no I/O.

Decides by models of speed, feasibility and limits over candidates that are valid, canonical and not yet measured. What
each part is worth is written in docs/design/search.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from optimizer.errors import RatchetError
from optimizer.search import feasibility
from optimizer.search.acquisition import Survival, log_expected_gain, most_promising
from optimizer.search.canonical import Candidate, CanonicalSpace
from optimizer.search.encoding import Encoded, Encoder, Floats
from optimizer.search.gp import Prior, fit
from optimizer.search.history import INFEASIBLE, Observation
from optimizer.search.limits import Limits, chance_of_keeping, keeps
from optimizer.search.parameters import allows
from optimizer.search.speed import SpeedModel, fit_speed

MAX_KNOWN = 5
"""Configurations brought along that are tried before anything else, the fastest first."""
NEARBY = 6
"""Best measured configurations whose neighbours are candidates."""
FRESH_DRAWS = 100
CLIMBERS = 4
"""Most promising candidates whose neighbours are added in each further round."""
COST_PRIOR = Prior(noise_cv=(math.log(0.10), 0.7))


class Limit(Protocol):
    """A bound on a metric, as the specification has it."""

    @property
    def min(self) -> float | None: ...
    @property
    def max(self) -> float | None: ...


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
    partial: str = "noisy"
    """Partial observations: noisy | ignored."""
    per_hour: bool = False
    """Seek gain per hour instead of gain per start, when a night is short."""
    levels: dict[int, float] = field(default_factory=dict)
    """Weights of concurrency levels, when the objective is over several."""
    limits: Limits = field(default_factory=dict)
    prior: Prior | None = None
    """On the hyperparameters of the speed; None: the shipped one."""
    reach: int = 3
    """Rounds of neighbours: 1 of the best measured, more of the most promising candidates too."""
    max_pairs: int = 400_000
    """Candidates times observations up to which every server of a listed space is predicted; beyond it, draws are."""
    draws: int = 600

    @classmethod
    def for_objective(
        cls, subject_to: Mapping[str, Limit], levels: Mapping[int, float], *, per_hour: bool = False
    ) -> Options:
        """Return the options of a specification's objective: its limits, and weights of concurrency levels."""
        limits = {name: (limit.min, limit.max) for name, limit in subject_to.items()}
        return cls(limits=limits, levels=dict(levels), per_hour=per_hour)


@dataclass(frozen=True)
class Beliefs:
    """What is believed after a history: the speed, and what may be started next."""

    encoder: Encoder
    model: SpeedModel
    incumbent: float | None
    """Best posterior mean of log speed among measured configurations that keep the limits; None when none does."""
    candidates: list[Candidate]
    rows: Encoded
    mean: Floats
    sd: Floats
    log_kept: Floats
    """Logarithm of the probability of keeping the limits."""
    survival: Survival


def propose(
    space: CanonicalSpace, history: Sequence[Observation], *, seed: int, options: Options | None = None
) -> Candidate:
    """Return the next server to start: same history and seed, same answer.

    Raises:
        SpaceExhausted: nothing valid is left that was not measured.
    """
    options = options or Options()
    taken = {o.key for o in history}
    first = _brought_along(space, taken)
    if first is not None:
        return first
    rng = np.random.default_rng([seed, len(history)])
    believed = believe(space, history, seed=seed, options=options)
    if believed is None:
        return any_new(space, taken, rng)
    if not believed.candidates:
        raise SpaceExhausted
    score = believed.log_kept + rng.uniform(0.0, 1e-6, len(believed.candidates))
    tried = [o for o in history if o.kind != "pending"]
    if len(tried) <= options.design_size:
        score += _design_score(options.design, believed, tried[0].features)
    elif believed.incumbent is not None:
        score += log_expected_gain(believed.mean, believed.sd, believed.incumbent)
    if options.per_hour:
        score -= _log_cost(believed, history)
    return believed.candidates[most_promising(score, believed.survival)[0]]


def believe(space: CanonicalSpace, history: Sequence[Observation], *, seed: int, options: Options) -> Beliefs | None:
    """Fit the models and predict every candidate. None before the first measurement."""
    kinds = ("complete",) if options.partial == "ignored" else ("complete", "partial")
    seen = [o for o in history if o.kind in kinds and o.value]
    if not seen:
        return None
    encoder = Encoder(space)
    model = fit_speed(encoder, seen, parts=options.parts, levels=options.levels, prior=options.prior)
    best = incumbent(model, options)
    model = model.expecting(encoder.encode([o.features for o in history if o.kind == "pending"]))
    scored = _Scored(encoder, model)
    scored.add(candidate_set(space, history, model, seed=seed, options=options))
    if not _listable(space, options, len(history)):
        _climb(space, scored, {o.key for o in history}, rounds=options.reach - 1)
    rows = scored.rows
    log_kept = np.log(chance_of_keeping(encoder, seen, options.limits, rows)) if scored.candidates else np.zeros(0)
    survival = survival_of(encoder, history, options, rows)
    return Beliefs(encoder, model, best, scored.candidates, rows, scored.mean, scored.sd, log_kept, survival)


class _Scored:
    """Candidates with what is predicted of them, each predicted once."""

    def __init__(self, encoder: Encoder, model: SpeedModel) -> None:
        self.encoder, self.model = encoder, model
        self.candidates: list[Candidate] = []
        self.rows = encoder.encode([])
        self.mean, self.sd = np.zeros(0), np.zeros(0)

    def add(self, new: Sequence[Candidate]) -> None:
        if not new:
            return
        rows = self.encoder.encode([c.features for c in new])
        mean, sd = self.model.predict(rows)
        self.candidates = [*self.candidates, *new]
        self.rows = self.rows.joined(rows)
        self.mean, self.sd = np.concatenate([self.mean, mean]), np.concatenate([self.sd, sd])


def _listable(space: CanonicalSpace, options: Options, observations: int) -> bool:
    listed = space.enumerate()
    return listed is not None and len(listed) * observations <= options.max_pairs


def _climb(space: CanonicalSpace, scored: _Scored, taken: set[str], *, rounds: int) -> None:
    """Add the neighbours of the most promising candidates, again and again: a climb on the model."""
    known = taken | {c.key for c in scored.candidates}
    climbed: set[str] = set()
    for _ in range(rounds):
        order = np.argsort(-(scored.mean + scored.sd), kind="stable")
        tops = [c for i in order[:CLIMBERS] if (c := scored.candidates[i]).key not in climbed]
        climbed |= {c.key for c in tops}
        found = {n.key: n for c in tops for n in space.neighbours(c.params) if n.key not in known}
        known |= set(found)
        scored.add(list(found.values()))


def incumbent(model: SpeedModel, options: Options) -> float | None:
    """Return the best posterior mean among what was measured (never the best single number) and keeps the limits."""
    means = model.measured_means()
    pairs = zip(means, model.observations, strict=True)
    kept = [m for m, o in pairs if o.kind == "complete" and keeps(o, options.limits)]
    return float(max(kept)) if kept else None


def candidate_set(
    space: CanonicalSpace, history: Sequence[Observation], model: SpeedModel | None, *, seed: int, options: Options
) -> list[Candidate]:
    """Return what may be started next: all of it where it can be listed, else draws and neighbours of the best."""
    taken = {o.key for o in history}
    if _listable(space, options, len(history)):
        return [c for c in space.enumerate() or [] if c.key not in taken]
    found: dict[str, Candidate] = {}
    fresh = np.random.default_rng([seed, 1 + len(history)])
    draws = [*space.draws(seed, options.draws), *(space.sample(fresh) for _ in range(FRESH_DRAWS))]
    around: list[Candidate] = []
    for place in model.best(NEARBY) if model is not None else []:
        around += space.neighbours(place)
    for candidate in [*draws, *around]:
        if candidate is not None and candidate.key not in taken:
            found.setdefault(candidate.key, candidate)
    return list(found.values())


def survival_of(encoder: Encoder, history: Sequence[Observation], options: Options, rows: Encoded) -> Survival:
    """Return the probability of starting and surviving a measurement, as a function of the numbers of rows."""
    failed = [o for o in history if o.kind == INFEASIBLE]
    good = [o for o in history if o.kind in ("complete", "partial")]
    if options.feasibility == "none" or not failed:
        return lambda numbers: np.ones(len(numbers))
    model = feasibility.learn(
        encoder.encode([o.features for o in failed]),
        [o.label for o in failed],
        encoder.encode([o.features for o in good]),
    )
    return lambda numbers: model.success_probability(rows.take(numbers))


def expected_gain(
    space: CanonicalSpace, history: Sequence[Observation], *, seed: int, options: Options | None = None
) -> float | None:
    """Return the largest expected gain of one more start over the posterior best, as a fraction.

    None when nothing that keeps the limits was measured yet; 0 when nothing is left to measure.
    """
    believed = believe(space, history, seed=seed, options=options or Options())
    if believed is None or believed.incumbent is None:
        return None
    if not believed.candidates:
        return 0.0
    gain = log_expected_gain(believed.mean, believed.sd, believed.incumbent) + believed.log_kept
    return math.expm1(math.exp(most_promising(gain, believed.survival)[1]))


def _brought_along(space: CanonicalSpace, taken: set[str]) -> Candidate | None:
    """The engine's sensible defaults, then results known from elsewhere, the fastest first; never outside the space."""
    known = sorted(space.space.known, key=lambda k: -(k.output_tok_s or 0.0))[:MAX_KNOWN]
    for config in [*space.space.defaults, *(k.config for k in known)]:
        searched = {n: v for n, v in config.items() if n in space.names}
        candidate = space.check(searched).candidate
        if candidate is None or candidate.key in taken:
            continue
        if all(allows(space.parameters[n], v) for n, v in candidate.params.items()):
            return candidate
    return None


def any_new(space: CanonicalSpace, taken: set[str], rng: np.random.Generator) -> Candidate:
    """Draw uniformly from what is not taken. Raises SpaceExhausted when nothing is left or none can be found."""
    listed = space.enumerate()
    if listed is not None:
        left = [c for c in listed if c.key not in taken]
        if not left:
            raise SpaceExhausted
        return left[int(rng.integers(len(left)))]
    for _ in range(1000):
        candidate = space.sample(rng)
        if candidate is not None and candidate.key not in taken:
            return candidate
    raise SpaceExhausted


def _design_score(design: str, believed: Beliefs, home: tuple[object, ...]) -> Floats:
    """Score of the first starts: where least is known, anywhere, or one flag away from the first configuration."""
    if design == "random":
        return np.zeros(len(believed.candidates))
    if design == "probes":
        apart = [sum(a != b for a, b in zip(c.features, home, strict=True)) for c in believed.candidates]
        return np.asarray(np.log(believed.sd) - 3.0 * (np.array(apart, float) - 1.0))
    return np.asarray(np.log(believed.sd))


def _log_cost(believed: Beliefs, history: Sequence[Observation]) -> Floats:
    """Logarithm of the predicted seconds of a start with its measurement, zero while too few are known."""
    known = [o for o in history if o.cost_s]
    if len(known) < 3:
        return np.zeros(len(believed.rows))
    rows = believed.encoder.encode([o.features for o in known])
    model = fit(rows, np.log([o.cost_s or 1.0 for o in known]), prior=COST_PRIOR)
    return model.predict(believed.rows)[0]
