"""When studies may run: pure functions over a rule and the time, nothing that fires and nothing that can misfire.

A window opens by a cron expression read on the wall clock of a named zone, once per local date, and closes at a wall
time (`until`) or after real minutes (`duration_min`). One definition covers both nights on which the clock changes: a
wall time means the first instant at which that clock shows it or a later time. A time that the spring night skips is
therefore the end of the gap, and one that the autumn night repeats is the first of the two. What to do while a
window is open is the worker's decision.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from optimizer.errors import BadInput, Problem

WALL_TIME = re.compile(r"^([01]?\d|2[0-3]):([0-5]\d)$")
MAX_DURATION_MIN = 24 * 60
"""Longer than a day would overlap with the next opening."""
LOOK_BACK = timedelta(days=3)
"""An opening that still lasts began at most a day ago; a zone that skips a whole date (Apia, 2011) needs one more."""
HORIZON_YEARS = 60
DAY_COUNT = 5


class RuleLike(Protocol):
    """What a window must tell; `storage.records.WindowRecord` does."""

    @property
    def start_cron(self) -> str: ...
    @property
    def timezone(self) -> str: ...
    @property
    def until(self) -> str | None: ...
    @property
    def duration_min(self) -> int | None: ...


@dataclass(frozen=True)
class WindowRule:
    """A window without its name: exactly one of `until` (HH:MM) and `duration_min` is set."""

    start_cron: str
    timezone: str
    until: str | None = None
    duration_min: int | None = None


@dataclass(frozen=True)
class Opening:
    """One opening. `local_date` is the date of the cron match in the zone: at most one run carries it."""

    local_date: str
    opens_at: datetime
    closes_at: datetime

    def contains(self, now: datetime) -> bool:
        """Say whether `now` lies inside (the end is outside)."""
        return self.opens_at <= now < self.closes_at


def check(data: Mapping[str, Any]) -> WindowRule:
    """Validate a window's rule.

    Raises:
        BadInput: carries every problem with its path and a hint.
    """
    problems = [*_cron_problems(data.get("start_cron")), *_zone_problems(data.get("timezone"))]
    problems += _end_problems(data.get("until"), data.get("duration_min"))
    if problems:
        raise BadInput(f"the window has {len(problems)} problem{'s' if len(problems) > 1 else ''}", problems)
    return WindowRule(data["start_cron"], data["timezone"], data.get("until"), data.get("duration_min"))


def openings(rule: RuleLike, after: datetime, limit: int = DAY_COUNT) -> list[Opening]:
    """Return the next openings that begin after `after` (aware), in order, at most `limit`."""
    found: list[Opening] = []
    for opening in _from(rule, after - LOOK_BACK):
        if len(found) >= limit:
            break
        if opening.opens_at > after:
            found.append(opening)
    return found


def between(rule: RuleLike, since: datetime, until: datetime) -> list[Opening]:
    """Return the openings that begin in (since, until], in order."""
    found: list[Opening] = []
    for opening in _from(rule, since - LOOK_BACK):
        if opening.opens_at > until:
            break
        if opening.opens_at > since:
            found.append(opening)
    return found


def current(rule: RuleLike, now: datetime) -> Opening | None:
    """Return the opening that lasts at `now`, or None."""
    best: Opening | None = None
    for opening in _from(rule, now - LOOK_BACK):
        if opening.opens_at > now:
            break
        if opening.contains(now):
            best = opening
    return best


def is_open(rule: RuleLike, now: datetime) -> bool:
    """Say whether the window is open at `now`."""
    return current(rule, now) is not None


def time_left_s(rule: RuleLike, now: datetime) -> float:
    """Return the seconds until the window closes, 0 when it is closed."""
    opening = current(rule, now)
    return (opening.closes_at - now).total_seconds() if opening else 0.0


def next_open(rule: RuleLike, now: datetime) -> Opening | None:
    """Return the next opening that begins after `now`; None when the cron never matches again."""
    found = openings(rule, now, 1)
    return found[0] if found else None


def has_room(rule: RuleLike, now: datetime, need_s: float) -> bool:
    """Say whether something that takes `need_s` seconds (one trial and the restore) ends before the window does."""
    return time_left_s(rule, now) >= need_s


def wall_instant(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return the first instant (UTC) at which the clock of `zone` shows the naive time `wall` or a later one."""
    first = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if _wall(first, zone) == wall:
        return first
    # In the gap fold=1 reads the offset after the change, which lies before the change itself.
    low = int(wall.replace(tzinfo=zone, fold=1).astimezone(UTC).timestamp())
    high = int(first.timestamp())
    while high - low > 1:
        middle = (low + high) // 2
        if _wall(datetime.fromtimestamp(middle, UTC), zone) >= wall:
            high = middle
        else:
            low = middle
    return datetime.fromtimestamp(high, UTC)


def _from(rule: RuleLike, start: datetime) -> Iterator[Opening]:
    """Openings in order of their nominal start, from about `start` on; empty ones (swallowed by a gap) are left out."""
    zone = _zone(rule.timezone)
    for wall in _cron(rule.start_cron, _wall(start, zone)):
        if wall.year > start.year + HORIZON_YEARS:
            return
        opens_at = wall_instant(wall, zone)
        closes_at = _close(rule, wall, opens_at, zone)
        if closes_at > opens_at:
            yield Opening(wall.date().isoformat(), opens_at, closes_at)


def _zone(name: str) -> ZoneInfo:
    """Return a zone. Raises BadInput when this machine does not know it."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise BadInput(f"this machine does not know the time zone {name}", remedy="update its tzdata") from error


def _cron(expression: str, start: datetime) -> Iterator[datetime]:
    try:
        yield from CronSim(expression, start - timedelta(minutes=1))
    except (CronSimError, OverflowError):
        return


def _close(rule: RuleLike, wall: datetime, opens_at: datetime, zone: ZoneInfo) -> datetime:
    if rule.duration_min is not None:
        return opens_at + timedelta(minutes=rule.duration_min)
    match = WALL_TIME.match(rule.until or "")
    if match is None:
        return opens_at
    end = wall.replace(hour=int(match[1]), minute=int(match[2]))
    return wall_instant(end if end > wall else end + timedelta(days=1), zone)


def _wall(instant: datetime, zone: ZoneInfo) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def _cron_problems(value: Any) -> list[Problem]:
    hint = "five fields: minute hour day month weekday, like 0 22 * * 1-5"
    if not isinstance(value, str) or len(value.split()) != 5:
        return [Problem("start_cron", "is not a cron expression", value, hint)]
    try:
        cron = CronSim(value, datetime(2026, 1, 1))
    except CronSimError as error:
        return [Problem("start_cron", str(error) or "is not a cron expression", value, hint)]
    if len(cron.minutes) * len(cron.hours) != 1:
        return [
            Problem("start_cron", "opens more than once a day", value, "one minute and one hour; two windows for two")
        ]
    return []


def _zone_problems(value: Any) -> list[Problem]:
    hint = "an IANA name like Europe/Berlin or UTC"
    if not isinstance(value, str) or not value:
        return [Problem("timezone", "is missing", value, hint)]
    try:
        _zone(value)
    except BadInput:
        return [Problem("timezone", "is not a known zone", value, hint)]
    return []


def _end_problems(until: Any, duration_min: Any) -> list[Problem]:
    if (until is None) == (duration_min is None):
        return [Problem("until", "give either until or duration_min", until, "until: '06:30' or duration_min: 480")]
    if until is not None and not (isinstance(until, str) and WALL_TIME.match(until)):
        return [Problem("until", "is not a wall time", until, "HH:MM, like 06:30")]
    if duration_min is not None and not (
        isinstance(duration_min, int) and not isinstance(duration_min, bool) and 1 <= duration_min <= MAX_DURATION_MIN
    ):
        return [Problem("duration_min", f"must be 1 to {MAX_DURATION_MIN} minutes", duration_min)]
    return []
