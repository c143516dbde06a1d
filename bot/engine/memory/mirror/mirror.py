"""Memories as files that people edit: written when something changes, read back when somebody has
saved."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial

from bot.engine.memory.changed import Changed
from bot.engine.memory.mirror.pages import Pages
from bot.engine.memory.mirror.places import (
    Place,
    Sort,
    folder_of,
    is_shown,
    kinds_of,
    of_day,
    of_episode,
    standing,
)
from bot.engine.memory.mirror.reconcile import Reconciler
from storage.errors import StoreUnavailable
from storage.memory.files.bases import Bases
from storage.memory.files.folder import Folder, Sign
from storage.memory.files.shelf import Shelf
from storage.records.memory.entries import GLOBAL, MemoryKind, Scope

log = logging.getLogger(__name__)

SECONDS = 0.5
"""Between two looks at files that may be changed at any time."""

GATHER = 0.2
"""Seconds in which further changes are waited for before files are written."""

HOT = 200
"""So many files are looked at each time; of more, the others take turns."""

_SLICE = 200
_OVERLAP = timedelta(seconds=2)
_CHANGING = frozenset((Sort.DAY, Sort.EPISODE))


@dataclass(slots=True)
class _State:
    """How a scope was when its files were last brought up to date."""

    count: int = 0
    last: int = 0
    since: datetime | None = None


class Mirror:
    """Satisfies `lifecycle.Service`. `always` are the people who have files before anything is
    known of them; `name_of` says what a scope is called."""

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
        self._name_of = name_of
        self._prepare = prepare
        self._now = now
        self._sleep = sleep
        self._always: frozenset[Scope] = frozenset((GLOBAL,))
        self._places: dict[str, Place] = {}
        self._signs: dict[str, Sign | None] = {}
        self._again: set[str] = set()
        self._states: dict[Scope, _State] = {}
        self._folders: dict[str, tuple[Scope, str]] = {}
        self._known: frozenset[str] = frozenset()
        self._turn = 0
        self._one = asyncio.Lock()

    async def start(self, stack: AsyncExitStack) -> None:
        """Nothing to prepare."""

    async def run(self) -> None:
        await self._patiently(self.begin)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            group.create_task(self._follow())

    async def begin(self) -> None:
        """Bring all files up to date: what was saved while the program did not run counts."""
        await self._prepare()
        self._always = frozenset((GLOBAL, *await self._always_of()))
        self._known = frozenset(await self._bases.when())
        await self.render()
        async with self._one:
            await self._sweep()

    async def render(self, scopes: Iterable[Scope] | None = None) -> None:
        """Bring the files of these scopes, or of all, to what is remembered now."""
        if scopes is None:
            scopes = {*self._always, *await self._shelf.scopes()}
        for scope in sorted(scopes):
            if is_shown(scope):
                async with self._one:
                    for place in await self._due(scope):
                        await self._settle(place)

    async def look(self) -> None:
        """Read back what somebody has saved since the last look."""
        watched = self._watched()
        signs = await asyncio.to_thread(self._folder.signs, watched)
        due = [path for path, sign in signs.items() if self._signs.get(path) != sign]
        for path in dict.fromkeys((*due, *self._again)):
            async with self._one:
                await self._settle(self._places[path])

    async def _watch(self) -> None:
        while True:
            await self._patiently(self.look)
            await self._sleep(SECONDS)

    async def _follow(self) -> None:
        while True:
            scopes = await self._news.wait()
            await self._sleep(GATHER)
            await self._patiently(partial(self.render, scopes))

    async def _patiently(self, what: Callable[[], Awaitable[None]]) -> None:
        try:
            await what()
        except StoreUnavailable as error:
            log.warning("files of memories have to wait: %s", error)

    async def _settle(self, place: Place) -> None:
        try:
            settled = await self._reconciler.settle(place, empty=self._stands(place))
        except StoreUnavailable:
            self._again.add(place.path)
            raise
        except Exception:
            # The boundary between what anybody may save into a file and all other files.
            log.exception("%s is let alone until it is saved again", place.path)
            signs = await asyncio.to_thread(self._folder.signs, [place.path])
            self._signs.update(signs)
            return
        self._signs[place.path] = settled.sign
        (self._again.add if settled.again else self._again.discard)(place.path)

    def _stands(self, place: Place) -> bool:
        return place.scope in self._always and place.sort not in _CHANGING

    async def _due(self, scope: Scope) -> Sequence[Place]:
        """The files of a scope that may have to be written: all that stand, and the days and
        episodes in which something has changed since this was last asked."""
        name = await self._name_of(scope)
        folder = folder_of(scope, name, (*self._places, *self._known))
        self._folders[folder] = scope, name
        due = {place.path: place for place in standing(scope, folder, name)}
        due |= await self._changing(scope, folder, name)
        self._places |= due
        return list(due.values())

    async def _changing(self, scope: Scope, folder: str, name: str) -> dict[str, Place]:
        kinds = (*kinds_of(scope, Sort.DAY), *kinds_of(scope, Sort.EPISODE))
        state = self._states.setdefault(scope, _State())
        # Counted first: what comes in between is looked at once too often, not once too seldom.
        count, since = await self._shelf.count(scope, kinds), self._now() - _OVERLAP
        due: dict[str, Place] = {}
        fresh, last = 0, 0
        while found := await self._shelf.glimpses(scope, kinds, after=last, since=state.since):
            last = found[-1].number
            fresh += sum(each.number > state.last for each in found)
            for each in found:
                day = each.said_at.astimezone(self._pages.zone).date()
                if each.kind is MemoryKind.EPISODE:
                    place = of_episode(scope, name, each.id, day)
                else:
                    place = of_day(scope, folder, name, day)
                due[place.path] = place
        if count < state.count + fresh:
            due |= {
                path: place
                for path, place in self._places.items()
                if place.scope == scope and place.sort in _CHANGING
            }
        state.count, state.since, state.last = count, since, max(last, state.last)
        return due

    async def _sweep(self) -> None:
        """Days whose last entry went while nobody wrote files: forgotten is forgotten there too."""
        for path in sorted(self._known - self._places.keys()):
            folder, _, file = path.rpartition("/")
            scope, name = self._folders.get(folder, (None, ""))
            day = _day_of(file)
            if scope is not None and day is not None:
                place = of_day(scope, folder, name, day)
                self._places[path] = place
                await self._settle(place)
            else:
                await self._reconciler.withdraw(path)

    def _watched(self) -> Sequence[str]:
        """Files that are likely to be edited, and some of the others in turn."""
        if len(self._places) <= HOT:
            return list(self._places)
        since = self._now().astimezone(self._pages.zone).date() - timedelta(days=1)
        hot = [
            path
            for path, place in self._places.items()
            if place.sort not in _CHANGING or (place.day is not None and place.day >= since)
        ]
        cold = sorted(self._places.keys() - set(hot))
        begins = self._turn % max(1, len(cold))
        self._turn = begins + _SLICE
        return [*hot, *cold[begins : begins + _SLICE]]


def _day_of(file: str) -> date | None:
    try:
        return date.fromisoformat(file.removesuffix(".md"))
    except ValueError:
        return None
