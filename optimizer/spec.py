"""What a user writes: the study specification and the host entry, validated whole.

Decides which fields exist and how mistakes are told (every one with its path, the value and a hint). The space section
is read by `search.spec_space`, the workload section by `bench.workload`; this file only calls them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from optimizer.errors import BadInput, Problem

EngineName = Literal["sglang", "vllm", "llamacpp"]
SamplerName = Literal["ratchet", "tpe", "gp", "random"]
Scalar = bool | int | float | str
FLAG_NAME = re.compile(r"^[A-Za-z][A-Za-z0-9-]*$")
ENV_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
M = TypeVar("M", bound=BaseModel)
MAX_PORT = 65535
STUDY_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")


class Model(BaseModel):
    """Strict about names, so that a misspelt field is an error with a hint and never ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _check_names(values: Mapping[str, Any], pattern: re.Pattern[str], what: str) -> None:
    for name in values:
        if not pattern.match(name):
            raise ValueError(f"{name!r} is not a {what}")


def _flag_names(value: dict[str, Any]) -> dict[str, Any]:
    _check_names(value, FLAG_NAME, "flag name: write it without dashes in front, like tp-size")
    return value


def _env(value: Any) -> Any:
    """Variables are texts; a number may be written without quotes."""
    if isinstance(value, Mapping):
        _check_names({str(name): None for name in value}, ENV_NAME, "variable name")
        return {k: str(v) if _is_plain_number(v) else v for k, v in value.items()}
    return value


def _is_plain_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


Env = Annotated[dict[str, str], BeforeValidator(_env)]


class Launch(Model):
    """How the server is started; `flags` are the fixed ones (long names without dashes)."""

    command: list[str] = Field(min_length=1)
    flags: Annotated[dict[str, Scalar], AfterValidator(_flag_names)] = Field(default_factory=dict)
    env: Env = Field(default_factory=dict)
    cwd: str | None = None
    extra_args: list[str] = Field(default_factory=list)

    @field_validator("flags")
    @classmethod
    def _flags(cls, value: dict[str, Scalar]) -> dict[str, Scalar]:
        return {k: v for k, v in value.items() if v is not False}


class Baseline(Model):
    """The configuration to beat: the launch flags with these on top (`null` removes one)."""

    flags: Annotated[dict[str, Scalar | None], AfterValidator(_flag_names)] = Field(default_factory=dict)
    env: Env = Field(default_factory=dict)
    expected_tok_s: float | None = Field(default=None, gt=0)
    tolerance_pct: float = Field(default=5.0, gt=0, le=100)
    restarts: int = Field(default=2, ge=1, le=20)


class SpaceSection(Model):
    """The search space as written; parsed by `search.spec_space`."""

    preset: str | list[str] | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    conditions: list[dict[str, Any]] = Field(default_factory=list)
    rules: list[str] = Field(default_factory=list)
    known: list[dict[str, Any]] = Field(default_factory=list)


class Limit(Model):
    """A bound on a metric; a trial that misses it cannot win."""

    max: float | None = None
    min: float | None = None

    @model_validator(mode="after")
    def _some(self) -> Limit:
        if self.max is None and self.min is None:
            raise ValueError("give max, min or both")
        return self


class Objective(Model):
    """What is maximised, and the limits that a winner must keep."""

    maximize: Literal["output_tok_s"] = "output_tok_s"
    subject_to: dict[str, Limit] = Field(default_factory=dict)
    levels: dict[int, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Weight of each level of the workload's concurrency: the weighted geometric mean of their speeds is maximised.
    Empty: the first level alone."""


class Budget(Model):
    """When exploring ends. `confirm_restarts` is the most fresh restarts (both arms) spent on the verdict."""

    trials: int = Field(default=40, ge=1, le=100_000)
    hours: float | None = Field(default=None, gt=0)
    confirm_restarts: int = Field(default=10, ge=0, le=200)
    candidates: int = Field(default=3, ge=1, le=10)
    soak_s: float = Field(default=120.0, ge=0)
    ready_timeout_s: float = Field(default=1800.0, gt=0)
    measure_timeout_s: float = Field(default=1800.0, gt=0)
    early_end: bool = True


class SshEntry(Model):
    """How to reach a host: an alias of ~/.ssh/config, or the parts. Secrets only by reference."""

    alias: str | None = None
    hostname: str | None = None
    port: int | None = Field(default=None, ge=1, le=MAX_PORT)
    user: str | None = None
    identity_file: str | None = None
    jump: list[str] = Field(default_factory=list)
    host_key: str | None = None
    config_file: str | None = None
    connect_timeout_s: float = Field(default=15.0, gt=0)

    @model_validator(mode="after")
    def _target(self) -> SshEntry:
        if not self.alias and not self.hostname:
            raise ValueError("give alias or hostname")
        return self


class HttpEntry(Model):
    """How requests reach the server: `tunnel` through SSH, or `direct`."""

    reach: Literal["direct", "tunnel"] = "tunnel"
    address: str = "127.0.0.1"


class HomeEntry(Model):
    """The server to put back, when it is given and not found in /proc."""

    command: list[str] = Field(default_factory=list)
    env: Env = Field(default_factory=dict)
    cwd: str | None = None
    url: str | None = None
    systemd_unit: str | None = None

    @model_validator(mode="after")
    def _one(self) -> HomeEntry:
        if bool(self.command) == bool(self.systemd_unit):
            raise ValueError("give either command or systemd_unit")
        return self


class GuardEntry(Model):
    """The dead man's switch: how long the host waits for a sign of life before it restores home itself."""

    grace_s: float = Field(default=300.0, gt=0)
    enabled: bool = True


class HostEntry(Model):
    """A host file: how to reach it and what may be done there."""

    name: str
    connection: Literal["ssh", "local"] = "ssh"
    ssh: SshEntry | None = None
    http: HttpEntry = HttpEntry()
    gpus: list[int] | None = None
    takeover: bool = False
    home: HomeEntry | None = None
    run_dir: str = "~/.ratchet"
    guard: GuardEntry = GuardEntry()

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if not STUDY_NAME.match(value):
            raise ValueError("use letters, digits, dots, dashes and underscores")
        return value

    @field_validator("gpus", mode="before")
    @classmethod
    def _gpus(cls, value: Any) -> Any:
        return None if value == "none" else value

    @model_validator(mode="after")
    def _ssh(self) -> HostEntry:
        if self.connection == "ssh" and self.ssh is None:
            raise ValueError("an ssh host needs an ssh section with alias or hostname")
        return self


class StudySpec(Model):
    """One study, completely."""

    name: str
    host: str | HostEntry
    hosts: list[str | HostEntry] = []
    """Several hosts of one kind, worked on side by side; `host` is then the first of them."""
    engine: EngineName
    engine_version: str | None = None
    launch: Launch
    baseline: Baseline = Baseline()
    space: SpaceSection = SpaceSection()
    workload: dict[str, Any] = Field(default_factory=lambda: {"preset": "five-prompts"})
    objective: Objective = Objective()
    budget: Budget = Budget()
    sampler: SamplerName = "ratchet"
    seed: int = Field(default=0, ge=0)
    on_finish: Literal["restore", "adopt"] = "restore"
    min_effect: Annotated[float, Field(ge=0, le=1)] = 0.01
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    window: str | None = None
    priority: int = 0
    self_test: bool = False
    """Confirm the baseline against itself instead of searching: the answer must be no win."""

    @model_validator(mode="before")
    @classmethod
    def _first_host(cls, data: Any) -> Any:
        hosts = data.get("hosts") if isinstance(data, Mapping) else None
        if not isinstance(hosts, list) or not hosts:
            return data
        if data.get("host", hosts[0]) != hosts[0]:
            raise ValueError("give either host or hosts")
        return {**data, "host": hosts[0]}

    @field_validator("hosts")
    @classmethod
    def _different_hosts(cls, value: list[str | HostEntry]) -> list[str | HostEntry]:
        names = [name_of(host) for host in value]
        if len(names) != len(set(names)):
            raise ValueError("a host is named twice")
        return value

    @field_validator("engine_version", mode="before")
    @classmethod
    def _version(cls, value: Any) -> Any:
        if isinstance(value, float):
            raise ValueError('quote it: YAML reads 0.10 as the number 0.1, and "0.10" as it is')
        return str(value) if _is_plain_number(value) else value

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if not STUDY_NAME.match(value):
            raise ValueError("use letters, digits, dots, dashes and underscores, at most 100")
        return value

    @model_validator(mode="after")
    def _port(self) -> StudySpec:
        port = str(self.baseline_config().get("port", 1))
        if not port.isdecimal() or not 1 <= int(port) <= MAX_PORT:
            raise ValueError(f"the flag port must be a number from 1 to {MAX_PORT}, and is {port}")
        return self

    @property
    def host_name(self) -> str:
        """Name of the (first) host, inline or registered."""
        return name_of(self.host)

    @property
    def all_hosts(self) -> list[str | HostEntry]:
        """Every host of the study, the first one first."""
        return self.hosts or [self.host]

    def baseline_config(self) -> dict[str, Scalar]:
        """Return the full configuration of the baseline: flags by name, variables as `env.NAME`."""
        merged: dict[str, Scalar | None] = {**self.launch.flags, **self.baseline.flags}
        config: dict[str, Scalar] = {k: v for k, v in merged.items() if v is not None and v is not False}
        config |= {f"env.{k}": v for k, v in {**self.launch.env, **self.baseline.env}.items()}
        return config

    def candidate_config(self, params: Mapping[str, Scalar], searched: set[str]) -> dict[str, Scalar]:
        """Return the full configuration of a suggestion: searched names from `params` alone, the rest from home."""
        kept = {k: v for k, v in self.baseline_config().items() if k not in searched}
        return {**kept, **{k: v for k, v in params.items() if v is not False}}


def name_of(host: str | HostEntry) -> str:
    """Return the name of a host, inline or registered."""
    return host if isinstance(host, str) else host.name


SectionCheck = Callable[[StudySpec], list[Problem]]


def load_yaml(text: str, what: str) -> Any:
    """Parse YAML or JSON text.

    Raises:
        BadInput: with line and column.
    """
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "?"
        problem = getattr(error, "problem", None) or "not YAML"
        raise BadInput(f"{what} is not valid YAML", [Problem(where, str(problem))]) from error


def read_text(path: Path, what: str) -> str:
    """Read a file that the user named.

    Raises:
        BadInput: it is missing or unreadable.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"cannot read {what} {path}: {reason}", remedy="check the path") from error


def parse_study(data: Any) -> StudySpec:
    """Validate a specification's shape, space and workload, all at once.

    Raises:
        BadInput: carries every problem with its path, value and hint.
    """
    spec, problems = _validate(StudySpec, data)
    problems += _section_problems(data, spec)
    if spec is None or problems:
        raise BadInput(f"the specification has {_count(problems)}", problems)
    return spec


def load_study(text: str) -> StudySpec:
    """Parse and validate a specification in YAML or JSON. Raises BadInput with every problem."""
    return parse_study(load_yaml(text, "the specification"))


def parse_host(data: Any) -> HostEntry:
    """Validate a host entry. Raises BadInput with every problem."""
    host, problems = _validate(HostEntry, data)
    if host is None or problems:
        raise BadInput(f"the host entry has {_count(problems)}", problems)
    return host


def load_host(text: str) -> HostEntry:
    """Parse and validate a host file. Raises BadInput with every problem."""
    return parse_host(load_yaml(text, "the host file"))


def _count(problems: list[Problem]) -> str:
    return "1 problem" if len(problems) == 1 else f"{len(problems)} problems"


def _validate(model: type[M], data: Any) -> tuple[M | None, list[Problem]]:
    if not isinstance(data, Mapping):
        what = "is empty" if data is None else f"must be fields with values, like `name: ...`, not a {_kind(data)}"
        return None, [Problem("(top)", what)]
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        return None, [_problem(model, e) for e in error.errors()]


def _kind(data: Any) -> str:
    return "list" if isinstance(data, list) else "text" if isinstance(data, str) else type(data).__name__


def _problem(model: type[BaseModel], error: Any) -> Problem:
    loc = [p for p in error["loc"] if not (isinstance(p, str) and (p in {"str", "HostEntry"} or "[" in p))]
    path = ".".join(str(p) for p in loc) or "(top)"
    message = error["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    value = None if error["type"] == "missing" else error.get("input")
    if isinstance(value, dict | list):
        value = None
    hint = ""
    if error["type"] == "extra_forbidden":
        message = "no such field"
        hint = did_you_mean(str(error["loc"][-1]), _fields_at(model, [str(p) for p in loc[:-1]]))
    elif error["type"] == "literal_error" and isinstance(value, str):
        expected = re.findall(r"'([^']+)'", str(error.get("ctx", {}).get("expected", "")))
        hint = did_you_mean(value, expected)
    elif error["type"] == "missing":
        message = "is missing"
    elif error["type"] == "too_short":
        message = "must not be empty"
    return Problem(path, message, value, hint)


def did_you_mean(word: str, known: Any) -> str:
    """Return `did you mean X?` for the nearest known name, or the list of all when none is near and it is short."""
    names = [str(k) for k in known]
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]}?"
    return f"one of {', '.join(names)}" if 0 < len(names) <= 12 else ""


def _fields_at(model: type[BaseModel], path: list[str]) -> list[str]:
    current: type[BaseModel] | None = model
    for part in path:
        info = current.model_fields.get(part) if current else None
        current = _model_in(info.annotation) if info else None
    return list(current.model_fields) if current else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _section_problems(data: Any, spec: StudySpec | None) -> list[Problem]:
    """Problems of the space and workload sections, found even when other sections are wrong too."""
    from optimizer.bench import workload
    from optimizer.bench.metric_names import check_levels, check_limits
    from optimizer.engines.registry import find_engine
    from optimizer.search import spec_space

    problems: list[Problem] = []
    if not isinstance(data, Mapping):
        return problems
    if isinstance(data.get("workload", {}), Mapping):
        problems += _prefixed(
            "workload", lambda: workload.from_spec(data.get("workload") or {"preset": "five-prompts"})
        )
    if spec is not None and not problems:
        measured = workload.from_spec(spec.workload).concurrency
        problems += check_limits(spec.objective.subject_to, measured) + check_levels(spec.objective.levels, measured)
    engine = data.get("engine")
    if isinstance(data.get("space", {}), Mapping) and engine in get_args(EngineName):
        presets = find_engine(str(engine)).presets(spec.engine_version if spec else None)
        parts = [part.get("flags") for name in ("launch", "baseline") if isinstance(part := data.get(name), Mapping)]
        fixed = {str(flag) for flags in parts if isinstance(flags, Mapping) for flag in flags}
        problems += _prefixed("space", lambda: spec_space.parse(data.get("space") or {}, presets=presets, fixed=fixed))
    return problems


def _prefixed(section: str, check: Callable[[], object]) -> list[Problem]:
    try:
        check()
    except BadInput as error:
        return [
            p if p.path.startswith(section) else Problem(f"{section}.{p.path}", p.message, p.value, p.hint)
            for p in error.problems
        ]
    return []
