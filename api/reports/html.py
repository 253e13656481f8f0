"""The report as one HTML file: style and plots inline, no script, no network. What it says comes from `build`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from api.reports import build, launch, learnt, plots, sentences
from api.reports.build import StudyReportData


@dataclass(frozen=True)
class FailureGroup:
    """Failed starts of one cause."""

    label: str
    count: int
    summary: str
    remedy: str


def render(data: StudyReportData) -> str:
    """Return the whole file."""
    return (
        environment("api.reports")
        .get_template("report.html.j2")
        .render(
            data=data,
            best=data.best,
            style=_style(),
            sentence=sentence(data),
            outcome=str((data.verdict or {}).get("outcome", data.study.state)),
            elapsed=elapsed(data),
            interval=plots.interval(data),
            progress=plots.progress(data),
            acceptance=plots.acceptance(data),
            failures=failures(data),
            learnt=learnt.lines(data.verdict),
            caveat=learnt.CAVEAT,
            phases=sorted(data.seconds_by_phase().items(), key=lambda p: -p[1]),
            **facts(data),
        )
    )


def write(data: StudyReportData, path: Path) -> Path:
    """Write the file (folders are made) and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(data), encoding="utf-8")
    return path


def sentence(data: StudyReportData) -> str:
    """Return the verdict's sentence for a study."""
    return sentences.verdict_sentence(
        data.verdict, baseline_tok_s=data.baseline_tok_s, best_tok_s=data.best_tok_s, state=data.study.state
    )


def failures(data: StudyReportData) -> list[FailureGroup]:
    """Group the failed starts by cause, most frequent first."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for trial in data.failed:
        failure = trial.failure or {}
        groups.setdefault(str(failure.get("label", "unknown")), []).append(failure)
    found = [
        FailureGroup(label, len(items), str(items[-1].get("summary", "")), str(items[-1].get("remedy", "")))
        for label, items in groups.items()
    ]
    return sorted(found, key=lambda g: (-g.count, g.label))


def elapsed(data: StudyReportData) -> str:
    """Wall time from the start to the end, or to now while it runs."""
    started = data.study.started_at or min((t.started_at for t in data.trials if t.started_at), default=None)
    if started is None:
        return "-"
    return sentences.duration(((data.study.finished_at or data.generated_at) - started).total_seconds())


def facts(data: StudyReportData) -> dict[str, str]:
    """The small print: workload, budget, path, hardware."""
    spec = data.study.spec
    workload = spec.get("workload") or {}
    budget = spec.get("budget") or {}
    hardware = data.study.hardware or {}
    return {
        "workload": ", ".join(f"{k} {v}" for k, v in workload.items()) or "-",
        "budget": ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in budget.items() if v is not None) or "-",
        "paths": ", ".join(sorted({m.path for m in data.measurements})) or "-",
        "hardware": ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in hardware.items() if v) or "-",
    }


@cache
def _style() -> str:
    return files("api.reports").joinpath("templates", "report.css").read_text(encoding="utf-8")


@cache
def environment(package: str) -> Environment:
    """Return the templates of a package, strict and escaped, with the filters that reports and pages share."""
    environment = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=sentences.number,
        duration=sentences.duration,
        moment=sentences.moment,
        wrap_command=launch.wrap,
        start_s=build.start_s,
    )
    environment.globals |= {"flag_text": sentences.flag_text, "gain_text": sentences.gain}
    return environment
