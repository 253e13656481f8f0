"""Optuna's dashboard over our storage, unable to write, with constraints in the format that it reads.

Decides what the dashboard sees: every read is passed on, every write is refused, constraints of Optuna 5 (one attribute
each) are shown as the list that the dashboard knows, and the best trial is the best feasible one. Who may look, and
under which paths, is the service's business.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any, NoReturn

import optuna
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.study._frozen import FrozenStudy
from optuna.trial import FrozenTrial, TrialState

from optimizer.search.optuna_storage import SQLITE, open_storage

CONSTRAINTS = "constraints"
PREFIX = f"{CONSTRAINTS}:"


class ReadOnly(PermissionError):
    """Somebody tried to write through the dashboard."""


def exists(optuna_url: str) -> bool:
    """Say whether there is an Optuna database already; looking must not create one beside the tuner."""
    return not optuna_url.startswith(SQLITE) or Path(optuna_url.removeprefix(SQLITE)).exists()


def dashboard_app(optuna_url: str) -> Any:
    """Return the dashboard as a WSGI application that cannot write."""
    from optuna_dashboard import wsgi

    return wsgi(ReadOnlyStorage(open_storage(optuna_url)))


def with_constraints(trial: FrozenTrial) -> FrozenTrial:
    """Return the trial with Optuna 5's constraints also in Optuna 4's place; the original is not touched."""
    attrs = trial.system_attrs
    values = [attrs[name] for name in sorted(attrs) if name.startswith(PREFIX)]
    if not values or CONSTRAINTS in attrs:
        return trial
    shown = copy.copy(trial)
    shown._system_attrs = {**attrs, CONSTRAINTS: values}
    return shown


def is_feasible(trial: FrozenTrial) -> bool:
    """Say whether every constraint is kept (a trial without any is feasible)."""
    return all(v <= 0 for v in with_constraints(trial).system_attrs.get(CONSTRAINTS, []))


class ReadOnlyStorage(BaseStorage):
    """A storage that shows another one."""

    def __init__(self, inner: BaseStorage) -> None:
        self._inner = inner

    def get_study_id_from_name(self, study_name: str) -> int:
        """Pass on."""
        return self._inner.get_study_id_from_name(study_name)

    def get_study_name_from_id(self, study_id: int) -> str:
        """Pass on."""
        return self._inner.get_study_name_from_id(study_id)

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        """Pass on."""
        return self._inner.get_study_directions(study_id)

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        """Pass on."""
        return self._inner.get_study_user_attrs(study_id)

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        """Pass on."""
        return self._inner.get_study_system_attrs(study_id)

    def get_all_studies(self) -> list[FrozenStudy]:
        """Pass on, in the order of creation."""
        return sorted(self._inner.get_all_studies(), key=lambda s: s._study_id)

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """Pass on, with constraints translated."""
        return with_constraints(self._inner.get_trial(trial_id))

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """Pass on, with constraints translated."""
        return [with_constraints(t) for t in self._inner.get_all_trials(study_id, deepcopy=deepcopy, states=states)]

    def get_best_trial(self, study_id: int) -> FrozenTrial:
        """Return the best feasible trial; the best of all when none is feasible.

        Raises:
            ValueError: no trial is complete.
        """
        trials = self.get_all_trials(study_id, deepcopy=False, states=(TrialState.COMPLETE,))
        if not trials:
            raise ValueError("no trial is complete yet")
        pool = [t for t in trials if is_feasible(t)] or trials
        maximize = self.get_study_directions(study_id)[0] == StudyDirection.MAXIMIZE
        return (max if maximize else min)(pool, key=lambda t: t.value if t.value is not None else float("-inf"))

    def remove_session(self) -> None:
        """Pass on."""
        self._inner.remove_session()

    def create_new_study(self, directions: Sequence[StudyDirection], study_name: str | None = None) -> int:
        """Refuse."""
        self._refuse()

    def delete_study(self, study_id: int) -> None:
        """Refuse."""
        self._refuse()

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        """Refuse."""
        self._refuse()

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        """Refuse."""
        self._refuse()

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """Refuse."""
        self._refuse()

    def set_trial_param(
        self,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: optuna.distributions.BaseDistribution,
    ) -> None:
        """Refuse."""
        self._refuse()

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        """Refuse."""
        self._refuse()

    def set_trial_intermediate_value(self, trial_id: int, step: int, intermediate_value: float) -> None:
        """Refuse."""
        self._refuse()

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Refuse."""
        self._refuse()

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Refuse."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ReadOnly("the dashboard can look and not write")
