"""Notices when a stream falls silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from bot.engine.llm.api.error_mapping import ModelSilent

_T = TypeVar("_T")


async def watch_silence(
    stream: AbstractAsyncContextManager[AsyncIterator[_T]],
    *,
    notice_after: float,
    fail_after: float,
    is_busy: Callable[[], Any],
) -> AsyncGenerator[_T | None, None]:
    """Yield the stream's events, and None once nothing has come for `notice_after` seconds. Raises
    ModelSilent after `fail_after` seconds: a service may keep its connection alive for ever. While
    `is_busy` nothing is expected of it."""
    queue = asyncio.Queue[tuple[_T] | None]()

    async def pump() -> None:
        # In one task, since the library's cancel scopes may not move to another.
        try:
            async with stream as events:
                async for event in events:
                    queue.put_nowait((event,))
                    await queue.join()
        finally:
            queue.put_nowait(None)

    task = asyncio.create_task(pump(), name="model stream")
    silent = 0.0
    try:
        while True:
            wait = min((fail_after if silent else notice_after) - silent, fail_after)
            try:
                # Not `asyncio.wait_for`: before Python 3.12 it loses a cancellation that comes
                # together with the event.
                async with asyncio.timeout(wait):
                    item = await queue.get()
            except TimeoutError:
                silent = 0.0 if is_busy() else silent + wait
                if silent >= fail_after:
                    raise ModelSilent(f"the model was silent for {fail_after:g} seconds") from None
                if silent:
                    yield None
                continue
            if item is None:
                break
            silent = 0.0
            yield item[0]
            queue.task_done()
        await task
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()
