"""Imports people's changes of the tables."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from bot.sync.cells import TableCodec
from bot.sync.local_rows import Cells, LocalRow, milliseconds, orderable_keys
from bot.sync.merge import CellMerge, RowMerge, merge_row
from bot.sync.orders import new_row_key, new_task_command, order_key, task_command
from bot.sync.ports import RecordId, TableRecord
from bot.sync.session import NOTE, SyncSession
from handlers.ports import TaskPort
from storage.records.bitable import (
    BitableRowId,
    MemoryField,
    SyncedKind,
    SyncedRow,
    SyncedRowState,
    SyncedValue,
    TableRole,
    TaskField,
)
from storage.records.messages import InboxState
from storage.records.tasks import Task, TaskId

log = logging.getLogger(__name__)

READ_LAG = timedelta(seconds=5)
"""Reads this soon after a write of ours may show what was there before."""

ROW_SETTLES = timedelta(seconds=8)
"""A new row becomes a task when its person has not written into it for so long."""

_MAX_RESTORED = 3
"""A column that differs again after so many times shows our value in another form."""

_OPEN = (InboxState.NEW, InboxState.HELD)
_NEW_ROW = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferredRecord:
    """A record to read again `after` a time, because it was too early to decide about it. `editor`
    is the account that an event named."""

    role: TableRole
    record: RecordId
    modified_at: int
    after: timedelta
    editor: str | None = None


@dataclass(kw_only=True, eq=False)
class _RefusedOrders:
    """Refused changes: the reason and the values to restore."""

    notes: list[str] = field(default_factory=list)
    back: dict[str, SyncedValue] = field(default_factory=dict)


@dataclass(kw_only=True, eq=False)
class _RecordBatch:
    """Records of one table that are imported together."""

    session: SyncSession
    role: TableRole
    editors: Mapping[RecordId, str]
    since: int
    announced: Collection[RecordId] = ()

    @property
    def codec(self) -> TableCodec:
        return self.session.codecs[self.role]

    async def save(self, row: SyncedRow) -> None:
        async with self.session.deps.db.write() as tx:
            await self.session.deps.repo.save_row(tx, row)


@dataclass(kw_only=True, eq=False)
class RecordInflow:
    """Imports records. `ordered` are rows with orders that may not have been carried out, `waiting`
    are records to read again once they are. `deferred` collects what must be read again soon,
    `changed` the tasks whose orders were carried out."""

    tasks: TaskPort
    ordered: set[BitableRowId] = field(default_factory=set)
    deferred: list[DeferredRecord] = field(default_factory=list)
    waiting: dict[RecordId, DeferredRecord] = field(default_factory=dict)
    changed: set[TaskId] = field(default_factory=set)
    _restored: dict[tuple[BitableRowId, str], tuple[SyncedValue, int]] = field(
        default_factory=dict, init=False
    )

    async def take(
        self,
        session: SyncSession,
        role: TableRole,
        records: Sequence[TableRecord],
        *,
        editors: Mapping[RecordId, str],
        since: int,
        announced: Collection[RecordId] = (),
    ) -> None:
        """Merge these records with the store. `editors` are the accounts that events named;
        people's rows older than `since` stay unchanged. A change of `announced` records is certain:
        if none is visible, the read came too early."""
        batch = _RecordBatch(
            session=session, role=role, editors=editors, since=since, announced=announced
        )
        known = await session.deps.repo.list_rows(record_ids=[each.id for each in records])
        rows = {row.record_id: row for row in known}
        for record in records:
            row = rows.get(record.id)
            if row is None or row.state is SyncedRowState.REFUSED:
                await self._take_new(batch, record, row)
            elif row.state is SyncedRowState.LIVE:
                await self._take_edit(batch, record, row)
            elif row.state is SyncedRowState.ORDERED and row.orders:
                self._await_orders(batch, record)
            elif row.state is SyncedRowState.ORDERED:
                await self._take_interrupted(batch, record, row)

    async def take_missing(self, session: SyncSession, records: Collection[RecordId]) -> None:
        """Handle the deletion of these records by people."""
        for row in await session.deps.repo.list_rows(record_ids=records):
            await session.take_deletion(row)

    # People's edits of rows that Shiftboss knows.

    async def _take_edit(self, batch: _RecordBatch, record: TableRecord, row: SyncedRow) -> None:
        session, codec = batch.session, batch.codec
        remote = codec.decode(record)
        differing = [key for key in row.cells if key in remote and remote[key] != row.cells[key]]
        if not differing:
            if record.id in batch.announced:
                self._defer(batch, record)
            return
        row = self._end_orders(session, row, remote, differing)
        if any(key in row.orders and remote[key] != row.wanted.get(key) for key in differing):
            self._await_orders(batch, record)
        if row.pushed_at is not None and session.deps.now() - row.pushed_at < READ_LAG:
            self._defer(batch, record)
            return
        local = await self._local(session, row)
        if local is None:
            return
        later: frozenset[str] = frozenset()
        if local.task is not None:
            later = await session.deps.local.list_later(local.task, differing, record.modified_at)
        merge = merge_row(
            row.cells,
            codec.normalize(local.cells),
            {**row.cells, **remote},
            orderable=orderable_keys(row.kind),
            waiting=row.orders,
            later=later,
        )
        row = replace(row, cells={**row.cells, **merge.agreed})
        row, refused = await self._give_orders(batch, record, row, local, merge)
        push = self._unless_repeated(row, {**merge.push, **refused.back}, merge)
        notes = [*refused.notes, *self._notes(batch, merge, push)]
        if notes and NOTE in codec.keys and (push or merge.keys(CellMerge.THEIRS)):
            push[NOTE] = "\n".join(notes)
        await batch.save(row)
        if push:
            session.queue(row, push)

    def _end_orders(
        self, session: SyncSession, row: SyncedRow, remote: Cells, differing: Collection[str]
    ) -> SyncedRow:
        """End orders of cells that a person changed again after they were carried out and before
        they were shown."""
        changed = [key for key in differing if remote[key] != row.wanted.get(key)]
        ended = session.withdraw_settled(row, changed)
        if not ended:
            return row
        return replace(
            row,
            cells={**row.cells, **{key: row.wanted.get(key) for key in ended}},
            wanted={key: value for key, value in row.wanted.items() if key not in ended},
            orders={key: number for key, number in row.orders.items() if key not in ended},
            revision=row.revision + 1,
        )

    async def _local(self, session: SyncSession, row: SyncedRow) -> LocalRow | None:
        """The store's values. Only tasks can change without a change of their rows; the rest
        follows with the next outflow."""
        if row.kind is SyncedKind.TASK:
            return await session.deps.local.read_task(row.local_id)
        return LocalRow(kind=row.kind, local_id=row.local_id, cells=row.cells)

    async def _give_orders(
        self,
        batch: _RecordBatch,
        record: TableRecord,
        row: SyncedRow,
        local: LocalRow,
        merge: RowMerge,
    ) -> tuple[SyncedRow, _RefusedOrders]:
        """Send the orders. Returns the row with the sent ones, and the others."""
        refused = _RefusedOrders()
        if not merge.orders or local.task is None:
            return row, refused
        session, orders = batch.session, batch.session.deps.orders
        editor = await orders.find_last_editor(
            session.chat, record.modified_by, batch.editors.get(record.id)
        )
        for key, value in merge.orders.items():
            command = task_command(local.task, key, value)
            number = None
            if editor is not None and command is not None:
                number = await orders.send(
                    session.chat,
                    editor,
                    command,
                    dedupe=order_key(row, key, value),
                    at=record.modified_at or milliseconds(session.deps.now()) or 0,
                )
            if number is None:
                why = "unknown" if editor is None else "no_order"
                columns = batch.codec.column_names([key])
                refused.notes.append(session.words(f"bitable_sync.{why}", columns=columns))
                refused.back[key] = batch.codec.normalize(local.cells)[key]
                continue
            row = replace(
                row, orders={**row.orders, key: number}, wanted={**row.wanted, key: value}
            )
            # Stored at once: a crash before the next one must not lose it.
            await batch.save(row)
            self.ordered.add(row.id)
        return row, refused

    def _unless_repeated(
        self, row: SyncedRow, push: dict[str, SyncedValue], merge: RowMerge
    ) -> dict[str, SyncedValue]:
        """Leave out values that were restored several times: the table shows them in another form,
        and would forever."""
        for key, value in list(push.items()):
            if merge.outcomes.get(key) is not CellMerge.RESTORE:
                continue
            before, count = self._restored.get((row.id, key), (value, 0))
            count = count + 1 if before == value else 1
            self._restored[row.id, key] = (value, count)
            if count > _MAX_RESTORED:
                log.warning("The column %s of a Bitable does not keep what is written", key)
                del push[key]
        return push

    def _notes(self, batch: _RecordBatch, merge: RowMerge, push: Cells) -> list[str]:
        names = batch.codec.column_names
        said = (
            (CellMerge.RESTORE, "kept"),
            (CellMerge.OURS, "ours"),
            (CellMerge.THEIRS, "theirs"),
        )
        return [
            batch.session.words(f"bitable_sync.{text}", columns=names(keys))
            for outcome, text in said
            if (
                keys := [
                    key for key in merge.keys(outcome) if key in push or outcome is CellMerge.THEIRS
                ]
            )
        ]

    # Rows that people have made.

    async def _take_new(
        self, batch: _RecordBatch, record: TableRecord, row: SyncedRow | None
    ) -> None:
        cells, deps = batch.codec.decode(record), batch.session.deps
        if (record.created_at or record.modified_at) < batch.since:
            return
        if batch.role is not TableRole.TASKS:
            await self._refuse_memory(batch, record, row, cells)
            return
        command = new_task_command(cells)
        if command is None or await self._is_ours(batch.session, record, cells):
            return
        if row is not None and row.state is SyncedRowState.REFUSED and _same(row.wanted, cells):
            return
        age = timedelta(milliseconds=(milliseconds(deps.now()) or 0) - record.modified_at)
        if age < ROW_SETTLES:
            self._defer(batch, record, after=min(ROW_SETTLES, ROW_SETTLES - age))
            return
        chat = batch.session.chat
        author = await deps.orders.find_author(chat, record.created_by, record.modified_by)
        number = None
        if author is not None:
            # Stored first: what is changed in the row after a crash does not order it once more.
            row = await self._store_new(batch, record, row, cells, SyncedRowState.ORDERED)
            key = new_row_key(record.id, cells)
            number = await deps.orders.send(
                chat, author, command, dedupe=key, at=record.modified_at
            )
        if row is not None and number is not None:
            await self._await_task(batch, row, number)
            return
        stored = await self._store_new(batch, record, row, cells, SyncedRowState.REFUSED)
        if NOTE in batch.codec.keys:
            note = batch.session.words("bitable_sync.stranger")
            batch.session.queue(stored, {NOTE: note})

    async def _take_interrupted(
        self, batch: _RecordBatch, record: TableRecord, row: SyncedRow
    ) -> None:
        """Continue after a crash that left open whether the row was sent, with the row as it was
        then."""
        deps = batch.session.deps
        key = new_row_key(record.id, row.wanted)
        number = await deps.orders.find_sent(batch.session.chat, key)
        if number is None:
            await self._take_new(batch, record, row)
        else:
            await self._await_task(batch, row, number)
            self._await_orders(batch, record)

    async def _await_task(self, batch: _RecordBatch, row: SyncedRow, number: int) -> None:
        await batch.save(replace(row, orders={_NEW_ROW: int(number)}))
        self.ordered.add(row.id)

    async def _store_new(
        self,
        batch: _RecordBatch,
        record: TableRecord,
        row: SyncedRow | None,
        cells: Cells,
        state: SyncedRowState,
    ) -> SyncedRow:
        """Store the row of a person's record, which becomes a task or is refused."""
        repo = batch.session.deps.repo
        kind = SyncedKind.MEMORY if batch.role is TableRole.MEMORIES else SyncedKind.TASK
        if row is not None:
            row = replace(row, state=state, wanted=cells, orders={})
            await batch.save(row)
            return row
        async with batch.session.deps.db.write() as tx:
            return await repo.add_row(
                tx,
                kind,
                record_id=record.id,
                state=state,
                cells={},
                wanted=cells,
            )

    async def _is_ours(self, session: SyncSession, record: TableRecord, cells: Cells) -> bool:
        """Whether Shiftboss created the row; a copy of one does not count."""
        local_id = cells.get(TaskField.ID.value)
        if not local_id:
            return False
        known = await session.deps.repo.list_rows(
            kinds=[SyncedKind.TASK], local_ids=[str(local_id)]
        )
        original = known[0] if known else None
        if original is None or original.state is not SyncedRowState.LIVE:
            return True
        return original.record_id == record.id

    async def _refuse_memory(
        self, batch: _RecordBatch, record: TableRecord, row: SyncedRow | None, cells: Cells
    ) -> None:
        """Refuse a new row: memories are created where consent is asked, and rows of logs mean
        nothing."""
        says = cells.get(MemoryField.TITLE.value) or cells.get(MemoryField.CONTENT.value)
        told = row is not None or not says or bool(cells.get(MemoryField.ID.value))
        if batch.role is not TableRole.MEMORIES or told or NOTE not in batch.codec.keys:
            return
        stored = await self._store_new(batch, record, None, cells, SyncedRowState.REFUSED)
        batch.session.queue(stored, {NOTE: batch.session.words("bitable_sync.memories")})

    # What became of orders.

    async def settle(self, session: SyncSession) -> None:
        """Find the orders that were carried out, and show their outcome."""
        if not self.ordered:
            return
        repo = session.deps.repo
        rows = await repo.list_rows(ids=list(self.ordered))
        self.ordered = {row.id for row in rows if row.orders}
        for row in rows:
            if not row.orders:
                self._read_again(row)
        numbers = {number for row in rows for number in row.orders.values()}
        states = await repo.list_inbox_states(numbers)
        for row in rows:
            done = [key for key, number in row.orders.items() if states.get(number) not in _OPEN]
            if not done:
                continue
            self.ordered.discard(row.id)
            self._read_again(row)
            if _NEW_ROW in done:
                await self._settle_new(session, row)
            else:
                await self._settle_edit(session, row, done)

    def _read_again(self, row: SyncedRow) -> None:
        again = self.waiting.pop(RecordId(row.record_id), None)
        if again is not None:
            self.deferred.append(again)

    async def _settle_edit(self, session: SyncSession, row: SyncedRow, done: Sequence[str]) -> None:
        """Settle an edit that both sides agreed on. If the store made something else of the text,
        that is shown before the order ends."""
        codec = session.codecs[TableRole.TASKS]
        local = await session.deps.local.read_task(row.local_id)
        cells = {} if local is None else codec.normalize(local.cells)
        wanted = {key: row.wanted.get(key) for key in done}
        push = {key: cells[key] for key in done if key in cells and cells[key] != wanted[key]}
        if not row.record_id:
            push = {}
        equal = [key for key in done if key not in push]
        changed = replace(
            row,
            cells={**row.cells, **{key: wanted[key] for key in equal}},
            wanted={key: value for key, value in row.wanted.items() if key not in equal},
            orders={key: number for key, number in row.orders.items() if key not in equal},
            revision=row.revision + bool(equal),
        )
        if equal:
            async with session.deps.db.write() as tx:
                await session.deps.repo.save_row(tx, changed)
        if changed.orders:
            # Also those that end with the next flush: without it they are looked at again.
            self.ordered.add(row.id)
        undone = [key for key in push if cells[key] == row.cells.get(key)]
        settles = tuple(push)
        if undone and NOTE in codec.keys and local is not None:
            push[NOTE] = self._undone_note(session, local.task, undone)
        if push:
            session.queue(changed, push, settles=settles)
        self.changed.add(TaskId(row.local_id))

    def _undone_note(self, session: SyncSession, task: Task | None, keys: Sequence[str]) -> str:
        told = task is not None and not task.status.is_final
        if told and list(keys) == [TaskField.INSTRUCTION.value]:
            return session.words("bitable_sync.told")
        names = session.codecs[TableRole.TASKS].column_names(keys)
        return session.words("bitable_sync.not_done", columns=names)

    async def _settle_new(self, session: SyncSession, row: SyncedRow) -> None:
        codec = session.codecs[TableRole.TASKS]
        task = await self.tasks.find_by_source(f"inbox:{row.orders[_NEW_ROW]}")
        if task is None:
            row = replace(row, state=SyncedRowState.REFUSED, orders={}, revision=row.revision + 1)
            async with session.deps.db.write() as tx:
                await session.deps.repo.save_row(tx, row)
            if NOTE in codec.keys:
                session.queue(row, {NOTE: session.words("bitable_sync.refused")})
            return
        state = SyncedRowState.LIVE if row.record_id else SyncedRowState.CREATING
        row = replace(
            row,
            local_id=task.id,
            state=state,
            cells={key: value for key, value in row.wanted.items() if key != NOTE},
            wanted={},
            orders={},
            revision=row.revision + 1,
        )
        # After a crash the task may have flowed out before this was known: the person's row stays.
        others = await session.deps.repo.list_rows(kinds=[SyncedKind.TASK], local_ids=[task.id])
        await session.delete(TableRole.TASKS, others)
        async with session.deps.db.write() as tx:
            await session.deps.repo.save_row(tx, row)
        self.changed.add(task.id)

    def _await_orders(self, batch: _RecordBatch, record: TableRecord) -> None:
        """Keep a record that changed again before the first change was carried out, to be read
        again afterwards."""
        self.waiting[record.id] = _deferred(batch, record, timedelta())

    def _defer(
        self, batch: _RecordBatch, record: TableRecord, *, after: timedelta = READ_LAG
    ) -> None:
        self.deferred.append(_deferred(batch, record, after))


def _same(wanted: Cells, cells: Cells) -> bool:
    return all(cells.get(key) == value for key, value in wanted.items() if key != NOTE)


def _deferred(batch: _RecordBatch, record: TableRecord, after: timedelta) -> DeferredRecord:
    return DeferredRecord(
        role=batch.role,
        record=record.id,
        modified_at=record.modified_at,
        after=after,
        editor=batch.editors.get(record.id),
    )
