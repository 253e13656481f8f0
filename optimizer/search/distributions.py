"""Translates between the parameters of a space and Optuna's distributions.

Decides how a parameter looks in an Optuna study: a plain range stays a range; whatever has absence, special values or
single values is a category. A flag is True or False there, and True or missing everywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from optimizer.engines.base import FlagValue
from optimizer.search.canonical import CanonicalSpace
from optimizer.search.parameters import rungs
from optimizer.search.space import Parameter, Space


def distribution(parameter: Parameter) -> BaseDistribution:
    """Return the Optuna distribution of one parameter."""
    if parameter.kind == "flag":
        return CategoricalDistribution((True, False))
    plain = parameter.low is not None and parameter.high is not None
    if plain and not parameter.special and not parameter.may_be_absent:
        if parameter.kind == "int":
            low, high, step = int(parameter.low or 0), int(parameter.high or 0), int(parameter.step or 1)
            high = low + (high - low) // step * step
            return IntDistribution(low, high, log=parameter.log and step == 1, step=step)
        low_f, high_f = float(parameter.low or 0.0), float(parameter.high or 0.0)
        if parameter.step and not parameter.log:
            high_f = float(parameter.ladder[-1]) if parameter.ladder else high_f
            return FloatDistribution(low_f, high_f, step=parameter.step)
        return FloatDistribution(low_f, high_f, log=parameter.log)
    values = (*parameter.ladder, *([None] if parameter.may_be_absent else [])) if parameter.ladder else rungs(parameter)
    return CategoricalDistribution(values)


def distributions(space: CanonicalSpace) -> dict[str, BaseDistribution]:
    """Return the distributions of all parameters, in their order."""
    return {name: distribution(p) for name, p in space.parameters.items()}


def to_optuna(params: Mapping[str, FlagValue], space: CanonicalSpace) -> dict[str, FlagValue | None]:
    """Return what a trial records: the parameters of the request, absence written out where it was a choice."""
    written: dict[str, FlagValue | None] = dict(params)
    for name, parameter in space.parameters.items():
        if name not in params and parameter.may_be_absent:
            written[name] = False if parameter.kind == "flag" else None
    return written


def fits(params: Mapping[str, FlagValue | None], space: CanonicalSpace) -> bool:
    """Say whether Optuna can record these parameters."""
    known = distributions(space)
    for name, value in params.items():
        spread = known.get(name)
        if spread is None or not _contains(spread, value):
            return False
    return True


def _contains(spread: BaseDistribution, value: FlagValue | None) -> bool:
    try:
        return bool(spread._contains(spread.to_internal_repr(value)))
    except (ValueError, TypeError):
        return False


def space_from(search: Mapping[str, BaseDistribution]) -> Space:
    """Return the space that plain Optuna distributions describe (no conditions, no rules)."""
    return Space(tuple(_parameter(name, spread) for name, spread in search.items()))


def _parameter(name: str, spread: BaseDistribution) -> Parameter:
    if isinstance(spread, CategoricalDistribution):
        choices = tuple(c for c in spread.choices if c is not None)
        numbers = len(choices) > 2 and all(isinstance(c, int | float) and not isinstance(c, bool) for c in choices)
        return Parameter(name, "choice", choices, ordered=numbers, may_be_absent=None in spread.choices)
    if isinstance(spread, IntDistribution):
        count = (spread.high - spread.low) // spread.step + 1
        ladder = tuple(range(spread.low, spread.high + 1, spread.step)) if count <= 4096 else ()
        return Parameter(name, "int", ladder, spread.low, spread.high, spread.step, spread.log, True)
    assert isinstance(spread, FloatDistribution)
    return Parameter(name, "float", (), spread.low, spread.high, spread.step, spread.log, True)
