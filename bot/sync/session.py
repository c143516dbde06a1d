"""The base in use, with its tables as they are now, and the writes that both directions need."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from bot.sync.cells import TableCodec
from bot.sync.local_rows import Cells, LocalRow, LocalRowReader
from bot.sync.orders import RowOrders
from bot.sync.ports import (
    BaseId,
    CellRefused,
    ClientTokenConflict,
    RecordId,
    TableBusy,
    TableId,
    TableRef,
    TableService,
    TableServiceError,
)
from cards.catalog import TextCatalog, catalog_for
from storage.bitable import BitableRepo
from storage.db import Database
from storage.records.bitable import (
    BitableBase,
    BitableRowId,
    SyncedKind,
    SyncedRow,
    SyncedRowState,
    TableRole,
    TaskField,
)
from storage.records.people import Chat
from storage.records.tasks import TaskStatus

log = logging.getLogger(__name__)

MAX_BATCH = 500
"""Rows of one call."""

NOTE = TaskField.NOTE.value
"""The column in which Shiftboss says what became of a change. It is nothing that both sides
agree on: people may clear it."""

_REQUIRED = frozenset((TaskField.TITLE.value, TaskField.STATUS.value, TaskField.ID.value))
_CONFLICT_SECONDS = 10.0

_V = TypeVar("_V")


class LayoutUnusable(TableServiceError):
    """A table lacks columns that are needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncDeps:
    """`new_token` returns UUIDs."""

    db: Database
    repo: BitableRepo
    tables: TableService
    local: LocalRowReader
    orders: RowOrders
    now: Callable[[], datetime]
    new_token: Callable[[], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _QueuedCells:
    row: SyncedRow
    cells: Cells
    settles: frozenset[str]


@dataclass(kw_only=True, eq=False)
class SyncSession:
    """Replaced whenever the base or the columns of its tables change."""

    deps: SyncDeps
    base: BitableBase
    chat: Chat
    codecs: Mapping[TableRole, TableCodec]
    _queued: dict[BitableRowId, _QueuedCells] = field(default_factory=dict, init=False)

    @classmethod
    async def open(cls, deps: SyncDeps, base: BitableBase, chat: Chat) -> SyncSession:
        """Read the tables' columns. Raises LayoutUnusable and errors of the service."""
        codecs = {}
        for role, table in base.tables.items():
            ref = TableRef(base=BaseId(base.base), table=TableId(table.table))
            fields = await deps.tables.list_fields(ref)
            codecs[role] = TableCodec(role=role, table=table, fields=fields, language=base.language)
        if not codecs[TableRole.TASKS].keys >= _REQUIRED:
            raise LayoutUnusable("title, status or ID is missing")
        return cls(deps=deps, base=base, chat=chat, codecs=codecs)

    @property
    def words(self) -> TextCatalog:
        return catalog_for(self.base.language)

    def ref(self, role: TableRole) -> TableRef:
        table = self.base.tables[role].table
        return TableRef(base=BaseId(self.base.base), table=TableId(table))

    def role_of(self, ref: TableRef) -> TableRole | None:
        if ref.base != self.base.base:
            return None
        found = (role for role, each in self.base.tables.items() if each.table == ref.table)
        return next(found, None)

    def queue(self, row: SyncedRow, cells: Cells, *, settles: Collection[str] = ()) -> None:
        """Write these cells with the next `flush`. For cells in `settles`, that ends an order."""
        if not row.record_id:
            return
        known = self._queued.get(row.id)
        if known is not None:
            cells, settles = {**known.cells, **cells}, known.settles | set(settles)
        self._queued[row.id] = _QueuedCells(row=row, cells=dict(cells), settles=frozenset(settles))

    def withdraw_settled(self, row: SyncedRow, keys: Collection[str]) -> frozenset[str]:
        """Remove queued writes that would end an order of these cells; returns them."""
        queued = self._queued.get(row.id)
        found = frozenset() if queued is None else queued.settles & set(keys)
        if queued is not None and found:
            self._queued[row.id] = replace(
                queued, cells=_without(queued.cells, found), settles=queued.settles - found
            )
        return found

    async def flush(self) -> None:
        """Write the queue with one call for each table, and store the agreed values."""
        for role in self.codecs:
            mine = [each for each in self._queued.values() if each.row.kind.table is role]
            for start in range(0, len(mine), MAX_BATCH):
                batch = mine[start : start + MAX_BATCH]
                await self._write(role, batch)
                for each in batch:
                    del self._queued[each.row.id]

    async def _write(self, role: TableRole, queued: Sequence[_QueuedCells]) -> None:
        codec, deps = self.codecs[role], self.deps
        changes = {
            RecordId(each.row.record_id): encoded
            for each in queued
            if (encoded := codec.encode(each.cells))
        }
        missing: frozenset[RecordId] = frozenset()
        try:
            if changes:
                missing = await deps.tables.update_records(self.ref(role), changes)
        except CellRefused as refused:
            if len(queued) > 1:
                half = len(queued) // 2
                await self._write(role, queued[:half])
                await self._write(role, queued[half:])
                return
            # Not repeated until the value changes.
            log.warning("The Bitable refuses a row: %s", refused)
        await self._agree(queued, missing)
        for each in queued:
            if each.row.record_id in missing:
                await self.take_deletion(each.row)

    async def _agree(self, queued: Sequence[_QueuedCells], missing: Collection[RecordId]) -> None:
        deps, now = self.deps, self.deps.now()
        written = {
            each.row.id: each for each in queued if RecordId(each.row.record_id) not in missing
        }
        async with deps.db.write() as tx:
            # Read again: orders may have been noted since it was queued.
            for row in await deps.repo.list_rows(ids=list(written), tx=tx):
                each = written[row.id]
                cells = {key: value for key, value in each.cells.items() if key != NOTE}
                settled = replace(
                    row,
                    cells={**row.cells, **cells},
                    orders=_without(row.orders, each.settles),
                    wanted=_without(row.wanted, each.settles),
                    revision=row.revision + bool(each.settles),
                    pushed_at=now,
                )
                await deps.repo.save_row(tx, settled)

    async def create(self, role: TableRole, rows: Sequence[LocalRow]) -> None:
        """Create rows. The rows are stored first, so that a crash repeats it."""
        deps, codec = self.deps, self.codecs[role]
        for start in range(0, len(rows), MAX_BATCH):
            token = deps.new_token()
            async with deps.db.write() as tx:
                stored = [
                    await deps.repo.add_row(
                        tx,
                        each.kind,
                        local_id=each.local_id,
                        token=token,
                        state=SyncedRowState.CREATING,
                        cells=codec.normalize(each.cells),
                    )
                    for each in rows[start : start + MAX_BATCH]
                ]
            await self._create(role, stored, token)

    async def create_pending(self) -> None:
        """Complete what a crash or an error interrupted, and create deleted rows again."""
        rows = await self.deps.repo.list_rows(states=[SyncedRowState.CREATING])
        groups: dict[tuple[TableRole, str], list[SyncedRow]] = {}
        for row in rows:
            groups.setdefault((row.kind.table, row.token), []).append(row)
        for (role, token), group in groups.items():
            if token:
                await self._create(role, group, token)
            else:
                await self._create_again(role, group)

    async def _create_again(self, role: TableRole, rows: Sequence[SyncedRow]) -> None:
        deps, codec, token = self.deps, self.codecs[role], self.deps.new_token()
        filled, vanished = [], []
        for row in rows:
            local = await self._read(row)
            if local is None:
                vanished.append(row.id)
            else:
                cells = {**codec.normalize(local.cells), **row.wanted}
                filled.append(replace(row, token=token, cells=cells, wanted={}))
        async with deps.db.write() as tx:
            await deps.repo.delete_rows(tx, vanished)
            for row in filled:
                await deps.repo.save_row(tx, row)
        if filled:
            await self._create(role, filled, token)

    async def _read(self, row: SyncedRow) -> LocalRow | None:
        if row.kind is SyncedKind.TASK:
            return await self.deps.local.read_task(row.local_id)
        memories = await self.deps.local.read_memories(self.chat)
        return next((each for each in memories if each.local_id == row.local_id), None)

    async def _create(self, role: TableRole, rows: Sequence[SyncedRow], token: str) -> None:
        deps, codec = self.deps, self.codecs[role]
        cells = [codec.encode(row.cells) for row in rows]
        try:
            made = await deps.tables.create_records(self.ref(role), cells, client_token=token)
        except ClientTokenConflict as conflict:
            # They may exist or not: that is looked up once reads show it.
            await self._forget_token(rows)
            raise TableBusy(str(conflict), retry_after=_CONFLICT_SECONDS) from conflict
        except CellRefused as refused:
            await self._create_in_halves(role, rows, refused)
            return
        now = deps.now()
        async with deps.db.write() as tx:
            for row, record in zip(rows, made, strict=True):
                agreed = {key: value for key, value in row.cells.items() if key != NOTE}
                live = replace(
                    row,
                    record_id=record,
                    state=SyncedRowState.LIVE,
                    token="",
                    cells=agreed,
                    pushed_at=now,
                )
                await deps.repo.save_row(tx, live)

    async def _forget_token(self, rows: Sequence[SyncedRow]) -> None:
        async with self.deps.db.write() as tx:
            for row in rows:
                await self.deps.repo.save_row(tx, replace(row, token="", cells={}))
        await self.deps.repo.require_scan()

    async def _create_in_halves(
        self, role: TableRole, rows: Sequence[SyncedRow], refused: CellRefused
    ) -> None:
        """Find the row that makes the call fail by halving; it is left out for good. Nothing was
        created."""
        if len(rows) == 1:
            log.warning("The Bitable refuses a new row: %s", refused)
            async with self.deps.db.write() as tx:
                gone = replace(rows[0], state=SyncedRowState.GONE, token="")
                await self.deps.repo.save_row(tx, gone)
            return
        half = len(rows) // 2
        halves = []
        async with self.deps.db.write() as tx:
            for part in (rows[:half], rows[half:]):
                token = self.deps.new_token()
                halves.append((token, [replace(row, token=token) for row in part]))
                for row in halves[-1][1]:
                    await self.deps.repo.save_row(tx, row)
        for token, part in halves:
            await self._create(role, part, token)

    async def take_deletion(self, row: SyncedRow) -> None:
        """A person has deleted the row. Rows of unfinished tasks and of memories are made again:
        deleting a row neither stops nor forgets anything. The others stay deleted."""
        repo, again = self.deps.repo, replace(row, record_id="", token="", cells={}, wanted={})
        if row.state is SyncedRowState.ORDERED and row.orders:
            # Its task is being made.
            again = replace(row, record_id="")
        elif row.state in {SyncedRowState.ORDERED, SyncedRowState.REFUSED}:
            # A task of it that exists nevertheless gets a row of its own.
            async with self.deps.db.write() as tx:
                await repo.delete_rows(tx, [row.id])
            return
        elif row.kind is SyncedKind.TASK and await self._is_unfinished(row):
            note = self.words(
                "bitable_sync.deleted", cancelled=self._option(TaskStatus.CANCELLED.value)
            )
            again = replace(again, state=SyncedRowState.CREATING, wanted={NOTE: note}, orders={})
        elif row.kind is SyncedKind.MEMORY:
            again = replace(again, state=SyncedRowState.CREATING)
        else:
            again = replace(again, state=SyncedRowState.GONE, orders={})
        async with self.deps.db.write() as tx:
            await repo.save_row(tx, again)

    def _option(self, meaning: str) -> str:
        codec = self.codecs[TableRole.TASKS]
        shown = codec.encode({TaskField.STATUS.value: meaning})
        return str(next(iter(shown.values()), meaning))

    async def _is_unfinished(self, row: SyncedRow) -> bool:
        local = await self.deps.local.read_task(row.local_id)
        return local is not None and local.is_live

    async def delete(self, role: TableRole, rows: Sequence[SyncedRow]) -> None:
        """Delete rows whose objects no longer exist in the store."""
        records = [RecordId(row.record_id) for row in rows if row.record_id]
        for start in range(0, len(records), MAX_BATCH):
            await self.deps.tables.delete_records(
                self.ref(role), records[start : start + MAX_BATCH]
            )
        async with self.deps.db.write() as tx:
            await self.deps.repo.delete_rows(tx, [row.id for row in rows])


def _without(values: Mapping[str, _V], keys: Collection[str]) -> dict[str, _V]:
    return {key: value for key, value in values.items() if key not in keys}
