"""Waiting for the emulated world to change, without polling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 60.0
"""For what is certain to come: seconds cost nothing where all is well, and machines are busy."""


class Changes:
    """Wakes everyone who waits, after each change."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def tell(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    async def next(self) -> None:
        await self._event.wait()

    async def until(self, look: Callable[[], T | None], timeout: float, what: str = "") -> T:
        """The first thing `look` finds; TimeoutError naming `what` if there is none in time."""
        try:
            async with asyncio.timeout(timeout):
                while (found := look()) is None:
                    await self._event.wait()
                return found
        except TimeoutError:
            raise TimeoutError(f"nothing like that within {timeout} s: {what}") from None
