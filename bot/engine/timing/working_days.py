"""Which days people work."""

from __future__ import annotations

from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from holidays import HolidayBase

_SATURDAY = 5


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
