"""Keeps what tasks have come to, soon after their end: none is missed, also over a restart."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import TypeAlias

from bot.engine.memory.writing.recorder import Recorder, Work
from storage.db import Database, Transaction
from storage.errors import StoreUnavailable
from storage.memory.ended import Ended, EndedTasks
from storage.records.people import Chat, ChatId, Person, PersonId
from storage.records.tasks import Task, TaskId, TaskStatus

log = logging.getLogger(__name__)

Judge: TypeAlias = Callable[[Transaction, TaskId, bool], Awaitable[None]]
"""Counts what a task has used, by whether it ended well."""

_JUDGED = {TaskStatus.COMPLETED, TaskStatus.FAILED}
_LOOK = 60.0
_STORE_REST = 5.0


class TaskListener:
    """`wake` says that a task may have ended."""

    name = "memory-tasks"

    def __init__(
        self,
        *,
        db: Database,
        ended: EndedTasks,
        task_of: Callable[[TaskId], Awaitable[Task]],
        chat_of: Callable[[ChatId], Awaitable[Chat]],
        person_of: Callable[[PersonId], Awaitable[Person]],
        recorder: Recorder,
        judge: Judge | None = None,
    ) -> None:
        """`judge` is told how each task has ended, with what is kept of it."""
        self._db = db
        self._ended = ended
        self._task_of = task_of
        self._chat_of = chat_of
        self._person_of = person_of
        self._recorder = recorder
        self._judge = judge
        self._news = asyncio.Event()

    def wake(self) -> None:
        self._news.set()

    async def start(self, stack: AsyncExitStack) -> None:
        await self._ended.begin()

    async def run(self) -> None:
        while True:
            self._news.clear()
            rest = _LOOK
            try:
                await self.look()
            except StoreUnavailable as error:
                log.warning("what tasks have come to waits for the store: %s", error)
                rest = _STORE_REST
            with suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await self._news.wait()

    async def look(self) -> None:
        """Keep all that have ended and are not kept."""
        while ended := await self._ended.next():
            for each in ended:
                await self._keep(each)

    async def _keep(self, ended: Ended) -> None:
        task = await self._task_of(ended.task)
        skills = await self._ended.skills(task.id)
        work = Work(
            task=task.id,
            person=await self._person_of(task.created_by),
            chat=await self._chat_of(task.chat_id),
            asked=task.instruction,
            done="\n".join(filter(None, (task.summary, task.status_reason))),
            project=task.project_dir,
            # Of several nobody could tell to which of them belongs what was learned.
            skill=skills[0] if len(skills) == 1 else "",
            source=f"task:{task.id}:{ended.event}",
            at=ended.at,
        )
        async with self._db.write() as tx:
            cell = await self._recorder.task_done(tx, work)
            if self._judge is not None and task.status in _JUDGED:
                await self._judge(tx, task.id, task.status is TaskStatus.COMPLETED)
            await self._ended.seen(tx, ended)
        if cell is not None:
            self._recorder.kept(cell.scope)
