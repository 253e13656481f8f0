"""A study as it is seen in a terminal: a live table, or plain lines when standard error is no terminal.

Reads events and rows from the database like any other viewer; decides nothing about the study.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from scipy.special import stdtrit

from optimizer.plan import flags_that_differ
from storage import events, studies, trials
from storage.engine import Database
from storage.records import EventRecord, StudyRecord, TrialRecord

SHOWN_TRIALS = 14
REFRESH_S = 0.25
PAGE = 500
"""Events read at once."""


@dataclass
class View:
    """What has been seen of a study so far."""

    db: Database
    study_id: str
    planned_trials: int
    started: float = field(default_factory=time.monotonic)
    last_event: int = 0
    step: str = "starting"
    notes: list[str] = field(default_factory=list)
    study: StudyRecord | None = None
    trials: list[TrialRecord] = field(default_factory=list)
    printed: set[int] = field(default_factory=set)

    def refresh(self) -> list[str]:
        """Read what is new; return one plain line for each thing worth telling."""
        with self.db.read() as conn:
            fresh = self._fresh(conn)
            self.study = studies.find(conn, self.study_id)
            self.trials = list(trials.list_trials(conn, self.study_id, limit=100_000))
        lines = []
        for event in fresh:
            line = self._ended(event.data) if event.kind == "trial" else self._line(event.kind, event.data)
            if line:
                lines.append(line)
        return lines

    def _fresh(self, conn: Any) -> list[EventRecord]:
        """Every event since the last look: after the end of the study there is none more."""
        found: list[EventRecord] = []
        while page := events.since(conn, self.last_event, study_id=self.study_id, limit=PAGE):
            self.last_event = page[-1].id
            found += page
        return found

    def _ended(self, data: dict[str, Any]) -> str:
        trial = next((t for t in self.trials if t.number == data.get("number") and t.finished_at is not None), None)
        if trial is None or trial.number in self.printed:
            return ""
        self.printed.add(trial.number)
        return self.trial_line(trial)

    def _line(self, kind: str, data: dict[str, Any]) -> str:
        if kind == "phase":
            self.step = f"trial {data['number']}: {data['phase']}"
        elif kind == "study" and data.get("phase"):
            self.step = str(data["phase"])
            return f"phase: {data['phase']}"
        elif kind == "home":
            self.step = f"home {data['state']}"
            return f"home: {data['state']}"
        elif kind in {"note", "warning"}:
            self.notes = [*self.notes, str(data.get("text"))][-3:]
            return f"{kind}: {data.get('text')}"
        elif kind == "verdict":
            return _verdict_line(data)
        return ""

    def spread(self) -> float | None:
        """Half width of a 95 % interval of one start, as a share: from the scatter of the baseline's restarts."""
        values = [
            t.output_tok_s for t in self.trials if t.arm == "baseline" and t.state == "complete" and t.output_tok_s
        ]
        if len(values) < 3:
            return None
        return float(stdtrit(len(values) - 1, 0.975)) * statistics.stdev(values) / statistics.fmean(values)

    def baseline_config(self) -> dict[str, Any]:
        """The effective configuration of the baseline, once it has been started."""
        return next((t.effective for t in self.trials if t.kind == "baseline"), {})

    def differs(self, trial: TrialRecord) -> str:
        """Name the flags in which a trial's server differs from the baseline's."""
        if trial.arm == "baseline":
            return "(as home)"
        changed = flags_that_differ(self.baseline_config(), trial.effective)
        searched = {**(self.study.spec["space"]["parameters"] if self.study else {}), **trial.params}
        told = {k: new for k, (_, new) in changed.items() if k in searched}
        return " ".join(f"{k}={_short(new)}" for k, new in told.items()) or "(as home)"

    def best(self) -> TrialRecord | None:
        """The fastest complete trial so far."""
        done = [t for t in self.trials if t.state == "complete" and t.output_tok_s]
        return max(done, key=lambda t: t.output_tok_s or 0.0, default=None)

    def baseline_tok_s(self) -> float | None:
        """Mean of the baseline's restarts so far."""
        values = [
            t.output_tok_s for t in self.trials if t.arm == "baseline" and t.state == "complete" and t.output_tok_s
        ]
        return statistics.fmean(values) if values else None

    def time_left_s(self) -> float | None:
        """A guess from the trials so far; None before there is one."""
        spans = [(t.finished_at - t.started_at).total_seconds() for t in self.trials if t.finished_at and t.started_at]
        if not spans:
            return None
        left = max(0, self.planned_trials - len(spans))
        return left * statistics.fmean(spans)

    def trial_line(self, trial: TrialRecord) -> str:
        """One finished trial as a plain line."""
        speed = f"{trial.output_tok_s:6.1f} tok/s" if trial.output_tok_s else "             "
        accept = f" accept {trial.accept_len:.2f}" if trial.accept_len else ""
        why = f" {trial.failure['label']}: {trial.failure['summary']}" if trial.failure else ""
        return f"trial {trial.number:3d} {trial.kind:8s} {trial.state:10s} {speed}{accept}  {self.differs(trial)}{why}"


SAYS_NOTHING = 10.0
"""Upper end over lower end of an interval that is not worth reading: two or three restarts make such ones."""


def _verdict_line(data: dict[str, Any]) -> str:
    """One look at the evidence; an interval that is still open, or says next to nothing, is not shown."""
    low, high = data.get("ci_low"), data.get("ci_high")
    interval = (
        f" [{low:.3f}, {high:.3f}]" if low and high and high / low < SAYS_NOTHING else ", too early for an interval"
    )
    return (
        f"verdict so far: {data['outcome']}, {data['ratio']:.3f} times home{interval} after {data['restarts']} restarts"
    )


def _short(value: Any) -> str:
    """A value for a narrow column: the last part of a path, a dash for absent."""
    return "-" if value is None else str(value).rsplit("/", 1)[-1]


def table(view: View) -> Group:
    """Draw the view."""
    out = Table(expand=True, show_edge=False, pad_edge=False, header_style="bold")
    for name, style in (("#", "dim"), ("phase", ""), ("tok/s", "bold"), ("accept", ""), ("differs from home", "cyan")):
        out.add_column(
            name,
            style=style,
            justify="right" if name in {"#", "tok/s", "accept"} else "left",
            no_wrap=name != "differs from home",
        )
    best = view.best()
    for trial in view.trials[-SHOWN_TRIALS:]:
        out.add_row(
            str(trial.number),
            trial.kind,
            _speed(view, trial),
            f"{trial.accept_len:.2f}" if trial.accept_len else "",
            _what(view, trial),
            style="green" if best and trial.number == best.number else None,
        )
    return Group(
        Panel(_head(view, best), title="ratchet", title_align="left"),
        out,
        *(Text(n, style="yellow") for n in view.notes),
    )


def _speed(view: View, trial: TrialRecord) -> str:
    if trial.output_tok_s is None:
        return trial.phase or trial.state
    share = view.spread()
    spread = f" ±{share * trial.output_tok_s:.1f}" if share is not None else ""
    return f"{trial.output_tok_s:.1f}{spread}" + (" (cut short)" if trial.state == "pruned" else "")


def _what(view: View, trial: TrialRecord) -> str:
    if trial.failure:
        return f"{view.differs(trial)}  ✗ {trial.failure['label']}: {trial.failure['summary']}"
    return view.differs(trial)


def _head(view: View, best: TrialRecord | None) -> Text:
    base, left = view.baseline_tok_s(), view.time_left_s()
    spent = time.monotonic() - view.started
    text = Text()
    text.append(f"{view.study.phase if view.study and view.study.phase else 'start'}", style="bold magenta")
    text.append(f"   {view.step}   {spent:.0f} s spent")
    if left is not None:
        text.append(f", about {left:.0f} s left")
    if base:
        text.append(f"\nhome {base:.1f} tok/s")
        if best and best.output_tok_s:
            text.append(
                f"   best so far {best.output_tok_s:.1f} tok/s ({best.output_tok_s / base:.2f}x, not yet proven)",
                style="green",
            )
    return text


def follow(view: View, finished: Any, *, plain: bool | None = None) -> None:
    """Show the view until `finished()` says so."""
    console = Console(stderr=True)
    if plain if plain is not None else not console.is_terminal:
        while True:
            done = finished()
            for line in view.refresh():
                print(line, file=sys.stderr, flush=True)
            if done:
                return
            time.sleep(REFRESH_S)
    with Live(table(view), console=console, refresh_per_second=4, transient=False) as live:
        while True:
            done = finished()
            view.refresh()
            live.update(table(view))
            if done:
                return
            time.sleep(REFRESH_S)
