"""Ratchet's method, and others on the same footing, as plain Optuna samplers.

Decides how a history of trials becomes a suggestion: read the trials, ask the policy, return its parameters. Nothing is
kept between two suggestions, so a restarted process suggests what the old one would have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study
from optuna.trial import FrozenTrial

from optimizer.search import policy
from optimizer.search.canonical import Candidate, CanonicalSpace
from optimizer.search.distributions import distributions, space_from, to_optuna
from optimizer.search.history import measured_keys, read

REJECTIONS = 30
"""Draws of a foreign sampler that may be invalid or known before a uniform draw takes its place."""


class CandidateSampler(BaseSampler):
    """A sampler that proposes whole candidates of a canonical space. Without a space, that of past trials is used."""

    def __init__(
        self, space: CanonicalSpace | None = None, *, seed: int = 0, options: policy.Options | None = None
    ) -> None:
        self.space = space
        self.seed = seed
        self.options = options or policy.Options()

    def propose(self, trials: Sequence[FrozenTrial], space: CanonicalSpace) -> Candidate:
        """Return the next candidate for this history. Raises SpaceExhausted when nothing is left."""
        raise NotImplementedError

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the space given, or the parameters that every past trial had."""
        if self.space is not None:
            return distributions(self.space)
        return IntersectionSearchSpace().calculate(study)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the parameters of the next candidate; those that its conditions make absent are left out."""
        if not search_space:
            return {}
        space = self.space or CanonicalSpace(space_from(search_space))
        others = [t for t in study.get_trials(deepcopy=False) if t.number != trial.number]
        written = to_optuna(self.propose(others, space).params, space)
        return {name: value for name, value in written.items() if name in search_space}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Draw a parameter that is not part of the common space, uniformly and reproducibly."""
        rng = np.random.default_rng([self.seed, trial.number, sum(map(ord, param_name))])
        values = next(iter(CanonicalSpace(space_from({param_name: param_distribution})).values.values()))
        return values[int(rng.integers(len(values)))]


class RatchetSampler(CandidateSampler):
    """Few starts, none wasted: the method of docs/design/search.md.

    Use it in any study that maximises a speed; set `accept_len` as a user attribute of the trials where speculation is
    searched, `host` and `reference_tok_s` where several hosts share a study, and tell configurations that cannot run as
    `TrialState.FAIL`.
    """

    def propose(self, trials: Sequence[FrozenTrial], space: CanonicalSpace) -> Candidate:
        """Return the next candidate for this history. Raises SpaceExhausted when nothing is left."""
        return policy.propose(space, read(trials, space), seed=self.seed, options=self.options)


class RandomSampler(CandidateSampler):
    """Uniform draws from what has not been measured yet."""

    def propose(self, trials: Sequence[FrozenTrial], space: CanonicalSpace) -> Candidate:
        """Return the next candidate for this history. Raises SpaceExhausted when nothing is left."""
        taken = measured_keys(read(trials, space))
        return policy.any_new(space, taken, np.random.default_rng([self.seed, len(taken)]))


class ForeignSampler(CandidateSampler):
    """One of Optuna's samplers on the canonical space: what is invalid or known is drawn again, at no start's cost.

    `make` builds the sampler from a seed, anew for every suggestion, so that no random state is hidden. Configurations
    that cannot run are shown to it as pruned trials, which TPE ranks last.
    """

    def __init__(
        self,
        make: Callable[[int], BaseSampler],
        space: CanonicalSpace | None = None,
        *,
        seed: int = 0,
        options: policy.Options | None = None,
    ) -> None:
        super().__init__(space, seed=seed, options=options)
        self._make = make

    def propose(self, trials: Sequence[FrozenTrial], space: CanonicalSpace) -> Candidate:
        """Return the next candidate for this history. Raises SpaceExhausted when nothing is left."""
        history = read(trials, space)
        taken = measured_keys(history)
        spreads = distributions(space)
        known = [t for t in trials if all(spreads.get(n) == d for n, d in t.distributions.items())]
        study = _copy(known)  # of this space, with a trial of its own to sample for: samplers look it up by its number
        number = study.ask().number
        blank = study.get_trials(deepcopy=False)[number]
        for attempt in range(REJECTIONS):
            sampler = self._make(int(np.random.default_rng([self.seed, len(history), attempt]).integers(2**31)))
            search = sampler.infer_relative_search_space(study, blank)
            params = sampler.sample_relative(study, blank, search)
            for name, spread in spreads.items():
                if name not in params:
                    params[name] = sampler.sample_independent(study, blank, name, spread)
            candidate = space.check(params).candidate
            if candidate is not None and candidate.key not in taken:
                return candidate
        return policy.any_new(space, taken, np.random.default_rng([self.seed, len(taken)]))


def _copy(trials: Sequence[FrozenTrial]) -> Study:
    """Return an in-memory study with these trials, for a sampler that must see them as its own."""
    study = optuna.create_study(direction="maximize", storage=optuna.storages.InMemoryStorage())
    study.add_trials([t for t in trials if t.state.is_finished()])
    return study


def make_sampler(
    name: str, space: CanonicalSpace, *, seed: int, options: policy.Options | None = None
) -> CandidateSampler:
    """Return a sampler by its name: ratchet, tpe, gp (needs torch) or random.

    Raises:
        BadInput: no such sampler, or its library is missing.
    """
    from optuna.samplers import TPESampler

    from optimizer.errors import BadInput, Problem

    simple: Mapping[str, type[CandidateSampler]] = {"ratchet": RatchetSampler, "random": RandomSampler}
    if name in simple:
        return simple[name](space, seed=seed, options=options)
    if name == "tpe":
        return ForeignSampler(lambda s: TPESampler(seed=s), space, seed=seed, options=options)
    if name == "gp":
        return ForeignSampler(_gp_factory(), space, seed=seed, options=options)
    hint = "one of ratchet, tpe, gp, random"
    raise BadInput(f"there is no sampler {name}", [Problem("sampler", "no such sampler", name, hint)])


def _gp_factory() -> Callable[[int], BaseSampler]:
    import importlib.util
    import warnings

    from optuna.samplers import GPSampler

    from optimizer.errors import BadInput, Problem

    if importlib.util.find_spec("torch") is None:
        hint = "install torch, or use ratchet, which needs none"
        raise BadInput("the gp sampler needs torch", [Problem("sampler", "torch is not installed", "gp", hint)])

    def make(seed: int) -> BaseSampler:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return GPSampler(seed=seed)

    return make
