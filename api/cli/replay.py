"""`ratchet replay`: what a search would have found on a recorded table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from api.cli.output import print_json, say
from optimizer.errors import BadInput, Problem


@click.command()
@click.argument("table", metavar="TABLE.csv", type=click.Path(path_type=Path))
@click.option("--sampler", default="ratchet", show_default=True, help="ratchet, tpe, tpe-raw, gp, random; or several.")
@click.option("--budget", default=40, show_default=True, type=click.IntRange(min=1), help="Starts per search.")
@click.option("--seeds", default=30, show_default=True, type=click.IntRange(min=1), help="Searches.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (a list for several samplers).")
def replay(table: Path, sampler: str, budget: int, seeds: int, as_json: bool) -> None:
    """Replay searches on TABLE.csv (with TABLE.space.yaml beside it) and report what they found.

    Every evaluation draws one of the recorded restarts of a configuration; its true speed is their mean.
    """
    from optimizer.search import replay as replays
    from optimizer.search.table import load

    if not table.is_file():
        raise BadInput(f"cannot read the table {table}: no such file", remedy="check the path")
    recorded = load(table)
    names = [name.strip() for name in sampler.split(",") if name.strip()]
    unknown = [name for name in names if name not in replays.SAMPLERS]
    if unknown or not names:
        hint = f"one of {', '.join(replays.SAMPLERS)}"
        raise BadInput("there is no such sampler", [Problem("--sampler", "no such sampler", ", ".join(unknown), hint)])
    reports = []
    for name in names:
        say(f"replaying {name}: {seeds} searches of {budget} starts")
        reports.append(replays.run(recorded, name, budget=budget, seeds=seeds))
    if as_json:
        print_json(reports[0] if len(reports) == 1 else reports)
    else:
        for document in reports:
            click.echo(_text(document))


def _text(document: dict[str, Any]) -> str:
    starts = document["median_starts_to_2pct"]
    regrets = ", ".join(f"{n}: {r} %" for n, r in document["median_regret_pct"].items() if r is not None)
    reached = "never" if starts is None else f"{starts:g}"
    wasted = f"{document['starts_wasted_invalid']} on invalid configurations, {document['starts_wasted_duplicate']} on"
    lines = [
        f"{document['sampler']} on {document['table']} ({document['servers']} servers, best {document['best_true']})",
        f"  starts to within 2 % (median): {reached}; never in {document['never_within_2pct']} of {document['seeds']}",
        f"  regret after starts: {regrets}",
        f"  starts per search: {wasted} repeats, {document['starts_failed']} failed",
        f"  declared winner: {document['declared_winner_regret_pct']} % below the best",
        f"  ask: {document['ask_ms_p50']} ms (99 %: {document['ask_ms_p99']} ms)",
    ]
    return "\n".join(lines)
