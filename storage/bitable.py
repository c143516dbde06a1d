"""Stores the Bitable in use, its rows, and how far each side has been read."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Row, Text, cast, delete, func, insert, or_, select, update

from storage import schema
from storage.bitable_schema import bitable_bases, bitable_rows
from storage.db import Database, Transaction, record_from, row_from
from storage.memory_schema import memories
from storage.records.bitable import (
    BitableBase,
    BitableRowId,
    BitableState,
    LogField,
    SyncedKind,
    SyncedRow,
    SyncedRowState,
    SyncedTable,
    SyncedValue,
    SyncProgress,
    TableRole,
)
from storage.records.memory import MemoryState
from storage.records.messages import InboxState
from storage.records.people import ChatId
from storage.records.task_logs import LogEntry
from storage.records.tasks import TaskId
from storage.tasks import NOT_DELETED, all_threads

_B = bitable_bases.c
_R = bitable_rows.c
_T = schema.tasks.c
_E = schema.events.c
_L = schema.task_logs.c
_C = schema.commands.c
_HISTORY = (
    ("events", _E.id, _E.task_id),
    ("logs", _L.id, _L.task_id),
    ("commands", _C.id, _C.task_id),
)
_BASE = 1
_MAX_PARAMETERS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPosition:
    """The newest event, log and command that were read."""

    events: int = 0
    logs: int = 0
    commands: int = 0


class BitableRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def get_base(self) -> BitableBase | None:
        """The base in use; None if no Bitable is set up."""
        row = await self._db.fetch_one(select(bitable_bases))
        return None if row is None else _base_from(row)

    async def save_base(self, base: BitableBase, *, since: int = 0) -> None:
        """Use this base from now on. The rows of another one are forgotten, so that it can be
        filled from the store. `since` is that of a base that was not in use before
        (`SyncProgress.since`); with 0 it is the time of the first scan."""
        async with self._db.write() as tx:
            query = select(_B.base, _B.tables, _B.progress)
            known = (await tx.execute(query)).one_or_none()
            values = _base_values(base)
            if known is None:
                progress = row_from(SyncProgress(since=since))
                await tx.execute(
                    insert(bitable_bases).values(values | {"id": _BASE, "progress": progress})
                )
                return
            if known.base == base.base:
                since = SyncProgress(**known.progress).since
            tables = {role: each["table"] for role, each in known.tables.items()}
            new_tables = {role.value: each.table for role, each in base.tables.items()}
            if known.base != base.base or tables != new_tables:
                await tx.execute(delete(bitable_rows))
            # What the layout lacked before must be filled in now.
            values["progress"] = row_from(SyncProgress(since=since))
            await tx.execute(update(bitable_bases).values(values))

    async def forget_base(self) -> None:
        async with self._db.write() as tx:
            await tx.execute(delete(bitable_rows))
            await tx.execute(delete(bitable_bases))

    async def set_state(self, state: BitableState, reason: str = "") -> bool:
        """Set the state of the base. True if it had another one before."""
        async with self._db.write() as tx:
            changed = update(bitable_bases).where((_B.state != state.value) | (_B.reason != reason))
            done = await tx.execute(changed.values(state=state.value, reason=reason))
            return bool(done.rowcount)

    async def get_progress(self, tx: Transaction | None = None) -> SyncProgress:
        found = await self._db.fetch_value(select(_B.progress), tx=tx)
        return SyncProgress(**found) if found else SyncProgress()

    async def set_progress(self, tx: Transaction, progress: SyncProgress) -> None:
        await tx.execute(update(bitable_bases).values(progress=row_from(progress)))

    async def require_scan(self, *, rebuild: bool = False) -> None:
        """Require a comparison of the whole tables with the store before anything else; with
        `rebuild`, the tables are rewritten from the store."""
        async with self._db.write() as tx:
            found = await tx.scalar(select(_B.progress))
            if found:
                known = SyncProgress(**found)
                progress = replace(known, needs_scan=True, rebuild=rebuild or known.rebuild)
                await self.set_progress(tx, progress)

    async def list_with_orders(self) -> Sequence[BitableRowId]:
        """Rows with changes by people that may not have been carried out yet. Reads all rows."""
        query = select(_R.id).where(cast(_R.orders, Text) != "{}")
        return tuple(BitableRowId(each) for each in await self._db.fetch_column(query))

    async def list_rows(
        self,
        *,
        states: Collection[SyncedRowState] = (),
        kinds: Collection[SyncedKind] = (),
        local_ids: Collection[str] | None = None,
        record_ids: Collection[str] | None = None,
        ids: Collection[int] | None = None,
        tx: Transaction | None = None,
    ) -> Sequence[SyncedRow]:
        """Rows that meet all conditions. Only one of the three kinds of ids may be given."""
        query = select(bitable_rows).order_by(_R.id)
        if states:
            query = query.where(_R.state.in_([each.value for each in states]))
        if kinds:
            query = query.where(_R.kind.in_([each.value for each in kinds]))
        column: Any = _R.local_id
        wanted: Collection[Any] | None = local_ids
        if record_ids is not None:
            column, wanted = _R.record_id, record_ids
        elif ids is not None:
            column, wanted = _R.id, ids
        if wanted is None:
            return tuple(map(_synced_row_from, await self._db.fetch_all(query, tx=tx)))
        found: list[Row[Any]] = []
        values = list(wanted)
        for start in range(0, len(values), _MAX_PARAMETERS):
            chunk = query.where(column.in_(values[start : start + _MAX_PARAMETERS]))
            found += await self._db.fetch_all(chunk, tx=tx)
        return tuple(map(_synced_row_from, found))

    async def list_step_rows(self, tasks: Collection[TaskId]) -> Sequence[SyncedRow]:
        """The rows of all steps of these tasks."""
        if not tasks:
            return ()
        steps = or_(*(_R.local_id.startswith(f"{each}/", autoescape=True) for each in tasks))
        query = select(bitable_rows).where(_R.kind == SyncedKind.STEP.value, steps)
        return tuple(map(_synced_row_from, await self._db.fetch_all(query)))

    async def list_task_log_rows(self, task: str) -> Sequence[SyncedRow]:
        """The rows of all logs of a task, which may be erased. Reads all rows of logs."""
        query = select(bitable_rows).where(_R.kind == SyncedKind.LOG.value)
        rows = map(_synced_row_from, await self._db.fetch_all(query))
        return tuple(each for each in rows if each.cells.get(LogField.TASK) == task)

    async def add_row(
        self,
        tx: Transaction,
        kind: SyncedKind,
        *,
        local_id: str = "",
        record_id: str = "",
        token: str = "",
        state: SyncedRowState,
        cells: Mapping[str, SyncedValue],
        wanted: Mapping[str, SyncedValue] | None = None,
        orders: Mapping[str, int] | None = None,
    ) -> SyncedRow:
        """Add a row. A violated unique key means that this object or record already has one."""
        values = {
            "kind": kind.value,
            "local_id": local_id,
            "record_id": record_id,
            "token": token,
            "state": state.value,
            "cells": dict(cells),
            "wanted": dict(wanted or {}),
            "orders": dict(orders or {}),
            "revision": 0,
        }
        stored = await tx.execute(insert(bitable_rows).values(values).returning(bitable_rows))
        return _synced_row_from(stored.one())

    async def save_row(self, tx: Transaction, row: SyncedRow) -> None:
        """Store a changed row."""
        values = row_from(row)
        del values["id"]
        await tx.execute(update(bitable_rows).where(_R.id == row.id).values(values))

    async def delete_rows(self, tx: Transaction, ids: Sequence[BitableRowId]) -> None:
        for start in range(0, len(ids), _MAX_PARAMETERS):
            chunk = ids[start : start + _MAX_PARAMETERS]
            await tx.execute(delete(bitable_rows).where(_R.id.in_(chunk)))

    async def list_changed_tasks(
        self, chat: ChatId, after: HistoryPosition, *, limit: int
    ) -> tuple[Sequence[TaskId], HistoryPosition]:
        """Tasks of the chat with events, logs or commands after the position, from at most `limit`
        of each, and the new position."""
        if after == await self.newest_position():
            return (), after
        seen: dict[str, None] = {}
        reached: dict[str, int] = {}
        async with self._db.read() as view:
            for name, numbers, tasks in _HISTORY:
                known = getattr(after, name)
                query = select(numbers, tasks).where(numbers > known)
                rows = (await view.execute(query.order_by(numbers).limit(limit))).all()
                seen |= dict.fromkeys(str(task) for _, task in rows)
                reached[name] = max(known, rows[-1][0]) if rows else known
            mine: set[str] = set()
            ids = list(seen)
            for start in range(0, len(ids), _MAX_PARAMETERS):
                chunk = ids[start : start + _MAX_PARAMETERS]
                here = _T.id.in_(chunk) & _T.chat_id.in_(all_threads(chat)) & NOT_DELETED
                mine |= set(await view.scalars(select(_T.id).where(here)))
        changed = tuple(TaskId(each) for each in seen if each in mine)
        return changed, HistoryPosition(**reached)

    async def list_task_ids(self, chat: ChatId) -> Sequence[TaskId]:
        """All tasks of the chat that are not deleted, oldest first."""
        query = (
            select(_T.id)
            .where(NOT_DELETED, _T.chat_id.in_(all_threads(chat)))
            .order_by(_T.created_at, _T.id)
        )
        return tuple(TaskId(each) for each in await self._db.fetch_column(query))

    async def list_erased_tasks(self) -> Sequence[str]:
        """The tasks that have rows but are deleted."""
        live = select(_T.id).where(_T.id == _R.local_id, NOT_DELETED).exists()
        query = select(_R.local_id).where(
            _R.kind == SyncedKind.TASK.value, _R.local_id != "", ~live
        )
        return tuple(await self._db.fetch_column(query))

    async def newest_position(self) -> HistoryPosition:
        newest = select(
            *(
                select(func.max(numbers)).scalar_subquery().label(name)
                for name, numbers, _ in _HISTORY
            )
        )
        row = await self._db.fetch_one(newest)
        return HistoryPosition(**{name: getattr(row, name) or 0 for name, _, _ in _HISTORY})

    async def list_logs(self, task: TaskId, limit: int) -> Sequence[LogEntry]:
        """The task's newest logs, oldest first."""
        query = select(schema.task_logs).where(_L.task_id == task).order_by(_L.id.desc())
        rows = await self._db.fetch_all(query.limit(limit))
        return tuple(record_from(LogEntry, row) for row in reversed(rows))

    async def list_inbox_states(self, ids: Collection[int]) -> Mapping[int, InboxState]:
        """The states of inbox rows. Missing ones were settled and pruned long ago."""
        query = select(schema.inbox.c.id, schema.inbox.c.state).where(
            schema.inbox.c.id.in_(list(ids))
        )
        return {number: InboxState(state) for number, state in await self._db.fetch_all(query)}

    async def memory_state(self, scopes: Collection[str]) -> str:
        """A value that changes whenever an entry in these scopes does."""
        m = memories.c
        query = select(func.count(), func.max(m.updated_at), func.sum(m.revision)).where(
            m.scope.in_(list(scopes)), m.state == MemoryState.ACTIVE.value
        )
        row = await self._db.fetch_one(query)
        return "" if row is None else "/".join(str(each) for each in row)


def _base_values(base: BitableBase) -> dict[str, Any]:
    tables = {role.value: row_from(each) for role, each in base.tables.items()}
    # Columns of JSON take plain words only.
    plain: dict[str, Any] = json.loads(json.dumps(tables))
    return row_from(base) | {"tables": plain}


def _base_from(row: Row[Any]) -> BitableBase:
    tables = {TableRole(role): SyncedTable(**each) for role, each in row.tables.items()}
    return record_from(BitableBase, row, tables=tables)


def _synced_row_from(row: Row[Any]) -> SyncedRow:
    return record_from(SyncedRow, row)
