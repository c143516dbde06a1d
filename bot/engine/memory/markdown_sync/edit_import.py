"""Imports edits of Markdown files into the memory store, and tracks lines across saves."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import TypeVar

from bot.engine.memory.access import LOCAL_EDITOR, ManualMemory, copy_source
from bot.engine.memory.markdown_sync.layout import MemoryFile, MemoryPageMapper, OwnerNotifier
from bot.engine.memory.writer import MemoryWriteBatch, MemoryWriter
from storage.errors import ConcurrentUpdate, NotFound
from storage.memory.bulk_import import EntryBatchWriter
from storage.memory.markdown.page_format import (
    AddedLine,
    EntryLine,
    LineEdit,
    MarkdownPage,
    MergeResult,
    PageDigest,
    merge_page,
    restore_marks,
)
from storage.memory.markdown.sync_store import SyncedEntryRepo
from storage.records.memory import (
    EntryId,
    MemoryCategory,
    MemoryEntry,
    MemoryNotSaved,
    MemoryOrigin,
    MemoryRejectionReason,
    MemoryState,
)
from storage.search.inverted_index import in_chunks

# --- lines across saves: repeated saves by one editor, and lines moved between files

_MAX_SESSIONS = 20
"""Per file."""
_TYPING_WINDOW = timedelta(minutes=1)
"""Text removed within this time counts as a correction of the same editor's input."""
_MAX_COMPARED = 2_000
"""Pairs of lines; beyond this limit, lines are not matched."""


@dataclass(slots=True)
class _EditorSession:
    """Texts imported from this session, by entry."""

    at: datetime
    texts: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class EditorSessionTracker:
    """Sessions by the write number that the file had when it was opened. Two editors with the same
    number are told apart by content: a continuing editor's file still contains its earlier lines,
    changed in one place at most."""

    _sessions_by_file: dict[str, OrderedDict[int, _EditorSession]] = field(default_factory=dict)

    def record(
        self, file: MemoryFile, disk: MarkdownPage, entry_id: str, text: str, at: datetime
    ) -> None:
        if not disk.write_number:
            return
        of_file = self._sessions_by_file.setdefault(file.path, OrderedDict())
        opening = of_file.setdefault(disk.write_number, _EditorSession(at))
        opening.texts[entry_id], opening.at = text, at
        while len(of_file) > _MAX_SESSIONS:
            of_file.popitem(last=False)

    def resolve(
        self,
        file: MemoryFile,
        disk: MarkdownPage,
        merge: MergeResult,
        by_id: Mapping[str, MemoryEntry],
        now: datetime,
    ) -> MergeResult:
        """Turn conflicts and additions into edits where the same editor has continued a line."""
        opening = self._sessions_by_file.get(file.path, OrderedDict[int, _EditorSession]()).get(
            disk.write_number
        )
        if opening is None or not (merge.conflicts or merge.added):
            return merge
        before = {
            name: text
            for name, text in opening.texts.items()
            if name in by_id and by_id[name].text == text
        }
        there = {line.id: line.text for line in disk.lines if line.id}
        said = {line.text for line in disk.lines}
        kept = {name for name, text in before.items() if text in said}
        soon = now - opening.at <= _TYPING_WINDOW

        on = [
            each
            for each in merge.conflicts
            if each.id in before and _is_continuation(before[each.id], each.text, soon=soon)
        ]
        free = {n: t for n, t in before.items() if n not in kept and n not in there}
        grown, added = _match_grown_lines(free, merge.added, soon=soon)
        others = before.keys() - {each.id for each in (*on, *grown)}
        if others and not others & kept:
            # No earlier line of this session is present: another editor opened the same version.
            return merge
        clashes = tuple(each for each in merge.conflicts if each not in on)
        return replace(merge, edits=(*merge.edits, *on, *grown), conflicts=clashes, added=added)


def _match_grown_lines(
    free: Mapping[str, str], added: Sequence[AddedLine], *, soon: bool
) -> tuple[list[LineEdit], tuple[AddedLine, ...]]:
    """Match lines added in the last save with their longer versions."""
    left = dict(free)
    edits, still_new = list[LineEdit](), list[AddedLine]()
    tries = iter(range(_MAX_COMPARED))
    for each in added:
        name = "" if each.id else next(_matching_ids(left, each.text, tries, soon=soon), "")
        if not name:
            still_new.append(each)
            continue
        edits.append(LineEdit(id=name, text=each.text, before=""))
        del left[name]
    return edits, tuple(still_new)


def _matching_ids(
    free: Mapping[str, str], text: str, tries: Iterator[int], *, soon: bool
) -> Iterator[str]:
    for (name, old), _ in zip(free.items(), tries, strict=False):
        if _is_continuation(old, text, soon=soon):
            yield name


def _is_continuation(old: str, new: str, *, soon: bool) -> bool:
    """Whether one text results from the other by one insertion, or `soon` after by one deletion."""
    if not old or not new or (len(new) < len(old) and not soon):
        return False
    short, long = sorted((old, new), key=len)
    start = _common_prefix_length(short, long)
    return start + _common_prefix_length(short[start:][::-1], long[start:][::-1]) >= len(short)


def _common_prefix_length(one: str, other: str) -> int:
    most = min(len(one), len(other))
    return bisect_left(range(1, most + 1), True, key=lambda n: one[:n] != other[:n])


MOVE_GRACE = timedelta(seconds=5)
"""How long a moved line may be missing before the other file is saved."""

_COPY_WINDOW = timedelta(minutes=10)
"""How long before its removal a copied line counts as moved; older copies are independent."""
_MAX_ARRIVALS = 2_000


@dataclass(slots=True, kw_only=True)
class MissingLineTracker:
    """Missing and arrived lines in this process. After a restart, missing lines are found in the
    files again and origins in the store."""

    repo: SyncedEntryRepo
    now: Callable[[], datetime]
    _missing_since: dict[str, dict[str, datetime]] = field(default_factory=dict)
    _open_files: dict[str, frozenset[str]] = field(default_factory=dict)
    _arrived: OrderedDict[str, tuple[EntryId, datetime]] = field(default_factory=OrderedDict)

    def begin_file(self, path: str, foreign_ids: Iterable[str]) -> None:
        """Mark a file with these foreign markers as being read."""
        self._open_files[path] = frozenset(foreign_ids)

    def end_file(self, path: str) -> None:
        self._open_files.pop(path, None)

    def clear_missing(self, path: str) -> None:
        self._missing_since.pop(path, None)

    def record_arrival(self, source_id: str, entry: MemoryEntry) -> None:
        """Record that a line with this marker became `entry`."""
        self._arrived[source_id] = entry.id, self.now()
        self._arrived.move_to_end(source_id)
        while len(self._arrived) > _MAX_ARRIVALS:
            self._arrived.popitem(last=False)

    async def find_moved(
        self, missing_entries: Iterable[MemoryEntry]
    ) -> Mapping[EntryId, MemoryEntry]:
        """Missing entries that were saved in another file, with their new entries."""
        missing = {each.id: each for each in missing_entries}
        if not missing:
            return {}
        since = self.now() - _COPY_WINDOW
        marked = await self.repo.find_by_sources({copy_source(each): each for each in missing})
        fresh = {each: to for each, to in marked.items() if to.created_at >= since}
        lately = {each: self._arrived[each] for each in missing if each in self._arrived}
        named = {each: to for each, (to, at) in lately.items() if at >= since}
        found = await self.repo.find_by_ids(named.values())
        fresh |= {each: found[to] for each, to in named.items() if to in found}
        return {
            each: to
            for each, to in fresh.items()
            if to.state is MemoryState.ACTIVE and to.id != each
        }

    def find_waiting(self, path: str, missing: Sequence[str]) -> Collection[str]:
        """Missing entries that are too recent, or present in a file that is being read."""
        now, before = self.now(), self._missing_since.get(path, {})
        self._missing_since[path] = since = {
            each: min(before.get(each, now), now) for each in missing
        }
        others = [each for other, each in self._open_files.items() if other != path]
        elsewhere = frozenset[str]().union(*others)
        waiting = {each for each in missing if each in elsewhere or now - since[each] < MOVE_GRACE}
        if not waiting:
            # The time of an entry missing later starts again.
            self.clear_missing(path)
        return waiting


# --- the import

CONFIRM_WITHIN = timedelta(hours=1)
CHANGES_PER_TRANSACTION = 10
"""Per transaction, so that other writers get their turn."""

LINES_PER_TRANSACTION = 50
"""New lines per transaction, which are cheaper than changes."""

_MAX_REMOVED = 200
_T = TypeVar("_T")


class EditImportOutcome(Enum):
    """`AGAIN`: the store has changed concurrently. `STUCK`: the file contains something that cannot
    be stored and must stay as it is."""

    DONE = "done"
    AGAIN = "again"
    STUCK = "stuck"


@dataclass(slots=True)
class _FileHistory:
    """A file's state in this process: removals awaiting confirmation, and removed lines that an
    undo may restore."""

    held: frozenset[str] = frozenset()
    held_at: datetime | None = None
    removed: OrderedDict[str, str] = field(default_factory=OrderedDict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EditImportResult:
    """`missing` are removed lines that are not forgotten yet, since they may have moved to another
    file."""

    outcome: EditImportOutcome
    missing: frozenset[str] = frozenset()


@dataclass(slots=True, kw_only=True)
class FileEditImporter:
    repo: SyncedEntryRepo
    line_repo: EntryBatchWriter
    writer: MemoryWriter
    pages: MemoryPageMapper
    notify_owners: OwnerNotifier
    now: Callable[[], datetime]
    _histories: dict[str, _FileHistory] = field(default_factory=dict, init=False)
    _editor_sessions: EditorSessionTracker = field(default_factory=EditorSessionTracker, init=False)
    _missing_lines: MissingLineTracker = field(init=False)

    def __post_init__(self) -> None:
        self._missing_lines = MissingLineTracker(repo=self.repo, now=self.now)

    async def import_edits(
        self,
        file: MemoryFile,
        base: PageDigest | None,
        disk: MarkdownPage,
        entries: Sequence[MemoryEntry],
    ) -> EditImportResult:
        """Import all edits in small transactions. Safe to repeat after an interruption."""
        if base is not None:
            disk = restore_marks(base, disk, file.kind.layout)
        by_id = {str(each.id): each for each in entries}
        known = base.lines.keys() if base is not None else set[str]()
        marks = {line.id for line in disk.lines if line.id}
        self._missing_lines.begin_file(file.path, marks - known - by_id.keys())
        gone = frozenset[str]()
        try:
            found = await self._find_changes(file, base, disk, by_id)
            found, gone = self._hold_back_missing(file, found, disk)
            await self._forget_removed(file, found, by_id)
            too_long = await self._apply_edits(file, disk, found.edits, by_id)
            await self._apply_headings(file, disk, by_id)
            clashes, unkept = await self._store_conflicts(file, found.conflicts, by_id)
            put_back = self._find_restored(file, base, disk, by_id)
            added = (*found.added, *put_back)
            too_long += unkept + await self._add_lines(
                file, disk, self._without_existing(added, by_id), base
            )
        except (ConcurrentUpdate, NotFound):
            return EditImportResult(outcome=EditImportOutcome.AGAIN, missing=gone)
        if too_long:
            await self.notify_owners(file.path, "too_long", _digest(disk))
            return EditImportResult(outcome=EditImportOutcome.STUCK, missing=gone)
        self._missing_lines.end_file(file.path)
        await self._send_notices(file, disk, found, clashes, waits=bool(gone))
        return EditImportResult(outcome=EditImportOutcome.DONE, missing=gone)

    def mark_absent(self, file: MemoryFile) -> None:
        """The file does not exist, so no line counts as removed."""
        self._missing_lines.clear_missing(file.path)
        self._missing_lines.end_file(file.path)

    async def _find_changes(
        self,
        file: MemoryFile,
        base: PageDigest | None,
        disk: MarkdownPage,
        by_id: dict[str, MemoryEntry],
    ) -> MergeResult:
        """Find edits, after merging lines that moved to another file with their entries."""
        found = self._three_way_merge(file, base, disk, by_id)
        gone = [by_id[each] for each in (*found.removed, *found.unconfirmed)]
        moved = await self._missing_lines.find_moved(gone) if _is_complete(disk) else {}
        if not moved:
            return found

        async def rejoin(writer: MemoryWriteBatch, each: tuple[EntryId, MemoryEntry]) -> None:
            await writer.merge_moved(by_id[each[0]], each[1], LOCAL_EDITOR)

        await self._apply_in_batches(list(moved.items()), rejoin)
        for each in moved:
            self._note_removed(file, by_id.pop(each))
        return self._three_way_merge(file, base, disk, by_id)

    def _three_way_merge(
        self,
        file: MemoryFile,
        base: PageDigest | None,
        disk: MarkdownPage,
        by_id: Mapping[str, MemoryEntry],
    ) -> MergeResult:
        stored = {
            name: EntryLine(text=each.text, id=name, revision=each.revision)
            for name, each in by_id.items()
        }
        found = merge_page(base, disk, stored, confirmed=self._confirmed(file))
        return self._editor_sessions.resolve(file, disk, found, by_id, self.now())

    def _hold_back_missing(
        self, file: MemoryFile, found: MergeResult, disk: MarkdownPage
    ) -> tuple[MergeResult, frozenset[str]]:
        """Leave out removals too recent to exclude a move; returns those left out."""
        if not _is_complete(disk):
            return found, frozenset()
        waiting = self._missing_lines.find_waiting(file.path, (*found.removed, *found.unconfirmed))
        if waiting and found.unconfirmed:
            return replace(found, unconfirmed=()), frozenset(found.unconfirmed)
        sure = tuple(each for each in found.removed if each not in waiting)
        return replace(found, removed=sure), frozenset(waiting)

    async def _forget_removed(
        self, file: MemoryFile, found: MergeResult, by_id: Mapping[str, MemoryEntry]
    ) -> None:
        async def remove(writer: MemoryWriteBatch, entry_id: str) -> None:
            with suppress(NotFound):
                # Forgetting one may already have forgotten entries derived from it.
                await writer.forget(by_id[entry_id], LOCAL_EDITOR)

        for each in found.removed:
            self._note_removed(file, by_id[each])
        await self._apply_in_batches(found.removed, remove)

    def _note_removed(self, file: MemoryFile, entry: MemoryEntry) -> None:
        memory = self._histories.setdefault(file.path, _FileHistory())
        memory.removed[entry.id] = entry.text
        if len(memory.removed) > _MAX_REMOVED:
            memory.removed.popitem(last=False)

    async def _apply_edits(
        self,
        file: MemoryFile,
        disk: MarkdownPage,
        edits: Sequence[LineEdit],
        by_id: Mapping[str, MemoryEntry],
    ) -> int:
        """Returns the number of edits that cannot be stored."""
        too_long = 0

        async def edit(writer: MemoryWriteBatch, each: LineEdit) -> None:
            nonlocal too_long
            try:
                made = await writer.edit(by_id[each.id], each.text, LOCAL_EDITOR)
            except MemoryNotSaved as refusal:
                if refusal.reason is not MemoryRejectionReason.TOO_LONG:
                    raise
                too_long += 1
            else:
                self._editor_sessions.record(file, disk, made.id, made.text, self.now())

        await self._apply_in_batches(edits, edit)
        return too_long

    async def _apply_headings(
        self, memory_file: MemoryFile, disk: MarkdownPage, by_id: Mapping[str, MemoryEntry]
    ) -> None:
        """Update categories of lines that moved to another heading."""
        if not _is_complete(disk):
            return

        async def file(
            writer: MemoryWriteBatch, each: tuple[MemoryEntry, tuple[MemoryCategory, str]]
        ) -> None:
            await writer.categorise(each[0], *each[1], LOCAL_EDITOR)

        moved: list[tuple[MemoryEntry, tuple[MemoryCategory, str]]] = []
        for section in disk.sections:
            for line in section.lines:
                entry = by_id.get(line.id)
                if entry is None or line.revision != entry.revision or line.conflict_id:
                    continue
                about = self.pages.find_new_category(memory_file, entry, section.title)
                if about is not None:
                    moved.append((entry, about))
        await self._apply_in_batches(moved, file)

    async def _store_conflicts(
        self, file: MemoryFile, clashes: Sequence[LineEdit], by_id: Mapping[str, MemoryEntry]
    ) -> tuple[list[str], int]:
        """Store conflicting versions; returns new ones and the number that cannot be stored."""
        made, too_long = list[str](), 0
        for each in clashes:
            entry = by_id[each.id]
            wanted = ManualMemory(
                text=each.text,
                scope=file.scope,
                kind=entry.kind,
                category=entry.category,
                label=entry.label,
            )
            try:
                other = await self.writer.add(wanted, LOCAL_EDITOR)
            except MemoryNotSaved as refusal:
                too_long += refusal.reason is MemoryRejectionReason.TOO_LONG
                continue
            if other.id != entry.id:
                await self.repo.add_conflict(entry, other)
                made.append(other.id)
        return made, too_long

    def _find_restored(
        self,
        file: MemoryFile,
        base: PageDigest | None,
        disk: MarkdownPage,
        by_id: Mapping[str, MemoryEntry],
    ) -> Sequence[AddedLine]:
        """Recently removed lines that reappear unchanged, after an undo in the editor."""
        removed = self._histories.setdefault(file.path, _FileHistory()).removed
        known = base.lines if base is not None else {}
        return [
            AddedLine(text=line.text, section=section.title, id=line.id)
            for section in disk.sections
            for line in section.lines
            if line.id in removed
            and line.id in known
            and line.id not in by_id
            and removed.pop(line.id) == line.text
        ]

    def _without_existing(
        self, added: Sequence[AddedLine], by_id: Mapping[str, MemoryEntry]
    ) -> list[AddedLine]:
        there = {each.text for each in by_id.values() if each.origin is MemoryOrigin.MANUAL}
        return [each for each in added if each.id or each.text.strip() not in there]

    async def _add_lines(
        self,
        file: MemoryFile,
        disk: MarkdownPage,
        added: Sequence[AddedLine],
        base: PageDigest | None,
    ) -> int:
        """Returns the number of lines that cannot be stored."""
        known = base.lines if base is not None else {}
        new = [each for each in added if not await self._is_stale_copy(file, each, known)]
        too_long = 0

        def note(made: MemoryEntry | MemoryNotSaved) -> None:
            nonlocal too_long
            if isinstance(made, MemoryEntry):
                self._editor_sessions.record(file, disk, made.id, made.text, self.now())
            elif made.reason is MemoryRejectionReason.TOO_LONG:
                too_long += 1
            elif made.reason is not MemoryRejectionReason.EMPTY:
                raise made

        async def add(writer: MemoryWriteBatch, each: AddedLine) -> None:
            try:
                note(await self._import_marked_line(writer, self._parse_line(file, each), each.id))
            except MemoryNotSaved as refusal:
                note(refusal)

        await self._apply_in_batches([each for each in new if each.id], add)
        plain = [self._parse_line(file, each) for each in new if not each.id]
        for some in in_chunks(plain, LINES_PER_TRANSACTION):
            async with MemoryWriteBatch(self.writer) as writer:
                for made in await writer.add_new_lines(
                    some, file.scope, LOCAL_EDITOR, self.line_repo
                ):
                    note(made)
        return too_long

    def _parse_line(self, file: MemoryFile, each: AddedLine) -> ManualMemory:
        return self.pages.parse_line(file, each.text, each.section, self.now())

    async def _is_stale_copy(
        self, file: MemoryFile, each: AddedLine, known: Mapping[str, str]
    ) -> bool:
        """Whether the line comes from an old copy of the file and was forgotten since."""
        if not each.id or each.id in known:
            return False
        if any(each.id in memory.removed for memory in self._histories.values()):
            # The line was moved here from another file.
            return False
        return await self.repo.is_forgotten(file.scope, each.text)

    async def _import_marked_line(
        self, writer: MemoryWriteBatch, wanted: ManualMemory, mark: str
    ) -> MemoryEntry:
        """Move the entry that the line's marker names here, or add the line as a copy."""
        made = await writer.move_here(EntryId(mark), wanted, LOCAL_EDITOR)
        if made is not None:
            return made
        made = await writer.add(replace(wanted, source=copy_source(mark)), LOCAL_EDITOR)
        if made.scope != wanted.scope or made.text != wanted.text.strip():
            # Another copy was added from there before.
            made = await writer.add(wanted, LOCAL_EDITOR)
        self._missing_lines.record_arrival(mark, made)
        return made

    async def _apply_in_batches(
        self, them: Sequence[_T], do: Callable[[MemoryWriteBatch, _T], Awaitable[None]]
    ) -> None:
        for some in in_chunks(them, CHANGES_PER_TRANSACTION):
            async with MemoryWriteBatch(self.writer) as writer:
                for each in some:
                    await do(writer, each)

    async def _send_notices(
        self,
        file: MemoryFile,
        disk: MarkdownPage,
        found: MergeResult,
        clashes: list[str],
        *,
        waits: bool,
    ) -> None:
        memory = self._histories.setdefault(file.path, _FileHistory())
        if not waits:
            memory.held, memory.held_at = frozenset(found.unconfirmed), self.now()
        if clashes:
            await self.notify_owners(file.path, "clash", " ".join(clashes), n=len(clashes))
        if found.unconfirmed:
            what = "held" if _is_complete(disk) else "torn"
            await self.notify_owners(file.path, what, _digest(disk), n=len(found.unconfirmed))
        if found.changed_in_store:
            await self.notify_owners(
                file.path, "kept", _digest(disk), n=len(found.changed_in_store)
            )

    def _confirmed(self, file: MemoryFile) -> frozenset[str]:
        memory = self._histories.setdefault(file.path, _FileHistory())
        if memory.held_at is None or self.now() - memory.held_at > CONFIRM_WITHIN:
            return frozenset()
        return memory.held


def _is_complete(disk: MarkdownPage) -> bool:
    return disk.has_end_mark and disk.write_number > 0


def _digest(disk: MarkdownPage) -> str:
    """Digest of the visible content and write number."""
    return hashlib.sha256(
        repr((disk.write_number, disk.visible_content)).encode("utf-8", "replace")
    ).hexdigest()
