"""`ratchet telemetry`: throughput records of a server's log. The engines read; this file prints."""

from __future__ import annotations

import importlib
from typing import Any

import click

from api.cli.explain import engine_name, read_input
from api.cli.output import print_json
from optimizer.engines.registry import ENGINE_NAMES


@click.command()
@click.argument("logfile")
@click.option("--engine", help="sglang, vllm or llamacpp; by default the log tells.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def telemetry(logfile: str, engine: str | None, as_json: bool) -> None:
    """Read throughput records out of a server's log (`-` reads standard input)."""
    text = read_input(logfile)
    name = engine_name(engine, text)
    records, summary = _read(name, text)
    if as_json:
        print_json({"engine": name or "unknown", "records": records, "summary": summary})
        return
    for record in records:
        values = ", ".join(f"{key}={value}" for key, value in record.items() if key not in ("line", "kind"))
        click.echo(f"{record['line']:>7}  {record['kind']:<10} {values}")
    click.echo(f"{len(records)} records from {name or 'an unknown engine'}")
    for key, value in summary.items():
        click.echo(f"  {key}: {value}")


def _read(name: str | None, text: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Read with the engine's own reader; of an unknown engine, with the reader that finds most."""
    best: tuple[list[dict[str, Any]], dict[str, Any]] = ([], {})
    for candidate in (name,) if name else ENGINE_NAMES:
        module = importlib.import_module(f"optimizer.engines.{candidate}.telemetry")
        records = module.read_log(text)
        if name or len(records) > len(best[0]):
            best = (records, module.summary(records))
    return best
