"""A study as data: JSON (versioned, everything but raw samples and logs) and CSV (one line per start).

The JSON's shape is described in docs/reference/rest.md; `schema_version` grows when a field changes its meaning.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict
from typing import Any

from api.reports import html, launch
from api.reports.build import StudyReportData

SCHEMA_VERSION = 1
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def document(data: StudyReportData) -> dict[str, Any]:
    """Return the study as plain data (times still as datetimes)."""
    best = data.best
    return {
        "schema": "ratchet-study",
        "schema_version": SCHEMA_VERSION,
        "generated_at": data.generated_at,
        "study": asdict(data.study) | {"home": launch.shown_home(data.study.home)},
        "summary": {
            "sentence": html.sentence(data),
            "verdict": data.verdict,
            "baseline_tok_s": data.baseline_tok_s,
            "best_tok_s": data.best_tok_s,
            "best_trial": best.number if best else None,
            "launch_command": best.launch_command if best else None,
            "changes": [asdict(c) for c in data.changes],
            "starts": len(data.trials),
            "failures": [asdict(g) for g in html.failures(data)],
            "seconds_by_phase": data.seconds_by_phase(),
        },
        "trials": [asdict(t) | launch.shown_flags(vars(t)) for t in data.trials],
        "measurements": [asdict(m) for m in data.measurements],
        "verdicts": [asdict(v) for v in data.verdicts],
    }


def to_json(data: StudyReportData) -> str:
    """Return the document as text; numbers that JSON cannot write become null."""
    return json.dumps(finite(document(data)), indent=2, ensure_ascii=False, default=_plain) + "\n"


def to_csv(data: StudyReportData) -> str:
    """Return one line per start: fixed columns, then `p.<parameter>`, then `t.<phase>` and `m.<metric>`."""
    params = sorted({name for t in data.trials for name in t.params})
    timings = sorted({name for t in data.trials for name in t.timings})
    metrics = sorted({name for t in data.trials for name in t.metrics})
    fixed = ["number", "kind", "state", "arm", "output_tok_s", "accept_len", "accept_rate", "step_ms"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [*fixed, "failed", *(f"p.{n}" for n in params), *(f"t.{n}" for n in timings), *(f"m.{n}" for n in metrics),
         "started_at", "finished_at", "launch_command"]
    )  # fmt: skip
    for trial in data.trials:
        row: list[Any] = [getattr(trial, name) for name in fixed]
        row.append((trial.failure or {}).get("label"))
        row += [trial.params.get(n) for n in params] + [trial.timings.get(n) for n in timings]
        row += [trial.metrics.get(n) for n in metrics]
        row += [trial.started_at and trial.started_at.isoformat(), trial.finished_at and trial.finished_at.isoformat()]
        writer.writerow([_cell(v) for v in [*row, trial.launch_command]])
    return text.getvalue()


def _cell(value: Any) -> Any:
    """Keep a text from being run as a formula by a spreadsheet; numbers stay numbers."""
    if isinstance(value, str) and value.startswith(FORMULA_STARTS):
        return f"'{value}"
    return "" if value is None else value


def finite(value: Any) -> Any:
    """Return the value with every NaN and infinity replaced by None, through dicts and lists."""
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return value


def _plain(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
