"""A transport that breaks is started again, and takes nothing else down."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from bot.transports.base import Transport

log = logging.getLogger(__name__)

_FIRST_REST = 1.0
_LONGEST_REST = 60.0


class Supervised:
    """A transport as a service. Every fall in a row is followed by a longer rest."""

    def __init__(
        self, transport: Transport, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self.name = f"{transport.channel} transport"
        self._transport = transport
        self._sleep = sleep

    async def start(self, stack: AsyncExitStack) -> None:
        await self._transport.start(stack)

    async def run(self) -> None:
        rest = _FIRST_REST
        while True:
            try:
                await self._transport.run()
            except Exception:
                # The boundary between one platform and all others.
                log.exception("%s broke; it starts again in %g s", self.name, rest)
            else:
                log.error("%s ended; it starts again in %g s", self.name, rest)
            await self._sleep(rest)
            rest = min(rest * 2, _LONGEST_REST)
