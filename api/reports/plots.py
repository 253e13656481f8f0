"""Plots as inline SVG: no script, no font, no network. Colours come from the page's CSS variables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from api.reports.build import StudyReportData
from api.reports.sentences import percent
from storage.records import TrialRecord

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 16, 44


SAME = 1e-9
"""Values that lie closer than this share are drawn as one: no tick can be written between them."""


@dataclass(frozen=True)
class Axis:
    """A linear axis from data to pixels, with its ticks at round numbers."""

    low: float
    high: float
    start_px: float
    end_px: float
    ticks: tuple[float, ...]

    def at(self, value: float) -> float:
        """Return the pixel of a value."""
        return self.start_px + (value - self.low) / (self.high - self.low) * (self.end_px - self.start_px)


def axis(values: Sequence[float], start_px: float, end_px: float, *, whole: bool = False, pad: float = 0.06) -> Axis:
    """Fit an axis around the values, padded, with about five ticks (`whole`: at integers only)."""
    low, high = min(values), max(values)
    span = high - low
    if span < SAME * max(1.0, abs(low), abs(high)):
        span = max(abs(high) * 0.1, 1.0)
    low, high = low - pad * span, high + pad * span
    step = _nice((high - low) / 5)
    if whole:
        step = max(1.0, math.ceil(step))
    first = math.ceil(low / step)
    ticks = tuple(round(i * step, 10) for i in range(first, math.floor(high / step) + 1))
    return Axis(low, high, start_px, end_px, ticks)


def progress(data: StudyReportData) -> str:
    """Best so far over starts, every measured start as a dot, failures at the foot, the baseline's band behind."""
    shown = [t for t in data.trials if t.output_tok_s is not None and t.state in {"complete", "pruned"}]
    if not shown:
        return ""
    band = data.baseline_band
    ys = [t.output_tok_s or 0.0 for t in shown if t.state == "complete"] or [t.output_tok_s or 0.0 for t in shown]
    x = axis([t.number for t in data.trials], LEFT, WIDTH - RIGHT, whole=True, pad=0.03)
    y = axis([*ys, *(band or ())], HEIGHT - BOTTOM, TOP)
    parts = [_frame(x, y, "start", "output tok/s")]
    if band:
        top, low = y.at(band[1]), y.at(band[0])
        middle = y.at(data.baseline_tok_s or band[0])
        parts.append(
            f'<rect class="band" x="{LEFT}" width="{WIDTH - RIGHT - LEFT}" y="{top:.1f}" '
            f'height="{max(low - top, 2):.1f}"><title>baseline {band[0]:.1f} to {band[1]:.1f} tok/s</title></rect>'
            f'<line class="base" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{middle:.1f}" y2="{middle:.1f}"/>'
            f'<text class="note" x="{WIDTH - RIGHT - 4}" y="{top - 5:.1f}" text-anchor="end">baseline</text>'
        )
    parts.append(_best_line(data, x, y))
    for trial in shown:
        height = min(max(y.at(trial.output_tok_s or 0.0), TOP), HEIGHT - BOTTOM)
        kind = "dot pruned" if trial.state == "pruned" else f"dot {escape(trial.kind)}"
        parts.append(
            f'<circle class="{kind}" cx="{x.at(trial.number):.1f}" cy="{height:.1f}" r="4">'
            f"{_title(data, trial)}</circle>"
        )
    for trial in data.trials:
        if trial.state == "infeasible":
            px, py = x.at(trial.number), HEIGHT - BOTTOM - 7
            parts.append(
                f'<path class="cross" d="M{px - 3.5:.1f} {py - 3.5}l7 7m0 -7l-7 7">{_title(data, trial)}</path>'
            )
    return _svg(parts, f"Best output speed over {len(data.trials)} starts")


def acceptance(data: StudyReportData) -> str:
    """Speed against accept length, with lines of equal step time: speed is their quotient."""
    shown = [t for t in data.trials if t.state == "complete" and t.output_tok_s and t.accept_len]
    if len(shown) < 2 or max(t.accept_len or 0 for t in shown) <= 1.001:
        return ""
    x = axis([t.accept_len or 0.0 for t in shown], LEFT, WIDTH - RIGHT)
    y = axis([t.output_tok_s or 0.0 for t in shown], HEIGHT - BOTTOM, TOP)
    parts = [_frame(x, y, "accept length (tokens per verification, bonus token included)", "output tok/s")]
    times = sorted(1000.0 * (t.accept_len or 1.0) / (t.output_tok_s or 1.0) for t in shown)
    for step_ms in sorted({float(f"{times[len(times) * part // 10]:.2g}") for part in (1, 5, 9)}):
        parts.append(_iso_line(step_ms, x, y))
    best = data.best
    for trial in shown:
        kind = "dot best" if best and trial.number == best.number else f"dot {escape(trial.kind)}"
        parts.append(
            f'<circle class="{kind}" cx="{x.at(trial.accept_len or 0.0):.1f}" '
            f'cy="{y.at(trial.output_tok_s or 0.0):.1f}" r="5">{_title(data, trial)}</circle>'
        )
    return _svg(parts, "Output speed against accept length")


def interval(data: StudyReportData) -> str:
    """The verdict as an interval against 1.0 (no change), one line per candidate looked at."""
    latest = {v.candidate_key: v for v in data.verdicts}
    rows = [(v, *v.interval) for v in latest.values() if v.ratio and v.interval]
    if not rows:
        return ""
    rows.sort(key=lambda row: -row[0].ratio)
    height = TOP + 34 * len(rows) + BOTTOM
    x = axis([1.0, *(low for _, low, _ in rows), *(high for _, _, high in rows)], LEFT, WIDTH - RIGHT, pad=0.12)
    parts = [f'<line class="base" x1="{x.at(1):.1f}" x2="{x.at(1):.1f}" y1="{TOP}" y2="{height - BOTTOM}"/>']
    for tick in x.ticks:
        parts.append(
            f'<text class="tick" x="{x.at(tick):.1f}" y="{height - BOTTOM + 18}" text-anchor="middle">'
            f"{percent(tick)}</text>"
        )
    for i, (row, low, high) in enumerate(rows):
        middle = TOP + 34 * i + 20
        kind = "win" if row.outcome == "win" else "open"
        label = f"{percent(row.ratio)} ({percent(low)} to {percent(high)}), {row.restarts} restarts"
        parts.append(
            f'<g class="interval {kind}"><title>{label}</title>'
            f'<line x1="{x.at(low):.1f}" x2="{x.at(high):.1f}" y1="{middle}" y2="{middle}"/>'
            f'<circle cx="{x.at(row.ratio):.1f}" cy="{middle}" r="6"/></g>'
            f'<text class="note" x="{min(max(x.at(row.ratio), 190), WIDTH - 190):.1f}" y="{middle - 11}" '
            f'text-anchor="middle">{label}</text>'
        )
    parts.append(
        f'<text class="label" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{height - 6}" text-anchor="middle">'
        "speed of the candidate over the original's</text>"
    )
    return _svg(parts, "Confirmed difference with its interval", height)


def _best_line(data: StudyReportData, x: Axis, y: Axis) -> str:
    best = 0.0
    path = ""
    for trial in data.trials:
        speed = trial.output_tok_s
        if trial.state == "complete" and speed is not None and speed > best and trial.arm != "baseline":
            path += (
                f"M{x.at(trial.number):.1f} {y.at(speed):.1f}"
                if not path
                else f"H{x.at(trial.number):.1f}V{y.at(speed):.1f}"
            )
            best = speed
    return f'<path class="bestline" d="{path}H{WIDTH - RIGHT}"/>' if path else ""


def _iso_line(step_ms: float, x: Axis, y: Axis) -> str:
    """Speed at one step time is a straight line through the origin; draw the part inside the frame."""
    slope = 1000.0 / step_ms
    low = max(x.low, y.low / slope)
    high = min(x.high, y.high / slope)
    if high <= low:
        return ""
    return (
        f'<line class="iso" x1="{x.at(low):.1f}" y1="{y.at(low * slope):.1f}" x2="{x.at(high):.1f}" '
        f'y2="{y.at(high * slope):.1f}"/><text class="note" x="{x.at(high) - 4:.1f}" y="{y.at(high * slope) + 12:.1f}" '
        f'text-anchor="end">{step_ms:g} ms per step</text>'
    )


def _title(data: StudyReportData, trial: TrialRecord) -> str:
    from api.reports.sentences import flag_text

    what = ", ".join(flag_text(k, v) for k, v in data.changed_flags(trial).items()) or "as the original"
    speed = f"{trial.output_tok_s:.1f} tok/s" if trial.output_tok_s is not None else trial.state
    failure = f"; {trial.failure.get('label', '')}" if trial.failure else ""
    return f"<title>#{trial.number} {escape(trial.kind)}: {speed}{escape(failure)}; {escape(what)}</title>"


def _frame(x: Axis, y: Axis, x_label: str, y_label: str) -> str:
    parts = [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y.at(t):.1f}" y2="{y.at(t):.1f}"/>'
        f'<text class="tick" x="{LEFT - 8}" y="{y.at(t) + 4:.1f}" text-anchor="end">{t:g}</text>'
        for t in y.ticks
    ]
    parts += [
        f'<text class="tick" x="{x.at(t):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{t:g}</text>'
        for t in x.ticks
        if t >= 0
    ]
    parts.append(
        f'<text class="label" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{x_label}</text>'
        f'<text class="label" transform="translate(14 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" '
        f'text-anchor="middle">{y_label}</text>'
    )
    return "".join(parts)


def _svg(parts: list[str], title: str, height: float = HEIGHT) -> str:
    inner = "".join(parts)
    return f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(title)}" class="plot">{inner}</svg>'


def _nice(value: float) -> float:
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((m * power for m in (1, 2, 2.5, 5, 10) if m * power >= value - 1e-12), 10 * power)
