"""Imports edits of Markdown files into the memory store."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import TypeVar

from bot.engine.memory.access import LOCAL_EDITOR, ManualMemory, copy_source
from bot.engine.memory.markdown_sync.layout import MemoryFile, MemoryPageMapper
from bot.engine.memory.markdown_sync.line_tracking import EditorSessionTracker, MissingLineTracker
from bot.engine.memory.markdown_sync.owner_notices import OwnerNotifier
from bot.engine.memory.writer import MemoryWriteBatch, MemoryWriter
from storage.errors import ConcurrentUpdate, NotFound
from storage.memory.bulk_import import EntryBatchWriter
from storage.memory.markdown.merge import (
    AddedLine,
    LineEdit,
    MergeResult,
    PageDigest,
    merge_page,
    restore_marks,
)
from storage.memory.markdown.page_format import EntryLine, MarkdownPage
from storage.memory.markdown.sync_store import SyncedEntryRepo
from storage.records.memory import (
    EntryId,
    MemoryCategory,
    MemoryEntry,
    MemoryNotSaved,
    MemoryOrigin,
    MemoryRejectionReason,
)
from storage.search.inverted_index import in_chunks

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
