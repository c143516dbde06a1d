"""One memory leads to another: by what they are about, by their task, by their time."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta

from bot.engine.memory.changed import Changed
from bot.engine.memory.ranking import jaccard
from storage.db import Database
from storage.errors import StoreUnavailable
from storage.marks import Marks
from storage.memory.living.links import Link, LinkRepo
from storage.records.memory.entries import Entry

log = logging.getLogger(__name__)

_ALIKE = 0.3
_SAME_TASK = 0.5
_SAME_DAY = 0.3
_DAY = timedelta(hours=24)
_LEAST_OF_A_DAY = 0.05
_PER_HOP = 0.5
_HOPS = 2
_LEAST = 0.01
_MOST_TIES = 8
_LOOKED_AT = 300
_BATCH = 50
_REST = 60.0
_MARK = "memory:linked"


def tie(one: Entry, other: Entry) -> Link | None:
    """The strongest bond between two entries; None where there is none."""
    bonds = list(_bonds(one, other))
    if not bonds or one.number == other.number:
        return None
    weight, kind = max(bonds)
    return Link(one=one.number, other=other.number, kind=kind, weight=weight)


def ties(entry: Entry, others: Sequence[Entry]) -> Sequence[Link]:
    """The strongest of an entry's bonds."""
    found = [link for each in others if (link := tie(entry, each)) is not None]
    return sorted(found, key=lambda link: link.weight, reverse=True)[:_MOST_TIES]


def _bonds(one: Entry, other: Entry) -> Iterator[tuple[float, str]]:
    alike = jaccard(_keywords(one), _keywords(other))
    if alike >= _ALIKE:
        yield alike, "keywords"
    if one.task is not None and one.task == other.task:
        yield _SAME_TASK, "task"
    apart = abs(one.said_at - other.said_at)
    near = _SAME_DAY * (1 - apart / _DAY)
    if near > _LEAST_OF_A_DAY:
        yield near, "day"


def _keywords(entry: Entry) -> frozenset[str]:
    return frozenset(each.casefold().strip() for each in entry.keywords) - {""}


class Spreading:
    """Satisfies `recall.Associations`: what is remembered wakes what it is tied to, half as much
    with each step, two steps far."""

    def __init__(self, repo: LinkRepo) -> None:
        self._repo = repo

    async def spread(self, seeds: Mapping[int, float]) -> Mapping[int, float]:
        seen = set(seeds)
        found: dict[int, float] = {}
        level = dict(seeds)
        for _ in range(_HOPS):
            reached: defaultdict[int, float] = defaultdict(float)
            for link in await self._repo.of(level):
                for here, there in ((link.one, link.other), (link.other, link.one)):
                    if here in level and there not in seen:
                        woken = level[here] * link.weight * _PER_HOP
                        reached[there] = max(reached[there], woken)
            level = {number: woken for number, woken in reached.items() if woken >= _LEAST}
            found |= level
            seen |= set(level)
        return found


@dataclass(slots=True, kw_only=True)
class Tying:
    """A service: ties what is new to what is known, as it comes."""

    db: Database
    repo: LinkRepo
    marks: Marks
    changed: Changed
    sleep: Callable[[float], Awaitable[None]]
    name: str = "memory links"

    async def start(self, stack: AsyncExitStack) -> None:
        """Nothing to prepare."""

    async def run(self) -> None:
        listener = self.changed.listen()
        while True:
            try:
                while await self.tie_some():
                    pass
                await listener.wait()
            except StoreUnavailable as error:
                log.warning("memories are not tied now: %s", error)
                await self.sleep(_REST)

    async def tie_some(self) -> int:
        """The next few; how many they were. After a sudden end they are tied again, to the same."""
        after = int(await self.marks.get(_MARK) or 0)
        entries = await self.repo.fresh(after, _BATCH)
        if not entries:
            return 0
        links = [
            link
            for entry in entries
            for link in ties(entry, await self.repo.before(entry, _LOOKED_AT))
        ]
        async with self.db.write() as tx:
            await self.repo.add(tx, links)
            await self.marks.write(tx, _MARK, entries[-1].number)
        return len(entries)
