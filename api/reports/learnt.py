"""What the search learnt of the flags, in sentences: a reading of its models that no restart has proved.

The numbers come with the study's verdict (`changes`, `importance`, `best_by_level`); here they only become words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.reports import sentences

OUTPUTS = {"output_tok_s": "speed", "accept_len": "accepted length", "step_ms": "step time"}
SHOWN_SHARES = 4
"""Flags named per output; the rest is small."""
LEAST_SHARE = 0.05
CAVEAT = "By the models of the search, from single starts; only the verdict is proved."


def lines(verdict: Mapping[str, Any] | None) -> list[str]:
    """Return one sentence each: what every changed flag brought, what does nothing, edges, what matters, levels."""
    found = verdict or {}
    changes = found.get("changes") or {}
    said = [_contribution(c) for c in changes.get("contributions", [])]
    idle = changes.get("no_effect") or []
    if idle:
        said.append(f"Without effect near the best: {', '.join(idle)}.")
    said += [
        f"{sentences.flag_text(e['name'], e['value'])} is at the end of its range: {e['advice']}."
        for e in changes.get("edges", [])
    ]
    said += [text for name, shares in (found.get("importance") or {}).items() if (text := _importance(name, shares))]
    for level, best in (found.get("best_by_level") or {}).items():
        flags = ", ".join(sentences.flag_text(k, v) for k, v in best["params"].items()) or "nothing set"
        said.append(f"Best at concurrency {level}, about {best['mean_tok_s']:.1f} tok/s per stream: {flags}.")
    return said


def _contribution(one: Mapping[str, Any]) -> str:
    change = (
        f"{sentences.flag_text(one['name'], one['winner'])} instead of {sentences.flag_text(one['name'], one['home'])}"
    )
    gain = sentences.percent(1 + one["gain"])
    unsure = "" if one["sure"] else ", not sure to be more than noise"
    other = "" if one["possible"] else " (against the nearest configuration that runs without it)"
    return f"{change}: {gain} by the model, within {100 * one['sd']:.1f} %{unsure}{other}."


def _importance(output: str, shares: Mapping[str, float]) -> str:
    large = [(n, s) for n, s in sorted(shares.items(), key=lambda p: -p[1]) if s >= LEAST_SHARE][:SHOWN_SHARES]
    told = ", ".join(f"{name} {100 * share:.0f} %" for name, share in large)
    return f"What the {OUTPUTS.get(output, output)} depends on: {told}." if told else ""
