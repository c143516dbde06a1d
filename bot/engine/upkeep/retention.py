"""Deletes, once a day, what is older than its retention."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from bot.config.settings import RetentionSettings
from storage.errors import StoreUnavailable
from storage.records.tasks import Task
from storage.retention import RetentionRepo
from storage.traces import SpanRepo

log = logging.getLogger(__name__)

_DAY = 86_400.0
_START_DELAY = 120.0
_RESULT_FOLDERS = ("files/tasks", "files/logs")


@dataclass(kw_only=True, eq=False)
class RetentionService:
    """`keep` has the days, 0 for ever. `remove_worktree` removes a task's worktree, whose unmerged
    work stays on its branch."""

    name = "retention"

    home: Path
    keep: RetentionSettings
    repo: RetentionRepo
    spans: SpanRepo
    remove_worktree: Callable[[Task], Awaitable[None]]
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

    async def delete_old(self) -> None:
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
        if before := self._before(keep.uploads_days):
            needed = await self.repo.find_needed_uploads()
            gone["uploads"] = await asyncio.to_thread(self._delete_uploads, needed, before)
        if before := self._before(keep.workspaces_days):
            gone["workspaces"] = await self._delete_workspaces(before)
        if before := self._before(keep.results_days):
            gone["results"] = await self._delete_results(before)
        if any(gone.values()):
            told = ", ".join(f"{count} {kind}" for kind, count in gone.items() if count)
            log.info("Deleted old data: %s", told)

    def _before(self, days: float) -> datetime | None:
        return self.now() - timedelta(days=days) if days else None

    def _delete_uploads(self, needed: Collection[str], before: datetime) -> int:
        return sum(
            _delete_tree(each)
            for each in _children(self.home / "files" / "inbox")
            if each.name not in needed and _modified(each) < before.timestamp()
        )

    async def _delete_workspaces(self, before: datetime) -> int:
        count = 0
        for task in await self.repo.list_ended_tasks(before=before):
            folder = self.home / "work" / task.id
            if not await asyncio.to_thread(folder.is_dir):
                continue
            if task.branch:
                await self.remove_worktree(task)
                count += 1
            else:
                count += await asyncio.to_thread(_delete_tree, folder)
        return count

    async def _delete_results(self, before: datetime) -> int:
        folders = [
            self.home / place / task.id
            for task in await self.repo.list_ended_tasks(before=before)
            for place in _RESULT_FOLDERS
        ]
        return await asyncio.to_thread(lambda: sum(map(_delete_tree, folders)))


def _children(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []


def _modified(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        # Gone meanwhile: nothing to delete.
        return float("inf")


def _delete_tree(path: Path) -> int:
    """Whether something was deleted. A link is not followed."""
    if path.is_symlink() or not path.exists():
        return 0
    shutil.rmtree(path, ignore_errors=True)
    return int(not path.exists())
