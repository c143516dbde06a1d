"""Starts services in order, runs them together, and drains and stops them in reverse order."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Generic, ParamSpec, Protocol, Self, runtime_checkable

from storage.db import STORE_RETRY_SECONDS
from storage.errors import DataDirectoryUnusable, StoreUnavailable

log = logging.getLogger(__name__)

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class AppService(Protocol):
    """Implementations register cleanup on the stack in `start`; `run` continues until it is
    cancelled."""

    name: str

    async def start(self, stack: AsyncExitStack) -> None: ...

    async def run(self) -> None: ...


@runtime_checkable
class DrainableService(Protocol):
    """A service with work to finish before shutdown. All services keep running meanwhile;
    implementations must limit the time themselves."""

    async def drain(self) -> None: ...


class ServiceGroup:
    """Services in start order."""

    def __init__(self, services: Iterable[AppService]) -> None:
        self._services = tuple(services)
        self._stack = AsyncExitStack()
        self._group = asyncio.TaskGroup()
        self._running: list[asyncio.Task[None]] = []

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

    async def run(
        self, until: asyncio.Event, *, meanwhile: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Run all services until the event is set, then drain them in reverse start order:
        producers first, notifiers last. A failing service ends the others, and so does
        `meanwhile`, which may add some."""
        async with asyncio.TaskGroup() as self._group:
            self._run(self._services)
            if meanwhile is not None:
                await _wait_beside(until, meanwhile())
            await until.wait()
            for service in reversed(self._services):
                if isinstance(service, DrainableService):
                    await service.drain()
            for task in self._running:
                task.cancel()

    async def add(self, services: Iterable[AppService]) -> None:
        """Start and run more services while `run` does; those that were there go on. An outage of
        the store is waited for."""
        added = tuple(services)
        for service in added:
            await self._stack.enter_async_context(await _start_with_store(service))
        self._services += added
        self._run(added)

    def _run(self, services: Iterable[AppService]) -> None:
        self._running += [self._group.create_task(each.run(), name=each.name) for each in services]


async def _start_with_store(service: AppService) -> AsyncExitStack:
    """Start the service and return the stack that ends it. A start that failed is cleaned up, and
    repeated until the store is there."""
    while True:
        try:
            async with AsyncExitStack() as stack:
                await service.start(stack)
                return stack.pop_all()
        except StoreUnavailable as error:
            log.warning("%s cannot start yet: %s", service.name, error)
        await asyncio.sleep(STORE_RETRY_SECONDS)


async def _wait_beside(until: asyncio.Event, work: Awaitable[None]) -> None:
    """Wait for the work, but not longer than for the event."""
    working = asyncio.ensure_future(work)
    waiting = asyncio.create_task(until.wait(), name="stop")
    try:
        await asyncio.wait([working, waiting], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        for each in (working, waiting):
            each.cancel()
        await asyncio.gather(working, waiting, return_exceptions=True)


def stop_on_signals() -> asyncio.Event:
    """An event set by the first SIGTERM or SIGINT; a second one ends the process at once. SIGHUP is
    ignored."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def first() -> None:
        for signum in _STOP_SIGNALS:
            loop.remove_signal_handler(signum)
            signal.signal(signum, signal.SIG_DFL)
        stop.set()
        # Only now, because a reader of the message may repeat the signal at once.
        log.info("stopping after the running steps; repeat the signal to stop at once")

    for signum in _STOP_SIGNALS:
        loop.add_signal_handler(signum, first)
    # Closing the terminal must not end the process.
    loop.add_signal_handler(signal.SIGHUP, log.info, "the terminal closed; continuing without it")
    return stop


class StartFailure(Exception):
    """The text is the line to show: the problem and its solution."""


def home_unusable(error: DataDirectoryUnusable) -> StartFailure:
    if Path(error.path).is_file():
        return StartFailure(f"{error.path} is a file: set SHIFTBOSS_HOME to a folder")
    is_full = error.reason in {os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT)}
    mend = "free some space" if is_full else "make it writable"
    return StartFailure(
        f"{error.path} cannot be used ({error.reason}): {mend}, or set SHIFTBOSS_HOME"
    )


_P = ParamSpec("_P")


class Signal(Generic[_P]):
    """A callback whose listeners are connected once they exist; called in this order."""

    def __init__(self) -> None:
        self._listeners: tuple[Callable[_P, None], ...] = ()

    def connect(self, *listeners: Callable[_P, None]) -> None:
        self._listeners += listeners

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> None:
        for listener in self._listeners:
            listener(*args, **kwargs)
