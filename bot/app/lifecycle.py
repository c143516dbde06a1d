"""Start everything in order, run it together, stop it in reverse, and fail as one."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Iterable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Protocol, Self

log = logging.getLogger(__name__)


class Service(Protocol):
    """`start` puts what must be undone on the stack; `run` goes on until it is cancelled."""

    name: str

    async def start(self, stack: AsyncExitStack) -> None: ...

    async def run(self) -> None: ...


class App:
    """Services in the order in which they start."""

    def __init__(self, services: Iterable[Service]) -> None:
        self._services = tuple(services)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for service in self._services:
                await service.start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def run(self, until: asyncio.Event) -> None:
        """Run all until the event is set. A service that fails ends the others."""
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(each.run(), name=each.name) for each in self._services]
            await until.wait()
            for task in running:
                task.cancel()


def stop_on_signals() -> asyncio.Event:
    """Set at the first SIGTERM or SIGINT; a second one ends the program at once. SIGHUP is not
    obeyed."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def first(signum: signal.Signals) -> None:
        stop.set()
        loop.remove_signal_handler(signum)

    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, first, signum)
    # A terminal that is closed ends nothing: nobody has to keep one open.
    loop.add_signal_handler(signal.SIGHUP, log.info, "the terminal is gone; going on without it")
    return stop
