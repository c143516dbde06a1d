"""Checks for clocks that jump, and for missing time-zone data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from storage.records.autonomy import HealthFinding
from storage.self_checks import HealthFigures

_TOLERANCE = timedelta(minutes=2)


@dataclass(kw_only=True, eq=False)
class ClockHealthCheck:
    """`uptime` is in seconds and counts while the machine sleeps."""

    name = "clocks"

    figures: HealthFigures
    zone: str
    now: Callable[[], datetime]
    uptime: Callable[[], float]
    _last: tuple[datetime, float] | None = field(default=None, init=False)

    async def find(self) -> Sequence[HealthFinding]:
        now, up = self.now(), self.uptime()
        found: list[HealthFinding] = []
        if self._last is not None:
            jump = now - self._last[0] - timedelta(seconds=up - self._last[1])
            if abs(jump) > _TOLERANCE:
                facts = {"minutes": round(jump.total_seconds() / 60)}
                found.append(HealthFinding(text="clock_jumped", points=10, facts=facts))
        self._last = (now, up)
        newest = await self.figures.newest_time()
        if newest is not None and newest - now > _TOLERANCE:
            facts = {"minutes": round((newest - now).total_seconds() / 60)}
            found.append(HealthFinding(text="clock_behind", points=25, facts=facts))
        try:
            ZoneInfo.no_cache(self.zone)
        except (KeyError, ValueError, OSError):
            facts_ = {"zone": self.zone}
            found.append(HealthFinding(text="zone_missing", points=20, facts=facts_))
        return found
