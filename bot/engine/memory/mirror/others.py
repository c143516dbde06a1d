"""What other processes write into the store is heard of, as what this one writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from bot.engine.memory.changed import Changed
from storage.memory.files.shelf import Shelf
from storage.records.memory.entries import Scope


class Others:
    """`version` is another number once another process has written anything at all, None where
    that cannot be told just now."""

    def __init__(
        self, *, version: Callable[[], Awaitable[int | None]], shelf: Shelf, changed: Changed
    ) -> None:
        self._version = version
        self._shelf = shelf
        self._changed = changed
        self._seen: int | None = None
        self._states: Mapping[Scope, tuple[object, ...]] = {}

    async def begin(self) -> None:
        """From here on. What is read after this holds all that was written before it."""
        self._seen = await self._version()

    async def look(self) -> None:
        """Tell of the scopes in which something has changed since they were looked at last."""
        version = await self._version()
        if version is None or version == self._seen:
            return
        states = await self._shelf.states()
        before, self._states = self._states, states
        self._seen = version
        self._changed.tell(
            *(each for each in {*before, *states} if before.get(each) != states.get(each))
        )
