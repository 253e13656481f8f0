"""`ratchet study`: studies of a running service."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from api.answers import StudyOut
from api.cli.output import print_json, say, tell_removed
from api.cli.remote import api_options, connect, json_format_option, json_option
from api.cli.tables import print_table
from api.client import Ratchet
from optimizer.errors import BadInput, Problem
from optimizer.spec import load_yaml, read_text

OWN_FILES = {"optuna": ".optuna.db", "whole": ".ratchet.gz"}
"""Forms that are no text, with the ending of their file."""
ENDED = frozenset({"finished", "failed", "needs_attention", "paused"})


@click.group()
def study() -> None:
    """Studies of a running service."""


@study.command()
@click.argument("spec", metavar="SPEC.yaml", type=click.Path(path_type=Path))
@click.option("--start", is_flag=True, help="Queue it at once.")
@api_options
@json_option
def create(spec: Path, start: bool, api: str, key: str | None, as_json: bool) -> None:
    """Create a study from a specification file."""
    document = load_yaml(read_text(spec, "the specification"), "the specification")
    with connect(api, key) as ratchet:
        made = ratchet.create_study(document, start=start)
    if as_json:
        print_json(made)
    else:
        click.echo(f"{made['id']}  {made['name']}  {made['state']}")
        if not start:
            say(f"start it with: ratchet study start {made['name']}")


@study.command("list")
@click.option("--state", help="Only studies in this state.")
@api_options
@json_option
def list_studies(state: str | None, api: str, key: str | None, as_json: bool) -> None:
    """List studies, newest first."""
    with connect(api, key) as ratchet:
        found = list(ratchet.studies(state=state))
    if as_json:
        print_json({"items": found})
        return
    rows = [
        [s["id"], s["name"], s["state"].replace("_", " "), s["phase"], s["host"], _trials(s), _verdict(s["verdict"])]
        for s in found
    ]
    print_table(
        ["id", "name", "state", "phase", "host", "starts", "verdict"],
        rows,
        empty="no studies; create one with: ratchet study create SPEC.yaml",
    )


@study.command()
@click.argument("study_id", metavar="ID")
@api_options
@json_option
def show(study_id: str, api: str, key: str | None, as_json: bool) -> None:
    """Show a study: where it is, what is proved, and the best launch command."""
    with connect(api, key) as ratchet:
        found = ratchet.study(study_id)
        best, verdict = ratchet.best(study_id), ratchet.verdict(study_id)
    if as_json:
        print_json(found | {"best": best, "judgement": verdict})
        return
    reason = f" ({found['state_reason']})" if found["state_reason"] else ""
    click.echo(f"{found['name']} ({found['id']}) on {found['host']}: {found['state'].replace('_', ' ')}{reason}")
    click.echo(f"phase {found['phase'] or '-'}, {_trials(found)}")
    click.echo(verdict["sentence"])
    for change in best["changes"]:
        click.echo(f"  {change['name']}: {_value(change['before'])} -> {_value(change['after'])}")
    if best["launch_command"]:
        click.echo(best["launch_command"])


def _steering(name: str, text: str) -> None:
    @study.command(name, help=text)
    @click.argument("study_id", metavar="ID")
    @click.option("--wait", is_flag=True, help="Return when the study has ended, paused or failed.")
    @api_options
    @json_option
    def steer(study_id: str, wait: bool, api: str, key: str | None, as_json: bool) -> None:
        with connect(api, key) as ratchet:
            found: StudyOut = getattr(ratchet, name)(study_id)
            if wait:
                found = _follow(ratchet, found)
        if as_json:
            print_json(found)
        else:
            click.echo(f"{found['name']}  {found['state']}")
        if wait and found["state"] in {"failed", "needs_attention"}:
            sys.exit(1)


_steering("start", "Queue a study.")
_steering("pause", "Put the original server back and wait to be resumed.")
_steering("resume", "Go on with a paused or failed study.")
_steering("stop", "End a study for good; the original server is put back.")


@study.command()
@click.argument("study_id", metavar="ID")
@click.option("--after", type=click.IntRange(0), default=0, help="Only events after this event id.")
@api_options
@json_option
def watch(study_id: str, after: int, api: str, key: str | None, as_json: bool) -> None:
    """Follow a study until it ends; one line per event on stderr."""
    with connect(api, key) as ratchet:
        found = _follow(ratchet, ratchet.study(study_id), after=after)
        verdict = ratchet.verdict(study_id)
    if as_json:
        print_json(found | {"judgement": verdict})
    else:
        click.echo(verdict["sentence"])
    if found["state"] in {"failed", "needs_attention"}:
        sys.exit(1)


@study.command()
@click.argument("study_id", metavar="ID")
@click.option(
    "--format",
    "form",
    type=click.Choice(["html", "md", "json"]),
    default="html",
    show_default=True,
    help="Form of the report.",
)
@click.option("--output", "-o", type=click.Path(path_type=Path), help="A file; default: NAME.html here, else stdout.")
@api_options
@json_format_option
def report(study_id: str, form: str, output: Path | None, api: str, key: str | None, as_json: bool) -> None:
    """Write the report of a study."""
    form = "json" if as_json else form
    with connect(api, key) as ratchet:
        name = ratchet.study(study_id)["name"]
        text = ratchet.report(study_id, form)
    if output is None and form == "html" and sys.stdout.isatty():
        output = Path(f"{name}.html")
    _write(text.encode(), output)


@study.command()
@click.argument("study_id", metavar="ID")
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "json", "optuna", "whole"]),
    default="json",
    show_default=True,
    help="Form of the export.",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    help="A file; default: stdout (optuna: NAME.optuna.db, whole: NAME.ratchet.gz).",
)
@api_options
@json_format_option
def export(study_id: str, form: str, output: Path | None, api: str, key: str | None, as_json: bool) -> None:
    """Export a study as CSV, JSON, a SQLite file that Optuna opens, or whole: what `ratchet study import` reads."""
    form = "json" if as_json else form
    with connect(api, key) as ratchet:
        name = ratchet.study(study_id)["name"]
        content = ratchet.export(study_id, form)
    if output is None and form in OWN_FILES:
        output = Path(f"{name}{OWN_FILES[form]}")
    _write(content, output)


@study.command("import")
@click.argument("source", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--name", help="Another name, beside a study that has this one.")
@click.option("--db", "db_url", metavar="URL", help="Database URL (or RATCHET_DB_URL), not of the service.")
@json_option
def import_(source: Path, name: str | None, db_url: str | None, as_json: bool) -> None:
    """Store a study from FILE, which `ratchet study export --format whole` wrote, in a database of either kind.

    Everything measured comes back exactly. A study that was at work arrives paused.
    """
    from api.cli.database import import_study

    made = import_study(db_url, source, name=name)
    if as_json:
        print_json({"id": made.id, "name": made.name, "state": made.state})
    else:
        click.echo(f"{made.id}  {made.name}  {made.state}")


@study.command()
@click.argument("study_id", metavar="ID")
@api_options
@json_option
def delete(study_id: str, api: str, key: str | None, as_json: bool) -> None:
    """Forget a study that is not active, with everything measured for it."""
    with connect(api, key) as ratchet:
        ratchet.delete_study(study_id)
    tell_removed(study_id, as_json)


@study.command()
@click.argument("study_id", metavar="ID")
@click.option("--priority", type=int, help="Higher goes first on its host.")
@click.option("--window", help="Name of a window; '' takes it away.")
@api_options
@json_option
def change(study_id: str, priority: int | None, window: str | None, api: str, key: str | None, as_json: bool) -> None:
    """Change the priority or the window of a study."""
    with connect(api, key) as ratchet:
        found = ratchet.change_study(study_id, priority=priority, window=window)
    if as_json:
        print_json(found)
    else:
        click.echo(f"{found['name']}  priority {found['priority']}  window {window or found['window_id'] or '-'}")


def _follow(ratchet: Ratchet, found: StudyOut, *, after: int = 0) -> StudyOut:
    """Tell events on stderr until the study has ended; returns it as it is then."""
    if found["state"] in ENDED:
        return found  # nothing may happen any more, and retention may have removed the event of its end
    for event in ratchet.events(found["id"], after=after):
        say(_line(event.kind, event.data))
        if event.kind == "study" and event.data.get("state") in ENDED:
            current = ratchet.study(found["id"])
            # Old endings are told again when a study was resumed; only the present state counts.
            if current["state"] in ENDED:
                return current
    return found


def _line(kind: str, data: dict[str, Any]) -> str:
    told = {k: v for k, v in data.items() if k not in {"study_id", "kind", "at"} and v not in (None, "", {}, [])}
    at = str(data.get("at", ""))[11:19]
    return f"{at} {kind}: " + ", ".join(f"{k} {v}" for k, v in told.items())


def _write(content: bytes, output: Path | None) -> None:
    if output is None:
        sys.stdout.buffer.write(content)
        sys.stdout.flush()
    else:
        try:
            output.write_bytes(content)
        except OSError as error:
            problem = Problem("--output", error.strerror or str(error), str(output))
            raise BadInput("the file cannot be written", [problem]) from error
        say(f"wrote {output}")


def _trials(found: StudyOut) -> str:
    counts = found["trials"]
    done = counts.get("complete", 0) + counts.get("pruned", 0)
    return f"{sum(counts.values())} starts, {done} measured" if counts else "no starts yet"


def _verdict(verdict: dict[str, Any] | None) -> str:
    if not verdict or not verdict.get("outcome"):
        return "-"
    ratio = verdict.get("ratio")
    shown = f" {(ratio - 1) * 100:+.1f} %" if isinstance(ratio, int | float) else ""
    return f"{verdict['outcome'].replace('_', ' ')}{shown}"


def _value(value: str | None) -> str:
    return "absent" if value is None else value or "present"
