"""Checks that backups are made, are young enough and can be read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from bot.engine.autonomy.check import BlockingWork
from storage.backup_archive import list_backups, verify_backup
from storage.errors import BadBackup
from storage.records.autonomy import HealthFinding
from storage.records.system import BackupState

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
