"""Tells whoever follows what is remembered that something of it has changed, in this process."""

from __future__ import annotations

import asyncio
from weakref import WeakSet

from storage.records.memory.entries import Scope


class Changed:
    """`tell` is called after the commit; of one in another process by whoever notices it."""

    def __init__(self) -> None:
        self._listeners: WeakSet[Listener] = WeakSet()

    def tell(self, *scopes: Scope) -> None:
        for listener in self._listeners:
            listener.hear(scopes)

    def listen(self) -> Listener:
        """Hears of everything that changes from now on, until it is let go."""
        listener = Listener()
        self._listeners.add(listener)
        return listener

    async def wait(self) -> frozenset[Scope]:
        """For the next change. Whoever does it again and again misses what comes in between:
        they `listen` instead."""
        return await self.listen().wait()


class Listener:
    def __init__(self) -> None:
        self._heard: set[Scope] = set()
        self._rung = asyncio.Event()

    def hear(self, scopes: tuple[Scope, ...]) -> None:
        self._heard |= set(scopes)
        self._rung.set()

    async def wait(self) -> frozenset[Scope]:
        """The scopes that have changed since this was last asked; waits where none has."""
        await self._rung.wait()
        self._rung.clear()
        heard, self._heard = frozenset(self._heard), set()
        return heard
