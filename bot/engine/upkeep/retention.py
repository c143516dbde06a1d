"""Deletes data older than its retention, once a day."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from bot.config.settings import RetentionSettings
from bot.engine.llm.acp.agent_config import AcpAgentConfig
from bot.engine.llm.acp.runtime import delete_old_files
from storage.errors import StoreUnavailable
from storage.file_trees import delete_tree
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
        if any(gone.values()):
            told = ", ".join(f"{count} {kind}" for kind, count in gone.items() if count)
            log.info("Deleted old data: %s", told)
        return sum(gone.values())

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


def _children(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []


def _modified(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        # Gone meanwhile: nothing to delete.
        return float("inf")
