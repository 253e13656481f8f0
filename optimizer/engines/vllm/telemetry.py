"""Reads vLLM's throughput and speculation lines, of every release and whatever happened to them on the way.

Decides which records a log carries; leaves cleaning to `logtext`. Values are read by name, never by position.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from optimizer.engines.fields import Field, Record, count_kinds, number, pick, rate, summarise, whole
from optimizer.engines.logtext import logical_lines, read_lines
from optimizer.engines.numbers import NUMBER, as_float

_MARKER = re.compile(
    r"(?P<throughput>(?:Engine\s*\d{1,4}\s*:\s*)?Avg\s*prompt\s*throughput)"
    r"|(?P<spec>Spec\s*Decoding\s*metrics|Speculative\s*metrics)",
)
_THROUGHPUT = (
    Field("engine", re.compile(r"Engine\s*(\d{1,4})\s*:"), int),
    number("prompt_tps", r"Avg\s*prompt\s*throughput"),
    number("gen_tps", r"Avg\s*generation\s*throughput"),
    whole("running", r"(?<!\w)Running"),
    whole("waiting", r"(?<!\w)(?:Waiting|Pending)"),
    whole("swapped", r"(?<!\w)Swapped"),
    whole("deferred", r"(?<!\w)Deferred"),
    whole("preemptions", r"(?<!\w)Preemptions"),
    number("kv_cache_usage_pct", r"(?<!CPU)(?<!CPU )(?:GPU\s*)?KV\s*cache\s*usage"),
    number("prefix_hit_pct", r"(?<!External )(?<!CPU )(?<!External)Prefix\s*cache\s*hit\s*rate(?!\s*:\s*GPU)"),
)
_SPEC = (
    number("mean_accept_len", r"Mean\s*acceptance\s*length"),
    rate("accept_rate", r"(?:Avg\s*)?Draft\s*acceptance\s*rate"),
    number("accepted_tps", r"Accepted\s*throughput"),
    number("drafted_tps", r"Drafted\s*throughput"),
    whole("accepted", r"(?:(?<!\w)Accepted|Number\s*of\s*accepted\s*tokens)"),
    whole("drafted", r"(?:(?<!\w)Drafted|Number\s*of\s*draft\s*tokens)"),
    whole("emitted", r"Number\s*of\s*emitted\s*tokens"),
    number("system_efficiency", r"System\s*efficiency"),
)
_POSITIONS = re.compile(
    rf"Per-\s*position\s*acceptance\s*rate\s*:\s*((?:{NUMBER})(?:\s*,\s*{NUMBER}(?!\s*tokens))*)", re.I
)
_ALL_POSITIONS = re.compile(r"\s*across\s*all\s*(\d{1,3})\s*positions")


def read_log(text: str) -> list[Record]:
    """Return the throughput and speculation records of a log, in order; `line` is the physical line, from 1."""
    records: list[Record] = []
    for logical in logical_lines(read_lines(text)):
        markers = list(_MARKER.finditer(logical.text))
        for position, marker in enumerate(markers):
            end = markers[position + 1].start() if position + 1 < len(markers) else len(logical.text)
            body = logical.text[marker.start() : end]
            kind = "throughput" if marker.group("throughput") else "spec"
            fields = pick(body, _THROUGHPUT) if kind == "throughput" else _spec(body)
            if fields:
                records.append({"line": logical.line_at(marker.start()).number, "kind": kind} | fields)
    return records


def _spec(body: str) -> Record:
    fields = pick(body, _SPEC)
    positions = _POSITIONS.search(body)
    if positions is None:
        return fields
    values = [value for value in map(as_float, _split_list(positions.group(1))) if value is not None]
    spread = _ALL_POSITIONS.match(body, positions.end())
    if spread and len(values) == 1:
        values *= int(spread.group(1))
    return fields | {"per_position": values}


def _split_list(text: str) -> list[str]:
    """Split `0.8, 0.6` and also `0,8, 0,6` (decimal commas) and `0.8,0.6` (blanks lost)."""
    return re.split(r"\s*,\s*", text) if "." in text else re.split(r",\s+", text)


def summary(records: Sequence[Record]) -> dict[str, Any]:
    """Sum up a log: generation throughput over busy lines and acceptance over all of them, weighted by tokens."""
    lines = [r for r in records if r["kind"] == "throughput"]
    spec = [r for r in records if r["kind"] == "spec"]
    busy = [r["gen_tps"] for r in lines if r.get("gen_tps", 0.0) > 0 and r.get("running", 1) > 0]
    out: dict[str, Any] = {"records": count_kinds(records), "gen_tps": summarise(busy)}
    out["gen_tps_left_out"] = len(lines) - len(busy)
    accepted = sum(r.get("accepted", 0) for r in spec)
    drafted = sum(r.get("drafted", 0) for r in spec)
    if drafted:
        out["accept_rate"] = round(accepted / drafted, 6)
        out["accepted"], out["drafted"] = accepted, drafted
    out["accept_len"] = summarise(r["mean_accept_len"] for r in spec if "mean_accept_len" in r)
    out["accept_len_definition"] = "1 + accepted / drafts, bonus token included"
    return out
