"""The report as Markdown, for a chat, a ticket or a terminal."""

from __future__ import annotations

from api.reports import html, launch, learnt, sentences
from api.reports.build import StudyReportData
from storage.records import TrialRecord

SHOWN_TRIALS = 200
"""A ticket with more rows is read by nobody; the JSON has them all."""


def render(data: StudyReportData) -> str:
    """Return the report as Markdown."""
    study = data.study
    version = f" {study.engine_version}" if study.engine_version else ""
    lines = [
        f"# {_cell(study.name)}",
        "",
        f"**{html.sentence(data)}**",
        "",
        (
            f"{study.engine}{version} on {study.host}, {study.state.replace('_', ' ')}; "
            f"{len(data.trials)} starts, {len(data.failed)} failed, {html.elapsed(data)}."
        ),
        "",
        *_best(data),
        *_learnt(data),
        *_failures(data),
        *_trials(data),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _best(data: StudyReportData) -> list[str]:
    best = data.best
    if best is None:
        return []
    lines = ["## Best configuration", ""]
    if data.changes:
        lines += ["| flag | original | best | brought |", "|---|---|---|---:|"]
        lines += [
            f"| `{c.name}` | {_value(c.before)} | {_value(c.after)} | {sentences.gain(c.gain, c.gain_sd, c.sure)} |"
            for c in data.changes
        ]
        lines.append("")
    if best.launch_command:
        lines += ["```sh", launch.wrap(best.launch_command), "```", ""]
    return lines


def _learnt(data: StudyReportData) -> list[str]:
    said = learnt.lines(data.verdict)
    return (
        ["## What the search learnt", "", learnt.CAVEAT, "", *(f"- {_cell(text)}" for text in said), ""] if said else []
    )


def _failures(data: StudyReportData) -> list[str]:
    groups = html.failures(data)
    if not groups:
        return []
    lines = ["## Failed starts", "", "| cause | starts | what happened | what to do |", "|---|---:|---|---|"]
    lines += [f"| `{g.label}` | {g.count} | {_cell(g.summary)} | {_cell(g.remedy)} |" for g in groups]
    return [*lines, ""]


def _trials(data: StudyReportData) -> list[str]:
    if not data.trials:
        return []
    lines = ["## Starts", "", "| # | for | state | differs | tok/s | accept length |", "|---:|---|---|---|---:|---:|"]
    lines += [_row(data, t) for t in data.trials[:SHOWN_TRIALS]]
    if len(data.trials) > SHOWN_TRIALS:
        lines.append(f"\n... and {len(data.trials) - SHOWN_TRIALS} more (`--format json` has all)")
    return [*lines, ""]


def _row(data: StudyReportData, trial: TrialRecord) -> str:
    differs = ", ".join(f"`{sentences.flag_text(k, v)}`" for k, v in data.changed_flags(trial).items()) or "-"
    state = f"{trial.state}: {trial.failure.get('label', '')}" if trial.failure else trial.state
    speed, length = sentences.number(trial.output_tok_s), sentences.number(trial.accept_len, 2)
    return f"| {trial.number} | {trial.kind} | {state} | {_cell(differs)} | {speed} | {length} |"


def _value(value: str | None) -> str:
    return "absent" if value is None else f"`{_cell(value)}`" if value else "present"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
