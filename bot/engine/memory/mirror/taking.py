"""What a person has changed in a file comes into the store."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum

from bot.engine.memory.mirror.notices import Tells
from bot.engine.memory.mirror.openings import Openings
from bot.engine.memory.mirror.pages import Pages
from bot.engine.memory.mirror.places import Place
from bot.engine.memory.writing.rights import HOME
from bot.engine.memory.writing.service import ByHand, MemoryWriter
from storage.errors import NotFound, Overtaken
from storage.memory.files.shelf import Shelf
from storage.memory.markdown.began import Began
from storage.memory.markdown.merge import Edit, Merge, Written, adopted, merge
from storage.memory.markdown.page import Line, Page
from storage.records.memory.entries import Entry
from storage.records.memory.refusals import NotKept, WhyNotKept

CONFIRM_WITHIN = timedelta(hours=1)
_REMEMBERED = 200


class Outcome(Enum):
    """`AGAIN`: the store has changed on the way. `STUCK`: something in the file cannot be kept, so
    the file has to stay as it is."""

    DONE = "done"
    AGAIN = "again"
    STUCK = "stuck"


@dataclass(slots=True)
class _Memory:
    """What is known of a file while the program runs: lines whose absence waits to be repeated,
    and those that were removed here and may be put back."""

    held: frozenset[str] = frozenset()
    held_at: datetime | None = None
    removed: OrderedDict[str, str] = field(default_factory=OrderedDict)


class Taking:
    def __init__(
        self,
        *,
        shelf: Shelf,
        writer: MemoryWriter,
        pages: Pages,
        tell: Tells,
        now: Callable[[], datetime],
    ) -> None:
        self._shelf = shelf
        self._writer = writer
        self._pages = pages
        self._tell = tell
        self._now = now
        self._files: dict[str, _Memory] = {}
        self._openings = Openings()

    async def take(
        self, place: Place, base: Began | None, disk: Page, entries: Sequence[Entry]
    ) -> Outcome:
        """Each change is a transaction of its own. Done twice, or broken off and done again, it
        comes to the same: what is there already is not changed again."""
        if base is not None:
            disk = adopted(base, disk, place.sort.layout)
        by_id = {str(each.id): each for each in entries}
        stored = {
            name: Line(text=each.text, id=name, revision=each.revision)
            for name, each in by_id.items()
        }
        found = merge(base, disk, stored, confirmed=self._confirmed(place))
        found = self._openings.gone_on(place, disk, found, by_id, self._now())
        try:
            await self._remove(place, found, by_id)
            await self._edit(place, disk, found.edits, by_id)
            await self._file(place, disk, by_id)
            clashes = await self._keep_both(place, found.clashes, by_id)
            put_back = self._put_back(place, base, disk, by_id)
            await self._add(place, disk, (*found.added, *put_back), base)
        except (Overtaken, NotFound):
            return Outcome.AGAIN
        except NotKept as refusal:
            if refusal.why is not WhyNotKept.TOO_LONG:
                raise
            await self._tell(place.path, "too_long", _digest(disk))
            return Outcome.STUCK
        await self._notice(place, disk, found, clashes)
        return Outcome.DONE

    async def _remove(self, place: Place, found: Merge, by_id: Mapping[str, Entry]) -> None:
        memory = self._files.setdefault(place.path, _Memory())
        for entry_id in found.removed:
            memory.removed[entry_id] = by_id[entry_id].text
            if len(memory.removed) > _REMEMBERED:
                memory.removed.popitem(last=False)
            await self._writer.forget(by_id[entry_id], HOME)

    async def _edit(
        self, place: Place, disk: Page, edits: Sequence[Edit], by_id: Mapping[str, Entry]
    ) -> None:
        for each in edits:
            made = await self._writer.edit(by_id[each.id], each.text, HOME)
            self._openings.taken(place, disk, made.id, made.text, self._now())

    async def _file(self, place: Place, disk: Page, by_id: Mapping[str, Entry]) -> None:
        """Lines that stand below another heading than the one that they were shown under."""
        if not disk.complete or not disk.number:
            return
        for section in disk.sections:
            for line in section.lines:
                entry = by_id.get(line.id)
                if entry is None or line.revision != entry.revision or line.rival:
                    continue
                about = self._pages.moved(place, entry, section.title)
                if about is not None:
                    await self._writer.file(entry, *about, HOME)

    async def _keep_both(
        self, place: Place, clashes: Sequence[Edit], by_id: Mapping[str, Entry]
    ) -> list[str]:
        made: list[str] = []
        for each in clashes:
            entry = by_id[each.id]
            wanted = ByHand(
                text=each.text,
                scope=place.scope,
                kind=entry.kind,
                category=entry.category,
                label=entry.label,
            )
            other = await self._writer.add(wanted, HOME)
            if other.id != entry.id:
                await self._shelf.oppose(entry, other)
                made.append(other.id)
        return made

    def _put_back(
        self, place: Place, base: Began | None, disk: Page, by_id: Mapping[str, Entry]
    ) -> Sequence[Written]:
        """Lines that were removed here a while ago and are there again as they were: an editor
        has taken a step back."""
        removed = self._files.setdefault(place.path, _Memory()).removed
        known = base.lines if base is not None else {}
        return [
            Written(text=line.text, section=section.title)
            for section in disk.sections
            for line in section.lines
            if line.id in removed
            and line.id in known
            and line.id not in by_id
            and removed.pop(line.id) == line.text
        ]

    async def _add(
        self, place: Place, disk: Page, added: Sequence[Written], base: Began | None
    ) -> None:
        known = base.lines if base is not None else {}
        for each in added:
            strange = each.id and each.id not in known
            if strange and await self._shelf.is_buried(place.scope, each.text):
                # An old copy of the file: what was forgotten since does not come back with it.
                continue
            wanted = self._pages.wanted(place, each.text, each.section, self._now())
            try:
                made = await self._writer.add(wanted, HOME)
                self._openings.taken(place, disk, made.id, made.text, self._now())
            except NotKept as refusal:
                if refusal.why is not WhyNotKept.EMPTY:
                    raise

    async def _notice(self, place: Place, disk: Page, found: Merge, clashes: list[str]) -> None:
        memory = self._files.setdefault(place.path, _Memory())
        memory.held, memory.held_at = frozenset(found.held), self._now()
        if clashes:
            await self._tell(place.path, "clash", " ".join(clashes), n=len(clashes))
        if found.held:
            what = "held" if disk.complete and disk.number else "torn"
            await self._tell(place.path, what, _digest(disk), n=len(found.held))
        if found.kept:
            await self._tell(place.path, "kept", _digest(disk), n=len(found.kept))

    def _confirmed(self, place: Place) -> frozenset[str]:
        memory = self._files.setdefault(place.path, _Memory())
        if memory.held_at is None or self._now() - memory.held_at > CONFIRM_WITHIN:
            return frozenset()
        return memory.held


def _digest(disk: Page) -> str:
    """Of what the file says, whichever way."""
    return hashlib.sha256(repr((disk.number, disk.shown)).encode("utf-8", "replace")).hexdigest()
