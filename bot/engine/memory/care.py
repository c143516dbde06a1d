"""Keeps memory in order while nobody asks: what fades is archived, what use has earned rises."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta, tzinfo

from bot.engine.memory.changed import Changed
from bot.engine.memory.life import Fate, fate, tier_now
from storage.db import Database
from storage.errors import NotFound, Overtaken, StoreUnavailable
from storage.memory.entries import EntryRepo
from storage.memory.living.pruning import UsePruning
from storage.memory.living.wear import WearRepo
from storage.records.memory.entries import Entry, EntryId, EntryState, Tier

log = logging.getLogger(__name__)

_HOUR = 3600.0
_NIGHT = 3
"""O'clock: what is done once a day is done from then on."""
_NEVER_EARLIER = timedelta(hours=48)
"""Nothing fades away before."""
_PAGE = 500
_AT_ONCE = 50
"""So many go in a transaction: others write in between."""
_KNOWN_FOR = timedelta(days=30)
_ANSWERS_KNOWN = 200
"""Of a chat, for `/memory why`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faded:
    """How many entries came to which end."""

    archived: int = 0
    deleted: int = 0


@dataclass(slots=True, kw_only=True)
class Care:
    """A service: it looks once an hour, and does nothing in between."""

    db: Database
    entries: EntryRepo
    wear: WearRepo
    pruning: UsePruning
    changed: Changed
    now: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]]
    zone: tzinfo
    forgets: bool = True
    name: str = "memory care"
    _night: date | None = field(default=None, init=False)

    async def start(self, stack: AsyncExitStack) -> None:
        """Nothing to prepare."""

    async def run(self) -> None:
        while True:
            try:
                await self.hourly()
            except StoreUnavailable as error:
                log.warning("memory is not cared for this hour: %s", error)
            await self.sleep(_HOUR)

    async def hourly(self) -> None:
        faded = await self.forget() if self.forgets else Faded()
        if faded.archived or faded.deleted:
            log.info("memory: %d archived, %d forgotten", faded.archived, faded.deleted)
        today = (self.now().astimezone(self.zone) - timedelta(hours=_NIGHT)).date()
        if today != self._night:
            await self.move()
            await self.prune()
            self._night = today

    async def forget(self) -> Faded:
        """Archive what has faded, and let go what faded in the archive. No mark is left: it may be
        learnt again."""
        archived = deleted = 0
        async for page in self._pages(untouched_since=self.now() - _NEVER_EARLIER):
            gone: list[EntryId] = []
            for entry in page:
                due = fate(entry, self.now())
                if due is Fate.DELETED:
                    gone.append(entry.id)
                elif due is Fate.ARCHIVED and await self._archive(entry):
                    archived += 1
            for at in range(0, len(gone), _AT_ONCE):
                deleted += await self._let_go(gone[at : at + _AT_ONCE])
        return Faded(archived=archived, deleted=deleted)

    async def move(self) -> int:
        """Put every fact into the tier that use and age give it."""
        moved = 0
        async for page in self._pages(states=(EntryState.ACTIVE,)):
            into: defaultdict[Tier, list[int]] = defaultdict(list)
            for entry in page:
                tier = tier_now(entry, self.now())
                if tier is not entry.tier:
                    into[tier].append(entry.number)
            if not into:
                continue
            async with self.db.write() as tx:
                for tier, numbers in into.items():
                    await self.wear.move(tx, numbers, tier)
                    moved += len(numbers)
        return moved

    async def prune(self) -> None:
        """What stood before answers is known of the last ones only."""
        before = self.now() - _KNOWN_FOR
        gone = await self.pruning.run(before=before, answers=_ANSWERS_KNOWN)
        if gone:
            log.info("memory: what stood before older answers is let go: %d rows", gone)

    async def _archive(self, entry: Entry) -> bool:
        """False where somebody has changed it meanwhile: then it lives."""
        try:
            async with self.db.write() as tx:
                held = await self.entries.get(entry.id, [entry.scope], tx=tx)
                if fate(held, self.now()) is not Fate.ARCHIVED:
                    return False
                archived = replace(held, state=EntryState.ARCHIVED)
                await self.entries.change(tx, archived, now=self.now())
        except (NotFound, Overtaken):
            return False
        self.changed.tell(entry.scope)
        return True

    async def _let_go(self, some: Sequence[EntryId]) -> int:
        """But for what somebody has changed meanwhile."""
        async with self.db.write() as tx:
            held = await self.entries.with_ids(some, None, tx=tx)
            gone = [each for each in held if fate(each, self.now()) is Fate.DELETED]
            await self.entries.drop_all(tx, gone)
        self.changed.tell(*{each.scope for each in gone})
        return len(gone)

    async def _pages(
        self,
        *,
        untouched_since: datetime | None = None,
        states: Sequence[EntryState] = (EntryState.ACTIVE, EntryState.ARCHIVED),
    ) -> AsyncGenerator[Sequence[Entry], None]:
        after = 0
        while page := await self.wear.facts(
            after=after, limit=_PAGE, untouched_since=untouched_since, states=states
        ):
            yield page
            after = page[-1].number
