"""The clock that transports use, as a port."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any, Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Current time, timezone-aware. It may jump."""
        ...

    def elapsed(self) -> float:
        """Monotonic seconds."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def elapsed(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def wait_for_event(event: asyncio.Event, clock: Clock, seconds: float | None) -> None:
    """Wait for the event, at most `seconds` if given."""
    if event.is_set():
        return
    waits: list[asyncio.Task[Any]] = [asyncio.create_task(event.wait(), name="event")]
    if seconds is not None:
        waits.append(asyncio.create_task(clock.sleep(seconds), name="timer"))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
