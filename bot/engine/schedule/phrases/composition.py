"""Turns the elements of a phrase of time into a timing."""

from __future__ import annotations

import calendar
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from bot.engine.schedule.phrases.model import (
    HOUR_MINUTES,
    LAST,
    LAST_WEEKDAY,
    MIDNIGHT,
    NOON,
    ClockTime,
    DayPart,
    Every,
    TimePhrase,
)
from bot.engine.schedule.phrases.words import Amount
from bot.engine.timing import MAX_CRON, TimingError, WeekdayCalendar, local_to_utc, next_due
from storage.records.schedules import CronTiming, DayFilter, Interval, OneTime, Timing

_DEFAULT_HOUR = 9
_FIRST_PLAIN_HOUR = 6
_MIN_RUN = 3
_SATURDAY = 5
_YEAR_MONTHS = 12
_MONTH_STEPS = frozenset({1, 2, 3, 4, 6, 12})

_FAR = datetime.max.replace(tzinfo=UTC)

_Hour = tuple[int, int]
"""An hour and a minute. Hours from 24 on are those of the next day."""


def compose(phrase: TimePhrase, *, now: datetime, zone: ZoneInfo) -> Timing:
    """The timing that a phrase means, which may be in the past. `zone` is the person's, and decides
    which day is today even where the phrase names another zone. Raises TimingError for a phrase
    without a meaning, or with one that no timing can express."""
    own = ZoneInfo(phrase.zone) if phrase.zone else zone
    try:
        if phrase.repeats:
            return _compose_bounded(phrase, now.astimezone(zone), own)
        if phrase.has_bound:
            raise TimingError("timing.inexpressible")
        if not phrase.has_day and phrase.delay is None:
            return OneTime(at=_compose_moment(phrase, now.astimezone(own), own))
        return OneTime(at=_compose_moment(phrase, now.astimezone(zone), own))
    except (ValueError, OverflowError) as error:
        # Such as 30 February.
        raise TimingError("timing.words") from error


def _compose_moment(phrase: TimePhrase, now: datetime, zone: ZoneInfo) -> datetime:
    if phrase.instant is not None:
        return phrase.instant.astimezone(UTC)
    if phrase.window:
        raise TimingError("timing.words")
    if phrase.nth or phrase.nth_working_day or len(phrase.clocks) > 1 or len(phrase.month_days) > 1:
        raise TimingError("timing.inexpressible")
    if phrase.delay is not None:
        return _compose_delay(phrase, phrase.delay, now, zone)
    if not phrase.has_day:
        hour = _hours(phrase)[0]
        at = _at(now.date(), hour, zone)
        return at if at > now else _at(now.date() + timedelta(days=1), hour, zone)
    if phrase.offset == 0 and not phrase.has_hour:
        raise TimingError("timing.which_hour")
    return _compose_day(phrase, now, zone)


def _compose_delay(phrase: TimePhrase, delay: Amount, now: datetime, zone: ZoneInfo) -> datetime:
    local = _add_months(now.replace(tzinfo=None), delay.months) + timedelta(days=delay.days)
    if phrase.has_hour:
        if not delay.is_whole_days:
            raise TimingError("timing.words")
        return _at(local.date(), _hours(phrase)[0], zone)
    if not (delay.months or delay.days):
        return now.astimezone(UTC) + delay.span
    return local_to_utc(local, zone) + delay.span


def _compose_day(phrase: TimePhrase, now: datetime, zone: ZoneInfo) -> datetime:
    hour = _hours(phrase, is_one_day=True)[0]
    today = now.date()
    if phrase.offset is not None:
        at = _at(today + timedelta(days=phrase.offset), hour, zone)
        if phrase.offset == 0 and at <= now and _may_be_later(phrase):
            # `today at 9`, said at ten, is in the evening.
            at = _at(today, (hour[0] + 12, hour[1]), zone)
        return at
    if phrase.month_days:
        return _compose_date(phrase, hour, now, zone)
    if phrase.month_offset is not None:
        return _at(_month_start(today, phrase.month_offset), hour, zone)
    monday = today - timedelta(days=today.weekday())
    day = monday + timedelta(days=phrase.weekdays[0] if phrase.weekdays else 0)
    if phrase.week is not None:
        return _at(day + timedelta(weeks=phrase.week), hour, zone)
    if _at(day, hour, zone) <= now:
        day += timedelta(weeks=1)
    return _at(day + timedelta(weeks=phrase.weeks_after), hour, zone)


def _compose_date(phrase: TimePhrase, hour: _Hour, now: datetime, zone: ZoneInfo) -> datetime:
    today = now.date()
    wanted = phrase.month_days[0]
    if phrase.month is None:
        months = (phrase.month_offset,) if phrase.month_offset is not None else range(13)
        starts = [_month_start(today, n) for n in months]
    elif phrase.year is not None or phrase.year_offset:
        starts = [date(phrase.year or today.year + phrase.year_offset, phrase.month, 1)]
    else:
        # 29 February is four years off at most, except about 2100.
        starts = [date(today.year + n, phrase.month, 1) for n in range(9)]
    found = [_at(day, hour, zone) for start in starts if (day := _day_of_month(start, wanted))]
    if not found:
        raise TimingError("timing.words")
    return next((at for at in found if at > now), found[-1])


def _compose_bounded(phrase: TimePhrase, now: datetime, zone: ZoneInfo) -> CronTiming | Interval:
    """A repetition with its first and last time. A number of firings counts from the first."""
    since = _compose_start(phrase.since, now, zone) if phrase.since else None
    if phrase.since and phrase.since.has_hour and not (phrase.has_hour or phrase.repeats_by_clock):
        # `every day from Monday at 9`
        phrase = replace(phrase, clocks=phrase.since.clocks, part=phrase.since.part)
    if since is not None and since <= now:
        since = None
    before = now if since is None else (since - timedelta(seconds=1)).astimezone(now.tzinfo)
    timing = _compose_repetition(phrase, before.astimezone(zone), zone)
    until = _compose_end(phrase, before, zone)
    if since is None:
        return replace(timing, until=until, times=phrase.times)
    if isinstance(timing, Interval):
        start = since if phrase.every is Every.SPAN else timing.start
        return replace(timing, start=start, until=until, times=phrase.times)
    return replace(timing, since=since, until=until, times=phrase.times)


def _compose_start(since: TimePhrase, now: datetime, zone: ZoneInfo) -> datetime:
    """The start of a repetition. A day without an hour covers the whole day."""
    if since.whole_month and since.month == now.month:
        return now
    if since.has_hour or (since.delay is not None and not since.delay.is_whole_days):
        return _compose_moment(since, now, zone)
    return _compose_moment(replace(since, clocks=[ClockTime(hour=0, exact=True)]), now, zone)


def _compose_end(phrase: TimePhrase, now: datetime, zone: ZoneInfo) -> datetime | None:
    """The last moment of a repetition. A day without an hour covers the whole day."""
    if phrase.lasting is not None:
        return _compose_delay(TimePhrase(end=0), phrase.lasting, now, zone)
    until = phrase.until
    if until is None:
        return None
    if until.has_hour or (until.delay is not None and not until.delay.is_whole_days):
        return _compose_moment(until, now, zone)
    until.clocks = [ClockTime(hour=23, minute=59, exact=True)]
    return _compose_moment(until, now, zone) + timedelta(seconds=59)


def _compose_repetition(phrase: TimePhrase, now: datetime, zone: ZoneInfo) -> CronTiming | Interval:
    if phrase.delay is not None:
        raise TimingError("timing.inexpressible")
    if phrase.often is not None:
        return _compose_often(phrase, phrase.often)
    if phrase.window is not None:
        raise TimingError("timing.words")
    match phrase.every:
        case Every.SPAN:
            return _compose_span(phrase, now)
        case Every.MINUTE | Every.HOUR:
            if phrase.has_hour or phrase.has_day:
                raise TimingError("timing.inexpressible")
            return CronTiming(
                expression="* * * * *" if phrase.every is Every.MINUTE else "0 * * * *"
            )
        case Every.DAY | Every.WEEK if phrase.step != 1:
            return _compose_days_apart(phrase, now, zone)
        case Every.MONTH if phrase.from_first:
            return _compose_months_apart(phrase, now, zone)
        case _:
            return _cron_of_hours(phrase, _hours(phrase))


def _compose_span(phrase: TimePhrase, now: datetime) -> Interval:
    if phrase.has_hour or phrase.has_day or phrase.span is None:
        raise TimingError("timing.inexpressible")
    every = phrase.span.span + timedelta(days=phrase.span.days)
    if phrase.span.months or every <= timedelta(0):
        raise TimingError("timing.too_often" if every <= timedelta(0) else "timing.inexpressible")
    return Interval(every=every, start=now.astimezone(UTC) + every)


def _compose_days_apart(phrase: TimePhrase, now: datetime, zone: ZoneInfo) -> Interval:
    """Every so many days or weeks, from the first such hour to come."""
    if phrase.step == 0:
        raise TimingError("timing.too_often")
    hours = _hours(phrase)
    if len(hours) > 1 or len(phrase.weekdays) > 1 or phrase.filter is not DayFilter.ANY:
        raise TimingError("timing.inexpressible")
    day = now.date()
    days = phrase.step
    if phrase.every is Every.WEEK:
        wanted = phrase.weekdays[0] if phrase.weekdays else 0
        day += timedelta(days=(wanted - day.weekday()) % 7)
        days *= 7
    start = _at(day, hours[0], zone)
    if start <= now:
        start = _at(day + timedelta(days=7 if phrase.every is Every.WEEK else 1), hours[0], zone)
    return Interval(every=timedelta(days=days), start=start)


def _compose_months_apart(phrase: TimePhrase, now: datetime, zone: ZoneInfo) -> CronTiming:
    """Every so many months, from the first such day to come."""
    firsts = range(1, min(phrase.step, _YEAR_MONTHS) + 1)
    found = [_cron_of_hours(replace(phrase, first_month=n), _hours(phrase)) for n in firsts]
    days = WeekdayCalendar()
    return min(
        found,
        key=lambda each: next_due(each, after=now, zone=zone, calendar=days) or _FAR,
    )


def _compose_often(phrase: TimePhrase, often: Amount) -> CronTiming:
    """So often on each of the days, from the first to the last hour of the window."""
    step = often.span // timedelta(minutes=1)
    if step == 0:
        raise TimingError("timing.too_often")
    if phrase.has_hour or often.days or often.months or often.span % timedelta(minutes=1):
        raise TimingError("timing.inexpressible")
    if phrase.every is None and phrase.has_day:
        raise TimingError("timing.inexpressible")
    first, last = _window_minutes(phrase)
    times = range(first, last + 1, step)
    return _cron_of_hours(phrase, [divmod(minute, HOUR_MINUTES) for minute in times])


def _window_minutes(phrase: TimePhrase) -> tuple[int, int]:
    """The window in minutes of the day. Without a minute for its last hour it takes that of the
    first; one that ends before it starts ends on the next day."""
    if phrase.window is None:
        return 0, MIDNIGHT * HOUR_MINUTES - 1
    start, end = phrase.window
    first = _hour_of_day(start, start.part) * HOUR_MINUTES + start.minute
    last = _hour_of_day(end, end.part) * HOUR_MINUTES + end.minute
    if last <= first and end.part is None and not end.exact:
        last = _hour_of_day(end, start.part) * HOUR_MINUTES + end.minute
    if last <= first:
        last += MIDNIGHT * HOUR_MINUTES
    return first, last


def _cron_of_hours(phrase: TimePhrase, hours: list[_Hour]) -> CronTiming:
    """One expression for all hours with the same minutes on the same days."""
    if phrase.filter is not DayFilter.ANY and any(hour >= MIDNIGHT for hour, _ in hours):
        # The next day need not be one of those that the filter lets through.
        raise TimingError("timing.past_midnight")
    minutes: dict[tuple[int, int], set[int]] = {}
    has_days = phrase.every in {Every.WEEK, Every.MONTH, Every.YEAR}
    for hour, minute in hours:
        late, hour_of_day = divmod(hour, MIDNIGHT)
        minutes.setdefault((late * has_days, hour_of_day), set()).add(minute)
    groups: dict[tuple[int, frozenset[int]], list[int]] = {}
    for late, hour in sorted(minutes):
        groups.setdefault((late, frozenset(minutes[late, hour])), []).append(hour)
    expressions = []
    for (late, each), of_day in groups.items():
        times = f"{_field(each, HOUR_MINUTES)} {_field(of_day, MIDNIGHT)}"
        expressions.append(f"{times} {_day_fields(phrase, late)}")
    nth = phrase.month_days[0] if phrase.nth_working_day else 0
    expression = "; ".join(expressions)
    if len(expression) > MAX_CRON:
        raise TimingError("timing.inexpressible")
    return CronTiming(expression=expression, days=phrase.filter, nth=nth)


def _field(numbers: Iterable[int], full: int) -> str:
    """A field of cron; three and more in a row are a range."""
    found = sorted(numbers)
    if len(found) == full:
        return "*"
    runs: list[list[int]] = []
    for number in found:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    items = [
        f"{run[0]}-{run[-1]}" if len(run) >= _MIN_RUN else ",".join(map(str, run)) for run in runs
    ]
    return ",".join(items)


def _day_fields(phrase: TimePhrase, late: int) -> str:
    """The cron fields of a day, or of the next one if `late`."""
    day, month, weekday = "*", "*", "*"
    if phrase.every is Every.WEEK:
        weekday = _weekday_field([(each + late) % 7 for each in phrase.weekdays or [0]])
    elif phrase.every in {Every.MONTH, Every.YEAR}:
        day, month, weekday = _month_fields(phrase)
        if late:
            raise TimingError("timing.inexpressible")
    elif phrase.has_day:
        raise TimingError("timing.inexpressible")
    return f"{day} {month} {weekday}"


def _month_fields(phrase: TimePhrase) -> tuple[str, str, str]:
    step = phrase.step if phrase.every is Every.MONTH else _YEAR_MONTHS
    if step not in _MONTH_STEPS:
        raise TimingError("timing.too_often" if step == 0 else "timing.inexpressible")
    # The end of a quarter is in its last month.
    is_at_end = bool(phrase.month_days) and max(phrase.month_days) < 0
    first = phrase.first_month or (step if is_at_end else 1)
    months = "*" if step == 1 else ",".join(str(n) for n in range(first, _YEAR_MONTHS + 1, step))
    if phrase.month is not None:
        months = str(phrase.month)
        if phrase.month_days and phrase.month_days[0] > 0:
            # Some year must have this day: 2024 is a leap year.
            date(2024, phrase.month, phrase.month_days[0])
    if phrase.nth_working_day:
        return "*", months, "*"
    if phrase.weekdays:
        if phrase.nth is None or len(phrase.weekdays) > 1:
            raise TimingError("timing.inexpressible")
        weekday = _weekday_field(phrase.weekdays)
        return "*", months, f"{weekday}L" if phrase.nth == LAST else f"{weekday}#{phrase.nth}"
    named = {LAST: "L", LAST_WEEKDAY: "LW"}
    days = [named.get(day, str(day)) for day in phrase.month_days or [1]]
    return ",".join(days), months, "*"


def _weekday_field(weekdays: list[int]) -> str:
    """Days as cron counts them, from Sunday."""
    return _field({(day + 1) % 7 for day in weekdays}, 7)


def _hours(phrase: TimePhrase, *, is_one_day: bool = False) -> list[_Hour]:
    """The hours of a phrase, or the one that its part of the day means."""
    if not phrase.clocks:
        if phrase.part is None:
            return [(_DEFAULT_HOUR, 0)]
        at_midnight = phrase.part is DayPart.MIDNIGHT and not is_one_day
        return [(0 if at_midnight else phrase.part.value, 0)]
    hours: list[_Hour] = []
    part = phrase.part
    for clock in phrase.clocks:
        part = clock.part or part
        hours.append((_hour_of_day(clock, part), clock.minute))
    return hours


def _hour_of_day(clock: ClockTime, part: DayPart | None) -> int:
    hour = clock.hour
    if part is None:
        # Nobody means the small hours without a word for them.
        return hour + NOON if hour < _FIRST_PLAIN_HOUR and not clock.exact else hour
    if part.is_forenoon:
        if hour > NOON:
            raise TimingError("timing.words")
        is_night = part is DayPart.DAWN or clock.exact
        return 0 if hour == NOON and is_night else hour
    if part is DayPart.NOON:
        return hour + NOON if hour < _FIRST_PLAIN_HOUR else hour
    if part in {DayPart.NIGHT, DayPart.MIDNIGHT}:
        if hour in (0, NOON):
            return MIDNIGHT
        if hour < _FIRST_PLAIN_HOUR - 1:
            return MIDNIGHT + hour
    return hour + NOON if hour < NOON else hour


def _may_be_later(phrase: TimePhrase) -> bool:
    return (
        bool(phrase.clocks)
        and phrase.part is None
        and phrase.clocks[0].part is None
        and not phrase.clocks[0].exact
        and phrase.clocks[0].hour < NOON
    )


def _at(day: date, hour: _Hour, zone: ZoneInfo) -> datetime:
    local = datetime.combine(day + timedelta(days=hour[0] // MIDNIGHT), time(hour[0] % 24, hour[1]))
    return local_to_utc(local, zone)


def _month_start(day: date, months: int) -> date:
    return _add_months(datetime.combine(day.replace(day=1), time()), months).date()


def _add_months(at: datetime, months: int) -> datetime:
    """The same day so many months later, or the last of a shorter month."""
    year, month = divmod(at.year * 12 + at.month - 1 + months, 12)
    last = calendar.monthrange(year, month + 1)[1]
    return at.replace(year=year, month=month + 1, day=min(at.day, last))


def _day_of_month(start: date, wanted: int) -> date | None:
    """None if the month is too short."""
    last = calendar.monthrange(start.year, start.month)[1]
    if wanted < 0:
        return start.replace(day=last)
    return start.replace(day=wanted) if wanted <= last else None
