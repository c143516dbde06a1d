"""What workers may look up: what is remembered, and what earlier tasks have left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, tzinfo
from itertools import chain, zip_longest

from bot.engine.memory.port import Memories, Memory
from bot.engine.memory.recall import Recall
from bot.engine.memory.scopes import Reader
from storage.errors import NotFound
from storage.memory.entries import EntryRepo
from storage.records.memory.entries import Entry, EntryId, EntryState, MemoryKind

PREFIX = "memory:"
_UNDECIDED = {EntryState.CANDIDATE, EntryState.REJECTED}
_KINDS = tuple(kind for kind in MemoryKind if kind is not MemoryKind.HANDBOOK)


class Lookup:
    """See `memory.port.Memories`. `besides` are the logs of tasks; in `zone` days begin and
    end."""

    def __init__(
        self,
        *,
        recall: Recall,
        entries: EntryRepo,
        reader: Callable[[], Awaitable[Reader]],
        besides: Memories,
        zone: tzinfo = UTC,
    ) -> None:
        self._recall = recall
        self._entries = entries
        self._reader = reader
        self._besides = besides
        self._zone = zone

    async def search(self, query: str, limit: int) -> Sequence[Memory]:
        """The best of both in turn: their scores cannot be compared."""
        reader = await self._reader()
        found = await self._recall.search(reader, query, limit, kinds=_KINDS)
        entries = [self._memory(each.entry) for each in found]
        logs = await self._besides.search(query, limit)
        both = chain.from_iterable(zip_longest(entries, logs))
        return [each for each in both if each is not None][:limit]

    async def get(self, memory_id: str) -> Memory | None:
        """Also one that is archived or was true once: whoever asks by its id has seen it. What
        nobody has confirmed is no memory yet."""
        if not memory_id.startswith(PREFIX):
            return await self._besides.get(memory_id)
        reader = await self._reader()
        try:
            entry = await self._entries.get(EntryId(memory_id.removeprefix(PREFIX)), reader.scopes)
        except NotFound:
            return None
        return None if entry.state in _UNDECIDED else self._memory(entry)

    def _memory(self, entry: Entry) -> Memory:
        told = [entry.kind.value, entry.category.value, entry.sender]
        if entry.superseded_by is not None:
            told.append(f"no longer true, see {PREFIX}{entry.superseded_by}")
        elif entry.state is not EntryState.ACTIVE:
            told.append(entry.state.value)
        if entry.valid_until is not None:
            told.append(f"until {entry.valid_until.astimezone(self._zone):%Y-%m-%d %H:%M}")
        return Memory(
            id=f"{PREFIX}{entry.id}",
            title=", ".join(filter(None, told)),
            text=entry.text,
            at=entry.said_at.astimezone(self._zone),
        )
