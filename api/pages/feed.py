"""What happened and what happens now, in words: the events of a study as its page shows them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from storage.records import EventRecord

TRIAL_PHASES = ("preflight", "launch", "load", "measure", "stop")
"""What every start goes through; others (a soak) are shown when they happen."""


@dataclass(frozen=True)
class FeedLine:
    """One event in words."""

    at: datetime
    text: str


@dataclass(frozen=True)
class PhaseStep:
    """One phase of the current start: `done`, `now` or not reached, since when, and for how long it lasted."""

    name: str
    mark: str
    since: datetime | None = None
    seconds: float | None = None


def feed_line(event: EventRecord) -> FeedLine | None:
    """One event in words; None for those that say nothing to a person."""
    data = event.data
    number = f"start {data['number']}" if "number" in data else ""
    text = ""
    if event.kind == "study":
        text = " ".join(
            str(v).replace("_", " ") for v in (data.get("state") or data.get("phase"), data.get("reason")) if v
        )
    elif event.kind == "trial":
        speed = data.get("output_tok_s")
        shown = f", {speed:.1f} tok/s" if isinstance(speed, int | float) else ""
        text = f"{number} {data.get('state', '')}{shown}" + (f": {data['failure']}" if data.get("failure") else "")
    elif event.kind in {"phase", "stage"}:
        text = f"{number}: {data.get('phase') or data.get('stage')}"
    elif event.kind == "home":
        text = f"original server {data.get('state', '')}"
    elif event.kind == "guard":
        text = f"guard on the host: {data.get('state') or data.get('event') or ''}"
    elif event.kind == "stopped":
        text = f"{number}: server stopped" + (" by SIGKILL" if data.get("killed") else "")
    elif event.kind in {"verdict", "verdict_final"}:
        text = f"verdict{' so far' if event.kind == 'verdict' else ''}: {data.get('outcome', '')}".replace("_", " ")
    else:
        text = str(data.get("text") or event.kind)
    return FeedLine(event.at, text) if text.strip() else None


def trial_steps(recent: list[EventRecord], number: int) -> list[PhaseStep]:
    """The phases of a live start by its events: those it went through with their time, the present one, the rest."""
    began = [(str(e.data.get("phase")), e.at) for e in recent if e.kind == "phase" and e.data.get("number") == number]
    if not began:
        return [PhaseStep(name, "") for name in TRIAL_PHASES]
    ends = [at for _, at in began[1:]]
    done = [
        PhaseStep(name, "done", at, (end - at).total_seconds()) for (name, at), end in zip(began, ends, strict=False)
    ]
    present, since = began[-1]
    after = TRIAL_PHASES.index(present) + 1 if present in TRIAL_PHASES else TRIAL_PHASES.index("stop")
    return [*done, PhaseStep(present, "now", since), *(PhaseStep(name, "") for name in TRIAL_PHASES[after:])]


def stage_of(recent: list[EventRecord], number: int) -> str:
    """The last stage that the log of a live start showed."""
    return next(
        (str(e.data["stage"]) for e in reversed(recent) if e.kind == "stage" and e.data.get("number") == number), ""
    )
