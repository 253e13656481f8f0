"""The search of one study: ask for a server, tell what it gave, all of it kept in an Optuna study.

The only place that holds an Optuna study. Decides how our results look there (attributes, states) and how a search that
was killed goes on; which server comes next is the sampler's decision, what is a win the verdict's.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial

from optimizer.engines.base import FlagValue
from optimizer.errors import BadInput, Conflict, NotFound, Problem
from optimizer.search import explain, policy, ranking
from optimizer.search.canonical import Candidate, CanonicalSpace
from optimizer.search.distributions import distributions, fits, to_optuna
from optimizer.search.history import Observation, asked, read
from optimizer.search.optuna_storage import SQLITE, close_storage, open_storage
from optimizer.search.policy import Options
from optimizer.search.results import (
    ENDED,
    Outcome,
    Reconciled,
    RecordedTrial,
    Result,
    Suggestion,
    attributes_of,
    optuna_state,
    result_of,
)
from optimizer.search.sampler import CandidateSampler, make_sampler

MAX_RACES = 10
"""Proposals in a row that another worker may have taken a moment before."""


def open_study(
    optuna_url: str,
    name: str,
    *,
    space: CanonicalSpace,
    sampler: str | CandidateSampler = "ratchet",
    seed: int = 0,
    options: Options | None = None,
) -> SearchStudy:
    """Open the study of this name, or create it. `optuna_url` is a database URL, or `memory`.

    `options` carry the limits of the objective and the weights of concurrency levels. A study that was begun with
    another space (the presets of an older Ratchet, flags that the server did not have) goes on in this one: what was
    measured stays true.

    Raises:
        BadInput: no such sampler.
    """
    chosen = make_sampler(sampler, space, seed=seed, options=options) if isinstance(sampler, str) else sampler
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = open_storage(optuna_url)
    study = optuna.create_study(
        storage=storage, study_name=name, direction="maximize", sampler=chosen, load_if_exists=True
    )
    mark = _fingerprint(space)
    known = study.user_attrs.get("space_fingerprint")
    if known is None:
        study.set_user_attr("seed", seed)
    if known != mark:
        study.set_user_attr("space_fingerprint", mark)
    return SearchStudy(study, storage, space, chosen, other_space=known not in (None, mark))


def name_in_optuna(name: str, study_id: str) -> str:
    """Return what the Optuna study of one of ours is called."""
    return f"{name}-{study_id}"


def delete_study(optuna_url: str, name: str) -> None:
    """Remove the Optuna study of this name; harmless when there is none."""
    if optuna_url.startswith(SQLITE) and not Path(optuna_url.removeprefix(SQLITE)).exists():
        return
    storage = open_storage(optuna_url)
    try:
        storage.delete_study(storage.get_study_id_from_name(name))
    except KeyError:
        return
    finally:
        close_storage(storage)


class SearchStudy:
    """Ask and tell over one Optuna study. All state is in the storage; two of these on one study agree."""

    def __init__(
        self,
        study: optuna.Study,
        storage: optuna.storages.BaseStorage,
        space: CanonicalSpace,
        sampler: CandidateSampler,
        *,
        other_space: bool = False,
    ) -> None:
        self.study = study
        self.other_space = other_space
        """Whether it was last opened with another space than this one."""
        self.space = space
        self.sampler = sampler
        self._storage = study._storage  # Optuna's cache over ours: finished trials are read once
        self._backend = storage
        self._id = self._storage.get_study_id_from_name(study.study_name)

    # -- asking --------------------------------------------------------------------------------------------------

    def ask(self, *, host: str = "") -> Suggestion:
        """Return what to start next: what was queued first, then what the sampler proposes.

        With several hosts, what runs elsewhere is taken into account and never asked twice.

        Raises:
            SpaceExhausted: every valid configuration has been measured.
        """
        trials = self._trials()
        for trial in trials:
            mine = trial.state is TrialState.WAITING and not _asked_elsewhere(trial, host)
            if mine and self._storage.set_trial_state_values(trial._trial_id, TrialState.RUNNING):
                return self._suggestion(trial.number, asked(trial))
        for _ in range(MAX_RACES):
            candidate = self.sampler.propose(trials, self.space)
            number = self._create(candidate.params, TrialState.RUNNING, {"canonical_key": candidate.key, "host": host})
            trials = self._trials()
            twin = [t for t in trials if t.number < number and t.user_attrs.get("canonical_key") == candidate.key]
            if not any(t.state in (TrialState.RUNNING, TrialState.COMPLETE) for t in twin):
                return self._suggestion(number, candidate.params)
            self.tell(number, Result(None, Outcome.INFRASTRUCTURE, failure="asked_elsewhere"))
            trials = self._trials()
        raise Conflict(f"study {self.study.study_name} is asked by too many at once", remedy="ask again")

    def enqueue(self, params: Mapping[str, FlagValue]) -> int:
        """Queue a configuration to be asked next, and return its Optuna number.

        Raises:
            BadInput: the space or the engine rejects it; nothing is stored then.
        """
        candidate = self._valid(params)
        return self._create(candidate.params, TrialState.WAITING, {"canonical_key": candidate.key, "queued": True})

    def _valid(self, params: Mapping[str, FlagValue]) -> Candidate:
        problems = [Problem(n, "is not searched", v) for n, v in params.items() if n not in self.space.names]
        check = self.space.check(params)
        problems += [Problem("params", reason) for reason in check.reasons]
        if not problems and not fits(to_optuna(check.candidate.params, self.space), self.space):  # type: ignore[union-attr]
            problems.append(Problem("params", "a value is outside its range", dict(params)))
        if problems or check.candidate is None:
            raise BadInput("this configuration cannot be queued", problems)
        return check.candidate

    def _suggestion(self, number: int, params: Mapping[str, Any]) -> Suggestion:
        candidate = self.space.check(params).candidate
        config = self.space.normalise(params)
        if candidate is None:
            return Suggestion(number, config, config, "")
        return Suggestion(number, candidate.params, candidate.effective, candidate.key)

    def _create(self, params: Mapping[str, FlagValue], state: TrialState, attrs: dict[str, Any]) -> int:
        """Store a trial whole in one write, so that a kill leaves either nothing or everything of it."""
        written = to_optuna(params, self.space)
        if fits(written, self.space):
            # Optuna keeps the values that a category had in the first trial, and refuses those of a changed space.
            with contextlib.suppress(ValueError):
                return self._store(written, state, attrs)
        return self._store({}, state, {**attrs, "params": dict(params)})

    def _store(self, written: Mapping[str, FlagValue | None], state: TrialState, attrs: Mapping[str, Any]) -> int:
        spreads = distributions(self.space)
        template = create_trial(
            state=state,
            params=dict(written),
            distributions={n: spreads[n] for n in written},
            user_attrs={k: v for k, v in attrs.items() if v not in ("", None)},
        )
        trial_id = self._storage.create_new_trial(self._id, template_trial=template)
        return self._storage.get_trial_number_from_id(trial_id)

    # -- telling -------------------------------------------------------------------------------------------------

    def tell(self, number: int, result: Result) -> None:
        """Record what came of a suggestion. Telling a closed trial again changes nothing.

        Raises:
            NotFound: the study has no such trial.
        """
        trial = self._trial(number)
        if trial.state.is_finished():
            return
        for key, value in attributes_of(result).items():
            self._storage.set_trial_user_attr(trial._trial_id, key, value)
        state, value = optuna_state(result)
        if state is TrialState.PRUNED and result.value is not None:
            self._storage.set_trial_intermediate_value(trial._trial_id, 0, float(result.value))
        self.study.tell(number, value, state=state, skip_if_finished=True)

    def add_observation(self, params: Mapping[str, FlagValue], result: Result) -> int:
        """Add something measured without being asked (the baseline, an earlier study); return its Optuna number."""
        config = self.space.normalise(params)
        candidate = self.space.check(config).candidate
        attrs = {"canonical_key": candidate.key if candidate else "", "added": True, "host": result.host}
        number = self._create(config, TrialState.RUNNING, attrs)
        self.tell(number, result)
        return number

    def reconcile(self, records: Sequence[RecordedTrial], *, alive: Collection[int] = (), host: str = "") -> Reconciled:
        """Bring the Optuna study in line with our records after a stop of any kind.

        What was recorded but not told is told; what was interrupted is closed and queued again; what Optuna does not
        know (its file was lost) is added. `alive` are Optuna numbers still running, which are left alone. With `host`,
        what other hosts asked for is left to them; `records` are then those of this host.
        """
        ended = {r.optuna_number: r for r in records if r.optuna_number is not None and r.state in ENDED}
        told: list[int] = []
        requeued: list[int] = []
        trials = self._trials()
        for trial in trials:
            if trial.state is not TrialState.RUNNING or trial.number in alive or _asked_elsewhere(trial, host):
                continue
            record = ended.get(trial.number)
            if record is not None and self._same(trial, record):
                self.tell(trial.number, result_of(record))
                told.append(trial.number)
            else:
                self.tell(trial.number, Result(None, Outcome.INFRASTRUCTURE, failure="interrupted"))
                requeued += [] if trial.user_attrs.get("added") else self._requeue(trial)
        known = {t.number: t for t in trials}
        lost = [r for n, r in ended.items() if n not in known or not self._same(known[n], r)]
        renumbered = {r.number: self.add_observation(r.params, result_of(r)) for r in lost}
        return Reconciled(tuple(told), tuple(requeued), tuple(renumbered.values()), renumbered)

    def _same(self, trial: FrozenTrial, record: RecordedTrial) -> bool:
        return self.space.normalise(asked(trial)) == self.space.normalise(record.params)

    def _requeue(self, trial: FrozenTrial) -> list[int]:
        candidate = self.space.check(asked(trial)).candidate
        if candidate is None:
            return []
        attrs = {"canonical_key": candidate.key, "queued": True, "host": trial.user_attrs.get("host")}
        return [self._create(candidate.params, TrialState.WAITING, attrs)]

    # -- knowing -------------------------------------------------------------------------------------------------

    def history(self) -> list[Observation]:
        """Return what the models see."""
        return read(self._trials(), self.space)

    def top(self, count: int) -> list[ranking.Ranked]:
        """Return the best measured configurations by posterior, best first; empty before the first measurement."""
        return ranking.top(self.space, self.history(), count, options=self.options)

    def best(self) -> ranking.Ranked | None:
        """Return the best measured configuration by posterior, never the luckiest number."""
        return next(iter(self.top(1)), None)

    def best_at_level(self, level: int, levels: Sequence[int]) -> ranking.Ranked | None:
        """Return the best measured configuration at one of the concurrency levels that were measured."""
        options = replace(self.options, levels=dict.fromkeys(levels, 1.0))
        return next(iter(ranking.top_at_level(self.space, self.history(), level, 1, options=options)), None)

    def importance(self) -> dict[str, dict[str, float]]:
        """Return the share of each parameter in each output (`output_tok_s`, `accept_len`, `step_ms`); sums to 1."""
        return ranking.importance(self.space, self.history())

    def explain(self, winner: Mapping[str, FlagValue], home: Mapping[str, FlagValue]) -> explain.Account:
        """Say what each flag of a winner brought against home, which do nothing, and where the space ends too early."""
        return explain.account(self.space, self.history(), winner, home, options=self.options)

    def expected_gain(self) -> float | None:
        """Return the largest expected gain of one more start, as a fraction; None before the first measurement."""
        return policy.expected_gain(self.space, self.history(), seed=self.sampler.seed, options=self.options)

    def should_stop(self, min_effect: float, *, seed: int | None = None) -> bool:
        """Say whether several starts running promised less than `min_effect` (a fraction) over the best."""
        chosen = seed if seed is not None else self.sampler.seed
        history = self.history()
        return ranking.should_stop(self.space, history, min_effect=min_effect, seed=chosen, options=self.options)

    @property
    def options(self) -> Options:
        """What the models use, whichever sampler proposes."""
        return self.sampler.options

    def close(self) -> None:
        """Let go of the database's connections."""
        close_storage(self._backend)

    def _trials(self) -> list[FrozenTrial]:
        return self._storage.get_all_trials(self._id, deepcopy=False)

    def _trial(self, number: int) -> FrozenTrial:
        try:
            trial_id = self._storage.get_trial_id_from_study_id_trial_number(self._id, number)
        except KeyError as error:
            raise NotFound(f"study {self.study.study_name} has no trial {number}") from error
        return self._storage.get_trial(trial_id)


def _asked_elsewhere(trial: FrozenTrial, host: str) -> bool:
    """Say whether another host than this asked for a trial; what nobody asked for is everybody's."""
    return bool(host) and trial.user_attrs.get("host", host) != host


def _fingerprint(space: CanonicalSpace) -> str:
    """Mark what can be started; why a parameter is there is only told."""
    parameters = tuple(replace(p, why="") for p in space.space.parameters)
    text = repr((parameters, space.space.conditions, space.space.rules))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


__all__ = ["Options", "Outcome", "Reconciled", "Result", "SearchStudy", "Suggestion", "open_study", "result_of"]
