"""Upkeep of the data: deletes what is older than its retention, backs up at regular times, and
tells the owners of what failed or was left undone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from bot.config.settings import RetentionSettings
from bot.engine.llm.acp.agent_config import AcpAgentConfig
from bot.engine.llm.acp.runtime import delete_old_files
from cards.catalog import TextCatalog, catalog_for
from cards.courier import OwnerCardSender
from cards.views.system import backup_failed_card, restored_card
from storage.backup_archive import BackupSource, create_backup, list_backups, prune_backups
from storage.data_directory import DataDirectoryLock
from storage.db import Database, Transaction
from storage.errors import (
    BackupFailed,
    DataDirectoryInUse,
    DataDirectoryUnusable,
    StoreUnavailable,
)
from storage.file_trees import delete_tree
from storage.home_files import OBJECT_STORE, FileErasure, HomeFileRepo, LateFile
from storage.key_value import KeyValueStore
from storage.messages.chats import ChatRepo
from storage.records.people import ChatId
from storage.records.system import BackupState
from storage.records.tasks import Task
from storage.restore import find_restore, list_chats_with_held, mark_restore_told
from storage.retention import RetentionRepo
from storage.shared_files import FileShareError, SharedFiles
from storage.store_identity import MARKER_FILE
from storage.traces import SpanRepo

# --- retention

log = logging.getLogger(__name__)

_DAY = 86_400.0
_START_DELAY = 120.0
_RESULT_FOLDERS = ("files/tasks", "files/logs")


@dataclass(kw_only=True, eq=False)
class RetentionService:
    """`keep` has the days, 0 for ever. `remove_worktree` removes a task's worktree, whose unmerged
    work stays on its branch. `unused` are blocking functions that delete what can be made again and
    was not used for long, and return how much."""

    name = "retention"

    home: Path
    keep: RetentionSettings
    repo: RetentionRepo
    spans: SpanRepo
    remove_worktree: Callable[[Task], Awaitable[None]]
    agents: Callable[[], Mapping[str, AcpAgentConfig]]
    unused: Mapping[str, Callable[[], int]]
    now: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]]

    async def start(self, stack: AsyncExitStack) -> None:
        """No preparation is needed."""

    async def run(self) -> None:
        await self.sleep(_START_DELAY)
        while True:
            try:
                await self.delete_old()
            except (StoreUnavailable, OSError) as error:
                log.warning("Old data cannot be deleted now: %s", error)
            await self.sleep(_DAY)

    async def delete_old(self) -> int:
        """Delete what is older than its retention; returns how many things."""
        keep, gone = self.keep, dict[str, int]()
        if before := self._before(keep.spans_days):
            gone["spans"] = await self.spans.prune(before=before)
        if before := self._before(keep.messages_days):
            gone["cards"] = await self.repo.delete_cards(before=before, now=self.now())
            gone["undecided messages"] = await self.repo.delete_held(before=before)
        if before := self._before(keep.transcripts_days):
            gone["transcripts"] = await self.repo.delete_transcripts(before=before)
        if before := self._before(keep.conversations_days):
            gone["conversations"] = await self.repo.delete_conversations(
                before=before, now=self.now()
            )
        if before := self._before(keep.records_days):
            gone["records"] = await self.repo.delete_records(before=before)
        gone |= await self._delete_old_files()
        return _tell_deleted(gone)

    async def delete_old_files(self) -> int:
        """Delete what is older than its retention in this data directory, and leave the store to
        the process that leads; returns how many things."""
        return _tell_deleted(await self._delete_old_files())

    async def _delete_old_files(self) -> dict[str, int]:
        keep, gone = self.keep, dict[str, int]()
        if before := self._before(keep.uploads_days):
            needed = await self.repo.find_needed_uploads()
            gone["uploads"] = await asyncio.to_thread(self._delete_uploads, needed, before)
        if before := self._before(keep.workspaces_days):
            gone["workspaces"] = await self._delete_workspaces(before)
        if before := self._before(keep.results_days):
            gone["results"] = await self._delete_results(before)
        if before := self._before(keep.agents_days):
            gone["files of coding CLIs"] = await self._delete_cli_files(before)
        for kind, prune in self.unused.items():
            gone[kind] = await asyncio.to_thread(prune)
        return gone

    def _before(self, days: float) -> datetime | None:
        return self.now() - timedelta(days=days) if days else None

    def _delete_uploads(self, needed: Collection[str], before: datetime) -> int:
        return sum(
            delete_tree(each)
            for each in _children(self.home / "files" / "inbox")
            if each.name not in needed and _modified(each) < before.timestamp()
        )

    async def _delete_workspaces(self, before: datetime) -> int:
        count, place = 0, self.home / "work"
        there = [each.name for each in await asyncio.to_thread(_children, place)]
        for task in await self.repo.list_ended_tasks(there, before=before):
            if task.branch:
                await self.remove_worktree(task)
                count += 1
            else:
                count += await asyncio.to_thread(delete_tree, place / task.id)
        return count

    async def _delete_results(self, before: datetime) -> int:
        count = 0
        for place in _RESULT_FOLDERS:
            there = {
                each.name: each for each in await asyncio.to_thread(_children, self.home / place)
            }
            for task in await self.repo.list_ended_tasks(there, before=before):
                count += await asyncio.to_thread(delete_tree, there[task.id])
        return count + await asyncio.to_thread(self._delete_exports, before)

    async def _delete_cli_files(self, before: datetime) -> int:
        """A session that is still needed keeps everything that its CLI has written since the
        session began: only the CLI knows which files belong to it."""
        started = await self.repo.find_needed_cli_sessions()
        limits = {name: min(at, before).timestamp() for name, at in started.items()}
        return await asyncio.to_thread(
            delete_old_files, self.home, self.agents(), limits, before.timestamp()
        )

    def _delete_exports(self, before: datetime) -> int:
        old = [
            each
            for each in _children(self.home / "exports")
            if each.is_file() and _modified(each) < before.timestamp()
        ]
        for each in old:
            each.unlink(missing_ok=True)
        return len(old)


def _tell_deleted(gone: Mapping[str, int]) -> int:
    if any(gone.values()):
        told = ", ".join(f"{count} {kind}" for kind, count in gone.items() if count)
        log.info("Deleted old data: %s", told)
    return sum(gone.values())


def _children(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []


def _modified(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        # Gone meanwhile: nothing to delete.
        return float("inf")


# --- data directories of several machines

_HOME_SECONDS = 5.0
_REGISTER_SECONDS = 60.0
_KEEPER_FOLDER = "processes/files"


@dataclass(kw_only=True, eq=False)
class HomeKeeper:
    """Looks after the files of this data directory, in one of the processes that use it: erases
    what must be forgotten, here and in the object store, shares results that are late, and deletes
    what is older than its retention. All that is to be done are rows, and is tried until it is.
    `erase` takes a row's content; `follow` prepares the message with a file that its card went
    without."""

    name = "files of this machine"

    home: Path
    place: str
    rows: HomeFileRepo
    files: SharedFiles
    retention: RetentionService
    erase: Callable[[Mapping[str, Any]], Awaitable[None]]
    erase_shared: Callable[[Mapping[str, Any]], Awaitable[None]]
    follow: Callable[[LateFile], Awaitable[Callable[[Transaction], Awaitable[None]]]]
    on_posted: Callable[[], None]
    db: Database
    now: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]]
    _clean_at: datetime | None = field(default=None, init=False)
    _register_at: datetime | None = field(default=None, init=False)

    async def start(self, stack: AsyncExitStack) -> None:
        """Before anything can be brought here."""
        await self.rows.register(self.place, now=self.now())

    async def run(self) -> None:
        while True:
            try:
                with DataDirectoryLock(self.home / _KEEPER_FOLDER):
                    await self._keep()
            except DataDirectoryInUse:
                """Another process of this directory looks after it."""
            except DataDirectoryUnusable as error:
                log.warning("the files of this machine are not looked after: %s", error)
            await self.sleep(_HOME_SECONDS)

    async def _keep(self) -> None:
        self._clean_at = self.now() + timedelta(seconds=_START_DELAY)
        while True:
            try:
                await self.look()
            except (StoreUnavailable, OSError) as error:
                log.warning("files of this machine wait: %s", error)
            await self.sleep(_HOME_SECONDS)

    async def look(self) -> None:
        """Do what is due."""
        if self._register_at is None or self.now() >= self._register_at:
            self._register_at = self.now() + timedelta(seconds=_REGISTER_SECONDS)
            await self.rows.register(self.place, now=self.now())
        for erasure in await self.rows.list_due_erasures(self.now()):
            await self._erase(erasure)
        for late in await self.rows.list_due_late(self.now()):
            await self._share(late)
        if self._clean_at is None or self.now() >= self._clean_at:
            self._clean_at = self.now() + timedelta(seconds=_DAY)
            await self.retention.delete_old_files()

    async def _erase(self, erasure: FileErasure) -> None:
        try:
            if erasure.home == OBJECT_STORE:
                await self.erase_shared(erasure.what)
            else:
                await self.erase(erasure.what)
        except (FileShareError, OSError) as error:
            log.warning("what must be forgotten is erased later: %s", error)
            await self.rows.retry_erasure(erasure, now=self.now())
        else:
            await self.rows.drop_erasure(erasure)

    async def _share(self, late: LateFile) -> None:
        try:
            await self.files.publish(late.path)
        except FileShareError as error:
            if await asyncio.to_thread((self.home / late.path).is_file):
                log.info("%s is still late: %s", late.path, error)
                await self.rows.retry_late(late, now=self.now())
            else:
                log.warning("%s was deleted before it could be shared", late.path)
                async with self.db.write() as tx:
                    await self.rows.drop_late(tx, late.path)
            return
        post = await self.follow(late)
        async with self.db.write() as tx:
            if await self.rows.drop_late(tx, late.path):
                await post(tx)
        self.on_posted()


# --- backups

_FAILURE = "backup.failure"
_BACKUP_START_DELAY = 60.0
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
        await self.sleep(_BACKUP_START_DELAY)
        while True:
            try:
                if await asyncio.to_thread(self._is_due):
                    await self._back_up()
            except StoreUnavailable as error:
                log.warning("No backup is made now: %s", error)
            await self.sleep(min(_LOOK_INTERVAL, self.hours * 3600))

    def _is_due(self) -> bool:
        # A new store has nothing to lose yet.
        since = _newest(self.folder) or _time_of(self.source.home / MARKER_FILE)
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
    times = [at for each in list_backups(folder) if (at := _time_of(each))]
    return max(times, default=None)


def _time_of(path: Path) -> datetime | None:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError:
        return None


# --- notices to owners, once each


@dataclass(kw_only=True, eq=False)
class RestoreNotice:
    """At the first start after a restore. `offer` shows a chat its held messages on one card."""

    name = "restore notice"

    db: Database
    chats: ChatRepo
    key_values: KeyValueStore
    owners: OwnerCardSender
    zone: ZoneInfo
    offer: Callable[[Transaction, ChatId, TextCatalog], Awaitable[None]]

    async def start(self, stack: AsyncExitStack) -> None:
        record = await find_restore(self.key_values)
        if record is None or record.is_told:
            return
        await self.owners.notify(
            f"restored:{record.id}", lambda words: restored_card(record, words, zone=self.zone)
        )
        for chat_id in await list_chats_with_held(self.db):
            language = await self.owners.language_of(await self.chats.get(chat_id))
            async with self.db.write() as tx:
                await self.offer(tx, chat_id, catalog_for(language))
        async with self.db.write() as tx:
            await mark_restore_told(self.key_values, tx, record)

    async def run(self) -> None:
        """All is done at the start."""
