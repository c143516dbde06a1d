"""Writes the store's changes into the tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from bot.sync.inflow import RecordInflow
from bot.sync.local_rows import Cells, LocalRow, orderable_keys
from bot.sync.ports import RecordId, TableRecord
from bot.sync.session import SyncSession
from storage.records.bitable import (
    SyncedKind,
    SyncedRow,
    SyncedRowState,
    TableRole,
)
from storage.records.tasks import TaskId

MAX_TASKS = 100
"""Tasks read at once, with all their steps and logs."""

Orphans = dict[tuple[SyncedKind, str], TableRecord]
"""Rows of Shiftboss that the store does not know, by what their ID column says."""


Changes = dict[RecordId, tuple[SyncedRow, Cells]]
"""Cells that the store has changed."""


@dataclass(kw_only=True, eq=False)
class RowOutflow:
    """With `reads_first` a row is read before a column is written in which people may order:
    without events their changes are not known yet."""

    inflow: RecordInflow
    reads_first: bool = True
    orphans: Orphans = field(default_factory=dict)

    async def push_tasks(self, session: SyncSession, ids: Sequence[TaskId]) -> None:
        """Bring the rows of these tasks, their steps and logs up to date."""
        for start in range(0, len(ids), MAX_TASKS):
            chunk = ids[start : start + MAX_TASKS]
            rows = await session.deps.local.read_tasks(chunk)
            reserved = await self._reserved(session)
            rows = [row for row in rows if row.local_id.partition("/")[0] not in reserved]
            steps = await session.deps.repo.list_step_rows(chunk)
            await self._bring(session, rows, steps)

    async def push_memories(self, session: SyncSession) -> None:
        """Bring the rows of the chat's memories up to date, and delete those of forgotten ones."""
        if TableRole.MEMORIES not in session.codecs:
            return
        rows = await session.deps.local.read_memories(session.chat)
        known = await session.deps.repo.list_rows(kinds=[SyncedKind.MEMORY])
        await self._bring(session, rows, [row for row in known if row.local_id])

    async def delete_erased(self, session: SyncSession) -> None:
        """Delete the rows of tasks that no longer exist in the store."""
        repo = session.deps.repo
        for task_id in await repo.list_erased_tasks():
            rows = list(await repo.list_rows(kinds=[SyncedKind.TASK], local_ids=[task_id]))
            rows += await repo.list_step_rows([TaskId(task_id)])
            logs = await repo.list_task_log_rows(task_id)
            await session.delete(TableRole.LOGS, logs)
            # Last: while it is there, what is left is found again.
            await session.delete(TableRole.TASKS, sorted(rows, key=_by_kind))

    async def _reserved(self, session: SyncSession) -> Collection[str]:
        """Tasks that were created from people's rows and are not linked with them yet."""
        rows = await session.deps.repo.list_rows(states=[SyncedRowState.ORDERED])
        found = [
            await self.inflow.tasks.find_by_source(f"inbox:{number}")
            for row in rows
            for number in row.orders.values()
        ]
        return frozenset(task.id for task in found if task is not None)

    async def _bring(
        self, session: SyncSession, locals_: Sequence[LocalRow], maybe_gone: Sequence[SyncedRow]
    ) -> None:
        """Create, change and delete rows. Those of `maybe_gone` without a local row are deleted."""
        rows = [row for row in locals_ if row.kind.table in session.codecs]
        new, changed = await self._differences(session, rows)
        await self._read_first(session, changed)
        for row, cells in changed.values():
            session.queue(row, cells)
        for role, made in new.items():
            await session.create(role, made)
        there = {(row.kind, row.local_id) for row in rows}
        gone = [row for row in maybe_gone if (row.kind, row.local_id) not in there]
        for role in session.codecs:
            if deleted := [row for row in gone if row.kind.table is role]:
                await session.delete(role, deleted)

    async def _differences(
        self, session: SyncSession, rows: Sequence[LocalRow]
    ) -> tuple[dict[TableRole, list[LocalRow]], Changes]:
        """The rows missing in the tables, and the cells that differ there."""
        known = await self._known(session, rows)
        new: dict[TableRole, list[LocalRow]] = {}
        changed: Changes = {}
        for local in rows:
            row = known.get((local.kind, local.local_id))
            if row is None or (row.state is SyncedRowState.GONE and local.is_live):
                if row is not None:
                    await session.delete(local.kind.table, [row])
                elif await self._adopt(session, local, changed):
                    continue
                new.setdefault(local.kind.table, []).append(local)
            elif row.state is SyncedRowState.LIVE:
                self._compare(session, local, row, changed)
        return new, changed

    async def _known(
        self, session: SyncSession, rows: Sequence[LocalRow]
    ) -> Mapping[tuple[SyncedKind, str], SyncedRow]:
        found: dict[tuple[SyncedKind, str], SyncedRow] = {}
        for kind in SyncedKind:
            ids = [row.local_id for row in rows if row.kind is kind]
            for row in await session.deps.repo.list_rows(kinds=[kind], local_ids=ids):
                found[kind, row.local_id] = row
        return found

    def _compare(
        self,
        session: SyncSession,
        local: LocalRow,
        row: SyncedRow,
        changed: Changes,
    ) -> None:
        role = local.kind.table
        cells = session.codecs[role].normalize(local.cells)
        differing = {
            key: value
            for key, value in cells.items()
            if key not in row.orders and row.cells.get(key) != value
        }
        if differing:
            changed[RecordId(row.record_id)] = (row, differing)

    async def _read_first(
        self,
        session: SyncSession,
        changed: Changes,
    ) -> None:
        """Let people's unseen changes of the same columns count: these rows are merged instead."""
        shared = [
            record
            for record, (row, cells) in changed.items()
            if orderable_keys(row.kind) & cells.keys()
        ]
        if not shared or not self.reads_first:
            return
        role = TableRole.TASKS
        records = await session.deps.tables.get_records(session.ref(role), shared)
        codec = session.codecs[role]
        edited = []
        for record_id, record in records.items():
            row, _ = changed[record_id]
            remote = codec.decode(record)
            if any(key in remote and remote[key] != value for key, value in row.cells.items()):
                edited.append(record)
                del changed[record_id]
        await self.inflow.take(session, role, edited, editors={}, since=0)

    async def _adopt(
        self,
        session: SyncSession,
        local: LocalRow,
        changed: Changes,
    ) -> bool:
        """Link a row that was created before the store was restored. Its content counts as agreed,
        so the store's values replace it."""
        record = self.orphans.pop((local.kind, local.local_id), None)
        if record is None:
            return False
        role = local.kind.table
        codec = session.codecs[role]
        cells = {key: value for key, value in codec.decode(record).items() if key in local.cells}
        async with session.deps.db.write() as tx:
            row = await session.deps.repo.add_row(
                tx,
                local.kind,
                local_id=local.local_id,
                record_id=record.id,
                state=SyncedRowState.LIVE,
                cells=cells,
            )
        self._compare(session, local, row, changed)
        return True


def _by_kind(row: SyncedRow) -> int:
    return int(row.kind is SyncedKind.TASK)
