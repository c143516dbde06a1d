"""What nobody decides in time expires, and every card says so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from datetime import datetime

from bot.engine.dispatch.requests import Requests
from storage.approvals import Approvals
from storage.errors import StoreUnavailable

log = logging.getLogger(__name__)

# A clock that is set forward is noticed this late.
_LONGEST_SLEEP = 60.0
_SHORTEST_SLEEP = 0.01
_STORE_REST = 5.0


class Timekeeper:
    """Sleeps until the next request expires, or until `news` says that another one may be the
    next. `on_change` is called when tasks were moved."""

    name = "timekeeper"

    def __init__(
        self,
        *,
        approvals: Approvals,
        requests: Requests,
        now: Callable[[], datetime],
        news: asyncio.Event,
        on_change: Callable[[], None],
    ) -> None:
        self._approvals = approvals
        self._requests = requests
        self._now = now
        self._on_change = on_change
        self._news = news
        self._behind = True

    async def start(self, stack: AsyncExitStack) -> None:
        """Nothing to prepare."""

    async def run(self) -> None:
        while True:
            try:
                await self.turn()
                rest = await self.rest()
            except StoreUnavailable as error:
                log.warning("nothing can expire now: %s", error)
                rest = _STORE_REST
            with suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await self._news.wait()
            self._news.clear()

    async def turn(self) -> None:
        """Settle what is overdue. At first, and after trouble, also show what was settled while
        the cards could not be changed."""
        behind, self._behind = self._behind, True
        expired = await self._approvals.expire()
        if expired:
            self._on_change()
        await self._requests.show_all(expired)
        if behind:
            await self._requests.catch_up()
        self._behind = False

    async def rest(self) -> float:
        """Seconds until there may be something to do."""
        due = await self._approvals.next_expiry()
        if due is None:
            return _LONGEST_SLEEP
        return min(_LONGEST_SLEEP, max(_SHORTEST_SLEEP, (due - self._now()).total_seconds()))
