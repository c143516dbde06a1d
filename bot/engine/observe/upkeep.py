"""Spans of long ago are forgotten, once a day."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta

from storage.agents.spans import SpanRepo
from storage.errors import StoreUnavailable

log = logging.getLogger(__name__)

KEPT = timedelta(days=90)
"""After a task's end: a quarter to look back at. What it cost is in the bills, which stay."""

_DAY = 86_400.0


@dataclass(slots=True, kw_only=True)
class SpanUpkeep:
    spans: SpanRepo
    now: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]]
    name: str = "spans"

    async def start(self, stack: AsyncExitStack) -> None:
        """Nothing to prepare."""

    async def run(self) -> None:
        while True:
            try:
                gone = await self.spans.prune(before=self.now() - KEPT)
                if gone:
                    log.info("forgot %d spans of tasks that ended long ago", gone)
            except StoreUnavailable as error:
                log.warning("no spans can be forgotten now: %s", error)
            await self.sleep(_DAY)
