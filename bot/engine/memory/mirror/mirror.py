"""Memories as files that people edit: written when something changes, read back when somebody has
saved."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from functools import partial
from itertools import count

from bot.engine.memory.changed import Changed
from bot.engine.memory.mirror.due import Due, Extent
from bot.engine.memory.mirror.others import Others
from bot.engine.memory.mirror.pages import Pages
from bot.engine.memory.mirror.places import Place, is_shown
from bot.engine.memory.mirror.reconcile import Reconciler
from storage.errors import StoreUnavailable
from storage.memory.files.bases import Base, Bases
from storage.memory.files.folder import Folder, Sign
from storage.memory.files.shelf import Shelf
from storage.records.memory.entries import GLOBAL, Scope

log = logging.getLogger(__name__)

SECONDS = 0.6
"""Between two looks at files that may be changed at any time; every other time, also at what other
processes have written."""

GATHER = 0.2
"""Seconds in which further changes are waited for before files are written."""

HOT = 200
"""So many files are looked at each time; of more, days of before and episodes take turns."""

TELLS = timedelta(minutes=1)
"""Between two words in the log about a store that is away."""

LOOKS = 4
"""So many at once: while one is at a file that takes long, the next see the others."""

_SLICE = 200


class Mirror:
    """Satisfies `lifecycle.Service`. `always` are the people who have files before anything is
    known of them."""

    name = "memory files"

    def __init__(
        self,
        *,
        folder: Folder,
        bases: Bases,
        shelf: Shelf,
        pages: Pages,
        reconciler: Reconciler,
        changed: Changed,
        always: Callable[[], Awaitable[Collection[Scope]]],
        name_of: Callable[[Scope], Awaitable[str]],
        prepare: Callable[[], Awaitable[None]],
        others: Others,
        now: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        """`prepare` is done once before the first file is written."""
        self._folder = folder
        self._bases = bases
        self._shelf = shelf
        self._pages = pages
        self._reconciler = reconciler
        self._news = changed.listen()
        self._always_of = always
        self._extent = Extent(shelf=shelf, zone=pages.zone, name_of=name_of, now=now)
        self._prepare = prepare
        self._others = others
        self._now = now
        self._sleep = sleep
        self._always: frozenset[Scope] = frozenset((GLOBAL,))
        self._places: dict[str, Place] = {}
        self._signs: dict[str, Sign | None] = {}
        self._again: set[str] = set()
        self._turn = 0
        self._told: datetime | None = None
        self._busy: set[str] = set()
        self._asked: set[str] = set()

    async def start(self, stack: AsyncExitStack) -> None:
        """Nothing to prepare."""

    async def run(self) -> None:
        while not await self._done(self.begin):
            await self._sleep(SECONDS)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            group.create_task(self._follow())

    async def begin(self) -> None:
        """Bring all files up to date: what was saved while the program did not run counts."""
        await self._others.begin()
        await self._guarded(self._prepare, "the first files of memories")
        self._always = frozenset((GLOBAL, *await self._always_of()))
        known = await self._bases.all()
        for scope in await self._scopes():
            await self._bring_up(await self._extent.due(scope, known), known)
        # Days whose last entry went while nobody wrote files: forgotten is forgotten there too.
        for path in sorted(known.keys() - self._places.keys()):
            place = self._extent.day_at(path)
            if place is None:
                await self._reconciler.withdraw(path)
            else:
                await self._bring_up([Due(place=place)], {})

    async def render(self, scopes: Iterable[Scope] | None = None) -> None:
        """Bring the files of these scopes, or of all, to what is remembered now."""
        for scope in await self._scopes() if scopes is None else sorted(scopes):
            if is_shown(scope):
                await self._bring_up(await self._extent.due(scope, ()), {})

    async def look(self) -> None:
        """Read back what somebody has saved since the last look."""
        signs = await asyncio.to_thread(self._folder.signs, self._watched())
        due = [path for path, sign in signs.items() if self._signs.get(path) != sign]
        for path in dict.fromkeys((*due, *self._again)):
            await self._settle(self._places[path])

    async def _scopes(self) -> Sequence[Scope]:
        return sorted(filter(is_shown, {*self._always, *await self._shelf.scopes()}))

    async def _bring_up(self, due: Sequence[Due], known: Mapping[str, Base]) -> None:
        """`known` is how files were last written; those that are as they were are not touched."""
        self._places |= {each.place.path: each.place for each in due}
        # Until each is done: what is broken off goes on with the next look.
        self._again |= {each.place.path for each in due}
        for each in due:
            path = each.place.path
            sign = await self._reconciler.untouched(each, known.get(path))
            if sign is None:
                await self._settle(each.place)
            else:
                self._signs[path] = sign
                self._again.discard(path)

    async def _watch(self) -> None:
        looks = set[asyncio.Task[bool]]()
        async with asyncio.TaskGroup() as group:
            for turn in count():
                if turn % 2 == 0:
                    await self._done(self._others.look)
                if len(looks) < LOOKS:
                    look = group.create_task(self._done(self.look))
                    looks.add(look)
                    look.add_done_callback(looks.discard)
                await self._sleep(SECONDS)

    async def _follow(self) -> None:
        while True:
            scopes = await self._news.wait()
            await self._sleep(GATHER)
            while not await self._done(partial(self.render, scopes)):
                await self._sleep(SECONDS)

    async def _done(self, what: Callable[[], Awaitable[None]]) -> bool:
        """False where the store is away: it is to be done once more."""
        try:
            await self._guarded(what, "files of memories")
        except StoreUnavailable as error:
            if self._told is None or abs(self._now() - self._told) >= TELLS:
                log.warning("files of memories have to wait: %s", error)
                self._told = self._now()
            return False
        return True

    async def _guarded(self, what: Callable[[], Awaitable[None]], named: str) -> bool:
        """False where it failed."""
        try:
            await what()
        except StoreUnavailable:
            raise
        except Exception:
            # The boundary between files, into which anybody may save anything, and the program,
            # which works without them.
            log.exception("%s: let alone until something changes", named)
            return False
        return True

    async def _settle(self, place: Place) -> None:
        """One at a time of each file. Others do not wait for it."""
        if place.path in self._busy:
            self._asked.add(place.path)
            return
        self._busy.add(place.path)
        try:
            await self._settled(place)
        finally:
            self._busy.discard(place.path)
            if place.path in self._asked:
                self._asked.discard(place.path)
                self._again.add(place.path)

    async def _settled(self, place: Place) -> None:
        async def settle() -> None:
            empty = place.scope in self._always and place.sort.stands
            settled = await self._reconciler.settle(place, empty=empty)
            self._signs[place.path] = settled.sign
            (self._again.add if settled.again else self._again.discard)(place.path)

        if not await self._guarded(settle, place.path):
            self._signs |= await asyncio.to_thread(self._folder.signs, [place.path])
            self._again.discard(place.path)

    def _watched(self) -> Sequence[str]:
        """Files that are likely to be edited, and some of the others in turn."""
        if len(self._places) <= HOT:
            return list(self._places)
        since = self._now().astimezone(self._pages.zone).date() - timedelta(days=1)
        hot = [
            path
            for path, place in self._places.items()
            if place.sort.stands or (place.day is not None and place.day >= since)
        ]
        cold = sorted(self._places.keys() - set(hot))
        begins = self._turn % max(1, len(cold))
        self._turn = begins + _SLICE
        return [*hot, *cold[begins : begins + _SLICE]]
