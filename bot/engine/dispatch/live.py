"""Cards of running tasks follow what their steps do, at most once a second each."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from bot.engine.workflow.progress import Progress
from storage.errors import StoreUnavailable
from storage.records.tasks import TaskId

log = logging.getLogger(__name__)

_REST = 1.0


class LiveCards:
    """`redraw` shows a task's card as it is now."""

    name = "live cards"

    def __init__(
        self,
        *,
        progress: Progress,
        redraw: Callable[[TaskId], Awaitable[None]],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._progress = progress
        self._redraw = redraw
        self._sleep = sleep

    async def start(self, stack: AsyncExitStack) -> None:
        pass

    async def run(self) -> None:
        while True:
            for task in await self._progress.moved():
                try:
                    await self._redraw(task)
                except StoreUnavailable as error:
                    log.warning("what task %s does cannot be shown now: %s", task, error)
            await self._sleep(_REST)
