"""Export, backup and import of memories as JSON lines. People are matched by account, since their
IDs differ between installations."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

from bot.engine.memory.access import ManualMemory, MemoryEditor
from bot.engine.memory.command_progress import CommandProgressLog
from bot.engine.memory.noise_filter import to_storable_text
from bot.engine.memory.writer import MemoryWriter
from cards.views.memory import entry_export_data
from handlers.ports_workers import MemoryRequestRejected, ProgressCallback
from storage.data_directory import ExportFile
from storage.db import Transaction
from storage.memory.bulk_import import BackupRestorer
from storage.memory.entries import MemoryEntryRepo
from storage.records.memory import (
    EntryId,
    MemoryCategory,
    MemoryEntry,
    MemoryKind,
    MemoryNotSaved,
    MemoryRejectionReason,
    MemoryScope,
    MemoryScopeKind,
    MemoryState,
)
from storage.records.memory_views import ImportLineError, MemoryExport, MemoryImportReport
from storage.records.people import Member, PersonId
from storage.search.inverted_index import in_chunks

AccountsByPerson: TypeAlias = Mapping[PersonId, Sequence[str]]


def group_accounts(members: Iterable[Member]) -> AccountsByPerson:
    return {
        each.person.id: [f"{channel.value}:{name}" for channel, name in each.accounts]
        for each in members
    }


def owner_of(entry: MemoryEntry) -> PersonId | None:
    """The person whose memory it is, or who said it."""
    if entry.scope.kind is MemoryScopeKind.PERSON:
        return PersonId(entry.scope.name)
    return entry.person


@dataclass(frozen=True, slots=True)
class AccountMatcher:
    """Matches people of another installation to those of this one."""

    accounts: AccountsByPerson

    def reassign(self, entry: MemoryEntry, accounts: Sequence[str]) -> MemoryEntry:
        """Assign the entry to the person with one of these accounts. Unchanged if its person exists
        here or no account matches."""
        person = owner_of(entry)
        if person is None or person in self.accounts:
            return entry
        here = next((who for who, own in self.accounts.items() if set(own) & set(accounts)), None)
        if here is None:
            return entry
        mine = entry.scope == MemoryScope(MemoryScopeKind.PERSON, person)
        scope = MemoryScope(MemoryScopeKind.PERSON, here) if mine else entry.scope
        return replace(entry, scope=scope, person=here if entry.person == person else entry.person)


_PAGE_SIZE = 500
_AT_ONCE = 100
"""Rows per transaction, so that other writers get their turn."""
_MAX_BYTES = 20_000_000
_MAX_LINES = 10_000
_BACKUP_PREFIX = "memory-backup-"
_KEPT_BACKUPS = 10
_NOT_WRITABLE_KINDS = (MemoryKind.CELL, MemoryKind.EPISODE, MemoryKind.HANDBOOK)
_BAD_LINE_BY_REFUSAL: Mapping[MemoryRejectionReason, ImportLineError] = {
    MemoryRejectionReason.EMPTY: ImportLineError.EMPTY,
    MemoryRejectionReason.TOO_LONG: ImportLineError.TOO_LONG,
    MemoryRejectionReason.NO_CANDIDATE: ImportLineError.NO_ENTRY,
}


class _UnreadableLine(Exception):
    """A line without an importable memory."""

    def __init__(self, reason: ImportLineError) -> None:
        self.reason = reason
        super().__init__(reason.value)


async def ignore_progress(_done: int, _of: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTransfer:
    """Exports and imports files below `data_dir`."""

    entries: MemoryEntryRepo
    backups: BackupRestorer
    members: Callable[[], Awaitable[Sequence[Member]]]
    writer: MemoryWriter
    progress_log: CommandProgressLog
    data_dir: Path

    async def export(self, scopes: Sequence[MemoryScope] | None, *, name: str) -> MemoryExport:
        """Export all entries of these scopes (None: all) in every state, in storage order."""
        file, count, last = ExportFile(self.data_dir, f"{name}.jsonl"), 0, 0
        accounts = group_accounts(await self.members())
        try:
            while page := await self.entries.list_page(scopes, after=last, limit=_PAGE_SIZE):
                sources = await self.backups.list_sources(page)
                await asyncio.to_thread(_write_page, file, page, sources, accounts)
                count, last = count + len(page), page[-1].number
            size = await asyncio.to_thread(file.commit)
        finally:
            await asyncio.to_thread(file.discard)
        return MemoryExport(path=file.relative_path, size=size, entries=count)

    async def back_up(self, now: datetime) -> str:
        """Export everything, delete old backups, and return the path. Old backups are deleted
        because they contain forgotten memories."""
        made = await self.export(None, name=f"{_BACKUP_PREFIX}{now:%Y%m%d-%H%M%S}")
        await asyncio.to_thread(_delete_old_backups, (self.data_dir / made.path).parent)
        return made.path

    async def import_file(
        self,
        path: str,
        editor: MemoryEditor,
        scope: MemoryScope,
        on_progress: ProgressCallback = ignore_progress,
        *,
        source: str = "",
    ) -> MemoryImportReport:
        """Import a file; texts that exist already are skipped. Of an export, only entries that are
        valid, editable by hand and not forgotten since are imported. After a crash, a repeat under
        the same `source` also counts what it added before."""
        wanted: dict[int, ManualMemory] = {}
        bad: dict[int, ImportLineError] = {}
        ids: dict[int, str] = {}
        known, left = 0, 0
        for number, line in enumerate(await asyncio.to_thread(self._read_lines, path), 1):
            if not line.strip():
                continue
            try:
                row = _parse_row(line)
                if _is_skipped(row):
                    left += 1
                    continue
                wanted[number] = _build_memory(row, scope)
                ids[number] = str(row.get("id", ""))
            except _UnreadableLine as error:
                bad[number] = error.reason
        for number in await self._find_forgotten(ids):
            del wanted[number]
            left += 1

        async def note(
            tx: Transaction, made: Sequence[MemoryEntry | MemoryNotSaved | None]
        ) -> None:
            await self.progress_log.add(
                tx, source, sum(isinstance(each, MemoryEntry) for each in made)
            )

        before = (await self.progress_log.get(source)).entries
        for done, numbers in enumerate(in_chunks(list(wanted), _AT_ONCE)):
            if done:
                await on_progress(done * _AT_ONCE, len(wanted))
            made = await self.writer.add_all([wanted[each] for each in numbers], editor, note)
            known += sum(each is None for each in made)
            refused = zip(numbers, made, strict=True)
            bad |= {
                each: _BAD_LINE_BY_REFUSAL[why.reason]
                for each, why in refused
                if isinstance(why, MemoryNotSaved)
            }
        known = max(0, known - before)
        added = len(wanted) - known - sum(each in bad for each in wanted)
        return MemoryImportReport(
            added=added, already_known=known, left_out=left, line_errors=dict(sorted(bad.items()))
        )

    async def _find_forgotten(self, ids: Mapping[int, str]) -> Sequence[int]:
        """Lines whose memory was forgotten after the export, whatever their text."""
        gone: list[int] = []
        for numbers in in_chunks(list(ids), _AT_ONCE):
            buried = await self.entries.tombstones.filter_forgotten_ids(
                ids[each] for each in numbers
            )
            gone += [each for each in numbers if ids[each] in buried]
        return gone

    def _read_lines(self, path: str) -> Sequence[str]:
        whole = (self.data_dir / path).resolve()
        if not whole.is_relative_to(self.data_dir.resolve()):
            raise MemoryRequestRejected("unreadable", path)
        try:
            if whole.stat().st_size > _MAX_BYTES:
                raise MemoryRequestRejected("unreadable", f"> {_MAX_BYTES // 1_000_000} MB")
            text = whole.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise MemoryRequestRejected("unreadable", type(error).__name__) from error
        # Split at newlines only: a text may contain other line separators.
        lines = text.split("\n")
        if len(lines) > _MAX_LINES:
            raise MemoryRequestRejected("unreadable", f"> {_MAX_LINES}: `shiftboss memory import`")
        return lines


def _write_page(
    file: ExportFile,
    page: Sequence[MemoryEntry],
    sources: Mapping[EntryId, Sequence[EntryId]],
    accounts: AccountsByPerson,
) -> None:
    rows = (
        entry_export_data(each, sources.get(each.id, ()), _accounts_of(each, accounts))
        for each in page
    )
    file.append_lines(json.dumps(row, ensure_ascii=False) for row in rows)


def _accounts_of(entry: MemoryEntry, accounts: AccountsByPerson) -> Sequence[str]:
    person = owner_of(entry)
    return accounts.get(person, ()) if person else ()


def _delete_old_backups(folder: Path) -> None:
    for old in sorted(folder.glob(f"{_BACKUP_PREFIX}*.jsonl"))[:-_KEPT_BACKUPS]:
        old.unlink(missing_ok=True)


def _parse_row(line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _UnreadableLine(ImportLineError.NO_JSON) from error
    if not isinstance(row, dict):
        raise _UnreadableLine(ImportLineError.NO_TEXT)
    return row


def _is_skipped(row: Mapping[str, Any]) -> bool:
    """Turns, episodes and handbook chapters are not written by hand; inactive, expired and future
    entries are skipped as well."""
    state = row.get("state", MemoryState.ACTIVE)
    return row.get("kind") in _NOT_WRITABLE_KINDS or state != MemoryState.ACTIVE


def _build_memory(row: Mapping[str, Any], scope: MemoryScope) -> ManualMemory:
    text, keywords = row.get("text"), row.get("keywords")
    if not isinstance(text, str):
        raise _UnreadableLine(ImportLineError.NO_TEXT)
    if not isinstance(keywords, list | None):
        raise _UnreadableLine(ImportLineError.NO_ENTRY)
    try:
        kind = MemoryKind(row.get("kind") or MemoryKind.LONGTERM)
        category = MemoryCategory(row.get("category") or MemoryCategory.OTHER)
    except ValueError as error:
        raise _UnreadableLine(ImportLineError.NO_KIND) from error
    return ManualMemory(
        text=text,
        scope=scope,
        kind=kind,
        category=category,
        label=to_storable_text(str(row.get("label") or ""))[:200],
        keywords=tuple(to_storable_text(str(each))[:80] for each in (keywords or ())[:20]),
        key=to_storable_text(str(row.get("key") or "")).partition("@")[0][:80],
        pinned=bool(row.get("pinned")),
    )
