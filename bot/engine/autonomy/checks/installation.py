"""Checks the installation: files of the owner that can be read, one version of program and store,
and clocks that do not jump."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeAlias
from zoneinfo import ZoneInfo

from storage.records.autonomy import HealthFinding
from storage.self_checks import HealthFigures

FaultReader: TypeAlias = Callable[[], Awaitable[Sequence[str]]]
"""Lists what is wrong with one kind of file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsHealthCheck:
    """`faults` has a reader for each kind of file, by its name."""

    name = "settings"

    faults: Mapping[str, FaultReader]

    async def find(self) -> Sequence[HealthFinding]:
        found = {name: await read() for name, read in self.faults.items()}
        return [
            HealthFinding(
                text="settings_invalid",
                subject=name,
                points=10,
                facts={"file": name, "n": len(faults), "first": faults[0]},
                asks_task=True,
            )
            for name, faults in found.items()
            if faults
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionHealthCheck:
    """`running` and `revision` are what the program was started with; `installed` is what is there
    now."""

    name = "version"

    figures: HealthFigures
    revision: str
    running: str
    installed: Callable[[], str]

    async def find(self) -> Sequence[HealthFinding]:
        found: list[HealthFinding] = []
        stored = await self.figures.schema_revision()
        if stored != self.revision:
            facts = {"store": stored, "program": self.revision}
            found.append(HealthFinding(text="version_schema", points=30, facts=facts))
        installed = self.installed()
        if installed != self.running:
            facts = {"installed": installed, "running": self.running}
            found.append(HealthFinding(text="version_restart", points=15, facts=facts))
        return found


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
