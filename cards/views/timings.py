"""Words timings: `every Monday to Friday at 08:30`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TypeAlias, assert_never
from zoneinfo import ZoneInfo

from cards import formats
from cards.catalog import TextCatalog
from storage.records.schedules import CronTiming, DayFilter, Interval, OneTime, Timing

_DAY_KEYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTH_KEYS = (
    *("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
)
_WEEKDAYS = (1, 2, 3, 4, 5)
_EVERY_DAY = ("*", "*", "*")
_MAX_NUMBER = 59
_MAX_TIMES = 6
_MAX_SHOWN = 80
_WEEK = timedelta(weeks=1)
_UNITS = (
    ("days", timedelta(days=1)),
    ("hours", timedelta(hours=1)),
    ("minutes", timedelta(minutes=1)),
    ("seconds", timedelta(seconds=1)),
)

_DayFields: TypeAlias = tuple[str, ...]
"""Day, month and weekday of an expression."""


def timing_text(timing: Timing, words: TextCatalog, zone: ZoneInfo) -> str:
    """The timing within a sentence, in local times. A cron expression without a short wording is
    shown as it is."""
    match timing:
        case OneTime(at=at):
            return f"{_day_name(at.astimezone(zone), words)} {formats.date_time(at, zone)}"
        case Interval():
            told = _interval_text(timing, words, zone)
        case CronTiming():
            told = _cron_text(timing, words)
            if timing.since is not None:
                day = _day_text(timing.since.astimezone(zone), "00:00:00", words, zone)
                told = words("timing.since", told=told, at=day)
        case _:
            assert_never(timing)
    if timing.times:
        return words("timing.times", told=told, n=timing.times)
    if timing.until is None:
        return told
    until = _day_text(timing.until.astimezone(zone), "23:59:59", words, zone)
    return words("timing.until", told=told, at=until)


def _day_text(at: datetime, bound: str, words: TextCatalog, zone: ZoneInfo) -> str:
    """The moment, without its hour if that is the `bound` of the day."""
    is_day = f"{at:%H:%M:%S}" == bound
    date = f"{at:%Y-%m-%d}" if is_day else formats.date_time(at, zone)
    return f"{_day_name(at, words)} {date}"


def _interval_text(timing: Interval, words: TextCatalog, zone: ZoneInfo) -> str:
    every, start = timing.every, timing.start.astimezone(zone)
    time = f"{start:%H:%M}"
    if not every % _WEEK:
        days = words("timing.weeks", n=every // _WEEK, day=_day_name(start, words))
        return words("timing.at", days=days, times=time)
    name, unit = next(each for each in _UNITS if not every % each[1] or each[0] == "seconds")
    told = words(f"timing.{name}", n=every // unit)
    return words("timing.at", days=told, times=time) if name == "days" else told


def _cron_text(timing: CronTiming, words: TextCatalog) -> str:
    says_filter = timing.days is DayFilter.ANY
    try:
        fields = [each.lower().split() for each in timing.expressions]
        day_fields, night_fields = _split_days([tuple(each[2:]) for each in fields])
        days = _nth_text(timing, day_fields, words) or _days_text(day_fields, words)
        if fields[0][1] == "*" and len(fields) == 1:
            often = _hourly_text(fields[0][0], words)
            told = words("timing.often", often=often, days=days) if days else often
        else:
            told = _times_text(
                [(each[1], each[0], tuple(each[2:]) == night_fields) for each in fields],
                days or words(f"timing.every_day.{timing.days}"),
                words,
            )
            says_filter = says_filter or not days
        says_filter = says_filter or timing.nth != 0
    except (ValueError, LookupError):
        told = words("timing.cron", expression=formats.code_text(timing.expression, _MAX_SHOWN))
    return told if says_filter else words(f"timing.only.{timing.days}", told=told)


def _split_days(fields: Sequence[_DayFields]) -> tuple[_DayFields, _DayFields | None]:
    """The days of all expressions and, if some of them go on after midnight, the days after these.
    Raises ValueError for other days."""
    first, *others = dict.fromkeys(fields)
    if not others:
        return first, None
    (second,) = others
    for days, nights in ((first, second), (second, first)):
        following = {(number + 1) % 7 for number in _weekdays(days[2])}
        if days[:2] == nights[:2] == _EVERY_DAY[:2] and following == _weekdays(nights[2]):
            return days, nights
    raise ValueError(fields)


def _nth_text(timing: CronTiming, day_fields: Sequence[str], words: TextCatalog) -> str:
    """The chosen day of each month; empty where all days of the filter count."""
    if timing.nth == 0 or timing.days is DayFilter.ANY:
        return ""
    _, month, _ = day_fields
    ordinal = words(f"timing.ordinal.{timing.nth if timing.nth > 0 else 'last'}")
    return words(f"timing.month_{timing.days}", months=_months_text(month, words), nth=ordinal)


def _times_text(fields: list[tuple[str, str, bool]], days: str, words: TextCatalog) -> str:
    """Some times of a day one by one; more, and those that go on after midnight, only if they are
    equally far from each other. `fields` are hours, minutes, and whether they are after it."""
    minutes = sorted(
        60 * (h + 24 * is_late) + m
        for hour, minute, is_late in fields
        for h in _numbers(hour)
        for m in _minutes(minute)
    )
    ends_late = any(is_late for _, _, is_late in fields)
    if len(minutes) <= _MAX_TIMES and not ends_late:
        times = _listed([_clock(each) for each in minutes], words)
        return words("timing.at", days=days, times=times)
    gaps = {after - before for before, after in pairwise(minutes)}
    if len(gaps) > 1 and not ends_late:
        # Over midnight there is one longer gap.
        longest = max(range(1, len(minutes)), key=lambda n: minutes[n] - minutes[n - 1])
        minutes = [*minutes[longest:], *(each + 24 * 60 for each in minutes[:longest])]
        gaps = {after - before for before, after in pairwise(minutes)}
    step = gaps.pop()
    if gaps:
        raise ValueError(fields)
    often = words("timing.minutes", n=step) if step % 60 else words("timing.hours", n=step // 60)
    first, last = _clock(minutes[0]), _clock(minutes[-1])
    window = words("timing.window", often=often, first=first, last=last)
    return words("timing.often", often=window, days=days)


def _minutes(field: str) -> Sequence[int]:
    return range(60) if field == "*" else _numbers(field)


def _clock(minute: int) -> str:
    return f"{minute // 60 % 24:02}:{minute % 60:02}"


def _hourly_text(minute: str, words: TextCatalog) -> str:
    if minute == "*":
        return words("timing.minutes", n=1)
    if minute.startswith("*/"):
        return words("timing.minutes", n=int(minute[2:]))
    minutes = _numbers(minute)
    if minutes == [0]:
        return words("timing.hours", n=1)
    return words("timing.past", minutes=_listed(list(map(str, minutes)), words))


def _days_text(fields: Sequence[str], words: TextCatalog) -> str:
    """The weekdays; empty for every day."""
    day, month, weekday = fields
    if fields == _EVERY_DAY:
        return ""
    if weekday == "*":
        return _date_text(day, month, words)
    if (day, month) != ("*", "*"):
        raise ValueError(fields)
    return _weekday_text(weekday, words)


def _weekday_text(field: str, words: TextCatalog) -> str:
    name, _, nth = field.partition("#")
    if nth:
        return words("timing.nth", nth=words(f"timing.ordinal.{int(nth)}"), day=_named(name, words))
    if field.endswith("l"):
        return words("timing.nth", nth=words("timing.ordinal.last"), day=_named(field[:-1], words))
    # Sunday is the last day of a week.
    found = sorted(_weekdays(field), key=lambda number: (number - 1) % 7)
    if tuple(found) == _WEEKDAYS:
        return words("timing.weekdays")
    return words("timing.week", days=_listed([_named(str(n), words) for n in found], words))


def _weekdays(field: str) -> set[int]:
    return {number % 7 for number in _numbers(field, _DAY_KEYS)}


def _date_text(day: str, month: str, words: TextCatalog) -> str:
    months = _months_text(month, words)
    if day == "*":
        return words("timing.month_every_day", months=months)
    if day in {"l", "lw"}:
        return words(f"timing.month_{day}", months=months)
    days = _listed(list(map(str, _numbers(day.removesuffix(",l")))), words)
    told = words("timing.month_days", months=months, days=days)
    if day.endswith(",l"):
        return words("timing.list", first=told, last=words("timing.last_day"))
    return told


def _months_text(field: str, words: TextCatalog) -> str:
    if field == "*":
        return words("timing.every_month")
    numbers = _numbers(field, _MONTH_KEYS, 1)
    return _listed([words(f"timing.month.{_MONTH_KEYS[n - 1]}") for n in numbers], words)


def _numbers(field: str, names: Sequence[str] = (), first: int = 0) -> list[int]:
    """The numbers of a list with ranges. Raises ValueError for steps, stars and what is no time."""
    numbers: list[int] = []
    for item in field.split(","):
        ends = [names.index(end) + first if end in names else int(end) for end in item.split("-")]
        if not all(0 <= end <= _MAX_NUMBER for end in ends):
            raise ValueError(field)
        numbers += range(ends[0], ends[-1] + 1)
    return numbers


def _named(number: str, words: TextCatalog) -> str:
    return words(f"timing.day.{_DAY_KEYS[_numbers(number, _DAY_KEYS)[0] % 7]}")


def _day_name(at: datetime, words: TextCatalog) -> str:
    return words(f"timing.day.{_DAY_KEYS[at.isoweekday() % 7]}")


def _listed(names: Sequence[str], words: TextCatalog) -> str:
    *others, last = names
    return (
        words("timing.list", first=words("timing.comma").join(others), last=last)
        if others
        else last
    )
