"""Windows against an oracle that walks the clock minute by minute, over zones, years and both changes of the clock."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer import windows
from optimizer.errors import BadInput
from optimizer.windows import Opening, WindowRule

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/St_Johns",
    "Australia/Lord_Howe",  # half an hour of summer time
    "Asia/Kathmandu",
    "America/Asuncion",
    "Africa/Casablanca",  # summer time around Ramadan
    "Pacific/Apia",
    "Asia/Tehran",
)
MINUTE = timedelta(minutes=1)


def changes_of_the_clock(zone: ZoneInfo, year: int) -> list[date]:
    """Return the local dates of a year on which the offset changes."""
    found = []
    day = datetime(year, 1, 1, tzinfo=UTC)
    for _ in range(366):
        following = day + timedelta(days=1)
        if day.astimezone(zone).utcoffset() != following.astimezone(zone).utcoffset():
            found.append(following.astimezone(zone).date())
        day = following
    return found


def oracle(zone: ZoneInfo, wall: datetime, start: datetime) -> datetime:
    """Walk UTC by minutes from `start` until the clock of the zone shows `wall` or later."""
    instant = start
    while instant.astimezone(zone).replace(tzinfo=None) < wall:
        instant += MINUTE
    return instant


def openings_by_walking(rule: WindowRule, first: date, days: int) -> list[Opening]:
    """Return the openings of `days` local dates by brute force; the cron is `M H * * *`."""
    zone = ZoneInfo(rule.timezone)
    minute, hour = (int(part) for part in rule.start_cron.split()[:2])
    found = []
    for i in range(days):
        day = first + timedelta(days=i)
        wall = datetime(day.year, day.month, day.day, hour, minute)
        begin = datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(hours=26)
        opens = oracle(zone, wall, begin)
        if rule.duration_min is not None:
            closes = opens + timedelta(minutes=rule.duration_min)
        else:
            end_hour, end_minute = (int(part) for part in str(rule.until).split(":"))
            end = wall.replace(hour=end_hour, minute=end_minute)
            closes = oracle(zone, end if end > wall else end + timedelta(days=1), begin)
        if closes > opens:
            found.append(Opening(day.isoformat(), opens, closes))
    return found


@st.composite
def rules(draw: st.DrawFn) -> tuple[WindowRule, date]:
    """A rule with a date near a change of the clock in its zone (or any date where there is none)."""
    name = draw(st.sampled_from(ZONES))
    year = draw(st.integers(2019, 2034))
    near = changes_of_the_clock(ZoneInfo(name), year)
    day = draw(st.sampled_from(near)) if near else date(year, draw(st.integers(1, 12)), draw(st.integers(1, 28)))
    hour = draw(st.one_of(st.integers(0, 4), st.integers(0, 23)))
    minute = draw(st.sampled_from((0, 15, 30, 45, 59)))
    until, duration = None, None
    if draw(st.booleans()):
        until = f"{draw(st.integers(0, 8)):02d}:{draw(st.sampled_from((0, 20, 30, 50))):02d}"
    else:
        duration = draw(st.integers(1, 1440))
    return WindowRule(f"{minute} {hour} * * *", name, until, duration), day


@settings(max_examples=60, deadline=None, derandomize=True)
@given(rules(), st.integers(0, 3 * 1440))
def test_openings_are_those_of_a_clock_that_is_walked_by_minutes(case: tuple[WindowRule, date], offset: int) -> None:
    rule, day = case
    expected = openings_by_walking(rule, day - timedelta(days=3), 8)
    after = datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(days=2)
    until = after + timedelta(days=4)
    assert windows.between(rule, after, until) == [o for o in expected if after < o.opens_at <= until]
    now = after + timedelta(minutes=offset)
    open_now = [o for o in expected if o.contains(now)]
    assert windows.current(rule, now) == (open_now[-1] if open_now else None)
    assert windows.is_open(rule, now) == bool(open_now)
    upcoming = [o for o in expected if o.opens_at > now]
    if upcoming:
        assert windows.next_open(rule, now) == upcoming[0]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(rules())
def test_a_window_opens_at_most_once_for_each_local_date(case: tuple[WindowRule, date]) -> None:
    rule, day = case
    found = windows.openings(rule, datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(days=3), 8)
    assert len({o.local_date for o in found}) == len(found)
    assert all(a.opens_at < b.opens_at for a, b in pairwise(found))
    assert all(o.closes_at - o.opens_at <= timedelta(hours=26) for o in found)


@pytest.mark.parametrize(
    ("cron", "until", "date_", "opens", "closes"),
    [
        # Spring: 02:30 does not exist, the window opens when the gap ends.
        ("30 2 * * *", "06:00", "2026-03-29", "2026-03-29T01:00", "2026-03-29T04:00"),
        # Autumn: 02:30 comes twice, the first one counts, and the window lasts an hour longer.
        ("30 2 * * *", "06:00", "2026-10-25", "2026-10-25T00:30", "2026-10-25T05:00"),
        # A night over the spring change is an hour shorter.
        ("0 22 * * *", "06:30", "2026-03-28", "2026-03-28T21:00", "2026-03-29T04:30"),
        ("0 22 * * *", "06:30", "2026-10-24", "2026-10-24T20:00", "2026-10-25T05:30"),
    ],
)
def test_the_two_nights_in_berlin(cron: str, until: str, date_: str, opens: str, closes: str) -> None:
    rule = WindowRule(cron, "Europe/Berlin", until)
    found = {o.local_date: o for o in windows.openings(rule, datetime(2026, 3, 20, tzinfo=UTC), 300)}
    assert found[date_].opens_at == datetime.fromisoformat(opens).replace(tzinfo=UTC)
    assert found[date_].closes_at == datetime.fromisoformat(closes).replace(tzinfo=UTC)


def test_a_window_that_lies_within_the_gap_does_not_open_that_night() -> None:
    rule = WindowRule("5 2 * * *", "Europe/Berlin", "02:55")
    dates = {o.local_date for o in windows.openings(rule, datetime(2026, 3, 26, tzinfo=UTC), 6)}
    assert "2026-03-28" in dates and "2026-03-29" not in dates and "2026-03-30" in dates


def test_time_left_and_room() -> None:
    rule = WindowRule("0 22 * * *", "UTC", None, 60)
    now = datetime(2026, 5, 4, 22, 50, tzinfo=UTC)
    assert windows.time_left_s(rule, now) == 600
    assert windows.has_room(rule, now, 600) and not windows.has_room(rule, now, 601)
    assert windows.time_left_s(rule, now + timedelta(minutes=10)) == 0
    assert not windows.has_room(rule, now + timedelta(minutes=10), 1)


def test_a_cron_that_never_matches_again_has_no_openings() -> None:
    rule = WindowRule("0 0 30 2 *", "UTC", None, 60)
    assert windows.openings(rule, datetime(2026, 1, 1, tzinfo=UTC)) == []
    assert windows.current(rule, datetime(2026, 1, 1, tzinfo=UTC)) is None


@pytest.mark.parametrize(
    ("change", "paths"),
    [
        ({"start_cron": "* 22 * * *"}, ["start_cron"]),
        ({"start_cron": "0 22,23 * * *"}, ["start_cron"]),
        ({"start_cron": "99 22 * * *"}, ["start_cron"]),
        ({"start_cron": 5}, ["start_cron"]),
        ({"timezone": "Europe/Brlin"}, ["timezone"]),
        ({"timezone": "../../etc/passwd"}, ["timezone"]),
        ({"until": "25:00"}, ["until"]),
        ({"until": None}, ["until"]),
        ({"duration_min": 60}, ["until"]),
        ({"until": None, "duration_min": 0}, ["duration_min"]),
        ({"until": None, "duration_min": 2000}, ["duration_min"]),
        ({"start_cron": "x", "timezone": "", "until": "6"}, ["start_cron", "timezone", "until"]),
    ],
)
def test_every_mistake_is_told_at_once(change: dict[str, object], paths: list[str]) -> None:
    good = {"start_cron": "0 22 * * 1-5", "timezone": "Europe/Berlin", "until": "06:30"}
    assert windows.check(good).timezone == "Europe/Berlin"
    with pytest.raises(BadInput) as caught:
        windows.check({**good, **change})
    assert [p.path for p in caught.value.problems] == paths
