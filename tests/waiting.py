"""Waiting in tests: patient, because the machine that runs them may be busy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from inspect import isawaitable
from typing import Any, TypeVar

WAIT_SECONDS = 300.0
"""The limit for everything that is certain to happen: no passing test waits this long."""

T = TypeVar("T")


async def wait_until(
    condition: Callable[[], Any | Awaitable[Any]], timeout: float = WAIT_SECONDS
) -> None:
    """Poll a condition, awaited if it is asynchronous, until it holds. For what gives no signal."""
    pause = 0.005
    async with asyncio.timeout(timeout):
        while True:
            holds = condition()
            if await holds if isawaitable(holds) else holds:
                return
            await asyncio.sleep(pause)
            pause = min(pause * 1.2, 0.05)


async def let_time_pass(seconds: float) -> None:
    """Set the clock of the running loop forward: what should happen by then happens now, in its
    order, and on the slowest machine nothing else does."""
    await _let_others_run()
    loop = asyncio.get_running_loop()
    time_before = loop.time
    loop.time = lambda: time_before() + seconds  # type: ignore[method-assign]  # for good
    # It ends after whatever was due before.
    await asyncio.sleep(0.001)
    await _let_others_run()


async def _let_others_run() -> None:
    """Until they wait for something, which takes them a few rounds of the loop."""
    for _ in range(20):
        await asyncio.sleep(0)


class ChangeSignal:
    """Wakes everyone who waits, after each change."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    async def next(self) -> None:
        await self._event.wait()

    async def until_found(
        self, look: Callable[[], Awaitable[T | None]], timeout: float = WAIT_SECONDS
    ) -> T:
        """The first thing that `look` finds, which is called again after each change, and at times
        without one: somebody else may have changed it."""
        async with asyncio.timeout(timeout):
            while True:
                changed = self._event
                if (found := await look()) is not None:
                    return found
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await changed.wait()

    async def until(
        self, look: Callable[[], T | None], timeout: float = WAIT_SECONDS, what: str = ""
    ) -> T:
        """The first thing `look` finds; TimeoutError naming `what` if there is none in time."""
        try:
            async with asyncio.timeout(timeout):
                while (found := look()) is None:
                    await self._event.wait()
                return found
        except TimeoutError:
            raise TimeoutError(f"nothing like that within {timeout} s: {what}") from None

    async def until_true(self, condition: Callable[[], Any], timeout: float = WAIT_SECONDS) -> None:
        await self.until(lambda: True if condition() else None, timeout)
