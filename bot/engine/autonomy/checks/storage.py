"""Checks what is stored: that database and files fit together, that backups are made and can be
read, that there is space, and that what was learnt is sound."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from bot.engine.autonomy.check import BlockingWork
from bot.engine.memory.promotion import WINDOW_DAYS, QualityMetrics
from storage.backup_archive import list_backups, verify_backup
from storage.errors import BadBackup
from storage.key_value import KeyValueStore
from storage.migrate import DatabasePlace
from storage.records.autonomy import HealthFinding
from storage.records.system import BackupState, DiskUse
from storage.store_check import CheckFinding, check_quickly

_POINTS = {"page": 60, "table": 60, "missing_row": 25, "missing_file": 15, "orphan": 5}


@dataclass(kw_only=True, eq=False)
class StoreHealthCheck:
    """`seconds` limit one look at the whole store. Cancelled, it ends the look: the end of the
    program waits for it."""

    name = "store"

    home: Path
    database: DatabasePlace
    seconds: float = 20
    look: Callable[..., Sequence[CheckFinding]] = check_quickly
    _work: BlockingWork = field(default_factory=BlockingWork, init=False)

    async def find(self) -> Sequence[HealthFinding]:
        stopped = Event()
        look = partial(
            self.look, self.home, self.database, seconds=self.seconds, is_stopped=stopped.is_set
        )
        try:
            found = await self._work.run(look)
            if found:
                # Files and rows change while they are compared: only what lasts is a problem.
                again = await self._work.run(look)
                found = [each for each in found if each in again]
        except TimeoutError:
            return [
                HealthFinding(text="store_unfinished", points=0, facts={"n": int(self.seconds)})
            ]
        finally:
            stopped.set()
        kinds = dict.fromkeys(each.kind for each in found if each.kind in _POINTS)
        return [_finding(kind, [each for each in found if each.kind == kind]) for kind in kinds]


def _finding(kind: str, found: Sequence[CheckFinding]) -> HealthFinding:
    return HealthFinding(
        text=f"store_{kind}",
        points=_POINTS[kind],
        facts={"n": len(found), "first": found[0].text},
    )


_SLACK = timedelta(hours=1)


@dataclass(kw_only=True, eq=False)
class BackupHealthCheck:
    """`hours` between two backups. `store_since` is when the store was made; it blocks."""

    name = "backups"

    state: Callable[[], Awaitable[BackupState]]
    folder: Path
    hours: float
    store_since: Callable[[], datetime | None]
    now: Callable[[], datetime]
    _work: BlockingWork = field(default_factory=BlockingWork, init=False)
    _verified: tuple[Path, float, str] | None = field(default=None, init=False)

    async def find(self) -> Sequence[HealthFinding]:
        state = await self.state()
        if not state.is_on:
            return [HealthFinding(text="backups_off", points=5)]
        found: list[HealthFinding] = []
        if state.failed_since is not None:
            found.append(HealthFinding(text="backup_failing", points=25))
        last = state.last_at or await self._work.run(self.store_since)
        allowed = timedelta(hours=2 * self.hours) + _SLACK
        if last is not None and self.now() - last > allowed:
            hours = int((self.now() - last).total_seconds() // 3600)
            found.append(HealthFinding(text="backup_old", points=15, facts={"hours": hours}))
        name, error = await self._work.run(self._verify_newest)
        if error:
            facts = {"name": name, "error": error}
            found.append(HealthFinding(text="backup_unreadable", points=30, facts=facts))
        return found

    def _verify_newest(self) -> tuple[str, str]:
        """The newest backup and what is wrong with it. Each is read once."""
        for newest in list_backups(self.folder)[:1]:
            changed = newest.stat().st_mtime
            if self._verified is None or self._verified[:2] != (newest, changed):
                self._verified = (newest, changed, _fault(newest))
            return newest.name, self._verified[2]
        return "", ""


def _fault(archive: Path) -> str:
    try:
        verify_backup(archive)
    except BadBackup as error:
        return str(error)
    return ""


_MIB = 1024 * 1024
_FULL = 200 * _MIB
_LOW = 1024 * _MIB
_MARK = "self-check:disk"
_KEPT_DAYS = 8
_FORESEEN_DAYS = 14
DELETE_OLD = "delete_old"


@dataclass(kw_only=True, eq=False)
class DiskHealthCheck:
    """`measure` and `free_bytes` block. `delete_old` deletes what retention would, and returns how
    many things. `today` is the day in the Boss's zone."""

    name = "disk"

    free_bytes: Callable[[], int]
    measure: Callable[[], Sequence[DiskUse]]
    delete_old: Callable[[], Awaitable[int]]
    key_values: KeyValueStore
    today: Callable[[], date]
    _work: BlockingWork = field(default_factory=BlockingWork, init=False)

    async def find(self) -> Sequence[HealthFinding]:
        free, uses = await self._work.run(lambda: (self.free_bytes(), self.measure()))
        largest = uses[0] if uses else DiskUse(kind="database", size=0)
        found: list[HealthFinding] = []
        if free < _LOW:
            found.append(
                HealthFinding(
                    text="disk_low",
                    points=40 if free < _FULL else 15,
                    facts={
                        "free_bytes": free,
                        "kind_key": f"store.disk.{largest.kind}",
                        "size_bytes": largest.size,
                    },
                    repair=DELETE_OLD,
                )
            )
        return [*found, *await self._find_growth(free, uses)]

    async def repair(self, repair: str, findings: Sequence[HealthFinding]) -> int:
        return await self.delete_old()

    async def _find_growth(self, free: int, uses: Sequence[DiskUse]) -> Sequence[HealthFinding]:
        """Folders that fill the disk within two weeks if they grow as in the last days."""
        today = self.today()
        history: dict[str, Mapping[str, int]] = dict(await self.key_values.get(_MARK) or {})
        kept = {
            day: sizes
            for day, sizes in history.items()
            if date.fromisoformat(day) > today - timedelta(days=_KEPT_DAYS)
        }
        sizes = {each.kind: each.size for each in uses if not each.is_partial}
        if today.isoformat() not in kept:
            kept[today.isoformat()] = sizes
            await self.key_values.put(_MARK, kept)
        first = min(kept)
        days = (today - date.fromisoformat(first)).days
        if not days:
            return ()
        return [
            HealthFinding(text="disk_grows", subject=kind, points=10, facts=facts)
            for kind, size in sizes.items()
            if (facts := _growth(kind, size - kept[first].get(kind, size), days, free))
        ]


def _growth(kind: str, grown: int, days: int, free: int) -> dict[str, Any]:
    """Facts of a growth that fills the disk too soon; empty if it does not."""
    each_day = grown // days
    if each_day * _FORESEEN_DAYS <= free:
        return {}
    return {
        "kind_key": f"store.disk.{kind}",
        "size_bytes": each_day,
        "days": max(1, free // each_day),
    }


_PERCENT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHealthCheck:
    """`today` is the day in the Boss's zone."""

    name = "memory"

    quality: QualityMetrics
    today: Callable[[], date]

    async def find(self) -> Sequence[HealthFinding]:
        counts = await self.quality.totals(today=self.today())
        if not counts.is_polluted:
            return ()
        facts = {"percent": round(counts.suspicious_rate * _PERCENT), "days": WINDOW_DAYS}
        return (HealthFinding(text="memory_polluted", points=25, facts=facts),)
