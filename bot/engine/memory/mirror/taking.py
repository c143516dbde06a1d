"""What a person has changed in a file comes into the store."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import TypeVar

from bot.engine.memory.mirror.leaving import Leaving
from bot.engine.memory.mirror.notices import Tells
from bot.engine.memory.mirror.openings import Openings
from bot.engine.memory.mirror.pages import Pages
from bot.engine.memory.mirror.places import Place
from bot.engine.memory.writing.rights import HOME
from bot.engine.memory.writing.service import ByHand, MemoryWriter
from bot.engine.memory.writing.together import Together, came_from
from storage.errors import NotFound, Overtaken
from storage.memory.files.lines import Lines
from storage.memory.files.shelf import Shelf
from storage.memory.markdown.began import Began
from storage.memory.markdown.merge import Edit, Merge, Written, adopted, merge
from storage.memory.markdown.page import Line, Page
from storage.records.memory.entries import Category, Entry, EntryId, Origin
from storage.records.memory.refusals import NotKept, WhyNotKept

CONFIRM_WITHIN = timedelta(hours=1)
PIECE = 10
"""Changes of one transaction: others have their turn in between."""

LINES = 50
"""New lines of one: together they are as quick."""

_REMEMBERED = 200
_T = TypeVar("_T")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """`gone` are lines that are missing, and not forgotten yet: they may have been moved."""

    outcome: Outcome
    gone: frozenset[str] = frozenset()


class Taking:
    def __init__(
        self,
        *,
        shelf: Shelf,
        lines: Lines,
        writer: MemoryWriter,
        pages: Pages,
        tell: Tells,
        now: Callable[[], datetime],
    ) -> None:
        self._shelf = shelf
        self._lines = lines
        self._writer = writer
        self._pages = pages
        self._tell = tell
        self._now = now
        self._files: dict[str, _Memory] = {}
        self._openings = Openings()
        self._leaving = Leaving(shelf=shelf, now=now)

    async def take(
        self, place: Place, base: Began | None, disk: Page, entries: Sequence[Entry]
    ) -> Taken:
        """Some dozens of changes are one transaction. Done twice, or broken off and done again, it
        comes to the same: what is there already is not changed again."""
        if base is not None:
            disk = adopted(base, disk, place.sort.layout)
        by_id = {str(each.id): each for each in entries}
        known = base.lines.keys() if base is not None else set[str]()
        marks = {line.id for line in disk.lines if line.id}
        self._leaving.begins(place.path, marks - known - by_id.keys())
        gone = frozenset[str]()
        try:
            found = await self._found(place, base, disk, by_id)
            found, gone = self._patient(place, found, disk)
            await self._remove(place, found, by_id)
            too_long = await self._edit(place, disk, found.edits, by_id)
            await self._file(place, disk, by_id)
            clashes, unkept = await self._keep_both(place, found.clashes, by_id)
            put_back = self._put_back(place, base, disk, by_id)
            added = (*found.added, *put_back)
            too_long += unkept + await self._add(place, disk, self._new(added, by_id), base)
        except (Overtaken, NotFound):
            return Taken(outcome=Outcome.AGAIN, gone=gone)
        if too_long:
            await self._tell(place.path, "too_long", _digest(disk))
            return Taken(outcome=Outcome.STUCK, gone=gone)
        self._leaving.ends(place.path)
        await self._notice(place, disk, found, clashes, waits=bool(gone))
        return Taken(outcome=Outcome.DONE, gone=gone)

    def all_is_there(self, place: Place) -> None:
        """There is no file, so nothing was taken out of it."""
        self._leaving.stays(place.path)
        self._leaving.ends(place.path)

    async def _found(
        self, place: Place, base: Began | None, disk: Page, by_id: dict[str, Entry]
    ) -> Merge:
        """What was changed, but for lines that were moved to another file: these are there now,
        with all that belongs to them."""
        found = self._merged(place, base, disk, by_id)
        gone = [by_id[each] for each in (*found.removed, *found.held)]
        moved = await self._leaving.moved(gone) if _is_whole(disk) else {}
        if not moved:
            return found

        async def rejoin(writer: Together, each: tuple[EntryId, Entry]) -> None:
            await writer.rejoin(by_id[each[0]], each[1], HOME)

        await self._each(list(moved.items()), rejoin)
        for each in moved:
            self._note_removed(place, by_id.pop(each))
        return self._merged(place, base, disk, by_id)

    def _merged(
        self, place: Place, base: Began | None, disk: Page, by_id: Mapping[str, Entry]
    ) -> Merge:
        stored = {
            name: Line(text=each.text, id=name, revision=each.revision)
            for name, each in by_id.items()
        }
        found = merge(base, disk, stored, confirmed=self._confirmed(place))
        return self._openings.gone_on(place, disk, found, by_id, self._now())

    def _patient(self, place: Place, found: Merge, disk: Page) -> tuple[Merge, frozenset[str]]:
        """Without what is missing for too short a time to say that it is nowhere else."""
        if not _is_whole(disk):
            return found, frozenset()
        waiting = self._leaving.waiting(place.path, (*found.removed, *found.held))
        if waiting and found.held:
            return replace(found, held=()), frozenset(found.held)
        sure = tuple(each for each in found.removed if each not in waiting)
        return replace(found, removed=sure), frozenset(waiting)

    async def _remove(self, place: Place, found: Merge, by_id: Mapping[str, Entry]) -> None:
        async def remove(writer: Together, entry_id: str) -> None:
            with suppress(NotFound):
                # What was drawn from one of them alone goes with it.
                await writer.forget(by_id[entry_id], HOME)

        for each in found.removed:
            self._note_removed(place, by_id[each])
        await self._each(found.removed, remove)

    def _note_removed(self, place: Place, entry: Entry) -> None:
        memory = self._files.setdefault(place.path, _Memory())
        memory.removed[entry.id] = entry.text
        if len(memory.removed) > _REMEMBERED:
            memory.removed.popitem(last=False)

    async def _edit(
        self, place: Place, disk: Page, edits: Sequence[Edit], by_id: Mapping[str, Entry]
    ) -> int:
        """How many of them cannot be kept."""
        too_long = 0

        async def edit(writer: Together, each: Edit) -> None:
            nonlocal too_long
            try:
                made = await writer.edit(by_id[each.id], each.text, HOME)
            except NotKept as refusal:
                if refusal.why is not WhyNotKept.TOO_LONG:
                    raise
                too_long += 1
            else:
                self._openings.taken(place, disk, made.id, made.text, self._now())

        await self._each(edits, edit)
        return too_long

    async def _file(self, place: Place, disk: Page, by_id: Mapping[str, Entry]) -> None:
        """Lines that stand below another heading than the one that they were shown under."""
        if not _is_whole(disk):
            return

        async def file(writer: Together, each: tuple[Entry, tuple[Category, str]]) -> None:
            await writer.file(each[0], *each[1], HOME)

        moved: list[tuple[Entry, tuple[Category, str]]] = []
        for section in disk.sections:
            for line in section.lines:
                entry = by_id.get(line.id)
                if entry is None or line.revision != entry.revision or line.rival:
                    continue
                about = self._pages.moved(place, entry, section.title)
                if about is not None:
                    moved.append((entry, about))
        await self._each(moved, file)

    async def _keep_both(
        self, place: Place, clashes: Sequence[Edit], by_id: Mapping[str, Entry]
    ) -> tuple[list[str], int]:
        """Those that are new, and how many cannot be kept."""
        made, too_long = list[str](), 0
        for each in clashes:
            entry = by_id[each.id]
            wanted = ByHand(
                text=each.text,
                scope=place.scope,
                kind=entry.kind,
                category=entry.category,
                label=entry.label,
            )
            try:
                other = await self._writer.add(wanted, HOME)
            except NotKept as refusal:
                too_long += refusal.why is WhyNotKept.TOO_LONG
                continue
            if other.id != entry.id:
                await self._shelf.oppose(entry, other)
                made.append(other.id)
        return made, too_long

    def _put_back(
        self, place: Place, base: Began | None, disk: Page, by_id: Mapping[str, Entry]
    ) -> Sequence[Written]:
        """Lines that were removed here a while ago and are there again as they were: an editor
        has taken a step back."""
        removed = self._files.setdefault(place.path, _Memory()).removed
        known = base.lines if base is not None else {}
        return [
            Written(text=line.text, section=section.title, id=line.id)
            for section in disk.sections
            for line in section.lines
            if line.id in removed
            and line.id in known
            and line.id not in by_id
            and removed.pop(line.id) == line.text
        ]

    def _new(self, added: Sequence[Written], by_id: Mapping[str, Entry]) -> list[Written]:
        """Without those that are there already just so."""
        there = {each.text for each in by_id.values() if each.origin is Origin.MANUAL}
        return [each for each in added if each.id or each.text.strip() not in there]

    async def _add(
        self, place: Place, disk: Page, added: Sequence[Written], base: Began | None
    ) -> int:
        """How many of them cannot be kept."""
        known = base.lines if base is not None else {}
        new = [each for each in added if not await self._is_old(place, each, known)]
        too_long = 0

        def note(made: Entry | NotKept) -> None:
            nonlocal too_long
            if isinstance(made, Entry):
                self._openings.taken(place, disk, made.id, made.text, self._now())
            elif made.why is WhyNotKept.TOO_LONG:
                too_long += 1
            elif made.why is not WhyNotKept.EMPTY:
                raise made

        async def add(writer: Together, each: Written) -> None:
            try:
                note(await self._brought(writer, self._wanted(place, each), each.id))
            except NotKept as refusal:
                note(refusal)

        await self._each([each for each in new if each.id], add)
        plain = [self._wanted(place, each) for each in new if not each.id]
        for some in _pieces(plain, LINES):
            async with Together(self._writer) as writer:
                for made in await writer.add_new(some, place.scope, HOME, self._lines):
                    note(made)
        return too_long

    def _wanted(self, place: Place, each: Written) -> ByHand:
        return self._pages.wanted(place, each.text, each.section, self._now())

    async def _is_old(self, place: Place, each: Written, known: Mapping[str, str]) -> bool:
        """An old copy of the file: what was forgotten since does not come back with it."""
        if not each.id or each.id in known:
            return False
        if any(each.id in memory.removed for memory in self._files.values()):
            # It was taken out of another file just now, to be put here.
            return False
        return await self._shelf.is_buried(place.scope, each.text)

    async def _brought(self, writer: Together, wanted: ByHand, mark: str) -> Entry:
        """What becomes of a line with another one's mark."""
        made = await writer.bring(EntryId(mark), wanted, HOME)
        if made is not None:
            return made
        made = await writer.add(replace(wanted, source=came_from(mark)), HOME)
        if made.scope != wanted.scope or made.text != wanted.text.strip():
            # Another copy of it came from there before.
            made = await writer.add(wanted, HOME)
        self._leaving.arrived(mark, made)
        return made

    async def _each(
        self, them: Sequence[_T], do: Callable[[Together, _T], Awaitable[None]]
    ) -> None:
        for some in _pieces(them, PIECE):
            async with Together(self._writer) as writer:
                for each in some:
                    await do(writer, each)

    async def _notice(
        self, place: Place, disk: Page, found: Merge, clashes: list[str], *, waits: bool
    ) -> None:
        memory = self._files.setdefault(place.path, _Memory())
        if not waits:
            memory.held, memory.held_at = frozenset(found.held), self._now()
        if clashes:
            await self._tell(place.path, "clash", " ".join(clashes), n=len(clashes))
        if found.held:
            what = "held" if _is_whole(disk) else "torn"
            await self._tell(place.path, what, _digest(disk), n=len(found.held))
        if found.kept:
            await self._tell(place.path, "kept", _digest(disk), n=len(found.kept))

    def _confirmed(self, place: Place) -> frozenset[str]:
        memory = self._files.setdefault(place.path, _Memory())
        if memory.held_at is None or self._now() - memory.held_at > CONFIRM_WITHIN:
            return frozenset()
        return memory.held


def _pieces(of: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    return (of[begin : begin + size] for begin in range(0, len(of), size))


def _is_whole(disk: Page) -> bool:
    return disk.complete and disk.number > 0


def _digest(disk: Page) -> str:
    """Of what the file says, whichever way."""
    return hashlib.sha256(repr((disk.number, disk.shown)).encode("utf-8", "replace")).hexdigest()
