"""Whole studies on the demo's real llama-server, one after the other, with one JSON line for each in a file.

Decides how a long benchmark survives being stopped: what is in the file is not run again.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from api.cli.foreground import run_in_foreground
from api.demo import assets
from api.demo.stage import Stage, set_stage
from optimizer import studies
from optimizer.clock import SystemClock
from optimizer.settings import Settings
from optimizer.spec import StudySpec
from optimizer.studies import StudyState
from storage.engine import Database, open_database
from storage.migrate import upgrade
from storage.records import StudyRecord

Row = dict[str, Any]


def run_study(make_spec: Callable[[Stage], StudySpec], read: Callable[[Database, StudyRecord, StudySpec], Row]) -> Row:
    """Run one study on a stage of its own and return what `read` makes of it, with the seconds it took.

    Raises:
        SystemExit: the study did not finish.
    """
    said = assets.prepare(lambda text: print(text, file=sys.stderr))
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, set_stage(said, lambda text: None) as stage:
        spec, db = make_spec(stage), open_database(f"sqlite:///{folder}/studies.db")
        try:
            upgrade(db)
            record = studies.create(db, spec, now=SystemClock().now())
            record = run_in_foreground(db, record, spec, Settings(data_dir=Path(folder)), plain=True)
            if record.state != StudyState.FINISHED:
                raise SystemExit(f"the study is {record.state}: {record.state_reason}")
            return read(db, record, spec) | {"seconds": round(time.monotonic() - begun, 1)}
        finally:
            db.close()


def rows_of(out: Path) -> list[Row]:
    """Return what earlier runs wrote; a line cut off by a stop is left out."""
    found = []
    for line in out.read_text("utf-8").splitlines() if out.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def keep(out: Path, row: Row) -> None:
    """Append one row."""
    with out.open("a", encoding="utf-8") as handle:
        handle.write(json.dumps(row) + "\n")
    print(json.dumps(row), flush=True)
