"""Coroutines that run at the same time for one owner, who takes their results and ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Coroutine, Hashable
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

_Result = TypeVar("_Result")


class ConcurrentWork(Generic[_Result]):
    """Coroutines that run at the same time; their results are taken one by one. Leaving the context
    cancels those that still run, and waits for them."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[_Result]] = set()
        self._keys: dict[asyncio.Task[_Result], Hashable] = {}

    def __bool__(self) -> bool:
        return bool(self._running)

    def start(
        self, coroutine: Coroutine[Any, Any, _Result], name: str, key: Hashable = None
    ) -> None:
        work = asyncio.create_task(coroutine, name=name)
        self._running.add(work)
        self._keys[work] = key

    async def cancel(self, keys: Container[Hashable]) -> None:
        """Cancel those with such a key, and wait for them. One that ends with a result all the same
        is still to be taken."""
        ended = [work for work in self._running if self._keys[work] in keys and not work.done()]
        for work in ended:
            work.cancel()
        if ended:
            await asyncio.wait(ended)
        for work in ended:
            if work.cancelled():
                self._running.remove(work)
                del self._keys[work]

    async def next_result(
        self, *, seconds: float | None, signal: asyncio.Event | None
    ) -> list[_Result]:
        """The result of the first that ends, or its exception; nothing if the time is over or the
        signal is set before."""
        waiting: set[asyncio.Task[Any]] = set(self._running)
        signalled = None if signal is None else asyncio.create_task(signal.wait(), name="signal")
        if signalled is not None:
            waiting.add(signalled)
        try:
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if signalled is not None:
                signalled.cancel()
        ended = next((work for work in self._running if work.done()), None)
        if ended is None:
            return []
        self._running.remove(ended)
        del self._keys[ended]
        return [ended.result()]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for work in self._running:
            work.cancel()
        if self._running:
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*self._running, return_exceptions=True)
