"""What the page of one trial shows: everything that was recorded of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from api.deps import Services
from api.reports import launch
from api.reports.export import finite
from storage import events, logs, measurements, series, trials
from storage.errors import Missing
from storage.records import RequestRecord, SeriesRecord, StudyRecord

Context = dict[str, Any]
SHOWN_SAMPLES = 1000
SERIES_POINTS = 400
"""More points of one line than a screen has pixels for say nothing."""
TRIAL_LOG_TAIL = 64_000


def trial_page(use: Services, study: StudyRecord, number: int) -> Context:
    """Everything of the page of one trial. Raises Missing."""
    with use.db.read() as conn:
        record = trials.get(conn, study.id, number)
        measured = measurements.for_trial(conn, study.id, number)
        requests = measurements.requests_of(conn, study.id, number)
        base = trials.list_trials(conn, study.id, limit=1, kinds=["baseline"])
        following = trials.list_trials(conn, study.id, limit=1, after=number)
        found = series.for_trial(conn, study.id, number)
        last = events.last_id(conn, study_id=study.id)
        try:
            log = logs.get(conn, study.id, number)[-TRIAL_LOG_TAIL:].decode("utf-8", "replace")
        except Missing:
            log = ""
    timings = [(k.removesuffix("_s").replace("stage:", "  "), v) for k, v in record.timings.items()]
    return {
        "study": study,
        "trial": replace(record, **launch.shown_flags(vars(record))),
        "changed": launch.changed_parameters(record, base[0] if base else None, study.spec),
        "measured": measured,
        "requests": len(requests),
        "samples": [sample(r) for r in requests[:SHOWN_SAMPLES]],
        "series": series_plots(found),
        "timings": timings,
        "log_text": log,
        "previous": number - 1 if number > 0 else None,
        "following": following[0].number if following else None,
        "last_event": last,
    }


def series_plots(found: list[SeriesRecord]) -> list[Context]:
    """One plot for each quantity, with a line for each source that counted it."""
    plots_by_name: dict[str, list[Context]] = {}
    for one in found:
        every = max(1, -(-len(one.times_s) // SERIES_POINTS))
        line: Context = finite({"source": one.source, "x": one.times_s[::every], "y": one.values[::every]})
        plots_by_name.setdefault(one.name, []).append(line)
    return [{"name": name, "lines": lines} for name, lines in sorted(plots_by_name.items())]


def sample(request: RequestRecord) -> Context:
    """One request as the table and the plot show it."""
    span = request.end_s - request.start_s
    first = request.first_token_s
    found: Context = finite(
        {
            "prompt": request.prompt,
            "repeat": request.repeat,
            "concurrency": request.concurrency,
            "start_s": request.start_s,
            "ttft_ms": (first - request.start_s) * 1000 if first is not None else None,
            "output_tokens": request.output_tokens,
            "tok_s": request.output_tokens / span if span > 0 and not request.error else None,
            "error": request.error,
            "finish_reason": request.finish_reason,
        }
    )
    return found
