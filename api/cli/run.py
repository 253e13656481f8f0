"""`ratchet run SPEC.yaml`: one study in the foreground, with the code of the service."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from api.cli.database import open_migrated, settings_for
from api.cli.foreground import run_in_foreground
from api.cli.output import print_json, say
from api.cli.summary import print_summary, summary
from optimizer import studies
from optimizer.clock import SystemClock
from optimizer.errors import BadInput, Conflict, NotFound, Problem
from optimizer.selftest import noise_report, self_test_spec
from optimizer.settings import Settings
from optimizer.spec import StudySpec, load_study, read_text
from optimizer.studies import StudyState
from storage.engine import Database
from storage.records import StudyRecord


@click.command()
@click.argument("spec_file", metavar="SPEC.yaml", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document at the end.")
@click.option(
    "--db",
    "db_url",
    metavar="URL",
    default="",
    help="Database URL (or RATCHET_DB_URL); default: a SQLite file of your own.",
)
@click.option("--self-test", is_flag=True, help="Compare the baseline with itself: it must come out as no win.")
def run(spec_file: Path, as_json: bool, db_url: str, self_test: bool) -> None:
    """Run the study of SPEC.yaml here until its verdict; Ctrl-C puts the old server back, the same command goes on."""
    spec = load_study(read_text(spec_file, "the specification"))
    settings = settings_for(db_url)
    if self_test:
        spec = self_test_spec(spec)
    db = open_migrated(settings)
    try:
        study = find_or_create(db, spec)
        study = run_in_foreground(db, study, spec, settings, plain=True if as_json else None)
        extra = {"noise": noise_report(db, study.id, spec)} if self_test else None
        end(db, study, settings, as_json=as_json, extra=extra)
    finally:
        db.close()


def find_or_create(db: Database, spec: StudySpec) -> StudyRecord:
    """Return the study of this name to go on with, or a new one.

    Raises:
        Conflict: a study of this name measures something else.
    """
    try:
        known = studies.get(db, spec.name)
    except NotFound:
        return create(db, spec)
    if known.fingerprint != studies.fingerprint(spec):
        raise Conflict(
            f"study {spec.name!r} exists and measures something else (its launch, space or workload differ)",
            remedy="give this specification another name, or delete the old study",
        )
    say(f"going on with study {known.name} ({known.id}), {known.state}")
    stored, given = studies.load_spec(known).model_dump(mode="json"), spec.model_dump(mode="json")
    changed = [name for name, value in given.items() if value != stored[name]]
    if changed:
        say(f"note: it goes on as it was created; what {', '.join(changed)} says now needs a study of another name")
    return known


def create(db: Database, spec: StudySpec) -> StudyRecord:
    """Store a new study.

    Raises:
        BadInput: its host is only a name, and no host of this name is registered in this database.
    """
    try:
        return studies.create(db, spec, now=SystemClock().now())
    except NotFound as error:
        hint = "write the whole host here (name, connection, ssh), or register it with `ratchet host add FILE.yaml`"
        problem = Problem("host", "is not registered in this database", spec.host_name, hint)
        raise BadInput("the study cannot be created", [problem]) from error


def end(
    db: Database, study: StudyRecord, settings: Settings, *, as_json: bool, extra: dict[str, Any] | None = None
) -> None:
    """Print how the study ended and leave with its exit code."""
    document = summary(db, study, settings) | (extra or {})
    if as_json:
        print_json(document)
    else:
        print_summary(document)
    if study.state != StudyState.FINISHED:
        sys.exit(1)
