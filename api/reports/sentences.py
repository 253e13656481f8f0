"""The sentences that every output shares, so that the terminal, the page and the report say the same thing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any


def verdict_sentence(
    verdict: Mapping[str, Any] | None,
    *,
    baseline_tok_s: float | None = None,
    best_tok_s: float | None = None,
    state: str = "finished",
) -> str:
    """Say what the evidence shows in one sentence.

    `verdict` has `outcome`, `ratio`, `ci_low`, `ci_high`, `restarts` and optionally `confidence` (0..1) and `reason`;
    speeds in tokens per second. Without a verdict the sentence says why there is none yet.
    """
    if not verdict:
        return _no_verdict(state)
    outcome = str(verdict.get("outcome", ""))
    ratio = _number(verdict.get("ratio"))
    interval = _interval(verdict)
    speeds = _speeds(baseline_tok_s, best_tok_s)
    restarts = _restarts(verdict)
    if outcome == "win" and ratio is not None:
        beware = "".join(f"; but {text}" for text in verdict.get("caveats") or ())
        return f"Proven faster: {percent(ratio)} over the original{interval}{speeds}{restarts}{beware}."
    if outcome == "worse" and ratio is not None:
        return f"The original is faster: the best candidate measured {percent(ratio)} against it{interval}{restarts}."
    if outcome == "no_significant_win" and ratio is not None:
        return f"No proven win: the best candidate measured {percent(ratio)}{interval}{restarts}; the original stays."
    if outcome == "no_significant_win":
        return (
            "No proven win: nothing that was tried is faster, keeps the limits and answers alike; the original stays."
        )
    if ratio is not None:
        why = verdict.get("reason") or "not enough evidence to call it"
        return f"Undecided: {percent(ratio)} so far{interval}{restarts}; {why}."
    return "Undecided: not enough evidence to call it."


def percent(ratio: float) -> str:
    """Write a ratio as a signed percentage: 1.227 is `+22.7 %`."""
    return f"{(ratio - 1) * 100:+.1f} %"


def duration(seconds: float | None) -> str:
    """Write seconds as a person says them: `48 s`, `12 min 30 s`, `7 h 05 min`."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def moment(at: datetime | None) -> str:
    """Write an instant in UTC to the minute."""
    return at.strftime("%Y-%m-%d %H:%M UTC") if at else "-"


def number(value: float | None, digits: int = 1) -> str:
    """Write a number, or a dash when it was not measured."""
    return "-" if value is None else f"{value:.{digits}f}"


def flag_text(name: str, value: Any) -> str:
    """Write one changed parameter: `flag=value`, `flag` when bare, `no flag` when it was removed."""
    if value is None or value is False:
        return f"no {name}"
    return name if value is True else f"{name}={value}"


def gain(fraction: float | None, sd: float | None, sure: bool | None) -> str:
    """Write what one changed flag brought: `+8.1 % ± 0.9`; with a question mark where it may as well be nothing."""
    if fraction is None:
        return "-"
    spread = f" ± {sd * 100:.1f}" if sd is not None else ""
    return f"{percent(1 + fraction)}{spread}" + ("" if sure else " ?")


def _no_verdict(state: str) -> str:
    return {
        "created": "Not started yet.",
        "queued": "Waiting for a worker.",
        "waiting_window": "Waiting for its window to open.",
        "running": "No verdict yet: the study is running.",
        "paused": "No verdict yet: the study is paused.",
        "stopping": "The original server is being put back.",
        "failed": "No verdict: the study failed.",
        "needs_attention": "No verdict: a human must look at the host.",
    }.get(state, "No verdict: the study ended before a candidate was confirmed; the original stays.")


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


def _interval(verdict: Mapping[str, Any]) -> str:
    low, high = _number(verdict.get("ci_low")), _number(verdict.get("ci_high"))
    if low is None or high is None or high == float("inf"):
        return ""
    level = _number(verdict.get("confidence")) or 0.95
    return f" ({level * 100:g} % interval {percent(low)} to {percent(high)})"


def _speeds(before: float | None, after: float | None) -> str:
    return f", {before:.1f} to {after:.1f} tok/s" if before and after else ""


def _restarts(verdict: Mapping[str, Any]) -> str:
    count = verdict.get("restarts")
    if not isinstance(count, int) or count <= 0:
        return ""
    return f", over {count} fresh restart{'s' if count != 1 else ''}"
