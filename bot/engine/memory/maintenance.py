"""Memory maintenance: archives and deletes stale entries, updates tiers, and cleans up noise and
duplicates; and the progress of commands that take several transactions."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field, replace
from datetime import date, datetime, timedelta, tzinfo
from typing import Any

from bot.engine.memory.access import MemoryEditor
from bot.engine.memory.change_feed import MemoryChangeFeed
from bot.engine.memory.decay import (
    DELETE_BELOW,
    DecayOutcome,
    current_strength,
    decay_outcome,
    target_tier,
)
from bot.engine.memory.noise_filter import classify_fact_noise, classify_noise
from storage.db import Database, Transaction
from storage.errors import ConcurrentUpdate, NotFound, StoreUnavailable
from storage.key_value import KeyValueStore
from storage.memory.access_stats import DecayRepo, MemoryUsePruner
from storage.memory.entries import MemoryEntryRepo
from storage.records.memory import (
    EntryId,
    MemoryCleanReport,
    MemoryEntry,
    MemoryKind,
    MemoryScope,
    MemoryScopeKind,
    MemoryState,
    MemoryTier,
    text_hash,
)
from storage.search.inverted_index import in_chunks

# --- progress of commands that span several transactions
# A command repeated after a crash reports its whole result.

_PROGRESS_MARK = "memory:orders"
_KEPT_COMMANDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandProgress:
    """Number of `entries` written or deleted, and the `backup` made before."""

    entries: int = 0
    backup: str = ""


class CommandProgressLog:
    """Keeps the progress of the latest commands by source, without content."""

    def __init__(self, key_values: KeyValueStore) -> None:
        self._key_values = key_values

    async def get(self, source: str) -> CommandProgress:
        return _parse_progress(await self._key_values.get(_PROGRESS_MARK), source)

    async def add(self, tx: Transaction, source: str, entries: int, backup: str = "") -> None:
        """Add progress in the transaction that made it; the first backup is kept."""
        if not source or not entries:
            return
        known = await self._key_values.read(tx, _PROGRESS_MARK) or {}
        before = _parse_progress(known, source)
        now = CommandProgress(entries=before.entries + entries, backup=before.backup or backup)
        others = [(name, told) for name, told in known.items() if name != source]
        await self._key_values.write(
            tx, _PROGRESS_MARK, dict([*others, (source, asdict(now))][-_KEPT_COMMANDS:])
        )


def _parse_progress(known: Mapping[str, Any] | None, source: str) -> CommandProgress:
    return CommandProgress(**(known or {}).get(source, {})) if source else CommandProgress()


_FORGET_MARK = "memory:forgotten"
_KEPT_FORGETS = 100


class ForgetCommandLog:
    """Keeps the sources of the latest forget commands, so that a repeat of one counts as done."""

    def __init__(self, key_values: KeyValueStore) -> None:
        self._key_values = key_values

    async def add(self, tx: Transaction, source: str) -> None:
        """Runs in the transaction that forgets."""
        known = [
            each for each in await self._key_values.read(tx, _FORGET_MARK) or () if each != source
        ]
        await self._key_values.write(tx, _FORGET_MARK, [*known, source][-_KEPT_FORGETS:])

    async def contains(self, source: str) -> bool:
        return source in (await self._key_values.get(_FORGET_MARK) or ())


# --- the daily maintenance

log = logging.getLogger(__name__)

_HOUR_SECONDS = 3600.0
_NIGHTLY_HOUR = 3
"""Hour of the day from which daily work runs."""
_DECAY_GRACE = timedelta(hours=48)
"""Entries younger than this never decay."""
_PAGE = 500
_DELETE_BATCH = 50
"""Entries per transaction, so that other writers get their turn."""
_USAGE_RETENTION = timedelta(days=30)
_KEPT_ANSWERS = 200
"""Answers per chat for `/memory why`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecaySweep:
    archived: int = 0
    deleted: int = 0


@dataclass(slots=True, kw_only=True)
class MemoryMaintenance:
    """A service that runs once an hour."""

    db: Database
    entries: MemoryEntryRepo
    access_stats: DecayRepo
    pruning: MemoryUsePruner
    feed: MemoryChangeFeed
    now: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]]
    zone: tzinfo
    decay_enabled: bool = True
    name: str = "memory care"
    _last_nightly_run: date | None = field(default=None, init=False)

    async def start(self, stack: AsyncExitStack) -> None: ...

    async def run(self) -> None:
        while True:
            try:
                await self.run_hourly()
            except StoreUnavailable as error:
                log.warning("memory maintenance is skipped this hour: %s", error)
            await self.sleep(_HOUR_SECONDS)

    async def run_hourly(self) -> None:
        faded = await self.sweep_decayed() if self.decay_enabled else DecaySweep()
        if faded.archived or faded.deleted:
            log.info("memory: %d archived, %d deleted", faded.archived, faded.deleted)
        today = (self.now().astimezone(self.zone) - timedelta(hours=_NIGHTLY_HOUR)).date()
        if today != self._last_nightly_run:
            await self.update_tiers()
            await self.prune_usage()
            self._last_nightly_run = today

    async def sweep_decayed(self) -> DecaySweep:
        """Archive stale entries and delete those that went stale in the archive. Deleted facts may
        be learned again."""
        archived = deleted = 0
        async for page in self._pages(untouched_since=self.now() - _DECAY_GRACE):
            gone: list[EntryId] = []
            for entry in page:
                due = decay_outcome(entry, self.now())
                if due is DecayOutcome.DELETED:
                    gone.append(entry.id)
                elif due is DecayOutcome.ARCHIVED and await self._archive(entry):
                    archived += 1
            for at in range(0, len(gone), _DELETE_BATCH):
                deleted += await self._delete(gone[at : at + _DELETE_BATCH])
        return DecaySweep(archived=archived, deleted=deleted)

    async def update_tiers(self) -> int:
        """Assign every fact the tier that its use and age imply."""
        moved = 0
        async for page in self._pages(states=(MemoryState.ACTIVE,)):
            into: defaultdict[MemoryTier, list[int]] = defaultdict(list)
            for entry in page:
                tier = target_tier(entry, self.now())
                if tier is not entry.tier:
                    into[tier].append(entry.number)
            if not into:
                continue
            async with self.db.write() as tx:
                for tier, numbers in into.items():
                    await self.access_stats.set_tier(tx, numbers, tier)
                    moved += len(numbers)
        return moved

    async def prune_usage(self) -> None:
        """Delete usage records except those of recent answers."""
        before = self.now() - _USAGE_RETENTION
        gone = await self.pruning.run(before=before, answers=_KEPT_ANSWERS)
        if gone:
            log.info("memory: deleted %d old records of what answers used", gone)

    async def _archive(self, entry: MemoryEntry) -> bool:
        """False if the entry has changed in the meantime."""
        try:
            async with self.db.write() as tx:
                held = await self.entries.get(entry.id, [entry.scope], tx=tx)
                if decay_outcome(held, self.now()) is not DecayOutcome.ARCHIVED:
                    return False
                archived = replace(held, state=MemoryState.ARCHIVED)
                await self.entries.update(tx, archived, now=self.now())
        except (NotFound, ConcurrentUpdate):
            return False
        self.feed.publish(entry.scope)
        return True

    async def _delete(self, some: Sequence[EntryId]) -> int:
        """Delete entries that have not changed in the meantime."""
        async with self.db.write() as tx:
            held = await self.entries.list_by_ids(some, None, tx=tx)
            gone = [
                each for each in held if decay_outcome(each, self.now()) is DecayOutcome.DELETED
            ]
            await self.entries.delete_all(tx, gone)
        self.feed.publish(*{each.scope for each in gone})
        return len(gone)

    async def _pages(
        self,
        *,
        untouched_since: datetime | None = None,
        states: Sequence[MemoryState] = (MemoryState.ACTIVE, MemoryState.ARCHIVED),
    ) -> AsyncGenerator[Sequence[MemoryEntry], None]:
        after = 0
        while page := await self.access_stats.list_decaying_facts(
            after=after, limit=_PAGE, not_reinforced_since=untouched_since, states=states
        ):
            yield page
            after = page[-1].number


_PAGE_SIZE = 500
_AT_ONCE = 50
_FACT_KINDS = {MemoryKind.FACT, MemoryKind.PROFILE, MemoryKind.LONGTERM}


@dataclass(frozen=True, slots=True, kw_only=True)
class _CleanupCommand:
    source: str
    backup: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCleanup:
    """Removes noise, duplicates and stale entries on request, after a backup. Without
    `decay_enabled`, nothing counts as stale."""

    db: Database
    entries: MemoryEntryRepo
    feed: MemoryChangeFeed
    progress_log: CommandProgressLog
    back_up: Callable[[], Awaitable[str]]
    now: Callable[[], datetime]
    decay_enabled: bool = True

    async def run(
        self, editor: MemoryEditor, dry_run: bool, *, source: str = ""
    ) -> MemoryCleanReport:
        """Clean up entries that the editor may change; manual and pinned ones stay. Nothing is
        deleted if the backup fails. After a crash, a repeat under the same `source` also reports
        what it removed before."""
        report = await self._find_removable(editor)
        if dry_run:
            return report
        before = await self.progress_log.get(source)
        if not report.total:
            done = before.entries > 0
            return replace(report, done=done, backup=before.backup, removed_before=before.entries)
        backup = await self.back_up()
        gone: set[EntryId] = set()
        for some in in_chunks([*report.noise, *report.doubles, *report.weak], _AT_ONCE):
            gone |= await self._delete_batch(some, _CleanupCommand(source=source, backup=backup))
        return MemoryCleanReport(
            noise=[each for each in report.noise if each.id in gone],
            doubles=[each for each in report.doubles if each.id in gone],
            weak=[each for each in report.weak if each.id in gone],
            done=True,
            # The first backup contains all removed entries.
            backup=before.backup or backup,
            removed_before=before.entries,
        )

    async def _find_removable(self, editor: MemoryEditor) -> MemoryCleanReport:
        first = _DuplicateIndex()
        async for page in self._pages(editor):
            await asyncio.to_thread(first.add, page)
        judging = _CleanupClassifier(first, self.now(), self.decay_enabled)
        async for page in self._pages(editor):
            await asyncio.to_thread(judging.classify, page)
        return MemoryCleanReport(
            noise=judging.noise, doubles=judging.duplicates, weak=judging.stale, done=False
        )

    async def _delete_batch(
        self, gone: Sequence[MemoryEntry], order: _CleanupCommand
    ) -> set[EntryId]:
        """Delete a small batch, skipping entries changed in the meantime. No tombstones are
        written: everything is in the backup and may be learned again."""
        judged = {each.id: each for each in gone}
        async with self.db.write() as tx:
            there = await self.entries.list_by_ids(judged, None, tx=tx)
            dropped = [
                held
                for held in there
                if (held.revision, held.scope) == (judged[held.id].revision, judged[held.id].scope)
            ]
            await self.entries.delete_all(tx, dropped)
            await self.progress_log.add(tx, order.source, len(dropped), order.backup)
        self.feed.publish(*{each.scope for each in dropped})
        return {each.id for each in dropped}

    async def _pages(self, editor: MemoryEditor) -> AsyncGenerator[Sequence[MemoryEntry], None]:
        after = 0
        while page := await self.entries.list_page(editor.scopes, after=after, limit=_PAGE_SIZE):
            after = page[-1].number
            yield [each for each in page if editor.may_write(each.scope) and _is_cleanable(each)]


class _DuplicateIndex:
    """Chooses which of a scope's identical entries stays: a protected one, or the oldest."""

    def __init__(self) -> None:
        self._ranks: dict[tuple[MemoryScope, MemoryKind, str], tuple[bool, int]] = {}

    def add(self, page: Sequence[MemoryEntry]) -> None:
        for each in page:
            if _may_be_duplicate(each):
                key, rank = _duplicate_key(each), (not each.is_protected, each.number)
                self._ranks[key] = min(rank, self._ranks.get(key, rank))

    def has_earlier(self, entry: MemoryEntry) -> bool:
        _, number = self._ranks.get(_duplicate_key(entry), (False, entry.number))
        return number != entry.number


@dataclass
class _CleanupClassifier:
    duplicate_index: _DuplicateIndex
    now: datetime
    decay_enabled: bool
    noise: list[MemoryEntry] = field(default_factory=list)
    duplicates: list[MemoryEntry] = field(default_factory=list)
    stale: list[MemoryEntry] = field(default_factory=list)

    def classify(self, page: Sequence[MemoryEntry]) -> None:
        for each in page:
            if each.is_protected:
                continue
            if _is_noise(each):
                self.noise.append(each)
            elif _may_be_duplicate(each) and self.duplicate_index.has_earlier(each):
                self.duplicates.append(each)
            elif self.decay_enabled and current_strength(each, self.now) < DELETE_BELOW:
                self.stale.append(each)


def _is_cleanable(entry: MemoryEntry) -> bool:
    """Imported scopes are never cleaned up: every line was added on purpose."""
    return entry.scope.kind is not MemoryScopeKind.CUSTOM


def _may_be_duplicate(entry: MemoryEntry) -> bool:
    return entry.state is MemoryState.ACTIVE and entry.kind is not MemoryKind.CELL


def _duplicate_key(entry: MemoryEntry) -> tuple[MemoryScope, MemoryKind, str]:
    return entry.scope, entry.kind, text_hash(entry.text)


def _is_noise(entry: MemoryEntry) -> bool:
    if entry.kind in _FACT_KINDS:
        return classify_fact_noise(entry.text) is not None
    return entry.kind is MemoryKind.CELL and classify_noise(entry.text) is not None
