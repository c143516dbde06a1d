from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bot.engine.upkeep import BackupScheduler, get_backup_state
from cards.catalog import TextCatalog, catalog_for
from cards.model import Card
from storage.backup_archive import BackupSource, list_backups
from storage.db import Database
from storage.key_value import KeyValueStore
from storage.records.people import Language
from storage.records.system import BackupState
from storage.store_identity import MARKER_FILE
from tests.migrated_database import open_database

HOUR = timedelta(hours=1)


@dataclass
class FakeOwners:
    told: list[str] = field(default_factory=list)

    async def notify(self, key: str, draw: Callable[[TextCatalog], Card]) -> None:
        draw(catalog_for(Language.ENGLISH))
        if key not in self.told:
            self.told.append(key)


@dataclass
class Clock:
    """Sleeps until `end`, and begins at the present, which is what files are dated."""

    now: datetime
    end: datetime

    async def sleep(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        if self.now > self.end:
            raise asyncio.CancelledError
        await asyncio.sleep(0)


async def run_for(
    db: Database, home: Path, owners: Any, *, hours: float, every: float = 24, **changes: Any
) -> BackupScheduler:
    begin = changes.pop("begin", datetime.now(UTC))
    clock = Clock(now=begin, end=begin + hours * HOUR)
    source = BackupSource(
        home=home,
        database=home / "shiftboss.db",
        version="1",
        mask=lambda _name, text: text,
        secret_names=frozenset(),
    )
    scheduler = BackupScheduler(
        source=source,
        folder=changes.pop("folder", home / "backups"),
        hours=every,
        keep=changes.pop("keep", 7),
        key_values=KeyValueStore(db),
        owners=owners,
        now=lambda: clock.now,
        sleep=clock.sleep,
    )
    with contextlib.suppress(asyncio.CancelledError):
        await scheduler.run()
    return scheduler


async def state_of(scheduler: BackupScheduler) -> BackupState:
    return await get_backup_state(scheduler.folder, scheduler.hours, scheduler.key_values)


async def test_a_backup_is_made_when_one_is_due(tmp_path: Path) -> None:
    async with open_database(tmp_path) as db:
        (tmp_path / MARKER_FILE).write_text("{}")
        early = await run_for(db, tmp_path, FakeOwners(), hours=20)
        assert (await state_of(early)).last_at is None
        late = await run_for(db, tmp_path, FakeOwners(), hours=25)

        assert len(list_backups(tmp_path / "backups")) >= 1
        state = await state_of(late)
        assert state.last_at is not None
        assert state.failed_since is None


async def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    async with open_database(tmp_path) as db:
        (tmp_path / MARKER_FILE).write_text("{}")
        for day in range(5):
            begin = datetime.now(UTC) + timedelta(days=day)
            for each in list_backups(tmp_path / "backups"):
                # Files are dated by the machine, not by this test's clock.
                os.utime(each, (0, 0))
            await run_for(db, tmp_path, FakeOwners(), hours=0.1, keep=2, begin=begin)

        assert len(list_backups(tmp_path / "backups")) == 2


async def test_it_can_be_turned_off(tmp_path: Path) -> None:
    async with open_database(tmp_path) as db:
        scheduler = await run_for(db, tmp_path, FakeOwners(), hours=100, every=0)

        assert list_backups(tmp_path / "backups") == []
        assert not (await state_of(scheduler)).is_on


async def test_failures_are_told_once_until_a_backup_succeeds(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    home, blocked, owners = tmp_path / "home", tmp_path / "file", FakeOwners()
    blocked.write_text("")
    async with open_database(home) as db:
        later = datetime.now(UTC) + 30 * HOUR
        failed = await run_for(db, home, owners, hours=10, folder=blocked / "to", begin=later)
        for _ in range(2):
            failed = await run_for(db, home, owners, hours=10, folder=blocked / "to", begin=later)
        assert len(owners.told) == 1
        assert (await state_of(failed)).failed_since is not None

        done = await run_for(db, home, owners, hours=1, begin=later)
        assert (await state_of(done)).failed_since is None
        await run_for(db, home, owners, hours=1, folder=blocked / "to", begin=later + HOUR)
        assert len(owners.told) == 2
