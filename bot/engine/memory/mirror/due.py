"""Which files of a scope may have to be written, without reading all that is remembered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, tzinfo

from bot.engine.memory.mirror.places import (
    Place,
    Sort,
    folder_of,
    kinds_of,
    of_day,
    of_episode,
    standing,
)
from storage.memory.files.shelf import Glimpse, Shelf
from storage.records.memory.entries import MemoryKind, Scope

OVERLAP = timedelta(seconds=2)
"""Between what an entry says of its last change and when that was committed."""


@dataclass(slots=True, kw_only=True)
class Due:
    """A file, and of a day or an episode what is in it: `newest` is when any of it was changed
    last. None for files whose entries were not looked at."""

    place: Place
    ids: set[str] | None = None
    newest: datetime | None = None

    def see(self, each: Glimpse) -> None:
        self.ids = set() if self.ids is None else self.ids
        if each.shows:
            self.ids.add(each.id)
        self.newest = max(self.newest or each.updated_at, each.updated_at)


@dataclass(slots=True)
class _State:
    """How a scope was when this was last asked."""

    count: int = 0
    last: int = 0
    since: datetime | None = None
    places: dict[str, Place] = field(default_factory=dict)


class Extent:
    """Of every scope the files it has. `name_of` says what a scope is called."""

    def __init__(
        self,
        *,
        shelf: Shelf,
        zone: tzinfo,
        name_of: Callable[[Scope], Awaitable[str]],
        now: Callable[[], datetime],
    ) -> None:
        self._shelf = shelf
        self._zone = zone
        self._name_of = name_of
        self._now = now
        self._states: dict[Scope, _State] = {}
        self._folders: dict[str, tuple[Scope, str]] = {}

    async def due(self, scope: Scope, known: Iterable[str]) -> Sequence[Due]:
        """All files that stand, and the days and episodes in which something has changed since
        this was last asked. Folders that `known` files lie in keep their names."""
        name = await self._name_of(scope)
        folder = folder_of(scope, name, (*self._files(scope), *known))
        self._folders[folder] = scope, name
        found = {each.path: Due(place=each) for each in standing(scope, folder, name)}
        found |= await self._changed(scope, folder, name)
        self._states[scope].places |= {path: each.place for path, each in found.items()}
        return list(found.values())

    def day_at(self, path: str) -> Place | None:
        """What a file is that shows a day of a scope; None for others."""
        folder, _, file = path.rpartition("/")
        scope, name = self._folders.get(folder, (None, ""))
        day = _day_of(file)
        return None if scope is None or day is None else of_day(scope, folder, name, day)

    def _files(self, scope: Scope) -> Iterable[str]:
        state = self._states.get(scope)
        return () if state is None else state.places

    async def _changed(self, scope: Scope, folder: str, name: str) -> Mapping[str, Due]:
        kinds = (*kinds_of(scope, Sort.DAY), *kinds_of(scope, Sort.EPISODE))
        state = self._states.setdefault(scope, _State())
        # Counted first: what comes in between is looked at once too often, not once too seldom.
        count, newest = await self._shelf.count(scope, kinds)
        since = self._now() - OVERLAP
        if state.since is not None and since < state.since:
            # The clock was put back: what has changed since looks older than that.
            state.since = None
        due: dict[str, Due] = {}
        fresh, last = 0, 0
        # The last once more: forgotten since, its number may be that of one a backup gave back.
        known = max(0, state.last - 1)
        while found := await self._shelf.glimpses(
            scope, kinds, after=last, since=state.since, known=known
        ):
            last = found[-1].number
            fresh += sum(each.number > state.last for each in found)
            for each in found:
                place = self._place(each, scope, folder, name)
                due.setdefault(place.path, Due(place=place)).see(each)
        if count < state.count + fresh:
            due |= {
                path: Due(place=place)
                for path, place in state.places.items()
                if not place.sort.stands
            }
        state.count, state.since, state.last = count, since, newest
        return due

    def _place(self, each: Glimpse, scope: Scope, folder: str, name: str) -> Place:
        day = each.said_at.astimezone(self._zone).date()
        if each.kind is MemoryKind.EPISODE:
            return of_episode(scope, name, each.id, day)
        return of_day(scope, folder, name, day)


def _day_of(file: str) -> date | None:
    try:
        return date.fromisoformat(file.removesuffix(".md"))
    except ValueError:
        return None
