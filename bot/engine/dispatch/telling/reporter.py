"""Events become cards: the live card of a task, and a message of its own where it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import Protocol
from zoneinfo import ZoneInfo

from bot.engine.dispatch.telling.line import Line
from cards.courier import Courier
from cards.views.work.tasks import ending_card, result_paths, task_card
from cards.words import words_for
from storage.errors import StoreUnavailable
from storage.records.messages import Urgency
from storage.records.people import Language
from storage.records.tasks import Task, TaskEvent, TaskId, TaskView
from storage.work.journal import Journal

log = logging.getLogger(__name__)

_BATCH = 200
_STORE_REST = 5.0
_LAST_WORDS = 3.0
# The queue may move many times a second; its cards follow this much later at most.
_LINE_REST = 1.0


class Views(Protocol):
    async def view(self, task_id: TaskId) -> TaskView: ...


class Asking(Protocol):
    """Shows the decisions that a task waits for, or waited for."""

    async def tell(self, task: Task, events: Sequence[TaskEvent]) -> None: ...


class Reporter:
    """Tells what the journal holds and nobody has been told. `asking` is told of it too: a task
    that waits for a decision is owed the card that asks for it. `line` knows which cards of waiting
    tasks an event of another has made wrong.

    Telling is repeated after a crash between telling and noting it, and harmless: each card has
    a key of its own, and the same card under the same key changes nothing.
    """

    name = "reporter"

    def __init__(
        self,
        *,
        journal: Journal,
        views: Views,
        courier: Courier,
        language_of: Callable[[Task], Awaitable[Language]],
        home: Path,
        zone: ZoneInfo,
        now: Callable[[], datetime],
        line: Line,
        asking: Asking | None = None,
    ) -> None:
        self._journal = journal
        self._views = views
        self._courier = courier
        self._language_of = language_of
        self._home = home
        self._zone = zone
        self._now = now
        self._line = line
        self._asking = asking
        self._changed = asyncio.Event()
        self._moved = asyncio.Event()
        self._turn = asyncio.Lock()

    async def start(self, stack: AsyncExitStack) -> None:
        self.wake()

    def wake(self) -> None:
        """Call it after a commit that wrote events."""
        self._changed.set()
        self._moved.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tell_news(), name="news of tasks")
            group.create_task(self._tell_places(), name="places in the queue")

    async def drain(self) -> None:
        """Tell what there is to tell now."""
        try:
            async with asyncio.timeout(_LAST_WORDS):
                while await self.tell():
                    pass
                await self.tell_places()
        except (StoreUnavailable, TimeoutError) as error:
            log.warning("not all is told before the end: %s", error)

    async def _tell_news(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                while await self.tell():
                    pass
            except StoreUnavailable as error:
                log.warning("nobody can be told now: %s", error)
                await asyncio.sleep(_STORE_REST)
                self.wake()

    async def _tell_places(self) -> None:
        while True:
            await self._moved.wait()
            self._moved.clear()
            try:
                await self.tell_places()
            except StoreUnavailable as error:
                log.warning("no place in the queue can be told now: %s", error)
                self._moved.set()
            await asyncio.sleep(_LINE_REST)

    async def tell(self) -> bool:
        """Tell one batch; False if there was nothing to tell."""
        async with self._turn:
            return await self._tell()

    async def redraw(self, task_id: TaskId) -> None:
        """Show the task's card as it is now, where nothing has happened that is told."""
        async with self._turn:
            await self._tell_of(task_id, ())

    async def tell_places(self) -> None:
        """Draw the cards again that tell another place in the queue than their tasks have."""
        async with self._turn:
            await self._line.load()
            try:
                for task_id in await self._line.outdated():
                    await self._tell_of(task_id, ())
            except BaseException:
                self._line.forget()
                raise

    async def _tell(self) -> bool:
        await self._line.load()
        events = await self._journal.untold(_BATCH)
        by_task: dict[TaskId, list[TaskEvent]] = {}
        for event in events:
            by_task.setdefault(event.task_id, []).append(event)
        for task_id, of_task in by_task.items():
            await self._tell_of(task_id, of_task)
        if events:
            await self._line.keep()
            await self._journal.told([event.id for event in events], now=self._now())
        return bool(events)

    async def _tell_of(self, task_id: TaskId, events: Sequence[TaskEvent]) -> None:
        try:
            await self._show(await self._views.view(task_id), events)
        except StoreUnavailable:
            raise
        except Exception:
            # The boundary between one task's cards and all others': a task that cannot be shown
            # is left untold rather than tried for ever.
            log.exception("task %s cannot be shown", task_id)

    async def _show(self, view: TaskView, events: Sequence[TaskEvent]) -> None:
        task = view.task
        words = words_for(await self._language_of(task))
        now = self._now()
        await self._courier.send(
            task.chat_id,
            task_card(view, words, now=now, zone=self._zone),
            key=f"task:{task.id}",
            urgency=Urgency.PROGRESS,
            reply_to=task.reply_to,
        )
        self._line.told(view)
        for event in events:
            if event.kind.is_ending:
                sizes = await asyncio.to_thread(self._sizes, result_paths(view.steps))
                await self._courier.send(
                    task.chat_id,
                    ending_card(view, words, now=event.at, zone=self._zone, sizes=sizes),
                    key=f"task:{task.id}:end:{event.id}",
                    urgency=Urgency.ANSWER,
                    reply_to=task.reply_to,
                )

        if self._asking is not None:
            await self._asking.tell(task, events)

    def _sizes(self, paths: Sequence[str]) -> Mapping[str, int]:
        found = ((path, self._home / path) for path in paths)
        return {path: file.stat().st_size for path, file in found if file.is_file()}
