"""A clock that tests may push forward: long platform windows pass without waiting."""

from __future__ import annotations

import asyncio
import time


class Clock:
    """Real time plus whatever a test added; sleepers wake when either gets them there."""

    def __init__(self) -> None:
        self._offset = 0.0
        self._moved = asyncio.Event()

    def now(self) -> float:
        return time.time() + self._offset

    def now_ms(self) -> int:
        return int(self.now() * 1000)

    def advance(self, seconds: float) -> None:
        self._offset += seconds
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def sleep_until(self, due: float) -> None:
        while (left := due - self.now()) > 0:
            try:
                async with asyncio.timeout(left):
                    await self._moved.wait()
            except TimeoutError:
                continue
