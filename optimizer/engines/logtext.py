"""Cleans what servers print: colours, carriage returns, container and actor prefixes, lines wrapped by a terminal.

Decides what one line of a log is and which lines a terminal tore apart. Leaves every meaning of a line to the
engine packages. Nothing here raises, whatever the bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

MAX_LINE = 20_000
"""Characters kept of one line: longer ones are dumps of arguments or tensors, and regular expressions stay fast."""

_ANSI = re.compile(r"\x1b(?:\[[0-9;?:<=>]*[ -/]*[@-~]|\][^\x07\x1b]{0,500}(?:\x07|\x1b\\)|[()][A-Z0-9]|[=>78cMDEH])")
_BARE_COLOUR = re.compile(r"(?<![\w\]])\[(?:0|1|[34]\d|9[0-7])(?:;\d{1,3}){0,4}m|(?<=\w)\[0m")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b\ufeff]")
_BREAKS = re.compile(r"\r\n|\n|\r|\x85|\u2028")

_PREFIX = re.compile(
    "|".join(
        (
            r"(?=[\w.-]{0,60}[A-Za-z])(?!\w*(?:ERROR|WARN|FATAL))[\w.-]{1,60}\s{0,12}\|\s(?=\s*\S)",  # docker
            r"(?:> )+(?=\S)",  # quoted in a report
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)\s+(?:(?:stdout|stderr) [FP] )?",  # CRI
            r"\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z\]\s+",  # CI systems
            r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,60} [\w.@/-]{1,60}(?:\[\d+\])?:\s",  # journald, syslog
            r"\((?:\w{1,60} )?(?:pid|ip)=[\w., =.-]{1,60}\)\s?",  # ray actors and vLLM processes
            r"\[(?:default\d+|rank\d+|\d{1,3}|node-?\d+|worker-?\d+)\]:(?=\D|$)\s?",  # torchrun, ranks
            r"(?:pod/)?[\w.-]{1,80}/[\w.-]{1,60}:\s",  # kubectl logs --prefix
        )
    )
)
_WHEN = re.compile(
    r"\[?\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d)\]?|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\b(?:stdout|stderr) [FP]\b"
)
"""What changes from line to line in a prefix: the rest of it names who printed the line."""
_DOCKER_JSON = re.compile(r'\{"log":"((?:[^"\\]|\\.){0,20000})"')
_RANK = re.compile(r"\[rank(\d+)\]|\bTP(\d+)\b|Worker_TP(\d+)|\bRank (\d+)\b|gpu_id=(\d+)")

_STARTS = re.compile(
    r"\[?\d{4}-\d\d-\d\d|\[?\d\d-\d\d \d\d:|\[\d\d:\d\d|\d+\.\d\d\.\d{3}\.\d{3} [A-Z] |(?:INFO|WARNING|WARN|"
    r"ERROR|DEBUG|CRITICAL|FATAL)\b|"
    r"Traceback \(|\s*File \"|\s*raise \b|(?:[A-Za-z_][\w.]*)?(?:Error|Exception|Warning|Interrupt)\b\s*(?:[:(]|$)|"
    r"During handling|The above exception|\[TP\d|\[DP\d|\[rank|\[gpu_id|slot |srv |llama_|ggml_|main: |load_|"
    r"print_info|"
    r"Possible solutions|\d+\. |- |\* |Decode batch|Prefill batch|Engine \d|SpecDecoding|Speculative metrics|frame #|"
    r"usage: [a-z].{0,60}\[|\s*\^+\s*$|Killed\b|Segmentation|Aborted|GPU\s+PID|USER\s|n_(?:draft|"
    r"predict|drafted|accept) *=|"
    r"t_\w+ *=|"
    r"\s*(?:prompt eval|eval|total|load|sample) time|draft accept|accept +="
)


class LogLine(NamedTuple):
    """One line as somebody would read it: `text` is clean, `raw` is what to quote, `number` counts from 1.

    `source` is who printed it, as its prefix says where the logs of several servers are mixed; empty without one.
    """

    number: int
    text: str
    raw: str
    source: str = ""

    @property
    def rank(self) -> int | None:
        """The rank that printed the line, where the line tells."""
        found = _RANK.search(self.raw[:200])
        return int(next(group for group in found.groups() if group)[:6]) if found else None


def decode(data: bytes) -> str:
    """Read bytes of a log as text; never raises (damaged UTF-8 is replaced, UTF-16 with a mark is read)."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", errors="replace")
    return data.decode("utf-8", errors="replace")


def strip_colours(text: str) -> str:
    """Remove terminal sequences, also those whose escape byte was lost on the way."""
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    text = text.replace("\u241b", "").replace("^[[", "[") if "^[[" in text or "\u241b" in text else text
    return _BARE_COLOUR.sub("", text) if "m" in text and "[" in text else text


def strip_prefixes(line: str) -> str:
    """Remove what containers, orchestrators and actors put before a line, in any order, at most four of them."""
    for _ in range(4):
        found = _PREFIX.match(line)
        if found is None or not found.end():
            break
        line = line[found.end() :]
    return line


def read_lines(text: str) -> list[LogLine]:
    """Split a log into clean lines; empty ones are dropped, a carriage return starts a new one."""
    lines: list[LogLine] = []
    clean = strip_colours(text)
    number = 0
    position = 0
    for found in _BREAKS.finditer(clean):
        number += 1 if found.group() != "\r" else 0
        _append(lines, clean[position : found.start()], number + (1 if found.group() == "\r" else 0))
        position = found.end()
    _append(lines, clean[position:], number + 1)
    return lines


def _append(lines: list[LogLine], piece: str, number: int) -> None:
    piece = piece[:MAX_LINE].rstrip()
    if not piece:
        return
    if not piece.isprintable():
        piece = _CONTROL.sub("", piece)
    if piece.startswith('{"log":"'):
        inner = _DOCKER_JSON.match(piece)
        piece = _unescape(inner.group(1)) if inner else piece
    text = strip_prefixes(piece)
    if not text.strip():
        return
    source = _WHEN.sub("", piece.removesuffix(text)).strip() if len(text) < len(piece) else ""
    if not source and lines and lines[-1].number == number:
        source = lines[-1].source  # behind a carriage return: the prefix stands before the whole line
    lines.append(LogLine(number, text, piece, source))


def _unescape(text: str) -> str:
    for code, char in (("\\n", ""), ("\\t", "\t"), ('\\"', '"'), ("\\u001b", ""), ("\\\\", "\\")):
        text = text.replace(code, char)
    return _BARE_COLOUR.sub("", text).rstrip()


_HEADER = re.compile(
    r"(?:\[[^\]\n]{0,100}\]:?\s?){0,4}"
    r"(?:(?:ERROR|INFO|WARNING|WARN|CRITICAL|DEBUG|FATAL)[ :]\s*"
    r"(?:\d\d(?:\d\d)?-\d\d(?:-\d\d)? )?(?:\d\d:\d\d:\d\d(?:[.,]\d+)? )?)?"
    r"(?:\[?[\w.]{1,60}:\d+\]\s?)?"
)


def message_of(text: str) -> str:
    """Remove what the logger put before its message: times, ranks, level, file and line."""
    found = _HEADER.match(text)
    return text[found.end() :] if found else text


def starts_record(text: str) -> bool:
    """Say whether a line begins something new, so that it cannot be the rest of a wrapped line."""
    return _STARTS.match(text) is not None


@dataclass(frozen=True)
class Logical:
    """One line with what a terminal wrapped off it put back; `number_at` tells the physical line of a position."""

    text: str
    pieces: tuple[tuple[int, LogLine], ...]

    def line_at(self, position: int) -> LogLine:
        """Return the physical line that holds a position of `text`."""
        best = self.pieces[0][1]
        for start, line in self.pieces:
            if start > position:
                break
            best = line
        return best


MAX_WRAPS = 12
MIN_WIDTH = 36
"""A terminal narrower than this is not assumed: a shorter line ended by itself."""
_ENDS_COMPLETE = re.compile(
    r"(?:queue-req:\s*\d+[,\s]*|\(token/s\):\s*\d+[.,]\d\d|\d%|per second\)|generated\)|"
    r"mean len = *\d+[.,]\d\d|t/s)\s*$"
)
_MORE = re.compile(r"\s*\d{0,6}\s*(?:,|#|$)")


def logical_lines(lines: list[LogLine]) -> Iterator[Logical]:
    """Put wrapped lines together again, without a gap; a line that nothing was wrapped off comes as it is."""
    index = 0
    while index < len(lines):
        first = lines[index]
        index += 1
        if index >= len(lines) or len(first.raw) < MIN_WIDTH or starts_record(lines[index].text):
            yield Logical(first.text, ((0, first),))
            continue
        pieces = [(0, first)]
        text = first.text
        last = first
        while index < len(lines) and len(pieces) <= MAX_WRAPS and _continues(last, text, lines[index]):
            pieces.append((len(text), lines[index]))
            text += lines[index].text
            last = lines[index]
            index += 1
        yield Logical(text, tuple(pieces))


def _continues(last: LogLine, text: str, following: LogLine) -> bool:
    if len(last.raw) < MIN_WIDTH or starts_record(following.text) or following.number - last.number > 1:
        return False
    if following.source not in ("", last.source):
        return False
    return not _ENDS_COMPLETE.search(text[-60:]) or _MORE.match(following.text) is not None
