"""Restarts a transport that fails, without affecting other services."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from bot.transports.ports import Transport

log = logging.getLogger(__name__)

_INITIAL_BACKOFF = 1.0
_MAX_BACKOFF = 60.0


class TransportSupervisor:
    """Runs a transport as a service; the pause grows with consecutive failures."""

    def __init__(
        self, transport: Transport, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self.name = f"{transport.channel} transport"
        self._transport = transport
        self._sleep = sleep

    async def start(self, stack: AsyncExitStack) -> None:
        await self._transport.start(stack)

    async def run(self) -> None:
        rest = _INITIAL_BACKOFF
        while True:
            try:
                await self._transport.run()
            except Exception:
                # Error boundary: one platform must not stop the others.
                log.exception("%s failed; restarting in %g s", self.name, rest)
            else:
                log.error("%s ended; restarting in %g s", self.name, rest)
            await self._sleep(rest)
            rest = min(rest * 2, _MAX_BACKOFF)
