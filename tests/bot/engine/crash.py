"""Death right after a commit, in process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from storage.db import Database, Transaction


class CrashAfterCommit:
    """Comes right after the n-th commit: nothing is written any more."""

    def __init__(self, nth: int) -> None:
        self._left = nth
        self.crashed = asyncio.Event()

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        write = Database.write

        @asynccontextmanager
        async def mortal(db: Database) -> AsyncGenerator[Transaction, None]:
            if self.crashed.is_set():
                await asyncio.Event().wait()
            async with write(db) as tx:
                yield tx
            self._left -= 1
            if self._left == 0:
                self.crashed.set()
                await asyncio.Event().wait()

        monkeypatch.setattr(Database, "write", mortal)

    async def run_until_crash(self, story: Coroutine[Any, Any, object]) -> None:
        """Until it comes, or the story is over."""
        telling = asyncio.ensure_future(story)
        dead = asyncio.ensure_future(self.crashed.wait())
        await asyncio.wait({telling, dead}, return_when=asyncio.FIRST_COMPLETED)
        dead.cancel()
        while not telling.done():
            # What it wants to keep of its own end is not kept either.
            telling.cancel()
            await asyncio.sleep(0)
        if not telling.cancelled():
            telling.result()
