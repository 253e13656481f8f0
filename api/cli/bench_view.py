"""What `ratchet bench` shows in a terminal: a table of the levels, histograms, warnings."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from optimizer.bench.base import Measurement, Workload
from optimizer.bench.derive import arrival_gaps_s, percentile

BAR = 40
BINS = 12
MOST_PROMPTS, MOST_REPEATS = 20, 10
"""Rows and values that a terminal shows; `--json` has all."""
ROWS = (
    ("output_tok_s", "stream, tok/s (end to end)", "{:.1f}"),
    ("output_tok_s_ci_low", "  95 % within this start: from", "{:.1f}"),
    ("output_tok_s_ci_high", "  to", "{:.1f}"),
    ("decode_tok_s", "stream, tok/s (decode)", "{:.1f}"),
    ("throughput_tok_s", "server, tok/s", "{:.1f}"),
    ("ttft_p50_ms", "first token p50, ms", "{:.1f}"),
    ("ttft_p99_ms", "first token p99, ms", "{:.1f}"),
    ("itl_p50_ms", "between tokens p50, ms", "{:.2f}"),
    ("itl_p99_ms", "between tokens p99, ms", "{:.2f}"),
    ("latency_p50_ms", "whole answer p50, ms", "{:.0f}"),
    ("request_s", "answers per second", "{:.2f}"),
    ("goodput_share", "goodput, share", "{:.2f}"),
    ("error_rate", "failed, share", "{:.3f}"),
    ("client_lag_p99_ms", "client lag p99, ms", "{:.2f}"),
)


def show(measurement: Measurement, workload: Workload) -> None:
    """Print the table, the histograms and the warnings on stdout."""
    console = Console()
    console.print(_levels(measurement, workload))
    console.print(_prompts(measurement))
    good = [s for s in measurement.samples if s.ok and s.concurrency == workload.concurrency[0]]
    first = [(s.first_token_s - s.start_s) * 1e3 for s in good if s.first_token_s is not None]
    gaps = [g * 1e3 for s in good for g in arrival_gaps_s(s)]
    for title, values in (("time to first token, ms", first), ("time between tokens, ms", gaps)):
        if len(values) > 1:
            console.print(f"\n{title} (concurrency {workload.concurrency[0]}, n = {len(values)})")
            console.print("\n".join(histogram(values)), markup=False, highlight=False)
    if measurement.accept_len is not None:
        rate = f", accept rate {measurement.accept_rate:.2f}" if measurement.accept_rate is not None else ""
        console.print(f"\naccept length {measurement.accept_len:.2f} (with the bonus token){rate}")
    for warning in measurement.warnings:
        console.print(f"warning: {warning}", style="yellow", markup=False)


def _levels(measurement: Measurement, workload: Workload) -> Table:
    table = Table(title=f"{escape(workload.name)} ({workload.fingerprint}), cache {workload.cache}")
    table.add_column("concurrency")
    for level in workload.concurrency:
        table.add_column(str(level), justify="right")
    for name, label, form in ROWS:
        cells = [measurement.metrics.get(f"{name}@{level}") for level in workload.concurrency]
        if any(c is not None for c in cells):
            table.add_row(label, *("" if c is None else form.format(c) for c in cells))
    return table


def _prompts(measurement: Measurement) -> Table:
    table = Table()
    table.add_column("prompt")
    table.add_column("tok/s (end to end), by repeat", justify="right")
    for prompt, values in list(measurement.tok_s.items())[:MOST_PROMPTS]:
        table.add_row(
            escape(prompt), "  ".join(f"{v:.1f}" for v in values[:MOST_REPEATS]) + _more(values, MOST_REPEATS)
        )
    if more := _more(list(measurement.tok_s), MOST_PROMPTS):
        table.add_row(f"{more.strip()} (all with --json)", "")
    return table


def _more(values: Sequence[object], shown: int) -> str:
    """Say how many are not shown."""
    return f"  and {len(values) - shown} more" if len(values) > shown else ""


def histogram(values: Sequence[float]) -> list[str]:
    """Return the lines of a histogram; the last bin holds everything above the 99th percentile."""
    low, high = min(values), percentile(values, 99)
    width = (high - low) / BINS or 1.0
    counts = [0] * (BINS + 1)
    for value in values:
        counts[min(BINS, int((value - low) / width))] += 1
    top = max(counts)
    return [
        f"{'>' if i == BINS else ' '}{low + i * width:10.2f} {'█' * round(BAR * count / top):<{BAR}} {count}"
        for i, count in enumerate(counts)
        if count or i < BINS
    ]
