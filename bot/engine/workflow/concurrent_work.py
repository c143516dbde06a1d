"""Coroutines that run at the same time for one owner, who takes their results and ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Coroutine, Hashable
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

_Result = TypeVar("_Result")


class ConcurrentWork(Generic[_Result]):
    """Runs coroutines at the same time and hands out their results one by one. Leaving the context
    cancels those that still run and waits for them.
    """

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
        """Cancel the coroutines with this key and wait for them. If one ends with a result all the
        same, that result can still be taken.
        """
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
        """Return the result of the first coroutine that ends, or raise its exception. The list is
        empty if the timeout passes or the signal is set before.
        """
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
