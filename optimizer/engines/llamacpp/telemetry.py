"""Reads llama.cpp's timing lines, from `llama_print_timings` of 2023 to the slots of today's server.

Decides which lines belong to one request: those of one task of one server, or, in formats without task numbers, those
up to the first value that would be said twice. Leaves cleaning to `logtext`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from optimizer.engines.fields import Record, as_rate, count_kinds, summarise
from optimizer.engines.logtext import logical_lines, read_lines
from optimizer.engines.numbers import NUMBER, as_float, as_int

_N = rf"({NUMBER})"
_TASK = re.compile(r"\bid\s*(\d{1,6})\s*\|\s*task\s*(-?\d{1,12})")
_HEADER = re.compile(r"print_timing\w*:\s*id\s*\d+\s*\|\s*task\s*-?\d+\s*\|?\s*$")
_QUICK = re.compile(r"time\s*=|accept|n_draft|n_decoded|n_gen|print_timing|graphs reused")


def _timing(label: str) -> re.Pattern[str]:
    count = rf"(?:\s*/\s*{_N}\s*(?:tokens|runs))?"
    speed = rf"(?:\s*\(\s*(?:{NUMBER}|inf|-?nan)\s*ms\s*per\s*token\s*,\s*{_N}\s*tokens\s*per\s*second)?"
    return re.compile(rf"(?<!\w){label}\s*time\s*=\s*{_N}\s*ms{count}{speed}")


_PROMPT = _timing(r"prompt\s*eval")
_EVAL = _timing(r"(?<!prompt )(?<!prompt)eval")
_TOTAL = _timing("total")
_LOAD = _timing("load")
_DRAFT = re.compile(
    rf"draft\s*acceptance\s*(?:rate)?\s*=\s*{_N}\s*\(\s*(\d+)\s*accepted\s*/\s*(\d+)\s*generated\s*\)"
    rf"(?:\s*,\s*mean\s*len\s*=\s*{_N})?"
)
_PROGRESS = re.compile(rf"n_(?:decoded|gen)\s*=\s*(\d+)\s*,\s*tg\s*=\s*{_N}\s*t/s(?:\s*,\s*tg_3s\s*=\s*{_N}\s*t/s)?")
_LOOKUP: tuple[tuple[str, re.Pattern[str], Callable[[str], Any]], ...] = (
    ("drafted", re.compile(r"^\s*n_drafted\s*=\s*(\d+)"), as_int),
    ("accepted", re.compile(r"^\s*n_accept\s*=\s*(\d+)"), as_int),
    ("accept_rate", re.compile(rf"^\s*accept\s*=\s*({NUMBER}\s*%)"), as_rate),
)


class _Grouper:
    """Collects the values of one request; lives for one log, in which the lines of several servers may be mixed."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._open: dict[tuple[str, str], Record] = {}
        self._last: dict[str, Record] = {}

    def record_for(self, source: str, task: str | None, line: int, keys: Sequence[str]) -> Record:
        """Return the record that new values belong to: the task's, or the last one, unless it has them already."""
        last = self._last.get(source)
        record = self._open.get((source, task)) if task is not None else last
        if record is None and task is not None and last is not None and "_task" not in last:
            record = last
        if record is None or any(key in record for key in keys):
            record = {"line": line, "kind": "timing"}
            self.records.append(record)
        if task is not None:
            record["_task"] = task
            self._open[source, task] = record
        self._last[source] = record
        return record


def read_log(text: str) -> list[Record]:
    """Return one record for each request that the log tells timings of; `line` is its first line, from 1.

    Keys: prompt_ms, prompt_tokens, prompt_tps, gen_ms, gen_tokens, gen_tps, total_ms, load_ms, accept_rate (0..1),
    accepted, drafted, mean_accept_len (bonus token included), progress (the last progress line).
    """
    group = _Grouper()
    source = ""
    for logical in logical_lines(read_lines(text)):
        line = logical.text
        if not _QUICK.search(line):
            continue
        task = _TASK.search(line)
        key = f"{task.group(1)}/{task.group(2)}" if task else None
        first = logical.pieces[0][1]
        source = first.source or source
        if _HEADER.search(line):
            group.record_for(source, key, first.number, ())
            continue
        for values in _values(line):
            position = logical.line_at(line.find("=")).number
            record = group.record_for(source, key, position, () if "progress" in values else tuple(values))
            record.update(values)
    return [_public(r) for r in group.records if len(set(r) - {"line", "kind", "_task"})]


def _public(record: Record) -> Record:
    task = record.pop("_task", None)
    if task is not None:
        slot, _, number = str(task).partition("/")
        record["slot"], record["task"] = int(slot), int(number)
    return record


def _values(line: str) -> list[Record]:
    """Return the groups of values on one line; two records on one line give two groups with the same keys."""
    groups: list[Record] = []
    for pattern, prefix in ((_PROMPT, "prompt"), (_EVAL, "gen")):
        for found in pattern.finditer(line):
            pairs = (
                (f"{prefix}_ms", as_float(found.group(1))),
                (f"{prefix}_tokens", as_int(found.group(2) or "")),
                (f"{prefix}_tps", as_float(found.group(3) or "")),
            )
            groups.append({key: value for key, value in pairs if value is not None})
    for pattern, name in ((_TOTAL, "total_ms"), (_LOAD, "load_ms")):
        groups += [{name: as_float(found.group(1))} for found in pattern.finditer(line)]
    groups += [_draft(found) for found in _DRAFT.finditer(line)]
    progress = list(_PROGRESS.finditer(line))
    if progress:
        groups.append({"progress": _progress(progress[-1])})
    for name, pattern, read in _LOOKUP:
        match = pattern.search(line)
        value = read(match.group(1)) if match else None
        if value is not None:
            groups.append({name: value})
    return [group for group in groups if group]


def _draft(found: re.Match[str]) -> Record:
    record: Record = {"accepted": as_int(found.group(2)), "drafted": as_int(found.group(3))}
    record["accept_rate"] = as_float(found.group(1))
    record["mean_accept_len"] = as_float(found.group(4) or "")
    return {key: value for key, value in record.items() if value is not None}


def _progress(found: re.Match[str]) -> Record:
    values = {"n_decoded": as_int(found.group(1)), "tg_tps": as_float(found.group(2))}
    values["tg_3s_tps"] = as_float(found.group(3) or "")
    return {key: value for key, value in values.items() if value is not None}


def summary(records: Sequence[Record]) -> dict[str, Any]:
    """Sum up a log: generation throughput over requests (token-weighted) and acceptance over all drafts."""
    timed = [r for r in records if r.get("gen_ms") and r.get("gen_tokens", 0) > 1]  # one token took no step to make
    out: dict[str, Any] = {
        "records": count_kinds(records),
        "gen_tps": summarise(r["gen_tps"] for r in records if "gen_tps" in r and r.get("gen_tokens", 2) > 1),
    }
    if timed:
        spent = sum(r["gen_ms"] for r in timed)
        out["gen_tps_weighted"] = round(1000.0 * sum(r["gen_tokens"] for r in timed) / spent, 4) if spent else None
    drafted = sum(r.get("drafted", 0) for r in records)
    if drafted:
        accepted = sum(r.get("accepted", 0) for r in records)
        out["accept_rate"] = round(accepted / drafted, 6)
        out["accepted"], out["drafted"] = accepted, drafted
    out["accept_len"] = summarise(r["mean_accept_len"] for r in records if "mean_accept_len" in r)
    out["accept_len_definition"] = "1 + accepted / drafts, bonus token included"
    return out
