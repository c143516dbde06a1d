"""Time as an argument: what the mail room asks of it."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """The time of day, aware. It may jump."""
        ...

    def elapsed(self) -> float:
        """Seconds since some moment. It never jumps."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def elapsed(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def event_or_timer(event: asyncio.Event, clock: Clock, seconds: float | None) -> None:
    """Wait for the event, but no longer than `seconds` where that is said."""
    if event.is_set():
        return
    waits = [asyncio.create_task(_wait(event), name="event")]
    if seconds is not None:
        waits.append(asyncio.create_task(_sleep(clock, seconds), name="timer"))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


async def _sleep(clock: Clock, seconds: float) -> None:
    await clock.sleep(seconds)
