"""`ratchet explain`: what a server's log says about its failure. The engines decide; this file reads and prints."""

from __future__ import annotations

import importlib
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import click

from api.cli.output import print_json, say
from optimizer.engines.base import FailureContext, Phase
from optimizer.engines.detect import detect_engine
from optimizer.engines.logtext import decode
from optimizer.engines.registry import ENGINE_NAMES, canonical_name
from optimizer.errors import BadInput, Problem


def read_input(logfile: str) -> str:
    """Return the text of a file, or of standard input for `-`.

    Raises:
        BadInput: the file cannot be read.
    """
    try:
        return decode(sys.stdin.buffer.read() if logfile == "-" else Path(logfile).read_bytes())
    except OSError as error:
        raise BadInput(
            f"cannot read {logfile}",
            [Problem("LOGFILE", error.strerror or str(error), logfile, "a path, or - for standard input")],
        ) from error


def engine_name(asked: str | None, text: str) -> str | None:
    """Return the engine asked for, else the one that the log shows, else None.

    An engine that is not one of ours is no error: its log is read with the texts of all engines.
    """
    if asked is None:
        return detect_engine(text)
    name = canonical_name(asked)
    if name is None:
        say(f"ratchet: {asked!r} is none of {', '.join(ENGINE_NAMES)}; reading with the texts of all of them")
    return name


@click.command()
@click.argument("logfile")
@click.option("--engine", help="sglang, vllm or llamacpp; by default the log tells.")
@click.option("--exit-code", type=int, help="How the process ended (137 and -9 both mean killed).")
@click.option("--phase", type=click.Choice(get_args(Phase)), help="What was going on when it failed.")
@click.option("--kernel-log", type=click.Path(exists=True, dir_okay=False), help="A file with the kernel's messages.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def explain(
    logfile: str, engine: str | None, exit_code: int | None, phase: Phase | None, kernel_log: str | None, as_json: bool
) -> None:
    """Explain a failure from a server's log (`-` reads standard input)."""
    text = read_input(logfile)
    name = engine_name(engine, text)
    kernel = read_input(kernel_log) if kernel_log else ""
    module = f"optimizer.engines.{name}.failures" if name else "optimizer.engines.anyengine"
    failures = importlib.import_module(module)
    context = FailureContext(exit_code=exit_code, phase=phase, kernel_log=kernel)
    document: dict[str, Any] = asdict(failures.explain(text, context))
    if as_json:
        print_json(document)
        return
    _print_human(document)


def _print_human(document: dict[str, Any]) -> None:
    click.echo(f"{document['label']}  ({document['engine']}, confidence {document['confidence']:.2f})")
    click.echo(f"  {document['summary']}")
    if document["remedy"]:
        click.echo(f"  what to do: {document['remedy']}")
    if document["label"] != "none":
        retry = "try again" if document["retry"] else "do not try again"
        stop = ", stop the study" if document["stop_study"] else ""
        click.echo(f"  blame: {document['blame']}; {retry}{stop}")
    for line in document["evidence"]:
        click.echo(f"  | {line}")
