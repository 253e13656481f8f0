"""From suggested parameters to the server that would really run and the command that starts it; nothing is started.

Decides how launch flags, baseline and suggestion are laid over each other, and where secrets enter.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace

from optimizer import secrets
from optimizer.clock import Deadline
from optimizer.engines.base import Config, Effective, FlagValue, LaunchPlan
from optimizer.models import judge
from optimizer.remote import facts
from optimizer.remote.launcher import MASK, masked_argv
from optimizer.run import StudyRun


@dataclass(frozen=True)
class Planned:
    """One server before it is started: what was asked, what it really is, and how it is launched."""

    params: dict[str, FlagValue]
    config: dict[str, FlagValue]
    effective: Effective
    plan: LaunchPlan

    @property
    def command(self) -> str:
        """The exact launch command as one shell line, secrets masked."""
        return command_line(self.plan)


def plan_server(run: StudyRun, params: Mapping[str, FlagValue] | None) -> Planned:
    """Lay `params` over the baseline (None: the baseline itself), ask the engine what runs, build the launch plan.

    Raises:
        BadInput: a secret that the environment refers to cannot be resolved.
    """
    spec = run.spec
    config = full_config(run, params)
    effective = judge(run.engine, config, run.version, run.hardware, run.models)
    command = facts.expand_command(run.link, spec.launch.command, deadline=Deadline.after(30))
    plan = run.engine.launch_plan(command, config, spec.launch.cwd, effective, alias(run), installed=run.known_flags)
    env, secret_names = secrets.resolve(plan.env)
    argv = (*plan.argv, *spec.launch.extra_args)
    plan = replace(plan, argv=argv, env=env, secret_env=plan.secret_env | secret_names)
    return Planned(dict(params or {}), config, effective, plan)


def full_config(run: StudyRun, params: Config | None) -> dict[str, FlagValue]:
    """Return every flag and variable of the server for a suggestion (None: the baseline)."""
    if params is None:
        return dict(run.spec.baseline_config())
    return dict(run.spec.candidate_config(dict(params), set(run.search.space.names)))


def alias(run: StudyRun) -> str:
    """Return the served model name that proves a server is ours: the owner's own if given, else one of this study."""
    home = run.spec.baseline_config()
    given = home.get("served-model-name") or home.get("alias")
    return str(given) if given else f"ratchet-{run.study.id}"


def argv_to_keep(plan: LaunchPlan, run: StudyRun) -> tuple[str, ...]:
    """Return the words of a server that stays: without a served name of ours, which no client of the owner asks for."""
    ours = f"ratchet-{run.study.id}"
    at = plan.argv.index(ours) if plan.served_model == ours and ours in plan.argv else 0
    return plan.argv[: at - 1] + plan.argv[at + 1 :] if at and plan.argv[at - 1].startswith("--") else plan.argv


def command_line(plan: LaunchPlan) -> str:
    """Render a plan as one line that can be pasted into a shell; values of secret variables and flags are masked."""
    parts = [f"{k}={shlex.quote(MASK if k in plan.secret_env else v)}" for k, v in plan.env.items()]
    line = " ".join([*parts, *(shlex.quote(a) for a in masked_argv(plan.argv))])
    return f"cd {shlex.quote(plan.cwd)} && {line}" if plan.cwd and plan.cwd != "~" else line


def flags_that_differ(baseline: Config, config: Config) -> dict[str, tuple[FlagValue | None, FlagValue | None]]:
    """Return what distinguishes two configurations: name -> (baseline value, this value); None is absent."""
    names = sorted({*baseline, *config})
    return {n: (baseline.get(n), config.get(n)) for n in names if baseline.get(n) != config.get(n)}


__all__ = ["Planned", "alias", "command_line", "flags_that_differ", "full_config", "plan_server"]
