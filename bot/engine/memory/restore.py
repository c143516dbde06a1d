"""Restores memories from a backup."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from bot.engine.memory.change_feed import MemoryChangeFeed
from bot.engine.memory.command_progress import CommandProgressLog
from bot.engine.memory.export_import import AccountMatcher, group_accounts
from bot.engine.memory.noise_filter import to_storable_text
from cards.views.memory import EXPORT_DATE_FIELDS
from handlers.ports_workers import MemoryRequestRejected
from storage.db import Database
from storage.memory.bulk_import import BackupRestorer
from storage.memory.entries import MemoryEntryRepo
from storage.memory_schema import MANUAL_STABILITY_HOURS
from storage.records.memory import (
    MAX_ENTRY_TEXT,
    EntryId,
    MemoryCategory,
    MemoryEntry,
    MemoryKind,
    MemoryOrigin,
    MemoryScope,
    MemoryState,
    MemoryStrength,
    MemoryTier,
)
from storage.records.memory_views import ImportLineError, MemoryImportReport
from storage.records.people import ChatId, Member, PersonId
from storage.records.tasks import TaskId
from storage.search.inverted_index import in_chunks

_MAX_NAME = 200
_MAX_SOURCE = 2_000
_MAX_NAMES = 1_000
_MAX_COUNT = 10**9
_VALID_YEARS = range(1970, 2200)
_ID_PATTERN = re.compile(r"[0-9A-Za-z_-]{1,16}")


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


_AT_ONCE = 50
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
