"""Stores the Bitable in use, its rows, and how far each side has been read."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Row, delete, func, insert, select, update

from storage import schema
from storage.bitable_schema import bitable_bases, bitable_rows
from storage.db import Database, Transaction, record_from, row_from
from storage.memory_schema import memories
from storage.records.bitable import (
    BitableBase,
    BitableRowId,
    BitableState,
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
_BASE = 1
_MAX_PARAMETERS = 500
_OVERLAP = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedTasks:
    """Tasks that events or logs after the known ones belong to. `events` and `logs` are the newest
    ids read."""

    tasks: Sequence[TaskId]
    events: int
    logs: int


class BitableRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def get_base(self) -> BitableBase | None:
        """None if no Bitable is set up."""
        row = await self._db.fetch_one(select(bitable_bases))
        return None if row is None else _base_from(row)

    async def save_base(self, base: BitableBase) -> None:
        """Use this base from now on. The rows of another one are forgotten, so that it can be
        filled from the store."""
        async with self._db.write() as tx:
            known = (await tx.execute(select(_B.base, _B.tables))).one_or_none()
            values = _base_values(base)
            if known is None:
                progress = row_from(SyncProgress())
                await tx.execute(
                    insert(bitable_bases).values(values | {"id": _BASE, "progress": progress})
                )
                return
            tables = {role: each["table"] for role, each in known.tables.items()}
            new_tables = {role.value: each.table for role, each in base.tables.items()}
            if known.base != base.base or tables != new_tables:
                await tx.execute(delete(bitable_rows))
            # What the layout lacked before must be filled in now.
            values["progress"] = row_from(SyncProgress())
            await tx.execute(update(bitable_bases).values(values))

    async def forget_base(self) -> None:
        async with self._db.write() as tx:
            await tx.execute(delete(bitable_rows))
            await tx.execute(delete(bitable_bases))

    async def set_state(self, state: BitableState, reason: str = "") -> bool:
        """True if it was another one before."""
        async with self._db.write() as tx:
            changed = update(bitable_bases).where((_B.state != state.value) | (_B.reason != reason))
            done = await tx.execute(changed.values(state=state.value, reason=reason))
            return bool(done.rowcount)

    async def get_progress(self) -> SyncProgress:
        found = await self._db.fetch_value(select(_B.progress))
        return SyncProgress(**found) if found else SyncProgress()

    async def set_progress(self, tx: Transaction, progress: SyncProgress) -> None:
        await tx.execute(update(bitable_bases).values(progress=row_from(progress)))

    async def require_scan(self) -> None:
        """Compare the whole tables with the store before anything else."""
        async with self._db.write() as tx:
            found = await tx.scalar(select(_B.progress))
            if found:
                progress = replace(SyncProgress(**found), needs_scan=True)
                await self.set_progress(tx, progress)

    async def list_rows(
        self,
        *,
        states: Collection[SyncedRowState] = (),
        kinds: Collection[SyncedKind] = (),
        local_ids: Collection[str] | None = None,
        record_ids: Collection[str] | None = None,
        tx: Transaction | None = None,
    ) -> Sequence[SyncedRow]:
        """Rows that meet all conditions, oldest first."""
        query = select(bitable_rows).order_by(_R.id)
        if states:
            query = query.where(_R.state.in_([each.value for each in states]))
        if kinds:
            query = query.where(_R.kind.in_([each.value for each in kinds]))
        column, wanted = (_R.local_id, local_ids)
        if record_ids is not None:
            column, wanted = (_R.record_id, record_ids)
        if wanted is None:
            return tuple(map(_synced_row_from, await self._db.fetch_all(query, tx=tx)))
        found: list[Row[Any]] = []
        ids = list(wanted)
        for start in range(0, len(ids), _MAX_PARAMETERS):
            chunk = query.where(column.in_(ids[start : start + _MAX_PARAMETERS]))
            found += await self._db.fetch_all(chunk, tx=tx)
        return tuple(map(_synced_row_from, found))

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
        """A violated uniqueness means that this object or record has a row already."""
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
        self, chat: ChatId, *, events: int, logs: int, limit: int
    ) -> ChangedTasks:
        """Tasks of the chat with events or logs after these ids, from at most `limit` of each."""
        if (events, logs) == await self.newest_ids():
            return ChangedTasks(tasks=(), events=events, logs=logs)
        # PostgreSQL assigns numbers before the commit, so lower ones may appear later.
        overlap = 0 if self._db.dialect == "sqlite" else _OVERLAP
        events, logs = max(0, events - overlap), max(0, logs - overlap)
        async with self._db.read() as view:
            query = select(_E.id, _E.task_id).where(_E.id > events).order_by(_E.id).limit(limit)
            happened = (await view.execute(query)).all()
            query = select(_L.id, _L.task_id).where(_L.id > logs).order_by(_L.id).limit(limit)
            logged = (await view.execute(query)).all()
            seen = list(dict.fromkeys(task for _, task in (*happened, *logged)))
            mine: set[str] = set()
            for start in range(0, len(seen), _MAX_PARAMETERS):
                chunk = seen[start : start + _MAX_PARAMETERS]
                here = _T.id.in_(chunk) & _T.chat_id.in_(all_threads(chat))
                mine |= set(await view.scalars(select(_T.id).where(here)))
        return ChangedTasks(
            tasks=tuple(TaskId(each) for each in seen if each in mine),
            events=happened[-1].id if happened else events + overlap,
            logs=logged[-1].id if logged else logs + overlap,
        )

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

    async def newest_ids(self) -> tuple[int, int]:
        """The newest event's id and the newest log's."""
        async with self._db.read() as view:
            events = await view.scalar(select(func.max(_E.id))) or 0
            return events, await view.scalar(select(func.max(_L.id))) or 0

    async def list_logs(self, task: TaskId, limit: int) -> Sequence[LogEntry]:
        """The task's newest logs, oldest first."""
        query = select(schema.task_logs).where(_L.task_id == task).order_by(_L.id.desc())
        rows = await self._db.fetch_all(query.limit(limit))
        return tuple(record_from(LogEntry, row) for row in reversed(rows))

    async def list_inbox_states(self, ids: Collection[int]) -> Mapping[int, InboxState]:
        """Rows that are missing were settled long ago."""
        query = select(schema.inbox.c.id, schema.inbox.c.state).where(
            schema.inbox.c.id.in_(list(ids))
        )
        return {number: InboxState(state) for number, state in await self._db.fetch_all(query)}

    async def memory_state(self, scopes: Collection[str]) -> str:
        """Changes whenever an entry of these scopes does."""
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
