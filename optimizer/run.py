"""Everything that a running study holds: its host, engine, search and lease. Opened once, closed once.

Decides nothing; `phases.py` and `run_trial.py` take a `StudyRun` as their first argument.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from optimizer import former, kinds
from optimizer.bench import workload as workloads
from optimizer.bench.base import RequestSample, Workload
from optimizer.clock import Clock, Deadline
from optimizer.engines.base import ENV_PREFIX, Config, Effective, EngineModule, Hardware, Verdict
from optimizer.engines.registry import find_engine
from optimizer.errors import BadInput, Problem
from optimizer.lease import LeaseKeeper
from optimizer.models import ModelConfigs, judge, long_sequences, misfits, read_configs
from optimizer.remote import connect, facts
from optimizer.remote.base import HomeServer, HostLink, RunningServer, Tunnel
from optimizer.search import spec_space
from optimizer.search.canonical import CanonicalSpace
from optimizer.search.policy import Options
from optimizer.search.space import Space
from optimizer.search.study import SearchStudy, name_in_optuna, open_study
from optimizer.spec import HostEntry, StudySpec, did_you_mean
from optimizer.studies import StudyState
from storage import events, hosts, studies
from storage.engine import Database
from storage.records import StudyRecord

log = structlog.get_logger(__name__)

OUTAGE_S = 240.0
"""How long a study waits for a host that was cut off; after a longer silence its guard has put home back by default."""


@dataclass
class StudyRun:
    """One study being worked on by this process, on one host."""

    db: Database
    study: StudyRecord
    spec: StudySpec
    host: HostEntry
    engine: EngineModule
    version: str | None
    hardware: Hardware
    known_flags: frozenset[str]
    """Flags in the installed version's `--help`; empty when it could not be read."""
    workload: Workload
    search: SearchStudy
    link: HostLink
    lease: LeaseKeeper
    clock: Clock
    models: ModelConfigs = field(default_factory=ModelConfigs)
    """What the model files on the host say."""
    tunnel: Tunnel | None = None
    server: RunningServer | None = None
    """The trial server that runs now, if any."""
    home: HomeServer | None = None
    baseline_outputs: list[list[RequestSample]] = field(default_factory=list)
    """The requests of every baseline restart so far, for the output check."""
    reference_tok_s: float | None = None
    """The baseline's speed on this host at this time: the mean of its latest restarts."""
    warned: set[str] = field(default_factory=set)

    @property
    def port(self) -> int:
        """The port that home and every trial serve on."""
        return port_of(self.spec)

    def say(self, kind: str, **data: Any) -> None:
        """Record an event of this study; it is what the pages, the CLI and SSE show."""
        self.db.transact(lambda conn: events.append(conn, self.study.id, kind, data, self.clock.now()))

    def warn(self, text: str) -> None:
        """Record a warning, once."""
        if text not in self.warned:
            self.warned.add(text)
            self.say("warning", text=text)

    def update(self, **fields: Any) -> None:
        """Change fields of the study's row."""
        self.study = self.db.transact(lambda conn: studies.update(conn, self.study.id, **fields))

    def base_url(self) -> tuple[str, str]:
        """Return the URL under which this process reaches the server, and the kind of path to it."""
        if self.host.connection == "local":
            return f"http://127.0.0.1:{self.port}", "local"
        if self.host.http.reach == "direct":
            return f"http://{self.host.http.address}:{self.port}", "direct"
        if self.tunnel is None:
            self.tunnel = self.link.open_tunnel(self.port, address=self.host.http.address)
        return self.tunnel.url, "tunnel"

    def close(self) -> None:
        """Close the tunnel and the connection; nothing on the host is touched."""
        if self.tunnel is not None:
            self.tunnel.close()
            self.tunnel = None
        self.link.close()


def port_of(spec: StudySpec) -> int:
    """Return the port of the launch flags, or the engine's default."""
    return int(spec.launch.flags.get("port", find_engine(spec.engine).default_port))


def open_run(db: Database, study: StudyRecord, spec: StudySpec, lease: LeaseKeeper, clock: Clock) -> StudyRun:
    """Connect to the host, learn what it has, check every flag against the installed version, and open the search.

    Nothing on the host is changed. A study that stops has only its home to get back: whatever the host has by now, it
    is not refused.

    Raises:
        HostError: the host cannot be reached or refuses us.
        BadInput: the command is missing there, or the installed version lacks a flag.
    """
    with db.read() as conn:
        record = hosts.find(conn, lease.host)
    if record is None:
        raise BadInput(f"host {lease.host} is not registered any more", remedy="register it again")
    host = HostEntry.model_validate(record.entry)
    link = connect.open_link(host, known_host_key=record.host_key, outage_s=OUTAGE_S)
    try:
        engine = find_engine(spec.engine)
        hardware = facts.hardware(link, deadline=Deadline.after(60))
        installed, known_flags = learn_version(link, engine, spec)
        version = spec.engine_version or installed
        stops = study.state == StudyState.STOPPING
        study, changed = (study, "") if stops else kinds.settle(db, study, host.name, version, hardware)
        space = spec_space.parse(
            spec.space.model_dump(exclude_none=True), presets=engine.presets(version), fixed=set(spec.launch.flags)
        )
        space, left_out = only_known(space, spec, engine, known_flags)
        space = replace(space, known=(*space.known, *former.results(db, study, spec, hardware)))
        fixed = {**spec.launch.flags, **dict.fromkeys(left_out, False)}
        models = read_configs(link, spec, space, deadline=Deadline.after(60))
        run = StudyRun(
            db=db,
            study=study,
            spec=spec,
            host=host,
            engine=engine,
            version=version,
            hardware=hardware,
            known_flags=known_flags,
            workload=workloads.from_spec(spec.workload),
            search=open_study(
                db.optuna_url,
                name_in_optuna(study.name, study.id),
                space=CanonicalSpace(
                    space,
                    lambda params: effective(engine, spec, params, version, hardware, space, models),
                    fixed=fixed,
                ),
                sampler=spec.sampler,
                seed=spec.seed,
                options=Options.for_objective(
                    spec.objective.subject_to, spec.objective.levels, per_hour=spec.budget.hours is not None
                ),
            ),
            link=link,
            lease=lease,
            clock=clock,
            models=models,
        )
        if not stops:
            check_flags(run)
            check_baseline(run)
            tell_beforehand(run, space, (changed, kinds.pinned(spec, installed)), left_out)
    except BaseException:
        link.close()
        raise
    return run


def tell_beforehand(run: StudyRun, space: Space, found: Sequence[str], left_out: Sequence[str]) -> None:
    """Warn of what was found (texts, may be empty) and of misfits of the models, and say what is not searched."""
    home = run.spec.baseline_config()
    for text in (*misfits(run.models, home, space), *long_sequences(run.models, home), *filter(None, found)):
        run.say("warning", text=text)
    if left_out:
        run.say("note", text=f"not searched, since the installed version does not have it: {', '.join(left_out)}")


def only_known(
    space: Space, spec: StudySpec, engine: EngineModule, known_flags: frozenset[str]
) -> tuple[Space, tuple[str, ...]]:
    """Leave out what a preset brought along and the installed version lacks; what the user named himself stays.

    The preset's defaults say nothing of the parameters that the user added: there they keep the baseline's value.
    """
    left_out = tuple(
        name
        for name in space.names()
        if name not in spec.space.parameters
        and not name.startswith(ENV_PREFIX)
        and not is_known(engine, name, known_flags)
    )
    kept = tuple(p for p in space.parameters if p.name not in left_out)
    conditions = tuple(
        replace(c, then_absent=tuple(n for n in c.then_absent if n not in left_out)) for c in space.conditions
    )
    home = {n: v for n, v in spec.baseline_config().items() if n in {p.name for p in kept}}
    defaults = tuple({**home, **{k: v for k, v in d.items() if k not in left_out}} for d in space.defaults)
    dropped = {**space.dropped, **dict.fromkeys(left_out, "not in the installed version's --help")}
    return replace(space, parameters=kept, conditions=conditions, defaults=defaults, dropped=dropped), left_out


def is_known(engine: EngineModule, name: str, known_flags: frozenset[str]) -> bool:
    """Say whether the installed version lists a flag under any of its spellings."""
    return any(spelling in known_flags for spelling in spellings(engine, name))


def effective(
    engine: EngineModule,
    spec: StudySpec,
    params: Config,
    version: str | None,
    hardware: Hardware,
    space: Space,
    models: ModelConfigs,
) -> Effective:
    """Say which server runs for a suggestion on top of the spec's launch flags."""
    config = spec.candidate_config(dict(params), set(space.names()))
    return judge(engine, config, version, hardware, models)


def learn_version(link: HostLink, engine: EngineModule, spec: StudySpec) -> tuple[str | None, frozenset[str]]:
    """Ask the installed engine for its version (None: it does not say) and its flags.

    Raises:
        BadInput: the launch command does not exist on the host or cannot print its help.
    """
    command = facts.expand_command(link, spec.launch.command, deadline=Deadline.after(30))
    env = {k: v for k, v in spec.launch.env.items() if not v.startswith(("env:", "file:"))}
    answer = facts.run_with_env(link, engine.help_argv(command), env, deadline=Deadline.after(300))
    if answer.exit_code in {126, 127}:
        raise BadInput(
            f"the launch command does not run on {link.name}: {answer.error_text.strip()[-200:]}",
            [Problem("launch.command", "not found on the host", spec.launch.command[0], "give the full path")],
        )
    known = engine.check_help(answer.text + answer.error_text)
    if not known:
        raise BadInput(
            f"`{' '.join(engine.help_argv(command))}` on {link.name} lists no flags (status {answer.exit_code})",
            [Problem("launch.command", "cannot print its help", spec.launch.command[0], _last_line(answer.error_text))],
        )
    told = facts.run_with_env(link, engine.version_argv(command), env, deadline=Deadline.after(300))
    return engine.parse_version(told.text + told.error_text), known


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][-200:] if lines else ""


def check_flags(run: StudyRun) -> None:
    """Refuse flags that the installed version does not know, before anything is stopped.

    Raises:
        BadInput: with every unknown flag, and the nearest known one.
    """
    asked = {**{f"launch.flags.{k}": k for k in run.spec.launch.flags}}
    asked |= {f"baseline.flags.{k}": k for k, v in run.spec.baseline.flags.items() if v is not None}
    asked |= {f"space.parameters.{n}": n for n in run.search.space.names if not n.startswith(ENV_PREFIX)}
    problems = [
        Problem(
            path,
            f"{run.spec.engine} {run.version or ''} has no such flag".replace("  ", " "),
            None,
            did_you_mean(name, run.known_flags),
        )
        for path, name in asked.items()
        if not is_known(run.engine, name, run.known_flags)
    ]
    if problems:
        raise BadInput(f"the server installed on {run.link.name} does not know every flag", problems)


def check_baseline(run: StudyRun) -> None:
    """Refuse a baseline that cannot run (its flags exclude each other, its drafter does not fit its target).

    Raises:
        BadInput: with every reason; nothing on the host has been touched.
    """
    config = dict(run.spec.baseline_config())
    effective = judge(run.engine, config, run.version, run.hardware, run.models)
    if effective.verdict is Verdict.REJECTED:
        raise BadInput(
            f"the baseline cannot run on {run.link.name}",
            [Problem("launch.flags", reason) for reason in effective.reasons],
        )


def spellings(engine: EngineModule, name: str) -> set[str]:
    """Return the ways in which a flag may appear in the help: as given, and as the engine writes it."""
    written = engine.flags_to_argv({name: True})
    return {name, *(w.lstrip("-") for w in written if re.match(r"^--?[a-zA-Z]", w))}


__all__ = ["StudyRun", "check_flags", "effective", "learn_version", "open_run", "port_of"]
