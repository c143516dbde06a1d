"""Links between memories by topic, task and time, and search along them."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta

from bot.engine.memory.change_feed import MemoryChangeFeed
from bot.engine.memory.similarity import jaccard
from storage.db import Database
from storage.errors import StoreUnavailable
from storage.key_value import KeyValueStore
from storage.memory.entries import MemoryLink, MemoryLinkRepo
from storage.records.memory import MemoryEntry

log = logging.getLogger(__name__)

_MIN_KEYWORD_OVERLAP = 0.3
_SAME_TASK_WEIGHT = 0.5
_SAME_DAY_WEIGHT = 0.3
_DAY = timedelta(hours=24)
_MIN_DAY_WEIGHT = 0.05
_HOP_DAMPING = 0.5
_MAX_HOPS = 2
_MIN_ACTIVATION = 0.01
_MAX_LINKS = 8
_MAX_COMPARED = 300
_BATCH = 50
_STORE_RETRY_SECONDS = 60.0
_PROGRESS_MARK = "memory:linked"


def find_link(one: MemoryEntry, other: MemoryEntry) -> MemoryLink | None:
    """The strongest link between two entries; None if they are unrelated."""
    bonds = list(_candidate_links(one, other))
    if not bonds or one.number == other.number:
        return None
    weight, kind = max(bonds)
    return MemoryLink(one=one.number, other=other.number, kind=kind, weight=weight)


def find_strongest_links(entry: MemoryEntry, others: Sequence[MemoryEntry]) -> Sequence[MemoryLink]:
    found = [link for each in others if (link := find_link(entry, each)) is not None]
    return sorted(found, key=lambda link: link.weight, reverse=True)[:_MAX_LINKS]


def _candidate_links(one: MemoryEntry, other: MemoryEntry) -> Iterator[tuple[float, str]]:
    alike = jaccard(_keywords(one), _keywords(other))
    if alike >= _MIN_KEYWORD_OVERLAP:
        yield alike, "keywords"
    if one.task is not None and one.task == other.task:
        yield _SAME_TASK_WEIGHT, "task"
    apart = abs(one.said_at - other.said_at)
    near = _SAME_DAY_WEIGHT * (1 - apart / _DAY)
    if near > _MIN_DAY_WEIGHT:
        yield near, "day"


def _keywords(entry: MemoryEntry) -> frozenset[str]:
    return frozenset(each.casefold().strip() for each in entry.keywords) - {""}


class SpreadingActivation:
    """Implements `retriever.AssociationSource`: activation spreads from entries to their links,
    halved at each step, two steps deep."""

    def __init__(self, repo: MemoryLinkRepo) -> None:
        self._repo = repo

    async def spread(self, seeds: Mapping[int, float]) -> Mapping[int, float]:
        seen = set(seeds)
        found: dict[int, float] = {}
        level = dict(seeds)
        for _ in range(_MAX_HOPS):
            reached: defaultdict[int, float] = defaultdict(float)
            for link in await self._repo.list_touching(level):
                for here, there in ((link.one, link.other), (link.other, link.one)):
                    if here in level and there not in seen:
                        woken = level[here] * link.weight * _HOP_DAMPING
                        reached[there] = max(reached[there], woken)
            level = {number: woken for number, woken in reached.items() if woken >= _MIN_ACTIVATION}
            found |= level
            seen |= set(level)
        return found


@dataclass(slots=True, kw_only=True)
class AssociationLinker:
    """A service that links new entries to existing ones."""

    db: Database
    repo: MemoryLinkRepo
    key_values: KeyValueStore
    feed: MemoryChangeFeed
    sleep: Callable[[float], Awaitable[None]]
    name: str = "memory links"

    async def start(self, stack: AsyncExitStack) -> None: ...

    async def run(self) -> None:
        listener = self.feed.subscribe()
        while True:
            try:
                while await self.link_next_batch():
                    pass
                await listener.wait()
            except StoreUnavailable as error:
                log.warning("memories cannot be linked now: %s", error)
                await self.sleep(_STORE_RETRY_SECONDS)

    async def link_next_batch(self) -> int:
        """Link the next entries and return their number. A repeat after a crash creates the same
        links."""
        after = int(await self.key_values.get(_PROGRESS_MARK) or 0)
        entries = await self.repo.list_linkable_after(after, _BATCH)
        if not entries:
            return 0
        links = [
            link
            for entry in entries
            for link in find_strongest_links(
                entry, await self.repo.list_link_targets(entry, _MAX_COMPARED)
            )
        ]
        async with self.db.write() as tx:
            await self.repo.add(tx, links)
            await self.key_values.write(tx, _PROGRESS_MARK, entries[-1].number)
        return len(entries)
