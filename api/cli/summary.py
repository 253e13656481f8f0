"""The end of a study in a few lines: the verdict in one sentence, the report, the launch command, what to type next."""

from __future__ import annotations

import re
from typing import Any

import click

from api.reports import build, html, launch
from optimizer.settings import Settings
from optimizer.studies import StudyState
from storage import trials
from storage.engine import Database
from storage.records import StudyRecord

PASSWORD = re.compile(r"(://[^:/@]*):[^@]*@")


def write_report(db: Database, study: StudyRecord, settings: Settings) -> str:
    """Write the HTML report of a study into the data folder; return its path."""
    path = settings.data_dir / "reports" / f"{study.name}-{study.id}.html"
    return str(html.write(build.collect(db, study.id), path))


def summary(db: Database, study: StudyRecord, settings: Settings) -> dict[str, Any]:
    """Return the final document of `ratchet run --json` and `ratchet demo --json`."""
    with db.read() as conn:
        rows = list(trials.list_trials(conn, study.id, limit=100_000))
    by_number = {t.number: t for t in rows}
    best = by_number.get(study.best_trial) if study.best_trial is not None else None
    baseline = next((t for t in rows if t.arm == "baseline"), None)
    shown = best or baseline
    return {
        "study": study.id,
        "name": study.name,
        "state": study.state,
        "reason": study.state_reason,
        "verdict": study.verdict,
        "sentence": html.sentence(build.collect(db, study.id)),
        "trials": len(rows),
        "by_state": {s: sum(t.state == s for t in rows) for s in sorted({t.state for t in rows})},
        "best": None
        if best is None
        else {"trial": best.number, "params": best.params, "output_tok_s": best.output_tok_s},
        "launch_command": shown.launch_command if shown else None,
        "home": launch.shown_home(study.home),
        "report": write_report(db, study, settings),
        "database": db.name,
        "optuna_storage": PASSWORD.sub(r"\1:***@", db.optuna_url),
    }


def print_summary(document: dict[str, Any]) -> None:
    """Print the document for a person, on stdout."""
    click.echo("")
    if document["state"] == StudyState.FINISHED:
        click.secho(document["sentence"], bold=True)
    else:
        click.secho(f"study {document['name']} is {document['state']}: {document['reason']}", bold=True)
    if document.get("noise"):
        click.echo(noise_sentence(document["noise"]))
    click.echo(f"report:    {document['report']}")
    click.echo(f"database:  {document['database']}")
    if document["launch_command"]:
        click.echo("launch:    " + document["launch_command"])
    click.echo("")


def noise_sentence(noise: dict[str, Any]) -> str:
    """Say in one sentence how noisy a host is and what a win costs there."""
    needed = noise["restarts_per_arm_for_pct"]
    parts = [f"+{pct} % needs {count or 'more than 200'}" for pct, count in needed.items()]
    return (
        f"noise:     one restart scatters by {100 * noise['restart']:.1f} % "
        f"({100 * noise['within']:.1f} % within a start, {100 * noise['between']:.1f} % between starts); "
        f"restarts per arm for a proven win: {', '.join(parts)}"
    )
