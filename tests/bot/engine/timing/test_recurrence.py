"""Firings: each once, none lost, over changes of clocks and days off."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engine.timing import (
    TimingError,
    WeekdayCalendar,
    check_timing,
    is_cron,
    local_to_utc,
    next_due,
    working_calendar,
)
from cards.catalog import catalog_for
from handlers.middleware import explain_error
from storage.records.people import Language
from storage.records.schedules import CronTiming, DayFilter, Interval, OneTime, Timing
from tests.bot.engine.schedule.schedule_world import upcoming

BERLIN = ZoneInfo("Europe/Berlin")
SHANGHAI = ZoneInfo("Asia/Shanghai")
ZONES = [
    *(BERLIN, SHANGHAI, ZoneInfo("America/New_York"), ZoneInfo("UTC")),
    # Changes of half an hour, at midnight, and in the other half of the year.
    *(ZoneInfo("Australia/Lord_Howe"), ZoneInfo("Africa/Cairo"), ZoneInfo("America/Santiago")),
]
WEEKDAYS = WeekdayCalendar()
MINUTE = timedelta(minutes=1)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def cron(expression: str, days: DayFilter = DayFilter.ANY) -> CronTiming:
    return CronTiming(expression=expression, days=days)


def firings(timing: Timing, after: str, count: int, zone: ZoneInfo = BERLIN) -> list[str]:
    """As local times without a zone."""
    found = upcoming(timing, after=utc(after), zone=zone, calendar=WEEKDAYS, count=count)
    return [each.astimezone(zone).strftime("%m-%d %H:%M") for each in found]


def test_a_skipped_hour_fires_once_at_the_end_of_the_gap() -> None:
    for expression in ("30 2 * * *", "0,30 2 * * *", "*/15 2 * * *"):
        assert firings(cron(expression), "2026-03-29 00:00", 1) == ["03-29 03:00"]
        assert firings(cron(expression), "2026-03-29 01:00", 1)[0].startswith("03-30 02:")


def test_a_skipped_time_and_the_end_of_the_gap_are_one_firing() -> None:
    found = firings(cron("0 2,3,4 * * *"), "2026-03-28 23:00", 3)

    assert found == ["03-29 03:00", "03-29 04:00", "03-30 02:00"]


def test_an_hour_that_comes_twice_fires_the_first_time_only() -> None:
    found = upcoming(
        cron("0,30 2 * * *"), after=utc("2026-10-24 12:00"), zone=BERLIN, calendar=WEEKDAYS, count=3
    )

    assert found == (utc("2026-10-25 00:00"), utc("2026-10-25 00:30"), utc("2026-10-26 01:00"))


def test_asked_in_the_second_of_two_hours_it_does_not_go_back() -> None:
    due = next_due(
        cron("30 2 * * *"), after=utc("2026-10-25 01:10"), zone=BERLIN, calendar=WEEKDAYS
    )

    assert due == utc("2026-10-26 01:30")


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"])
def test_what_fires_every_hour_leaves_none_out(day: str) -> None:
    found = upcoming(
        cron("0 * * * *"), after=utc(f"{day} 00:00"), zone=BERLIN, calendar=WEEKDAYS, count=5
    )

    assert {b - a for a, b in pairwise(found)} == {timedelta(hours=1)}


def test_working_days_and_free_days() -> None:
    working, free = cron("0 9 * * *", DayFilter.WORKING), cron("0 9 * * *", DayFilter.FREE)

    assert firings(working, "2026-11-26 12:00", 2) == ["11-27 09:00", "11-30 09:00"]
    assert firings(free, "2026-11-26 12:00", 3) == ["11-28 09:00", "11-29 09:00", "12-05 09:00"]


def test_the_first_and_the_last_working_day_of_a_month() -> None:
    last = CronTiming(expression="0 17 * * *", days=DayFilter.WORKING, nth=-1)
    first = CronTiming(expression="0 9 * 1,5 *", days=DayFilter.WORKING, nth=1)

    # The last of February is a Sunday, the 1st of May a Saturday.
    assert firings(last, "2027-01-15 00:00", 2) == ["01-29 17:00", "02-26 17:00"]
    assert firings(last, "2027-02-26 16:30", 1) == ["03-31 17:00"]
    assert firings(first, "2027-01-01 12:00", 2) == ["05-03 09:00", "01-03 09:00"]


def test_several_expressions_fire_in_turn() -> None:
    timing = cron("30 8 * * *; 0 22 * * 5; 0 2 * * *")

    # On Sunday there is no two o'clock.
    assert firings(timing, "2026-03-27 12:00", 6) == [
        *("03-27 22:00", "03-28 02:00", "03-28 08:30", "03-29 03:00", "03-29 08:30", "03-30 02:00")
    ]
    with pytest.raises(TimingError, match=r"timing\.cron"):
        check_timing(cron("30 8 * * *; 0 0 30 2 *"), now=utc("2026-11-26 00:00"), zone=BERLIN)


def test_minutes_of_a_day_off_are_skipped_as_a_whole() -> None:
    found = firings(cron("* * * * *", DayFilter.WORKING), "2026-11-27 22:58", 2)

    assert found == ["11-27 23:59", "11-30 00:00"]


def test_months_of_different_length() -> None:
    assert firings(cron("0 9 L * *"), "2026-01-30 00:00", 3) == [
        *("01-31 09:00", "02-28 09:00", "03-31 09:00")
    ]
    assert firings(cron("0 9 * * 1#1"), "2026-11-26 00:00", 2) == ["12-07 09:00", "01-04 09:00"]
    assert firings(cron("0 0 29 2 *"), "2026-11-26 00:00", 1) == ["02-29 00:00"]


def test_an_interval_is_not_stretched_by_summer_time() -> None:
    timing = Interval(every=timedelta(hours=12), start=utc("2026-03-28 11:00"))

    assert firings(timing, "2026-03-28 10:00", 3) == ["03-28 12:00", "03-29 00:00", "03-29 13:00"]
    assert firings(timing, "2026-03-28 23:00", 1) == ["03-29 13:00"]


def test_days_apart_keep_the_local_hour() -> None:
    spring = Interval(every=timedelta(days=2), start=utc("2026-03-27 11:00"))
    autumn = Interval(every=timedelta(days=14), start=utc("2026-10-12 07:00"))

    assert firings(spring, "2026-03-27 10:00", 3) == ["03-27 12:00", "03-29 12:00", "03-31 12:00"]
    assert firings(spring, "2026-03-29 09:59", 1) == ["03-29 12:00"]
    assert firings(spring, "2026-03-29 10:00", 1) == ["03-31 12:00"]
    assert firings(autumn, "2026-10-12 07:00", 2) == ["10-26 09:00", "11-09 09:00"]
    assert firings(autumn, "2026-10-26 07:30", 1) == ["10-26 09:00"]


def test_an_interval_goes_on_in_its_own_step_after_a_long_outage() -> None:
    timing = Interval(every=timedelta(minutes=7), start=utc("2020-01-01 00:00"))

    due = next_due(timing, after=utc("2026-11-26 00:00"), zone=BERLIN, calendar=WEEKDAYS)

    assert due is not None
    assert utc("2026-11-26 00:00") < due <= utc("2026-11-26 00:07")
    assert (due - timing.start) % timing.every == timedelta()


def test_a_single_time_fires_once() -> None:
    timing = OneTime(at=datetime(2026, 12, 1, 9, tzinfo=BERLIN))

    assert firings(timing, "2026-11-26 00:00", 5) == ["12-01 09:00"]
    assert firings(timing, "2026-12-01 08:00", 5) == []


@pytest.mark.parametrize(
    "expression",
    [
        *("0 0 30 2 *", "0 0 31 4,6 *", "0 0 */31 2 MON#5", "61 * * * *", "* * * *", "", " "),
        *("0 0 * * * *", "0 0 1 1 * 2026", "a b c d e", "0 9 * * 8", "*/0 * * * *", "½ * * * *"),
        *("5-1 * * * *", "0 9 L/2 * x", "@daily", "* " * 5 + "#" * 300, "0," * 200 + "0 * * * *"),
    ],
)
def test_rubbish_is_no_cron(expression: str) -> None:
    assert not is_cron(expression)
    timing = cron(expression)
    assert next_due(timing, after=utc("2026-01-01"), zone=BERLIN, calendar=WEEKDAYS) is None


@pytest.mark.parametrize(
    ("timing", "key"),
    [
        (OneTime(at=utc("2026-11-26 09:59")), "timing.past"),
        (OneTime(at=utc("2026-11-26 10:00")), "timing.past"),
        (OneTime(at=utc("2040-01-01 00:00")), "timing.too_far"),
        (cron("0 0 30 2 *"), "timing.cron"),
        (cron("rubbish"), "timing.cron"),
        (cron("0 9 * * 6", DayFilter.WORKING), "timing.never"),
        (cron("* * * * 0", DayFilter.WORKING), "timing.never"),
        (Interval(every=timedelta(seconds=59), start=utc("2026-11-26 10:00")), "timing.too_often"),
        (Interval(every=timedelta(0), start=utc("2026-11-26 10:00")), "timing.too_often"),
        (Interval(every=timedelta(days=4000), start=utc("2026-11-27")), "timing.too_far"),
        (Interval(every=timedelta(days=1), start=utc("2040-01-01")), "timing.too_far"),
    ],
)
def test_a_timing_without_sense_is_refused_in_words(timing: Timing, key: str) -> None:
    with pytest.raises(TimingError) as refused:
        check_timing(timing, now=utc("2026-11-26 10:00"), zone=BERLIN)

    assert refused.value.key == key
    for language in Language:
        assert explain_error(refused.value, catalog_for(language), "").hint


def test_a_good_timing_passes() -> None:
    for timing in (
        OneTime(at=utc("2026-11-26 10:01")),
        Interval(every=MINUTE, start=utc("2020-01-01")),
        cron("0 0 29 2 *"),
    ):
        check_timing(timing, now=utc("2026-11-26 10:00"), zone=BERLIN)


fields = st.tuples(
    st.sampled_from(["0", "30", "59", "0,30", "*/20", "15-45/15", "*"]),
    st.sampled_from(["0", "1", "2", "3", "1,2,3", "*/2", "0-4", "23", "12"]),
    st.sampled_from(["*", "1", "L", "*/2"]),
    st.just("*"),
    st.sampled_from(["*", "0", "1-5", "7#4"]),
).map(" ".join)
moments = st.datetimes(min_value=datetime(2026, 1, 1), max_value=datetime(2028, 1, 1))  # noqa: DTZ001


def expected(expression: str, first: date, zone: ZoneInfo) -> list[datetime]:
    """The matching local times of some days, each once."""
    start = datetime(first.year, first.month, first.day, tzinfo=UTC) - MINUTE
    found = upcoming(
        cron(expression), after=start, zone=ZoneInfo("UTC"), calendar=WEEKDAYS, count=150
    )
    last = start + timedelta(days=5)
    return sorted({local_to_utc(each.replace(tzinfo=None), zone) for each in found if each < last})


@given(expression=fields, moment=moments, zone=st.sampled_from(ZONES))
def test_every_local_time_fires_exactly_once(
    expression: str, moment: datetime, zone: ZoneInfo
) -> None:
    due = expected(expression, moment.date(), zone)
    if not due:
        return

    found = upcoming(
        cron(expression), after=due[0] - MINUTE, zone=zone, calendar=WEEKDAYS, count=len(due)
    )

    assert list(found) == due


@given(
    expression=fields, moment=moments, zone=st.sampled_from(ZONES), day=st.sampled_from(DayFilter)
)
def test_the_next_firing_is_later_and_the_same_from_wherever_one_asks_before_it(
    expression: str, moment: datetime, zone: ZoneInfo, day: DayFilter
) -> None:
    after = moment.replace(tzinfo=UTC)
    timing = cron(expression, day)

    due = next_due(timing, after=after, zone=zone, calendar=WEEKDAYS)

    if due is not None:
        assert due > after
        assert due.tzinfo is UTC
        middle = after + (due - after) / 2
        assert next_due(timing, after=middle, zone=zone, calendar=WEEKDAYS) == due


@given(moment=moments, zone=st.sampled_from(ZONES), days=st.integers(1, 40))
def test_days_apart_fire_once_each_at_the_local_hour(
    moment: datetime, zone: ZoneInfo, days: int
) -> None:
    start = moment.replace(second=0, microsecond=0, tzinfo=UTC)
    timing = Interval(every=timedelta(days=days), start=start)

    found = upcoming(timing, after=start - MINUTE, zone=zone, calendar=WEEKDAYS, count=30)

    local = start.astimezone(zone).replace(tzinfo=None)
    assert list(found[1:]) == [
        local_to_utc(local + timedelta(days=days * n), zone) for n in range(1, 30)
    ]


@pytest.mark.parametrize(
    ("region", "day", "is_working"),
    [
        # A Monday and a Sunday.
        ("", "2026-11-30", True),
        ("", "2026-11-29", False),
        ("", "2026-10-01", True),
        # The national holiday, and a Saturday worked in exchange.
        ("CN", "2026-10-01", False),
        ("CN", "2026-10-10", True),
        ("CN", "2026-10-11", False),
        ("CN", "2026-02-14", True),
        ("US", "2026-11-26", False),
        ("DE", "2026-01-06", True),
        ("DE-BY", "2026-01-06", False),
        # The week ends on Friday.
        ("EG", "2026-11-27", False),
        ("EG", "2026-11-29", True),
    ],
)
def test_working_days_of_a_region(region: str, day: str, is_working: bool) -> None:
    assert working_calendar(region).is_working(date.fromisoformat(day)) is is_working


def test_work_resumes_after_the_national_holiday() -> None:
    found = upcoming(
        CronTiming(expression="0 9 * * *", days=DayFilter.WORKING),
        after=datetime(2026, 9, 30, 2, tzinfo=UTC),
        zone=ZoneInfo("Asia/Shanghai"),
        calendar=working_calendar("CN"),
        count=4,
    )

    assert [each.strftime("%m-%d") for each in found] == ["10-08", "10-09", "10-10", "10-12"]
