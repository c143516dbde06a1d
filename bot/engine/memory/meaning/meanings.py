"""Entries get their vectors in the background, and are found by them; without a service all goes
on by words."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime

from bot.engine.memory.changed import Changed
from bot.engine.memory.meaning.embedder import BATCH, Embedder, NoMeaning, Service
from storage.db import Database
from storage.errors import StoreUnavailable
from storage.memory.index import Hit
from storage.memory.living.vectors import Vectors
from storage.records.memory.entries import Entry, MemoryKind, Scope

log = logging.getLogger(__name__)

KINDS = tuple(kind for kind in MemoryKind if kind is not MemoryKind.HANDBOOK)
_IN_TIME = 3.0
"""Seconds to embed a query in: after that words alone have to do."""
_REST = 60.0
"""Seconds in which a service that failed is not asked for queries again."""
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 600.0
_KEPT = 64


@dataclass(slots=True, kw_only=True)
class Meanings:
    """A service, and `recall.Neighbours`."""

    db: Database
    vectors: Vectors
    embedder: Embedder
    service: Service
    changed: Changed
    sleep: Callable[[float], Awaitable[None]]
    clock: Callable[[], float]
    name: str = "memory meanings"
    _known: OrderedDict[str, Sequence[float]] = field(default_factory=OrderedDict, init=False)
    _unwanted: set[int] = field(default_factory=set, init=False)
    _rests_until: float = field(default=0.0, init=False)

    async def start(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self.service.aclose)

    async def run(self) -> None:
        """Whatever is new or was of another model, and then whatever changes."""
        listener = self.changed.listen()
        pause = _FIRST_PAUSE
        while True:
            try:
                while await self.embed_some():
                    pause = _FIRST_PAUSE
                await listener.wait()
            except (NoMeaning, StoreUnavailable) as error:
                log.warning("memories are found by words only: %s", error)
                await self.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def embed_some(self) -> int:
        """The next few that have no vector of this model; how many they were."""
        model = self.embedder.model
        entries = await self.vectors.missing(model, KINDS, BATCH, besides=self._unwanted)
        if not entries:
            return 0
        try:
            made = await self._made(entries)
        except NoMeaning as error:
            if not error.refused:
                raise
            # One of them may be what it does not want: each for itself, then.
            made = [pair for each in entries for pair in await self._alone(each)]
        async with self.db.write() as tx:
            await self.vectors.put(tx, model, made)
        return len(entries)

    async def _made(self, entries: Sequence[Entry]) -> list[tuple[Entry, Sequence[float]]]:
        texts = [embedded(each.said_at, each.sender, each.text) for each in entries]
        vectors = await self.embedder.embed(texts)
        return list(zip(entries, vectors, strict=True))

    async def _alone(self, entry: Entry) -> list[tuple[Entry, Sequence[float]]]:
        try:
            return await self._made([entry])
        except NoMeaning as error:
            if not error.refused:
                raise
            self._unwanted.add(entry.number)
            return []

    async def near(
        self, scopes: Sequence[Scope], query: str, limit: int, kinds: Sequence[MemoryKind]
    ) -> Sequence[Hit]:
        vector = await self._vector(query)
        if vector is None:
            return ()
        return await self.vectors.near(scopes, self.embedder.model, vector, limit, kinds=kinds)

    async def _vector(self, query: str) -> Sequence[float] | None:
        if query in self._known:
            self._known.move_to_end(query)
            return self._known[query]
        if self.clock() < self._rests_until:
            return None
        try:
            async with asyncio.timeout(_IN_TIME):
                vector = await self.embedder.embed_query(query)
        except (NoMeaning, TimeoutError) as error:
            log.warning("looked up by words only: %r", error)
            self._rests_until = self.clock() + _REST
            return None
        self._known[query] = vector
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return vector


def embedded(said_at: datetime, sender: str, text: str) -> str:
    """An entry's text with its day and sender, as people ask for both."""
    head = " ".join(filter(None, (f"[{said_at:%Y-%m-%d}]", sender)))
    return f"{head}: {text}"
