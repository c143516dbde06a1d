"""Start everything in order, run it together, drain and stop it in reverse, and fail as one."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Iterable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

log = logging.getLogger(__name__)

_STOPS = (signal.SIGTERM, signal.SIGINT)


class Service(Protocol):
    """`start` puts what must be undone on the stack; `run` goes on until it is cancelled."""

    name: str

    async def start(self, stack: AsyncExitStack) -> None: ...

    async def run(self) -> None: ...


@runtime_checkable
class Drains(Protocol):
    """A service that has something to bring to an end before the others may go. While it does,
    `run` goes on, its own and all others'; it takes as long as its own patience allows."""

    async def drain(self) -> None: ...


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
        """Run all until the event is set, then drain them, the last started first: who brings
        work before who does it, and who tells of it last. A service that fails ends the others."""
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(each.run(), name=each.name) for each in self._services]
            await until.wait()
            for service in reversed(self._services):
                if isinstance(service, Drains):
                    await service.drain()
            for task in running:
                task.cancel()


def stop_on_signals() -> asyncio.Event:
    """Set at the first SIGTERM or SIGINT; a second one, whichever, ends the program at once.
    SIGHUP is not obeyed."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def first() -> None:
        stop.set()
        log.info("stopping: running steps may end first; once more ends it at once")
        for signum in _STOPS:
            loop.remove_signal_handler(signum)
            signal.signal(signum, signal.SIG_DFL)

    for signum in _STOPS:
        loop.add_signal_handler(signum, first)
    # A terminal that is closed ends nothing: nobody has to keep one open.
    loop.add_signal_handler(signal.SIGHUP, log.info, "the terminal is gone; going on without it")
    return stop
