"""Walks a log once and notes what speaks for a failure: events, stages reached, signs of life.

Decides which lines count at all (progress bars, dumps of arguments and served requests do not) and in which stage
each event fell. Leaves the choice of the cause to `explain`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from optimizer.engines.base import Config
from optimizer.engines.causes import Catalogue, Cause, Stage, Tier
from optimizer.engines.logtext import LogLine, logical_lines, message_of, read_lines

HEAD_CHARS = 3_000_000
TAIL_CHARS = 9_000_000
"""Of a longer log the middle is left out: causes of a start are in front, those of a death at the end."""
MAX_CHECKED = 6_000
"""Suspicious lines that are read closely, half of them from the front and half from the end."""
NEAR_BEFORE = 60
UNLESS_AFTER = 2
"""What would exclude a cause stands before it or on the next lines; later lines are consequences."""
TIME_LOOK_BACK = 100

_ALWAYS_BORING = re.compile(
    r"server_args=|serverargs\(|non-default args|namespace\(|with config: |vllmconfig\(|modelconfig\(|nccl info |"
    r"^\s*\[?-{1,2}\w[\w-]*\]?(?: \S{1,80})?$|^usage: [a-z]|^\s+\[-|common_param:|system_info|system info:"
)
_WAITING = re.compile(
    r"get /(?:health|ready|v1/models)\S* [^\"]*\" 503|waiting for \d+ local, \d+ remote core|"
    r"waiting for (?:the )?(?:server|engine|model)|loading jit ops|server is not ready|health check.{0,40}(?:fail|503)"
)
_USAGE = re.compile(r"usage: [a-z].{0,60}\[")
_ACCESS = re.compile(r'"(?:get|post|put|head|options|delete) [^"]{0,300}" \d{3}|log_server_r: request:|done request: ')
_BORING = re.compile(
    r"(?:decode|prefill) batch[^#]{0,12}#|avg prompt throughput|slot +(?:launch|update|release|get_avail|print_t)|"
    r"\d+(?:\.\d+)?(?:it/s|s/it)|\d+%\|.*\||capturing batches|loading (?:safetensors|pt|"
    r"model) checkpoint shards|print_info|load_tensors:|kv +\d+:"
)
_TROUBLE = re.compile(r"error|exception|fail|killed|out of memory|abort|fault|fatal|traceback|no space|denied|dumped")
_LOW_LEVEL = re.compile(
    r"^\[[wi]\d* |\]:?\[[wi]\d* |^[wi]\d{4} \d\d:|ignor(?:e|ed|ing)\b|falling back|fallback to|fall back to|"
    r"disabled because|is disabled|to silence this warning|"
    r"cannot use fa version|skipping|will not be used|sub-?optimal|can be safely|"
    r"(?:^|[\s\]|(])(?:info|warning|warn|debug)(?:[\s:\]]|$)|^\d+\.\d\d\.\d{3}\.\d{3} [iwd] |userwarning|"
    r"futurewarning|deprecationwarning|runtimewarning"
)
_ALIVE = re.compile(
    r"(?:decode|prefill) batch[^#]{0,12}#|avg prompt throughput|print_timing|\"post [^\"]{0,200}\" 200|eval time ="
)
_STOPPED = re.compile(
    r"sigterm received|shutdown triggered|gracefully exiting|received (?:signal 15|sigterm)|info: +shutting down|"
    r"cleaning up before exit|received interrupt|keyboardinterrupt"
)
_EXCEPTION = re.compile(r"\s*[a-z_][\w.]{0,80}(?:error|exception): |.{0,120}\bfailed: (?:cuda error )?/\S{1,200}:\d+ '")
_LOST_PEER = re.compile(
    r"(?:waitforinput|socketimpl).{0,300}timed out after|(?:recvvalue|sendbytes) failed|\"should dump\" flag"
)
"""Torch tells at warning level that the store of the ranks is gone: no healthy group prints it."""
_TIME = re.compile(r"(?:\d{4}-)?(\d\d-\d\d)[ t](\d\d:\d\d:\d\d(?:[.,]\d{1,6})?)")
_SPEC_ARGS = re.compile(r"speculative_algorithm='?(\w+)|speculative_config=\{?[^n]|speculativeconfig\(method='(\w+)")
_DIGITS = re.compile(r"\d+|0x[0-9a-f]+")


@dataclass(frozen=True)
class Event:
    """One line that speaks for a cause."""

    index: int
    line: LogLine
    cause: Cause
    groups: Mapping[str, str | None]
    stage: Stage
    when: str
    """Date and time by the log itself, sortable within a year; empty where nothing near tells."""
    weak: bool
    """Printed at information or warning level: counts only when something else shows that the server ended."""


@dataclass
class Walk:
    """What one pass over a log found."""

    lines: list[LogLine]
    events: list[Event] = field(default_factory=list)
    reached: Stage = Stage.UNKNOWN
    stopped_at: int | None = None
    """First line after readiness that shows an orderly stop; what dies later was meant to."""
    stages_at: list[tuple[int, Stage, int | None]] = field(default_factory=list)
    ready_at: list[int] = field(default_factory=list)
    alive_at: list[int] = field(default_factory=list)
    traceback: bool = False
    waiting: int = 0
    """Lines that only show somebody waiting for the server."""
    settings: str = ""

    def around(self, index: int, after: int = 12) -> str:
        """Return the lower-cased lines around one, and the settings that are known."""
        near = self.lines[max(0, index - NEAR_BEFORE) : index + after + 1]
        return "\n".join(line.text[:400] for line in near).lower() + "\n" + self.settings

    def time_at(self, index: int) -> str:
        """Return the time of a line, or of the nearest line above that tells one."""
        for back in range(index, max(-1, index - TIME_LOOK_BACK), -1):
            found = _TIME.search(self.lines[back].text[:200].lower())
            if found:
                return f"{found.group(1)} {found.group(2)}"
        return ""

    def stage_at(self, index: int, rank: int | None) -> Stage:
        """Return the last stage seen before a line, of the same rank where ranks are told."""
        own = Stage.UNKNOWN
        anyone = Stage.UNKNOWN
        for position, stage, whose in self.stages_at:
            if position > index:
                break
            anyone = stage
            if rank is None or whose is None or whose == rank:
                own = stage
        return own or anyone


def walk(catalogue: Catalogue, text: str, config: Config) -> Walk:
    """Read a log once."""
    if len(text) > HEAD_CHARS + TAIL_CHARS:
        text = text[:HEAD_CHARS] + "\n" + text[-TAIL_CHARS:]
    found = Walk(read_lines(text), settings=_settings(config))
    suspicious = _mark_stages(catalogue, found)
    if len(suspicious) > MAX_CHECKED:
        half = MAX_CHECKED // 2
        suspicious = suspicious[:half] + suspicious[-half:]
    checker = _Checker(catalogue.causes, found)
    for index in suspicious:
        checker.check(index, found.lines[index].text)
    for index, joined in _wrapped(found.lines, set(suspicious)):
        checker.check(index, joined)
    found.events.sort(key=lambda event: event.index)
    return found


def _settings(config: Config) -> str:
    return "config: " + " ".join(f"{key}={value}" for key, value in config.items()).lower()


def _mark_stages(catalogue: Catalogue, found: Walk) -> list[int]:
    """Note stages and signs of life; return the indexes of the lines that deserve a close look."""
    suspicious = []
    in_usage = False
    for index, line in enumerate(found.lines):
        lower = line.text.lower()
        if _USAGE.match(lower):
            in_usage = True
        if in_usage and "error" not in lower and (line.text[:1] in " \t[" or _USAGE.match(lower)):
            continue
        in_usage = False
        for mark in catalogue.stages:
            if mark.pattern.search(lower):
                found.stages_at.append((index, mark.stage, line.rank))
                found.reached = max(found.reached, mark.stage)
                if mark.stage >= Stage.READY:
                    found.ready_at.append(index)
                break
        if found.ready_at and found.stopped_at is None and _STOPPED.search(lower):
            found.stopped_at = index
        found.waiting += _WAITING.search(lower) is not None
        found.traceback = found.traceback or lower.startswith("traceback (most recent")
        if _ALIVE.search(lower):
            found.alive_at.append(index)
        if _ALWAYS_BORING.search(lower):
            spec = _SPEC_ARGS.search(lower)
            if spec and spec.group(0) not in found.settings and (spec.group(1) or "x") != "none":
                found.settings += " speculative " + spec.group(0)
            continue
        trouble = _TROUBLE.search(lower) is not None
        if (_BORING.search(lower) or _ACCESS.search(lower)) and not trouble:
            continue
        suspicious.append(index)
    return suspicious


def _wrapped(lines: list[LogLine], suspicious: set[int]) -> Iterable[tuple[int, str]]:
    """Lines put together again where a terminal had wrapped them, once without and once with a blank."""
    position = 0
    for logical in logical_lines(lines):
        count = len(logical.pieces)
        if count > 1 and any(index in suspicious for index in range(position, position + count)):
            starts = [start for start, _ in logical.pieces[1:]]
            yield position, logical.text
            spaced = logical.text
            for start in reversed(starts):
                spaced = f"{spaced[:start]} {spaced[start:]}"
            yield position, spaced
        position += count


class _Checker:
    """Tests lines against all causes; remembers texts that it has seen, since ranks repeat each other."""

    def __init__(self, causes: tuple[Cause, ...], found: Walk) -> None:
        self._causes = causes
        self._found = found
        self._seen: dict[str, bool] = {}
        self._done: set[tuple[int, str]] = set()

    def check(self, index: int, text: str) -> None:
        """Note the strongest event of one line, if it has any."""
        message = message_of(text[:2000])
        lower = message.lower()
        kind = _DIGITS.sub("0", lower)
        if self._seen.get(kind) is False:
            return
        matched = [(c, m) for c in self._causes if (m := c.search(lower))]
        self._seen[kind] = bool(matched)
        if not matched:
            return
        line = self._found.lines[index]
        stage = self._found.stage_at(index, line.rank)
        fitting = [(c, m) for c, m in matched if self._fits(c, index, stage)]
        best = _strongest(fitting)
        if best is None or (index, best[0].label) in self._done:
            return
        self._done.add((index, best[0].label))
        weak = _is_weak(text[:160].lower(), lower)
        groups = _as_printed(best[1], message)
        self._found.events.append(Event(index, line, best[0], groups, stage, self._found.time_at(index), weak))

    def _fits(self, cause: Cause, index: int, stage: Stage) -> bool:
        if cause.stages and stage not in cause.stages:
            return False
        if cause.near is None and cause.unless is None:
            return True
        if cause.near is not None and not cause.near.search(self._found.around(index)):
            return False
        return cause.unless is None or not cause.unless.search(self._found.around(index, after=UNLESS_AFTER))


def _as_printed(found: re.Match[str], message: str) -> dict[str, str | None]:
    """Return what a pattern caught, in the capitals of the message (patterns see it in lower case)."""
    groups = found.groupdict()
    if len(found.string) != len(message):
        return groups
    return {name: message[slice(*found.span(name))] if text is not None else None for name, text in groups.items()}


def _is_weak(head: str, message: str) -> bool:
    """Say whether a line was printed as information or a warning, so that it proves nothing alone."""
    if "nccl warn" in head or _EXCEPTION.match(message) or _LOST_PEER.search(message):
        return False
    return _LOW_LEVEL.search(head) is not None


_ORDER = {Tier.DECISIVE: 6, Tier.CAUSE: 5, Tier.VICTIM: 4, Tier.GENERAL: 3, Tier.SYMPTOM: 2, Tier.FALLBACK: 1}
"""Of the causes that one line matches: what names a wrapper is no general exception, whatever its type."""


def _strongest(matched: list[tuple[Cause, re.Match[str]]]) -> tuple[Cause, re.Match[str]] | None:
    best: tuple[Cause, re.Match[str]] | None = None
    for candidate in matched:
        if best is None or _ORDER[candidate[0].tier] > _ORDER[best[0].tier]:
            best = candidate
    return best
