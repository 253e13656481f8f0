"""`ratchet space`: what an engine's flags are, and what it would make of a set of them.

Decides how the engine's knowledge is printed; the knowledge itself is the engine packages'.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from api.cli.output import print_json
from optimizer.engines.base import Effective, EngineModule, FlagValue, Hardware, Verdict, split_env
from optimizer.engines.drafter import draft_fit
from optimizer.engines.flag_catalogue import flag_set, read_command_line
from optimizer.engines.hardware import known_gpu
from optimizer.engines.registry import find_engine
from optimizer.errors import BadInput, NotFound, Problem
from optimizer.search.canonical import CanonicalSpace, SizeEstimate, cost_sentence
from optimizer.search.space import Parameter, Space
from optimizer.spec import did_you_mean

ASSUMED_GPU = {"sglang": "h100", "vllm": "h100"}
"""What a check assumes when no GPU is named: kernels and sizes follow from it."""


@click.group()
def space() -> None:
    """What an engine's flags mean: show, check."""


@space.command()
@click.argument("engine")
@click.option("--engine-version", metavar="V", help="Version of the engine (default: the newest known).")
@click.option("--preset", metavar="P", help="Only this preset.")
@click.option("--starts", default=40, show_default=True, type=click.IntRange(min=1), help="Starts to plan for.")
@click.option(
    "--start-minutes",
    default=9.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Minutes of one start with its measurement on your host, for the estimate of what a search costs.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def show(
    engine: str, engine_version: str | None, preset: str | None, starts: int, start_minutes: float, as_json: bool
) -> None:
    """Show the parameters, conditions and rules of an engine's search space, its size, and the engine's flags."""
    module = _engine(engine)
    presets = module.presets(engine_version)
    if preset is not None and preset not in presets:
        hint = did_you_mean(preset, presets)
        raise BadInput(f"{module.name} has no such preset", [Problem("--preset", "no such preset", preset, hint)])
    shown = {preset: presets[preset]} if preset is not None else presets
    flags = flag_set(module.name, engine_version)
    sizes = {name: _size(module, part, engine_version) for name, part in shown.items()}
    where = f"at {start_minutes:g} min each"
    costs = {name: cost_sentence(size, starts, 60 * start_minutes, where) for name, size in sizes.items()}
    if as_json:
        print_json(
            {
                "engine": module.name,
                "engine_version": engine_version,
                "table_version": flags.version,
                "presets": {
                    name: _space_document(s)
                    | {"servers": sizes[name].servers, "servers_exact": sizes[name].exact, "cost": costs[name]}
                    for name, s in shown.items()
                },
                "flags": [_flag_document(f) for f in flags.flags if preset is None or f.name in shown[preset].names()],
            }
        )
        return
    for name, part in shown.items():
        _print_space(name, part, costs[name])
    click.echo(f"{len(flags.flags)} flags known for {module.name} {flags.version}; --json lists them")


@space.command(context_settings={"ignore_unknown_options": True})
@click.argument("engine")
@click.option("--engine-version", metavar="V", help="Version of the engine (default: the newest known).")
@click.option("--gpu", metavar="NAME", help="GPU model, such as h100 or rtx4090; none: assume nothing.")
@click.option("--gpu-memory", type=float, metavar="GIB", help="Memory of one GPU in GiB, when the model is not known.")
@click.option("--gpus", type=int, default=0, help="GPUs of the host.")
@click.option("--cpus", type=int, default=0, help="Processors of the host.")
@click.option("--model-config", type=click.Path(path_type=Path), help="config.json of the target model.")
@click.option("--draft-config", type=click.Path(path_type=Path), help="config.json of the draft model.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def check(
    engine: str,
    engine_version: str | None,
    gpu: str | None,
    gpu_memory: float | None,
    gpus: int,
    cpus: int,
    model_config: Path | None,
    draft_config: Path | None,
    as_json: bool,
    flags: tuple[str, ...],
) -> None:
    """Say what the engine would make of FLAGS, written after `--` as on its own command line."""
    module = _engine(engine)
    config, leftovers = read_command_line(module.name, flags, engine_version)
    if leftovers:
        shown = " ".join(leftovers)
        raise BadInput("words that belong to no flag", [Problem("FLAG", f"cannot read {shown!r}", hint="--name value")])
    assumed = ASSUMED_GPU.get(module.name) if gpu is None and gpu_memory is None else None
    hardware = _hardware(gpu or assumed, gpu_memory, gpus, cpus)
    effective, broken = _effective(module, config, engine_version, hardware, model_config, draft_config)
    document = check_document(effective, broken) | ({"assumed_gpu": hardware.gpu_name} if assumed else {})
    if as_json:
        print_json(document)
        return
    _print_check(document)


def check_document(effective: Effective, broken: Sequence[str]) -> dict[str, Any]:
    """Return the outcome as the document that `space check --json` prints.

    The verdict is that of the engine's own argument code; `broken` is what its start makes of the models all the same.
    """
    return {
        "verdict": str(effective.verdict),
        "effective": effective.config,
        "adjustments": [
            {"flag": a.flag, "from": a.asked, "to": a.becomes, "why": a.why} for a in effective.adjustments
        ],
        "reasons": list(effective.reasons),
        "fails_at_start": list(broken),
        "unknown_flags": list(effective.unknown_flags),
        "no_effect": list(effective.no_effect),
        "key": effective.key,
    }


def _engine(name: str) -> EngineModule:
    try:
        return find_engine(name)
    except NotFound as error:
        raise BadInput(error.message, [Problem("ENGINE", error.message, name, error.remedy)]) from error


def _effective(
    module: EngineModule,
    config: Mapping[str, FlagValue],
    version: str | None,
    hardware: Hardware,
    model_config: Path | None,
    draft_config: Path | None,
) -> tuple[Effective, list[str]]:
    """What the arguments become, and why a study would not start them with these models although they are accepted."""
    models = {
        "model": _read_config(model_config) or _config_beside(config, ("model-path", "model")),
        "draft_model": _read_config(draft_config)
        or _config_beside(config, ("speculative-draft-model-path", "speculative-draft-model", "spec-model")),
    }
    known = {k: v for k, v in models.items() if v is not None}
    effective = module.effective(config, version, hardware, **known)
    if effective.verdict is Verdict.REJECTED:
        return effective, []
    target, draft = models["model"], models["draft_model"]
    misfits = draft_fit(target, draft, effective.config) if draft is not None else []
    return effective, [*misfits, *module.fails_at_start(effective.config, hardware, target)]


def _config_beside(config: Mapping[str, FlagValue], names: tuple[str, ...]) -> dict[str, Any] | None:
    """A model directory on this machine may be named by the flags themselves."""
    flags, _ = split_env(config)
    for path in (Path(str(flags[name])) / "config.json" for name in names if name in flags):
        with contextlib.suppress(OSError):  # a name that no file can have, or a directory that is closed to us
            if path.is_file():
                return _read_config(path)
    return None


def _read_config(path: Path | None) -> dict[str, Any] | None:
    if path is None:
        return None
    file = path / "config.json" if path.is_dir() else path
    try:
        data = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read the model's config {file}: {error}", remedy="name a config.json") from error
    if not isinstance(data, dict):
        raise BadInput(f"{file} is not a model's config.json", remedy="name a config.json")
    return data


def _hardware(gpu: str | None, memory_gib: float | None, gpus: int, cpus: int) -> Hardware:
    hardware = Hardware(gpu_count=gpus, cpu_count=cpus)
    if gpu is not None and gpu != "none":
        hardware = replace(known_gpu(gpu, count=gpus), cpu_count=cpus)
        if not hardware.gpu_memory_gib and memory_gib is None:
            hint = "name one of h100, h200, b200, a100, l40s, l4, rtx4090, ..., or give --gpu-memory"
            raise BadInput("this GPU is not known", [Problem("--gpu", "no such GPU in the table", gpu, hint)])
    if memory_gib is not None:
        hardware = replace(hardware, gpu_memory_gib=memory_gib)
    return hardware


def _space_document(part: Space) -> dict[str, Any]:
    return {
        "parameters": {p.name: _parameter_document(p) for p in part.parameters},
        "conditions": [{"if": c.when, "then_absent": list(c.then_absent)} for c in part.conditions],
        "rules": list(part.rules),
        "defaults": [dict(d) for d in part.defaults],
        "dropped": part.dropped,
    }


def _parameter_document(parameter: Parameter) -> dict[str, Any]:
    return {
        "kind": parameter.kind,
        "values": list(parameter.ladder),
        "ordered": parameter.ordered,
        "may_be_absent": parameter.may_be_absent,
        "why": parameter.why,
    }


def _flag_document(flag: Any) -> dict[str, Any]:
    document = {
        "name": flag.name,
        "kind": flag.kind,
        "default": flag.default,
        "choices": list(flag.choices),
        "spellings": list(flag.spellings),
        "since": flag.since,
        "until": flag.until,
        "change": flag.change,
        "searchable": flag.searchable,
        "risk": flag.risk,
        "no_effect": flag.no_effect,
        "removed": flag.removed,
        "note": flag.note,
    }
    return {k: v for k, v in document.items() if v not in ("", [], None)}


def _size(module: EngineModule, part: Space, version: str | None) -> SizeEstimate:
    """Count or estimate the servers of a preset; nothing is assumed about the host."""
    space = CanonicalSpace(part, lambda config: module.effective(config, version, Hardware()))
    return space.size_estimate(np.random.default_rng(0))


def _print_space(name: str, part: Space, cost: str) -> None:
    click.echo(f"{name}: {cost}")
    for parameter in part.parameters:
        values = ", ".join(str(v) for v in parameter.ladder)
        absent = " or absent" if parameter.may_be_absent else ""
        why = f"   ({parameter.why})" if parameter.why else ""
        click.echo(f"  {parameter.name}: {values}{absent}{why}")
    for condition in part.conditions:
        click.echo(f"  if {condition.when}: without {', '.join(condition.then_absent)}")
    for rule in part.rules:
        click.echo(f"  rule: {rule}")
    for flag, reason in part.dropped.items():
        click.echo(f"  not searched: {flag} ({reason})")
    click.echo("")


def _print_check(document: Mapping[str, Any]) -> None:
    click.echo(document["verdict"])
    for reason in document["reasons"]:
        click.echo(f"  {reason}")
    for reason in document["fails_at_start"]:
        click.echo(f"  a study will not start it: {reason}")
    for change in document["adjustments"]:
        becomes = "nothing" if change["to"] is None else change["to"]
        click.echo(f"  {change['flag']}: {change['from']} becomes {becomes}: {change['why']}")
    for name in document["no_effect"]:
        click.echo(f"  {name}: no effect here")
    if "assumed_gpu" in document:
        click.echo(f"  for {document['assumed_gpu']}; --gpu names another")
    click.echo("effective:")
    for name, value in document["effective"].items():
        click.echo(f"  {name}: {'present' if value is True else value}")
