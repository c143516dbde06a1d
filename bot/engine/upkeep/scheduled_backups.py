"""Backs up at regular times, keeps the newest, and notifies the owners once if that fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cards.courier import OwnerCardSender
from cards.views.system import backup_failed_card
from storage.backup_archive import BackupSource, create_backup, list_backups, prune_backups
from storage.errors import BackupFailed, StoreUnavailable
from storage.key_value import KeyValueStore
from storage.records.system import BackupState
from storage.store_identity import MARKER_FILE

log = logging.getLogger(__name__)

_FAILURE = "backup.failure"
_START_DELAY = 60.0
_LOOK_INTERVAL = 600.0


async def get_backup_state(folder: Path, hours: float, key_values: KeyValueStore) -> BackupState:
    """When the newest backup was made, and since when they fail."""
    failure = await key_values.get(_FAILURE)
    return BackupState(
        last_at=await asyncio.to_thread(_newest, folder),
        failed_since=datetime.fromisoformat(failure["since"]) if failure else None,
        is_on=bool(hours),
    )


@dataclass(kw_only=True, eq=False)
class BackupScheduler:
    """`hours` between two backups, 0 for none; `keep` is how many stay."""

    name = "backups"

    source: BackupSource
    folder: Path
    hours: float
    keep: int
    key_values: KeyValueStore
    owners: OwnerCardSender
    now: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]]

    async def start(self, stack: AsyncExitStack) -> None:
        """No preparation is needed."""

    async def run(self) -> None:
        if not self.hours:
            return
        await self.sleep(_START_DELAY)
        while True:
            try:
                if await asyncio.to_thread(self._is_due):
                    await self._back_up()
            except StoreUnavailable as error:
                log.warning("No backup is made now: %s", error)
            await self.sleep(min(_LOOK_INTERVAL, self.hours * 3600))

    def _is_due(self) -> bool:
        # A new store has nothing to lose yet.
        since = _newest(self.folder) or _modified(self.source.home / MARKER_FILE)
        age = None if since is None else self.now() - since
        # Of the future if the clock was set back.
        return age is None or age >= timedelta(hours=self.hours) or age < -timedelta(minutes=5)

    async def _back_up(self) -> None:
        try:
            made = await asyncio.to_thread(create_backup, self.source, self.folder, now=self.now())
            gone = await asyncio.to_thread(
                prune_backups, self.folder, keep=self.keep, newest=made.path
            )
        except (BackupFailed, OSError) as error:
            log.warning("The backup failed: %s", error)
            await self._tell_failure(str(error))
            return
        log.info("Backed up to %s (%d bytes); removed %d old ones", made.path, made.size, len(gone))
        if await self.key_values.get(_FAILURE):
            await self.key_values.put(_FAILURE, {})

    async def _tell_failure(self, reason: str) -> None:
        """The same notice until a backup succeeds: it is sent once."""
        failure = await self.key_values.get(_FAILURE)
        if not failure:
            failure = {"since": self.now().isoformat(), "reason": reason}
            await self.key_values.put(_FAILURE, failure)
        await self.owners.notify(
            f"backup-failed:{failure['since']}",
            lambda words: backup_failed_card(failure["reason"], words),
        )


def _newest(folder: Path) -> datetime | None:
    times = [at for each in list_backups(folder) if (at := _modified(each))]
    return max(times, default=None)


def _modified(path: Path) -> datetime | None:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError:
        return None
