"""Export, backup, import and restoring of memories as JSON lines. People are matched by account,
since their IDs differ between installations."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from bot.engine.memory.access import ManualMemory, MemoryEditor
from bot.engine.memory.change_feed import MemoryChangeFeed
from bot.engine.memory.maintenance import CommandProgressLog
from bot.engine.memory.noise_filter import to_storable_text
from bot.engine.memory.writer import MemoryWriter
from cards.views.memory import EXPORT_DATE_FIELDS, entry_export_data
from handlers.ports_workers import MemoryRequestRejected, ProgressCallback
from storage.data_directory import ExportFile
from storage.db import Database, Transaction
from storage.memory.bulk_import import BackupRestorer
from storage.memory.entries import MemoryEntryRepo
from storage.memory_schema import MANUAL_STABILITY_HOURS
from storage.records.memory import (
    MAX_ENTRY_TEXT,
    EntryId,
    ImportLineError,
    MemoryCategory,
    MemoryEntry,
    MemoryExport,
    MemoryImportReport,
    MemoryKind,
    MemoryNotSaved,
    MemoryOrigin,
    MemoryRejectionReason,
    MemoryScope,
    MemoryScopeKind,
    MemoryState,
    MemoryStrength,
    MemoryTier,
)
from storage.records.people import ChatId, Member, PersonId
from storage.records.tasks import TaskId
from storage.search.inverted_index import in_chunks

AccountsByPerson: TypeAlias = Mapping[PersonId, Sequence[str]]
_MAX_NAME = 200
_MAX_SOURCE = 2_000
_MAX_NAMES = 1_000
_MAX_COUNT = 10**9
_VALID_YEARS = range(1970, 2200)
_ID_PATTERN = re.compile(r"[0-9A-Za-z_-]{1,16}")


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


@dataclass(frozen=True, slots=True)
class BackupRow:
    """A backed-up entry, its source cells, and its person's accounts."""

    entry: MemoryEntry
    sources: Sequence[EntryId]
    accounts: Sequence[str]


def parse_backup_row(line: str) -> BackupRow:
    """Raises ValueError for anything that an export cannot contain."""
    try:
        row = json.loads(line)
        sources = [_parse_id(each) for each in _parse_names(row.get("from", ()))]
        return BackupRow(_parse_entry(row), sources, _parse_names(row.get("accounts", ())))
    except (TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _parse_entry(row: dict[str, Any]) -> MemoryEntry:
    """Fields missing in older exports get their defaults."""
    at = _parse_time(row["at"])
    kept = {name: _parse_optional_time(row.get(name)) for name in EXPORT_DATE_FIELDS}
    born = kept.pop("created_at") or at
    return MemoryEntry(
        number=0,
        id=_parse_id(row["id"]),
        revision=_parse_count(row.get("revision", 1)),
        kind=MemoryKind(row["kind"]),
        scope=MemoryScope.parse(row["scope"]),
        text=_parse_text(row["text"], MAX_ENTRY_TEXT),
        category=MemoryCategory(row["category"]),
        label=_parse_text(row["label"], _MAX_NAME),
        abstract=_parse_text(row.get("abstract", ""), MAX_ENTRY_TEXT),
        overview=_parse_text(row.get("overview", ""), MAX_ENTRY_TEXT),
        keywords=tuple(_parse_text(each, _MAX_NAME) for each in row["keywords"][:_MAX_NAME]),
        importance=_parse_fraction(row["importance"]),
        confidence=_parse_fraction(row["confidence"]),
        tier=MemoryTier(row["tier"]),
        state=MemoryState(row["state"]),
        dynamic=bool(row.get("dynamic")),
        pinned=bool(row["pinned"]),
        key=_parse_text(row["key"], 2 * _MAX_NAME),
        origin=MemoryOrigin(row["origin"]),
        source=_parse_text(row["source"], _MAX_SOURCE) if row.get("source") else None,
        evidence=_parse_names(row.get("evidence", ())),
        sender=_parse_text(row["sender"], _MAX_NAME),
        thread=_parse_text(row["thread"], 2 * _MAX_NAME),
        person=PersonId(_parse_text(row["person"], _MAX_NAME)) if row.get("person") else None,
        chat=ChatId(_parse_text(row["chat"], _MAX_NAME)) if row.get("chat") else None,
        task=TaskId(_parse_text(row["task"], _MAX_NAME)) if row.get("task") else None,
        said_at=at,
        valid_from=kept.pop("valid_from") or at,
        valid_until=_parse_optional_time(row.get("valid_until")),
        invalidated_at=kept.pop("invalidated_at"),
        supersedes=_parse_id(row["supersedes"]) if row.get("supersedes") else None,
        superseded_by=_parse_id(row["superseded_by"]) if row.get("superseded_by") else None,
        strength=_parse_strength(row.get("life", {}), by_hand=row["origin"] == MemoryOrigin.MANUAL),
        used=_parse_count(row.get("used", 0)),
        shown=_parse_count(row.get("shown", 0)),
        bad_recalls=_parse_count(row.get("bad_recalls", 0)),
        created_at=born,
        updated_at=kept.pop("updated_at") or born,
        extra=_parse_extra(row.get("extra", {})),
        **kept,
    )


def _parse_strength(told: dict[str, Any], *, by_hand: bool) -> MemoryStrength:
    new = MemoryStrength(stability=MANUAL_STABILITY_HOURS) if by_hand else MemoryStrength()
    return MemoryStrength(
        value=_parse_measure(told.get("value", new.value)),
        stability=_parse_measure(told.get("stability", new.stability)) or new.stability,
        decay=_parse_measure(told.get("decay", new.decay)),
        reinforced=_parse_count(told.get("reinforced", 0)),
        reinforced_at=_parse_optional_time(told.get("reinforced_at")),
    )


def _parse_id(value: object) -> EntryId:
    if not isinstance(value, str) or not _ID_PATTERN.fullmatch(value):
        raise ValueError("no id of an entry")
    return EntryId(value)


def _parse_names(values: object) -> Sequence[str]:
    if not isinstance(values, list | tuple) or len(values) > _MAX_NAMES:
        raise ValueError("no list of names")
    return tuple(_parse_text(each, _MAX_SOURCE) for each in values)


def _parse_extra(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict) or len(json.dumps(value)) > 2 * MAX_ENTRY_TEXT:
        raise ValueError("too much besides")
    return value


def _parse_count(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value < _MAX_COUNT:
        raise ValueError(f"{value} is no count")
    return value


def _parse_measure(value: Any) -> float:
    measure = float(value)
    if not 0 <= measure < _MAX_COUNT:
        raise ValueError(f"{measure} is no measure")
    return measure


def _parse_optional_time(text: str | None) -> datetime | None:
    return _parse_time(text) if text else None


def _parse_text(value: object, most: int) -> str:
    text = to_storable_text(str(value))
    if len(text) > most:
        raise ValueError(f"longer than {most} characters")
    return text


def _parse_fraction(value: Any) -> float:
    share = float(value)
    if not 0 <= share <= 1:
        raise ValueError(f"{share} is not from 0 to 1")
    return share


def _parse_time(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    if at.year not in _VALID_YEARS:
        raise ValueError(f"{text} is no time of anything said")
    return at


_MAX_BAD_LINES = 1_000
"""A file with more bad lines is not a backup."""

_NumberedLine = tuple[int, str]


@dataclass(slots=True)
class _RestoreProgress:
    """Progress so far. `existing_ids` map a backed-up ID to the entry with the same text here;
    empty if that text was forgotten."""

    source: str
    restored: set[EntryId] = field(default_factory=set)
    existing_ids: dict[EntryId, EntryId] = field(default_factory=dict)
    sources: dict[EntryId, Sequence[EntryId]] = field(default_factory=dict)
    cells: list[EntryId] = field(default_factory=list)

    def sources_by_existing_id(self) -> dict[EntryId, Sequence[EntryId]]:
        known_as = self.existing_ids
        return {
            known_as.get(one, one): [known_as.get(each, each) for each in others]
            for one, others in self.sources.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRestorer:
    """Restores backups below `data_dir`. For the local operator or owners only, since a backup
    contains everyone's memories."""

    db: Database
    entries: MemoryEntryRepo
    feed: MemoryChangeFeed
    progress_log: CommandProgressLog
    members: Callable[[], Awaitable[Sequence[Member]]]
    data_dir: Path
    now: Callable[[], datetime]

    async def restore(self, path: str, *, source: str = "") -> MemoryImportReport:
        """Restore all missing entries with their sources, in small transactions. It can be repeated
        after an interruption; under the same `source` the report covers all runs. Forgotten entries
        stay forgotten. In another installation, entries go to the people with the same accounts."""
        residents = AccountMatcher(group_accounts(await self.members()))
        known, bad, back = 0, dict[int, ImportLineError](), _RestoreProgress(source=source)
        before = (await self.progress_log.get(source)).entries
        lines = await asyncio.to_thread(self._open_lines, path)
        while rows := await asyncio.to_thread(lambda: list(islice(lines, _AT_ONCE))):
            read = list(_parse_rows(rows, bad, residents))
            if len(bad) > _MAX_BAD_LINES:
                raise MemoryRequestRejected("unreadable", f"> {_MAX_BAD_LINES}")
            known += len(read) - await self._insert_rows(read, back)
        await self._restore_links(back)
        before = min(before, known)
        return MemoryImportReport(
            added=len(back.restored) + before, already_known=known - before, line_errors=bad
        )

    async def _insert_rows(self, rows: Sequence[BackupRow], back: _RestoreProgress) -> int:
        async with self.db.write() as tx:
            made = await self._backups.restore(tx, [row.entry for row in rows], back.existing_ids)
            await self.progress_log.add(tx, back.source, len(made))
        back.restored.update(each.id for each in made)
        back.sources.update({row.entry.id: row.sources for row in rows if row.sources})
        # Includes cells restored before an interruption.
        cells = (row.entry for row in rows if row.entry.kind is MemoryKind.CELL)
        back.cells.extend(each.id for each in cells)
        self.feed.publish(*{each.scope for each in made})
        return len(made)

    async def _restore_links(self, back: _RestoreProgress) -> None:
        """Restore source links and search terms after all entries exist."""
        sources = back.sources_by_existing_id()
        for some in in_chunks(list(sources), _AT_ONCE):
            async with self.db.write() as tx:
                await self._backups.link_sources(tx, {each: sources[each] for each in some})
        for cells in in_chunks(back.cells, _AT_ONCE):
            async with self.db.write() as tx:
                await self._backups.index_cells(tx, cells)

    @property
    def _backups(self) -> BackupRestorer:
        return BackupRestorer(self.db, self.entries)

    def _open_lines(self, path: str) -> Iterator[_NumberedLine]:
        whole = (self.data_dir / path).resolve()
        if not whole.is_relative_to(self.data_dir.resolve()) or not whole.is_file():
            raise MemoryRequestRejected("unreadable", path)
        return enumerate(_read_lines(whole), 1)


def _read_lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        while line := file.readline(10 * MAX_ENTRY_TEXT):
            yield line


def _parse_rows(
    rows: Sequence[_NumberedLine], bad: dict[int, ImportLineError], residents: AccountMatcher
) -> Iterator[BackupRow]:
    for number, line in rows:
        if not line.strip():
            continue
        try:
            kept = parse_backup_row(line)
            yield replace(kept, entry=residents.reassign(kept.entry, kept.accounts))
        except json.JSONDecodeError:
            bad[number] = ImportLineError.NO_JSON
        except ValueError:
            bad[number] = ImportLineError.NO_ENTRY
