"""A part of each day, such as quiet hours or active hours."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from bot.engine.timing.recurrence import local_to_utc

_DAY = timedelta(days=1)


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
