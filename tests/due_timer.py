"""Runs the process's timer in tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime

from bot.engine.timing import DueSource, DueTimer


@asynccontextmanager
async def run_timer(
    *sources: DueSource, now: Callable[[], datetime]
) -> AsyncGenerator[DueTimer, None]:
    timer = DueTimer(now)
    timer.add(*sources)
    async with AsyncExitStack() as stack:
        await timer.start(stack)
        running = asyncio.create_task(timer.run())
        try:
            yield timer
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
