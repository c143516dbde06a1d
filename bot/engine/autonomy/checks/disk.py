"""Checks free space, and what grows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from bot.engine.autonomy.check import BlockingWork
from storage.key_value import KeyValueStore
from storage.records.autonomy import HealthFinding
from storage.records.system import DiskUse

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
