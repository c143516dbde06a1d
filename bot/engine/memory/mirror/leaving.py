"""Lines that are missing in a file: moved to another one, or to be forgotten."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from bot.engine.memory.writing.together import came_from
from storage.memory.files.shelf import Shelf
from storage.records.memory.entries import Entry, EntryId, EntryState

WAITS = timedelta(seconds=5)
"""For so long the other file may be saved after the one that a line was taken from."""

_SINCE = timedelta(minutes=10)
"""For so long before: a copy that is older is a line of its own."""
_REMEMBERED = 2_000


@dataclass(slots=True, kw_only=True)
class Leaving:
    """What is known of it while the program runs. That lines are missing is found again in their
    files, and where a line came from in the store."""

    shelf: Shelf
    now: Callable[[], datetime]
    _since: dict[str, dict[str, datetime]] = field(default_factory=dict)
    _open: dict[str, frozenset[str]] = field(default_factory=dict)
    _arrived: OrderedDict[str, tuple[EntryId, datetime]] = field(default_factory=OrderedDict)

    def begins(self, path: str, strange: Iterable[str]) -> None:
        """A file is read in which marks of others stand; `ends` when all of it is taken."""
        self._open[path] = frozenset(strange)

    def ends(self, path: str) -> None:
        self._open.pop(path, None)

    def stays(self, path: str) -> None:
        """Nothing is missing there."""
        self._since.pop(path, None)

    def arrived(self, mark: str, made: Entry) -> None:
        """A line with another one's mark is this now."""
        self._arrived[mark] = made.id, self.now()
        self._arrived.move_to_end(mark)
        while len(self._arrived) > _REMEMBERED:
            self._arrived.popitem(last=False)

    async def moved(self, gone: Iterable[Entry]) -> Mapping[EntryId, Entry]:
        """Those of them that were saved elsewhere meanwhile, with what came of them there."""
        missing = {each.id: each for each in gone}
        if not missing:
            return {}
        since = self.now() - _SINCE
        marked = await self.shelf.sourced({came_from(each): each for each in missing})
        fresh = {each: to for each, to in marked.items() if to.created_at >= since}
        lately = {each: self._arrived[each] for each in missing if each in self._arrived}
        named = {each: to for each, (to, at) in lately.items() if at >= since}
        found = await self.shelf.with_ids(named.values())
        fresh |= {each: found[to] for each, to in named.items() if to in found}
        return {
            each: to
            for each, to in fresh.items()
            if to.state is EntryState.ACTIVE and to.id != each
        }

    def waiting(self, path: str, gone: Sequence[str]) -> Collection[str]:
        """Those that are missing for too short a time, or stand in a file that is being read."""
        now, before = self.now(), self._since.get(path, {})
        self._since[path] = since = {each: min(before.get(each, now), now) for each in gone}
        others = [each for other, each in self._open.items() if other != path]
        elsewhere = frozenset[str]().union(*others)
        waiting = {each for each in gone if each in elsewhere or now - since[each] < WAITS}
        if not waiting:
            # Missing once more after this is missing anew.
            self.stays(path)
        return waiting
