"""When timings fire: single times, intervals and cron expressions, read in local time; which days
people work, and parts of a day."""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from itertools import count as count_from
from typing import TYPE_CHECKING, Protocol, assert_never
from zoneinfo import ZoneInfo

from handlers.errors import UserError
from storage.records.schedules import CronTiming, DayFilter, Interval, OneTime, Timing

if TYPE_CHECKING:
    from holidays import HolidayBase


MIN_INTERVAL = timedelta(minutes=1)
HORIZON = timedelta(days=3653)
"""Ten years: nothing is scheduled later."""
MAX_CRON = 200
"""Characters of cron expressions."""

_MINUTE = timedelta(minutes=1)
_DAY = timedelta(days=1)
_CRON_FIELDS = 5
_MAX_FILTERED_DAYS = 400
_CRON_REFERENCE_TIME = datetime(2026, 1, 1, tzinfo=UTC)
_ZONE_NAME = re.compile(r"[A-Za-z0-9_+-]{1,40}(?:/[A-Za-z0-9_+-]{1,40}){0,2}")
_SATURDAY = 5


class TimingError(UserError):
    """A text that gives no time, or a time for which nothing can be scheduled."""


def next_due(
    timing: Timing, *, after: datetime, zone: ZoneInfo, calendar: WorkingCalendar
) -> datetime | None:
    """The first firing after `after`, in UTC; None if there is none."""
    match timing:
        case OneTime(at=at):
            return at.astimezone(UTC) if at > after else None
        case Interval():
            due = _next_of_interval(timing, after, zone)
        case CronTiming():
            due = _next_of_cron(timing, after, zone, calendar)
        case _:
            assert_never(timing)
    is_over = due is not None and timing.until is not None and due > timing.until
    return None if is_over else due


def check_timing(
    timing: Timing, *, now: datetime, zone: ZoneInfo, calendar: WorkingCalendar | None = None
) -> None:
    """Raise TimingError if the timing never fires, not within ten years, or too often."""
    if isinstance(timing, CronTiming) and not all(map(is_cron, timing.expressions)):
        raise TimingError("timing.cron", text=timing.expression[:60])
    if isinstance(timing, Interval):
        if timing.every < MIN_INTERVAL:
            raise TimingError("timing.too_often")
        if timing.every > HORIZON:
            raise TimingError("timing.too_far")
    due = next_due(timing, after=now, zone=zone, calendar=calendar or WeekdayCalendar())
    if due is None:
        raise TimingError("timing.past" if isinstance(timing, OneTime) else "timing.never")
    if due - now > HORIZON:
        raise TimingError("timing.too_far")


def is_cron(text: str) -> bool:
    """Whether the text is a cron expression of five fields that ever matches."""
    return next_cron_time(text, after=_CRON_REFERENCE_TIME, zone=ZoneInfo("UTC")) is not None


def next_cron_time(expression: str, *, after: datetime, zone: ZoneInfo) -> datetime | None:
    """The first time after `after` that matches, in UTC; None if there is none or it is no
    expression of five fields.

    Hours are local: an hour that a clock change skips is the end of the gap, one that comes twice
    is the first. Only `*` means each hour that passes, so that nothing is left out for an hour."""
    fields = expression.split() if len(expression) <= MAX_CRON else []
    if len(fields) != _CRON_FIELDS:
        return None
    # Imported on first use.
    from cronsim import CronSim, CronSimError

    try:
        start = after.astimezone(zone)
        if fields[1] == "*":
            return next(CronSim(expression, start)).astimezone(UTC)
        for local in CronSim(expression, start.replace(tzinfo=None)):
            due = local_to_utc(local, zone)
            # What comes twice, and the end of a gap, may already be over.
            if due > after:
                return due
    except (CronSimError, StopIteration, ValueError, OverflowError):
        return None
    return None


def local_to_utc(at: datetime, zone: ZoneInfo) -> datetime:
    """A time without a zone as UTC. One that a clock change skips becomes the end of the gap; of
    one that comes twice it is the first."""
    found = at.replace(tzinfo=zone).astimezone(UTC)
    if _is_skipped_by_clock_change(at, zone):
        at = at.replace(second=0, microsecond=0)
        while _is_skipped_by_clock_change(at, zone):
            at -= _MINUTE
        found = at.replace(tzinfo=zone).astimezone(UTC) + _MINUTE
    return found


def load_zone(name: str) -> ZoneInfo | None:
    """The time zone of this IANA name, None if there is none."""
    try:
        return ZoneInfo(name) if _ZONE_NAME.fullmatch(name) else None
    except (KeyError, ValueError, OSError):
        return None


def _next_of_interval(timing: Interval, after: datetime, zone: ZoneInfo) -> datetime | None:
    start, since = timing.start.astimezone(UTC), after.astimezone(UTC)
    if start > since:
        return start
    elapsed = (since - start) // timing.every
    try:
        if timing.every % _DAY:
            return start + timing.every * (elapsed + 1)
        local = start.astimezone(zone).replace(tzinfo=None)
        # The clocks may be an hour before or behind those at the start.
        dues = (local_to_utc(local + timing.every * n, zone) for n in count_from(elapsed))
        return next(due for due in dues if due > since)
    except OverflowError:
        return None


def _next_of_cron(
    timing: CronTiming, after: datetime, zone: ZoneInfo, calendar: WorkingCalendar
) -> datetime | None:
    """A day on which it may not fire is skipped as a whole; so many of them in a row mean never."""
    for _ in range(_MAX_FILTERED_DAYS):
        found = (next_cron_time(each, after=after, zone=zone) for each in timing.expressions)
        due = min((each for each in found if each is not None), default=None)
        if due is None or timing.days is DayFilter.ANY:
            return due
        day = due.astimezone(zone).date()
        if _passes_filter(day, timing, calendar):
            return due
        after = max(due, local_to_utc(datetime.combine(day, time(23, 59, 59)), zone))
    return None


def _passes_filter(day: date, timing: CronTiming, calendar: WorkingCalendar) -> bool:
    def is_of_filter(each: date) -> bool:
        return calendar.is_working(each) is (timing.days is DayFilter.WORKING)

    if not is_of_filter(day) or timing.nth == 0:
        return is_of_filter(day)
    last = monthrange(day.year, day.month)[1]
    numbers = range(1, day.day + 1) if timing.nth > 0 else range(day.day, last + 1)
    return sum(is_of_filter(day.replace(day=n)) for n in numbers) == abs(timing.nth)


def _is_skipped_by_clock_change(at: datetime, zone: ZoneInfo) -> bool:
    return at.replace(tzinfo=zone).astimezone(UTC).astimezone(zone).replace(tzinfo=None) != at


class WorkingCalendar(Protocol):
    def is_working(self, day: date) -> bool: ...


class WeekdayCalendar:
    """Monday to Friday, all year."""

    def is_working(self, day: date) -> bool:
        return day.weekday() < _SATURDAY


class HolidayCalendar:
    """The working days of a country such as `CN`, or of a part of one such as `DE-BY`: not its
    weekends and public holidays, but the weekends on which it works in exchange."""

    def __init__(self, region: str) -> None:
        self._region = region

    def is_working(self, day: date) -> bool:
        return self._holidays.is_working_day(day)

    @cached_property
    def _holidays(self) -> HolidayBase:
        # An extra, which the settings have checked, and imported on first use.
        from holidays import country_holidays

        country, _, part = self._region.partition("-")
        return country_holidays(country, subdiv=part or None)


def working_calendar(region: str) -> WorkingCalendar:
    """Monday to Friday for an empty region."""
    return HolidayCalendar(region) if region else WeekdayCalendar()


@dataclass(frozen=True, slots=True, kw_only=True)
class DayHours:
    """From `start` inclusive to `end` exclusive in `zone`; across midnight if `end` is earlier.
    Equal times are the whole day."""

    start: time
    end: time
    zone: ZoneInfo

    def contains(self, at: datetime) -> bool:
        now = at.astimezone(self.zone).time()
        if self.start < self.end:
            return self.start <= now < self.end
        return self.start == self.end or now >= self.start or now < self.end

    def next_start(self, at: datetime) -> datetime:
        """The first start after `at`, in UTC."""
        return self._next(self.start, at)

    def next_end(self, at: datetime) -> datetime:
        """The first end after `at`, in UTC."""
        return self._next(self.end, at)

    def _next(self, wanted: time, at: datetime) -> datetime:
        day = at.astimezone(self.zone).date()
        found = local_to_utc(datetime.combine(day, wanted), self.zone)
        while found <= at:
            day += _DAY
            found = local_to_utc(datetime.combine(day, wanted), self.zone)
        return found
