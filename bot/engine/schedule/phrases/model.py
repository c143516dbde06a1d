"""The meaning of a phrase of time, element by element."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import TypeAlias

from bot.engine.schedule.phrases.words import Amount
from storage.records.schedules import DayFilter

NOON, MIDNIGHT, HOUR_MINUTES = 12, 24, 60
LAST = -1
"""The last of a month: its last day, or the last of a day of the week."""
LAST_WEEKDAY = -2


class DayPart(Enum):
    """A part of the day, with the hour it means without a clock time."""

    AM = 9
    DAWN = 5
    NOON = 12
    PM = 15
    DUSK = 18
    EVENING = 19
    NIGHT = 20
    MIDNIGHT = 24

    @property
    def is_forenoon(self) -> bool:
        return self in {DayPart.AM, DayPart.DAWN}


class Every(Enum):
    """The unit of a repetition. SPAN counts by the clock, the others by the calendar."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    YEAR = "year"
    SPAN = "span"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockTime:
    """An hour as it is written. `exact` hours need no part of the day."""

    hour: int
    minute: int = 0
    part: DayPart | None = None
    exact: bool = False


@dataclass(slots=True, kw_only=True)
class TimePhrase:
    """The meaning of a phrase. `end` is the place after it. `week` and `month_offset` count from
    the present one, `weeks_after` from the day that is named; a `whole_month` begins when it is
    there; days of the week from Monday, 0. `often` is the span between the
    times of a day, within the `window`. A repetition begins at `since`, and ends at `until`, after
    `lasting`, or after so many `times`. With `from_first`, months count from the first such day
    to come, which composition puts into `first_month`; otherwise from January."""

    end: int
    every: Every | None = None
    step: int = 1
    span: Amount | None = None
    filter: DayFilter = DayFilter.ANY
    weekdays: list[int] = field(default_factory=list)
    nth: int | None = None
    nth_working_day: bool = False
    often: Amount | None = None
    window: tuple[ClockTime, ClockTime] | None = None
    month_days: list[int] = field(default_factory=list)
    month: int | None = None
    whole_month: bool = False
    year: int | None = None
    year_offset: int = 0
    offset: int | None = None
    week: int | None = None
    weeks_after: int = 0
    month_offset: int | None = None
    delay: Amount | None = None
    clocks: list[ClockTime] = field(default_factory=list)
    part: DayPart | None = None
    instant: datetime | None = None
    zone: str = ""
    from_first: bool = False
    first_month: int = 0
    since: TimePhrase | None = None
    until: TimePhrase | None = None
    lasting: Amount | None = None
    times: int = 0

    def repeat(self, every: Every, step: int = 1) -> None:
        self.every, self.step = every, step

    @property
    def repeats(self) -> bool:
        return self.every is not None or self.often is not None

    @property
    def repeats_by_clock(self) -> bool:
        """True where it repeats several times a day, which an hour may end."""
        return self.often is not None or self.every in _CLOCK_SPANS

    @property
    def has_end(self) -> bool:
        return self.until is not None or self.lasting is not None or self.times > 0

    @property
    def has_bound(self) -> bool:
        return self.since is not None or self.has_end

    @property
    def names_date(self) -> bool:
        """False for a day of any month, such as `the 5th`."""
        return not self.month_days or self.month is not None or self.month_offset is not None

    def take_bounds(self, other: TimePhrase) -> None:
        """Begin and end as the other does."""
        self.since, self.until = other.since, other.until
        self.lasting, self.times = other.lasting, other.times

    @property
    def takes_often(self) -> bool:
        """True where a span by the clock would be that within the named days or hours."""
        return self.often is None and (
            self.every in {Every.DAY, Every.WEEK} or (self.window is not None and not self.every)
        )

    def make_often(self) -> None:
        """Turn a repetition by the clock into one within days or hours that are named after it."""
        if self.every in _CLOCK_SPANS and self.often is None:
            self.often = self.span or _CLOCK_SPANS[self.every]
            self.every = self.span = None

    @property
    def has_day(self) -> bool:
        return (
            self.offset is not None
            or bool(self.weekdays or self.month_days)
            or self.week is not None
            or self.month_offset is not None
        )

    @property
    def has_hour(self) -> bool:
        return bool(self.clocks) or self.part is not None or self.instant is not None

    @property
    def is_empty(self) -> bool:
        return not (self.repeats or self.delay or self.has_day or self.has_hour)


_CLOCK_SPANS = {
    Every.HOUR: Amount(span=timedelta(hours=1)),
    Every.MINUTE: Amount(span=timedelta(minutes=1)),
    Every.SPAN: Amount(),
}

Element: TypeAlias = tuple[re.Pattern[str], Callable[[re.Match[str], TimePhrase], bool]]
"""A pattern, and what takes its match into the phrase; False where it does not fit into it."""
