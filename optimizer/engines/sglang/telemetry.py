"""Reads SGLang's decode and prefill lines, of every release and whatever happened to them on the way.

Decides which records a log carries; leaves cleaning to `logtext`. Values are read by name, never by position: a line
that lost its middle gives what is left of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from optimizer.engines.fields import Record, count_kinds, number, pick, rate, summarise, truth, whole
from optimizer.engines.logtext import logical_lines, read_lines

_MARKER = re.compile(r"(Decode|Prefill)\s*batch\b(?!_)")
_HEADER = re.compile(r"\[[^\[\]]{0,120}\]?\s*$")
_RANKS = {
    "dp_rank": re.compile(r"\bDP(\d{1,4})\b"),
    "tp_rank": re.compile(r"\bTP(\d{1,4})\b"),
    "ep_rank": re.compile(r"\bEP(\d{1,4})\b"),
    "pp_rank": re.compile(r"\bPP(\d{1,4})\b"),
}

_GRAPH = truth("graph", r"\b\w+\s*graph")
_COMMON = (
    whole("running_req", r"#running-req"),
    whole("queue_req", r"#queue-req"),
    whole("token", r"#token"),
    number("token_usage", r"(?<!\w)(?<!full )(?<!swa )(?<!mamba )token\s*usage"),
    whole("full_token", r"#full\s*token"),
    number("full_token_usage", r"(?<!\w)full\s*token\s*usage"),
    whole("swa_token", r"#swa\s*token"),
    number("swa_token_usage", r"(?<!\w)swa\s*token\s*usage"),
    whole("mamba_num", r"mamba\s*num"),
    number("mamba_usage", r"mamba\s*usage"),
    whole("prealloc_req", r"#prealloc-req"),
    _GRAPH,
)
_DECODE = (
    *_COMMON,
    number("accept_len", r"(?<!block )(?<!block)accept\s*len"),
    rate("accept_rate", r"accept\s*rate"),
    number("block_accept_len", r"block\s*accept\s*len"),
    number("cap_len", r"(?<!\w)cap\s*len"),
    number("prealloc_usage", r"pre-allocated\s*usage"),
    whole("transfer_req", r"#transfer-req"),
    whole("retracted_req", r"#retracted-req"),
    number("gen_throughput", r"(?<!\w)gen\s*throughput\s*\(token/s\)"),
)
_PREFILL = (
    *_COMMON,
    whole("new_seq", r"#new-seq"),
    whole("new_token", r"#new-token"),
    whole("cached_token", r"#cached-token"),
    whole("pending_token", r"#pending-token"),
    whole("inflight_req", r"#(?:unbootstrapped|inflight)-req"),
    number("cache_hit_pct", r"cache\s*hit\s*rate"),
    number("input_throughput", r"(?<!\w)input\s*throughput\s*\(token/s\)"),
)

NEAR_IDLE_RATIO = 0.5
"""The first line after idle averages over the idle time too; below this share of the median it is left out."""


def read_log(text: str) -> list[Record]:
    """Return the decode and prefill records of a log, in order; `line` is the physical line, counted from 1."""
    records: list[Record] = []
    for logical in logical_lines(read_lines(text)):
        markers = list(_MARKER.finditer(logical.text))
        for position, marker in enumerate(markers):
            end = markers[position + 1].start() if position + 1 < len(markers) else len(logical.text)
            body = logical.text[marker.end() : end]
            fields = pick(body, _DECODE if marker.group(1).lower() == "decode" else _PREFILL)
            if not fields:
                continue
            record: Record = {"line": logical.line_at(marker.start()).number, "kind": marker.group(1).lower()}
            record |= _ranks(logical.text, marker.start())
            records.append(record | fields)
    return records


def _ranks(text: str, marker: int) -> dict[str, int]:
    header = _HEADER.search(text, max(0, marker - 160), marker)
    if header is None:
        return {}
    found = {key: pattern.search(header.group()) for key, pattern in _RANKS.items()}
    return {key: int(match.group(1)) for key, match in found.items() if match}


def summary(records: Sequence[Record]) -> dict[str, Any]:
    """Sum up a log: throughput over steady lines, acceptance, and the share of decode lines that ran a graph."""
    decode = [r for r in records if r["kind"] == "decode"]
    busy: dict[int | None, list[float]] = {}
    for r in decode:
        if r.get("running_req", 1) > 0 and r.get("gen_throughput", 0.0) > 0:
            busy.setdefault(r.get("dp_rank"), []).append(r["gen_throughput"])  # ranks may be loaded unequally
    steady = [v for speeds in busy.values() for v in speeds if v >= NEAR_IDLE_RATIO * sorted(speeds)[len(speeds) // 2]]
    graphs = [r["graph"] for r in decode if "graph" in r]
    cached = [r["cached_token"] for r in records if "cached_token" in r]
    out: dict[str, Any] = {"records": count_kinds(records), "gen_throughput": summarise(steady)}
    out["gen_throughput_left_out"] = len(decode) - len(steady)
    out["accept_len"] = summarise(r["accept_len"] for r in decode if "accept_len" in r)
    out["accept_len_definition"] = "tokens per verify step, bonus token included"
    if graphs:
        out["graph_share"] = round(sum(graphs) / len(graphs), 4)
    if cached:
        out["cached_tokens"] = sum(cached)
    return out
