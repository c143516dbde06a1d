"""Several pieces of work at once, whose results are taken one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

_T = TypeVar("_T")


class Branches(Generic[_T]):
    """What is still under way when this is left is cancelled, and waited for."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[_T]] = set()

    def __bool__(self) -> bool:
        return bool(self._under_way)

    def begin(self, work: Coroutine[Any, Any, _T], name: str) -> None:
        self._under_way.add(asyncio.create_task(work, name=name))

    async def first(self, *, within: float | None, news: asyncio.Event | None) -> list[_T]:
        """The result of one that has ended, as soon as there is one; none if the seconds passed or
        the news came first. Raises what that one has raised."""
        waiting: set[asyncio.Task[Any]] = set(self._under_way)
        bell = asyncio.create_task(news.wait(), name="news") if news is not None else None
        if bell is not None:
            waiting.add(bell)
        try:
            await asyncio.wait(waiting, timeout=within, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if bell is not None:
                bell.cancel()
        ended = next((work for work in self._under_way if work.done()), None)
        if ended is None:
            return []
        self._under_way.remove(ended)
        return [ended.result()]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for work in self._under_way:
            work.cancel()
        if self._under_way:
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*self._under_way, return_exceptions=True)
