"""Which days people work."""

from __future__ import annotations

from datetime import date
from typing import Protocol

_SATURDAY = 5


class WorkingCalendar(Protocol):
    def is_working(self, day: date) -> bool: ...


class WeekdayCalendar:
    """Monday to Friday, all year."""

    def is_working(self, day: date) -> bool:
        return day.weekday() < _SATURDAY
