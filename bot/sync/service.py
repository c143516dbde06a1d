"""Synchronises the store with the Bitable: reads changes on either side and writes them to the
other, one at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from bot.sync.inflow import READ_LAG, DeferredRecord, RecordInflow
from bot.sync.local_rows import milliseconds
from bot.sync.outflow import RowOutflow
from bot.sync.ports import (
    BaseUnreachable,
    FieldsChanged,
    RecordAction,
    RecordId,
    TableBusy,
    TableChange,
    TableFull,
    TableQuotaExhausted,
    TableRecord,
    TableServiceError,
    UnknownTableField,
)
from bot.sync.session import LayoutUnusable, SyncDeps, SyncSession
from cards.catalog import TextCatalog
from cards.model import Card, CardTone, notice_card
from handlers.ports import PeoplePort, TaskPort
from storage.bitable import HistoryPosition
from storage.errors import StorageError
from storage.records.bitable import (
    BitableBase,
    BitableState,
    SyncedKind,
    SyncedRowState,
    SyncProgress,
    TableRole,
    TaskField,
)
from storage.records.people import Chat

log = logging.getLogger(__name__)

TICK = 4.0
"""Seconds between two looks at what changed: what changes meanwhile goes out together."""

MAX_HOLD = 20.0
"""The longest pause between two looks when calls are scarce."""

EVENTS_GATHER = 1.0
"""Seconds that events are gathered at least, so that one call reads the records of many."""

_IDLE = 10.0
_POLL_WITH_EVENTS = 6
_POLL_MEMORIES = 6
_OVERLAP_MS = 60_000
"""Polls look back so far beyond the newest change that is known: searches lag."""
_SCAN_MS = 24 * 3600 * 1000
_STOPPED_RETRY = {"gone": 600.0, "layout": 600.0, "quota": 3600.0, "full": 3600.0}
_BACKOFF = (5.0, 15.0, 60.0, 300.0)
_LOST_MS = 60_000
_BATCH = 500


class SyncClock(Protocol):
    def now(self) -> datetime: ...

    def elapsed(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


@dataclass(kw_only=True, eq=False)
class BitableSyncService:
    """A service, and the listener to changes of tables. Does nothing without a base, and takes one
    up that is set up while it runs. `memory_state` changes when a memory of the chat does. The
    tables are read every `poll_seconds` while no event has come, and rarely once events come.
    `hold` returns the seconds that changes are collected at least; beyond `TICK` it saves calls."""

    name = "bitable"

    deps: SyncDeps
    tasks: TaskPort
    people: PeoplePort
    memory_state: Callable[[Chat], Awaitable[str]]
    notify: Callable[[str, Callable[[TextCatalog], Card]], Awaitable[None]]
    clock: SyncClock
    poll_seconds: float = 600.0
    hold: Callable[[], float] = lambda: TICK
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _session: SyncSession | None = field(default=None, init=False)
    _reload: bool = field(default=False, init=False)
    _heard: dict[tuple[TableRole, RecordId], str] = field(default_factory=dict, init=False)
    _deleted: set[RecordId] = field(default_factory=set, init=False)
    _again: dict[tuple[TableRole, RecordId], tuple[float, DeferredRecord]] = field(
        default_factory=dict, init=False
    )
    _polled_at: float | None = field(default=None, init=False)
    _polls: int = field(default=0, init=False)
    _cycled_at: float = field(default=0.0, init=False)
    _failures: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._inflow = RecordInflow(tasks=self.tasks)
        self._outflow = RowOutflow(inflow=self._inflow)

    async def start(self, stack: AsyncExitStack) -> None:
        self._inflow.ordered = set(await self.deps.repo.list_with_orders())

    async def run(self) -> None:
        while True:
            self._cycled_at = self.clock.elapsed()
            delay = await self._guarded_cycle()
            if self._heard or self._deleted or self._reload:
                delay = min(delay, self.hold())
            await self._wait(delay)

    async def drain(self) -> None:
        """Does nothing: the next start continues anywhere."""

    async def _wait(self, delay: float) -> None:
        """Wait for the next cycle. An event ends it, and so does a base that is set up anew."""
        base = await self._known_base()
        while delay > 0 and not self._wake.is_set():
            part = min(delay, _IDLE)
            sleeping = asyncio.ensure_future(self.clock.sleep(part))
            waking = asyncio.ensure_future(self._wake.wait())
            try:
                await asyncio.wait({sleeping, waking}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                sleeping.cancel()
                waking.cancel()
            delay -= part
            if delay > 0 and await self._known_base() != base:
                return
        if self._wake.is_set():
            self._wake.clear()
            since = self.clock.elapsed() - self._cycled_at
            await self.clock.sleep(max(EVENTS_GATHER, self.hold() - since))

    async def _known_base(self) -> BitableBase | None:
        try:
            return await self.deps.repo.get_base()
        except StorageError:
            return None

    def on_table_change(self, change: TableChange) -> None:
        """Note what must be read; events of our own writes tell nothing new."""
        session = self._session
        role = None if session is None else session.role_of(change.ref)
        if role is None:
            return
        if isinstance(change, FieldsChanged):
            self._reload = True
        else:
            self._outflow.reads_first = False
            for record, action in change.records.items():
                if action is RecordAction.DELETED:
                    self._deleted.add(record)
                elif change.operator:
                    self._heard[role, record] = change.operator
        self._wake.set()

    async def _guarded_cycle(self) -> float:
        """One cycle; seconds until the next."""
        try:
            delay = await self.cycle()
        except TableBusy as busy:
            return max(TICK, busy.retry_after)
        except TableServiceError as error:
            return await self._after(error)
        except StorageError as error:
            log.warning("The Bitable waits for the store: %s", error)
            return self._backoff()
        # Error boundary: a defect here must not end the whole program.
        except Exception:
            log.exception("The synchronisation with the Bitable failed")
            return self._backoff()
        self._failures = 0
        return delay

    def _backoff(self) -> float:
        self._failures += 1
        return _BACKOFF[min(self._failures, len(_BACKOFF)) - 1]

    async def _after(self, error: TableServiceError) -> float:
        match error:
            case BaseUnreachable():
                reason = "gone"
            case TableQuotaExhausted():
                reason = "quota"
            case TableFull():
                reason = "full"
            case LayoutUnusable():
                reason = "layout"
            case UnknownTableField():
                log.info("The columns of the Bitable changed: %s", error)
                self._session = None
                return self._backoff()
            case _:
                log.warning("The Bitable does not answer: %s", error)
                return self._backoff()
        self._session = None
        base = await self.deps.repo.get_base()
        if base is not None:
            await self._stop(base, reason, error)
        return _STOPPED_RETRY[reason]

    async def _stop(self, base: BitableBase, reason: str, error: TableServiceError) -> None:
        """Stop and notify the owners, at most once a day. Nothing is lost meanwhile."""
        log.warning("The Bitable is not synchronised (%s): %s", reason, error)

        def draw(words: TextCatalog) -> Card:
            text = words(f"bitable_sync.stopped.{reason}", name=base.name)
            return notice_card(words("bitable_sync.stopped.title"), text, tone=CardTone.WARN)

        if base.state is BitableState.ACTIVE or base.reason != reason:
            day = f"{self.clock.now():%Y%m%d}"
            await self.notify(f"bitable:{base.base}:{reason}:{day}", draw)
        await self.deps.repo.set_state(BitableState.STOPPED, reason)

    async def cycle(self) -> float:
        """Synchronise once; seconds until the next time."""
        base = await self.deps.repo.get_base()
        if base is None or TableRole.TASKS not in base.tables:
            self._session = None
            return _IDLE
        session = await self._open(base)
        progress = await self.deps.repo.get_progress()
        now_ms = milliseconds(self.clock.now()) or 0
        if not progress.needs_scan:
            # Else what is to be made may exist, which the scan finds out first.
            await session.create_pending()
        await self._inflow.settle(session)
        self._note_deferred()
        if progress.needs_scan or now_ms - progress.scanned_at > _SCAN_MS:
            await self._scan(session, progress)
        else:
            await self._take_heard(session, progress)
            await self._poll(session, progress)
            await self._push_changes(session)
        if base.state is not BitableState.ACTIVE:
            await self.deps.repo.set_state(BitableState.ACTIVE)
        return self.hold()

    async def _open(self, base: BitableBase) -> SyncSession:
        known = self._session
        settled = replace(base, state=BitableState.ACTIVE, reason="")
        if known is None or known.base != settled or self._reload:
            self._reload = False
            chat = await self.people.get_chat(base.chat_id)
            known = await SyncSession.open(self.deps, settled, chat)
        self._session = known
        return known

    # From the table.

    async def _take_heard(self, session: SyncSession, progress: SyncProgress) -> None:
        """Read the records that events named, and those deferred earlier."""
        deleted, self._deleted = self._deleted, set()
        if deleted:
            await self._inflow.take_missing(session, deleted)
        heard, self._heard = self._heard, {}
        try:
            for role in session.codecs:
                await self._read_named(session, role, heard, progress)
        except BaseException:
            self._heard = heard | self._heard
            raise

    async def _read_named(
        self,
        session: SyncSession,
        role: TableRole,
        heard: Mapping[tuple[TableRole, RecordId], str],
        progress: SyncProgress,
    ) -> None:
        editors = {
            record: account
            for (each, record), account in heard.items()
            if each is role and await self.deps.orders.find_editor(session.chat, account)
        }
        announced = set(editors)
        due = self.clock.elapsed()
        again = {
            key[1]: each
            for key, (at, each) in self._again.items()
            if at <= due and key[0] is role and key[1] not in announced
        }
        editors |= {record: each.editor for record, each in again.items() if each.editor}
        wanted = announced | again.keys()
        if not wanted:
            return
        found = await self.deps.tables.get_records(session.ref(role), sorted(wanted))
        for record in wanted:
            self._again.pop((role, record), None)
        await self._take(
            session,
            role,
            tuple(found.values()),
            editors,
            since=progress.since,
            announced=announced,
        )
        missing = wanted - found.keys()
        await self._inflow.take_missing(session, missing - announced)
        for record in missing & announced:
            # Reads lag: it may not be there yet.
            self._again[role, record] = (
                self.clock.elapsed() + READ_LAG.total_seconds(),
                DeferredRecord(
                    role=role,
                    record=record,
                    modified_at=progress.tables.get(role.value, 0),
                    after=READ_LAG,
                    editor=editors[record],
                ),
            )

    async def _take(
        self,
        session: SyncSession,
        role: TableRole,
        records: Sequence[TableRecord],
        editors: Mapping[RecordId, str],
        *,
        since: int,
        announced: Collection[RecordId] = (),
    ) -> None:
        await self._inflow.take(
            session, role, records, editors=editors, since=since, announced=announced
        )
        self._note_deferred()

    def _note_deferred(self) -> None:
        deferred, self._inflow.deferred = self._inflow.deferred, []
        now = self.clock.elapsed()
        for each in deferred:
            self._again[each.role, each.record] = (now + each.after.total_seconds(), each)

    async def _poll(self, session: SyncSession, progress: SyncProgress) -> None:
        """Find changes whose events were lost, or all of them where there are no events."""
        # Each call counts: without events it is the only way, with them it finds lost ones.
        pause = self.poll_seconds * (1 if self._outflow.reads_first else _POLL_WITH_EVENTS)
        if self._polled_at is not None and self.clock.elapsed() - self._polled_at < pause:
            return
        newest = dict(progress.tables)
        roles = [TableRole.TASKS]
        if self._polls % _POLL_MEMORIES == 0 and TableRole.MEMORIES in session.codecs:
            roles.append(TableRole.MEMORIES)
        self._polls += 1
        for role in roles:
            since = max(0, progress.tables.get(role.value, 0) - _OVERLAP_MS)
            newest[role.value] = await self._read_changed(session, role, since, progress)
        # What was put back would not be found again otherwise.
        await session.flush()
        await self._save(tables=self._reached(newest))
        self._polled_at = self.clock.elapsed()

    def _reached(self, newest: Mapping[str, int]) -> Mapping[str, int]:
        """The time up to which changes are processed; deferred rows must be found again after a
        crash."""
        unread = (*(each for _, each in self._again.values()), *self._inflow.waiting.values())
        fresh = [each.modified_at for each in unread]
        return {role: min([reached, *fresh]) for role, reached in newest.items()}

    async def _read_changed(
        self, session: SyncSession, role: TableRole, since: int, progress: SyncProgress
    ) -> int:
        """Import records changed since then; returns the newest change."""
        page, newest = "", progress.tables.get(role.value, 0)
        while True:
            found = await self.deps.tables.search(
                session.ref(role), page=page, modified_since=since
            )
            newest = max([newest, *(each.modified_at for each in found.records)])
            await self._take(session, role, found.records, {}, since=progress.since)
            page = found.next_page
            if not page:
                return newest

    # To the table.

    async def _push_changes(self, session: SyncSession) -> None:
        while True:
            progress = await self.deps.repo.get_progress()
            known = HistoryPosition(
                events=progress.events, logs=progress.logs, commands=progress.commands
            )
            changed, reached = await self.deps.repo.list_changed_tasks(
                session.base.chat_id, known, limit=_BATCH
            )
            extra, self._inflow.changed = self._inflow.changed, set()
            try:
                await self._outflow.push_tasks(session, list(dict.fromkeys((*changed, *extra))))
            except BaseException:
                self._inflow.changed |= extra
                raise
            await session.flush()
            if reached == known:
                break
            await self._save_position(reached)
        state = await self.memory_state(session.chat)
        if state != progress.memories:
            await self._outflow.push_memories(session)
            await session.flush()
            await self._save(memories=state)

    async def _save_position(self, position: HistoryPosition) -> None:
        await self._save(events=position.events, logs=position.logs, commands=position.commands)

    async def _save(self, **changes: object) -> None:
        """Store the progress; others may request a scan meanwhile."""
        async with self.deps.db.write() as tx:
            known = await self.deps.repo.get_progress(tx)
            await self.deps.repo.set_progress(tx, replace(known, **changes))  # type: ignore[arg-type]

    # Everything.

    async def _scan(self, session: SyncSession, progress: SyncProgress) -> None:
        """Compare the whole tables with the whole store."""
        repo = self.deps.repo
        started = milliseconds(self.clock.now()) or 0
        if not progress.since:
            # Stored first: what people write while this scan may be cut off is theirs to order.
            await self._save(since=started)
            progress = replace(progress, since=started)
        position, memories = await repo.newest_position(), await self.memory_state(session.chat)
        newest = dict(progress.tables)
        self._outflow.orphans = {}
        for role in session.codecs:
            newest[role.value] = await self._scan_table(session, role, progress)
        await session.create_pending()
        ids = await repo.list_task_ids(session.base.chat_id)
        await self._outflow.push_tasks(session, ids)
        await self._outflow.push_memories(session)
        await self._outflow.delete_erased(session)
        await session.flush()
        if progress.rebuild:
            await self._delete_orphans(session)
        self._outflow.orphans = {}
        await self._save(
            events=position.events,
            logs=position.logs,
            commands=position.commands,
            memories=memories,
            tables=self._reached(newest),
            since=progress.since,
            scanned_at=started,
            needs_scan=False,
            rebuild=False,
        )
        self._polled_at = self.clock.elapsed()

    async def _scan_table(
        self, session: SyncSession, role: TableRole, progress: SyncProgress
    ) -> int:
        page, newest = "", progress.tables.get(role.value, 0)
        seen: set[str] = set()
        while True:
            found = await self.deps.tables.search(session.ref(role), page=page)
            seen |= {each.id for each in found.records}
            newest = max([newest, *(each.modified_at for each in found.records)])
            await self._scan_page(session, role, found.records, progress)
            page = found.next_page
            if not page:
                break
        await session.flush()
        await self._take_vanished(session, role, seen)
        return newest

    async def _scan_page(
        self,
        session: SyncSession,
        role: TableRole,
        records: Sequence[TableRecord],
        progress: SyncProgress,
    ) -> None:
        repo, codec = self.deps.repo, session.codecs[role]
        rows = {
            row.record_id: row for row in await repo.list_rows(record_ids=[r.id for r in records])
        }
        known, by_id = [], {}
        for record in records:
            local_id = codec.decode(record).get(TaskField.ID.value)
            if record.id in rows or not local_id:
                known.append(record)
            else:
                by_id[record.id] = (str(local_id), record)
        local_rows = {
            (row.kind, row.local_id): row
            for row in await repo.list_rows(local_ids=[each for each, _ in by_id.values()])
        }
        for local_id, record in by_id.values():
            kind = _kind_of(role, local_id)
            row = local_rows.get((kind, local_id))
            if row is None:
                self._outflow.orphans.setdefault((kind, local_id), record)
            elif row.state is SyncedRowState.CREATING:
                await self._adopt(session, role, record, row.id)
            else:
                known.append(record)
        if progress.rebuild:
            await self._agree_with_table(session, role, known)
        await self._take(session, role, known, {}, since=progress.since)

    async def _adopt(
        self, session: SyncSession, role: TableRole, record: TableRecord, row_id: int
    ) -> None:
        """Link a row whose creation was interrupted and that exists."""
        (row,) = await self.deps.repo.list_rows(ids=[row_id])
        if row.state is not SyncedRowState.CREATING:
            return
        cells = dict(session.codecs[role].decode(record))
        cells.pop(TaskField.NOTE.value, None)
        live = replace(
            row, state=SyncedRowState.LIVE, record_id=record.id, token="", cells=cells, wanted={}
        )
        async with self.deps.db.write() as tx:
            await self.deps.repo.save_row(tx, live)

    async def _agree_with_table(
        self, session: SyncSession, role: TableRole, records: list[TableRecord]
    ) -> None:
        """Count the table's content as agreed, so that the store's values replace it."""
        by_record = {each.id: each for each in records}
        rows = await self.deps.repo.list_rows(record_ids=list(by_record))
        async with self.deps.db.write() as tx:
            for row in rows:
                if row.state is SyncedRowState.LIVE:
                    said = session.codecs[role].decode(by_record[RecordId(row.record_id)])
                    cells = {key: said.get(key) for key in row.cells}
                    await self.deps.repo.save_row(tx, replace(row, cells=cells))
            gone = await self.deps.repo.list_rows(states=[SyncedRowState.GONE], tx=tx)
            await self.deps.repo.delete_rows(tx, [row.id for row in gone])

    async def _take_vanished(self, session: SyncSession, role: TableRole, seen: set[str]) -> None:
        """Handle our rows that are missing in the table; searches may not show the newest yet."""
        kinds = [kind for kind in SyncedKind if kind.table is role]
        now = milliseconds(self.clock.now()) or 0
        for row in await self.deps.repo.list_rows(kinds=kinds):
            fresh = (
                row.pushed_at is not None and now - (milliseconds(row.pushed_at) or 0) < _LOST_MS
            )
            if row.record_id and row.record_id not in seen and not fresh:
                await session.take_deletion(row)

    async def _delete_orphans(self, session: SyncSession) -> None:
        """Delete rows of objects that the store does not have."""
        for role in session.codecs:
            records = [
                record.id
                for (kind, _), record in self._outflow.orphans.items()
                if kind.table is role
            ]
            if records:
                await self.deps.tables.delete_records(session.ref(role), records)


def _kind_of(role: TableRole, local_id: str) -> SyncedKind:
    match role:
        case TableRole.LOGS:
            return SyncedKind.LOG
        case TableRole.MEMORIES:
            return SyncedKind.MEMORY
        case TableRole.TASKS:
            return SyncedKind.STEP if "/" in local_id else SyncedKind.TASK
