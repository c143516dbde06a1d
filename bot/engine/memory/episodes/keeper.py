"""Conversations that have ended become episodes, in the background."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any

from bot.engine.memory.changed import Changed, Listener
from bot.engine.memory.episodes.making import (
    IDLE,
    LEAST_TURNS,
    MOST_TURNS,
    Stretch,
    episode_of,
    stretches,
)
from bot.engine.memory.episodes.retelling import Reteller
from bot.engine.memory.ranking import jaccard
from storage.db import Database, Transaction
from storage.errors import StoreUnavailable
from storage.marks import Marks
from storage.memory.entries import EntryRepo
from storage.memory.living.talks import Talk, TalkRepo
from storage.records.memory.entries import Entry, MemoryKind, NewEntry

log = logging.getLogger(__name__)

_MARK = "memory:episodes"
_SAME = 0.6
_SAME_WITHIN = timedelta(hours=24)
_READ = 4 * MOST_TURNS
_REST = 60.0


@dataclass(slots=True, kw_only=True)
class EpisodeKeeper:
    """A service: it looks when something was said, and once more when it may have ended. A
    `reteller` sums it up instead of rules."""

    db: Database
    entries: EntryRepo
    talks: TalkRepo
    marks: Marks
    changed: Changed
    now: Callable[[], datetime]
    zone: tzinfo
    reteller: Reteller | None = None
    name: str = "memory episodes"

    async def start(self, stack: AsyncExitStack) -> None:
        """Nothing to prepare."""

    async def run(self) -> None:
        listener = self.changed.listen()
        while True:
            try:
                rest = await self.look()
            except StoreUnavailable as error:
                log.warning("no episodes are made now: %s", error)
                rest = _REST
            await _heard(listener, rest)

    async def look(self) -> float | None:
        """Keep what has ended. Seconds until more may have; None while nobody is speaking."""
        done: dict[str, int] = dict(await self.marks.get(_MARK) or {})
        low = done.pop("", 0)
        open_, due, talks = [], [], await self.talks.since(low)
        for talk in talks:
            key = f"{talk.scope}|{talk.thread}"
            reached, ends = await self._keep(talk, max(low, done.get(key, 0)))
            done[key] = reached
            if ends is not None:
                open_.append(reached)
                due.append((ends - self.now()).total_seconds())
        newest = max((talk.last for talk in talks), default=low)
        floor = min(open_, default=newest)
        if talks:
            kept: Mapping[str, Any] = {key: n for key, n in done.items() if n > floor}
            await self.marks.put(_MARK, {**kept, "": floor})
        return max(1.0, min(due)) if due else None

    async def _keep(self, talk: Talk, after: int) -> tuple[int, datetime | None]:
        """How far it is kept now, and when the rest of it ends if nobody says more."""
        while cells := await self.talks.cells(talk, after, _READ):
            boundaries = await self.talks.turns(talk.chat, cells[0].said_at)
            parts = stretches(cells, boundaries, self.now())
            ended = [each for each in parts if each.ended]
            if not ended:
                return after, cells[-1].said_at + IDLE
            for part in ended:
                await self._add(part)
                after = part.cells[-1].number
        return after, None

    async def _add(self, part: Stretch) -> None:
        if len(part.cells) < LEAST_TURNS:
            return
        if await self._is_known(episode_of(part.cells, self.zone)):
            return
        retold = None if self.reteller is None else await self.reteller.retell(part.cells)
        async with self.db.write() as tx:
            # Somebody may have forgotten, changed or moved some of it since it was read.
            left = await self._left(tx, part.cells)
            if len(left) < LEAST_TURNS:
                return
            whole = [_said(each) for each in left] == [_said(each) for each in part.cells]
            new = episode_of(left, self.zone, retold if whole else None)
            await self.entries.add(tx, new, now=self.now())
        self.changed.tell(left[0].scope)

    async def _left(self, tx: Transaction, cells: Sequence[Entry]) -> Sequence[Entry]:
        found = await self.entries.with_ids([each.id for each in cells], (cells[0].scope,), tx=tx)
        return sorted(found, key=lambda each: each.number)

    async def _is_known(self, new: NewEntry) -> bool:
        """Whether the same was spoken of within a day."""
        assert new.said_at is not None
        words = frozenset(new.keywords)
        for each in await self._recent(new):
            near = abs(new.said_at - each.said_at) <= _SAME_WITHIN
            if (
                near
                and each.thread == new.thread
                and jaccard(words, frozenset(each.keywords)) > _SAME
            ):
                return True
        return False

    async def _recent(self, new: NewEntry) -> Sequence[Any]:
        return await self.entries.list((new.scope,), kinds=(MemoryKind.EPISODE,), limit=20)


def _said(cell: Entry) -> tuple[str, str]:
    return cell.id, cell.text


async def _heard(listener: Listener, rest: float | None) -> None:
    try:
        async with asyncio.timeout(rest):
            await listener.wait()
    except TimeoutError:
        """It is time to look again."""
