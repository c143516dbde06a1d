"""Deletes what is older than its retention, in small transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from storage import memory_schema, schema
from storage.db import Database, Transaction
from storage.records.approvals import ApprovalState
from storage.records.messages import InboxState, OutboxState
from storage.records.tasks import Task, TaskStatus
from storage.rows import records_from

_BATCH = 200
_PAUSE = 0.05
_SUBJECT_PREFIXES = ("task:", "approval:")
_FINAL = tuple(each.value for each in TaskStatus if each.is_final)


class RetentionRepo:
    """Nothing that an unfinished task, an open request or a waiting message needs is deleted."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def delete_cards(self, *, before: datetime, now: datetime) -> int:
        """Delete cards that were last changed before, with their buttons and placements; returns
        how many. Cards of unfinished tasks and of open requests stay, and so do cards with a button
        that still works."""
        outbox, total, last = schema.outbox, 0, 0
        old = (
            sa.select(outbox.c.id, outbox.c.key)
            .where(
                outbox.c.id > sa.bindparam("last"),
                outbox.c.updated_at < sa.bindparam("before"),
                outbox.c.state != OutboxState.QUEUED.value,
            )
            .order_by(outbox.c.id)
            .limit(_BATCH)
        )
        while True:
            async with self._db.write() as tx:
                rows = (await tx.execute(old, {"last": last, "before": before})).all()
                needed = await _needed_keys(tx, [row.key for row in rows], now)
                gone = [row for row in rows if row.key not in needed]
                await _delete_outbox_rows(tx, gone)
            total += len(gone)
            if len(rows) < _BATCH:
                return total
            last = rows[-1].id
            await asyncio.sleep(_PAUSE)

    async def delete_transcripts(self, *, before: datetime) -> int:
        """Delete the messages and summaries of steps and sub-agents whose task ended before;
        returns the number of sessions. What was learned from them is in memory, and the record of
        tool calls stays."""
        tasks, messages = schema.tasks, schema.messages
        ended = sa.select(tasks.c.id).where(tasks.c.status.in_(_FINAL), tasks.c.ended_at < before)
        queries = [
            sa.select(table.c.session_id)
            .where(
                table.c.task_id.in_(ended),
                sa.exists().where(messages.c.session_id == table.c.session_id),
            )
            .distinct()
            .limit(_BATCH)
            for table in (schema.node_attempts, schema.helpers)
        ]
        total = 0
        while True:
            async with self._db.write() as tx:
                ids = sorted({each for query in queries for each in await tx.scalars(query)})
                await _delete_sessions(tx, ids)
            total += len(ids)
            if not ids:
                return total
            await asyncio.sleep(_PAUSE)

    async def list_ended_tasks(self, *, before: datetime) -> Sequence[Task]:
        """Finished tasks that ended before, oldest first."""
        tasks = schema.tasks
        query = sa.select(tasks).where(tasks.c.status.in_(_FINAL), tasks.c.ended_at < before)
        return records_from(Task, await self._db.fetch_all(query.order_by(tasks.c.ended_at)))

    async def find_needed_uploads(self) -> frozenset[str]:
        """Numbers of the messages whose files an unfinished task or an unsettled message needs."""
        inbox, tasks, logs = schema.inbox, schema.tasks, schema.task_logs
        open_tasks = tasks.c.status.not_in(_FINAL)
        unsettled = inbox.c.state.in_([InboxState.NEW.value, InboxState.HELD.value])
        async with self._db.read() as view:
            numbers = await view.scalars(sa.select(inbox.c.id).where(unsettled))
            needed = {str(each) for each in numbers}
            files = [
                str(path)
                for paths in await view.scalars(sa.select(tasks.c.files).where(open_tasks))
                for path in paths
            ]
            logged = sa.select(logs.c.file).join(tasks, tasks.c.id == logs.c.task_id)
            files += (await view.scalars(logged.where(open_tasks, logs.c.file != ""))).all()
        prefix = "files/inbox/"
        inside = [path.removeprefix(prefix) for path in files if path.startswith(prefix)]
        return frozenset(needed | {path.split("/")[0] for path in inside})


async def _needed_keys(tx: Transaction, keys: Sequence[str], now: datetime) -> frozenset[str]:
    actions, tasks, approvals = schema.actions, schema.tasks, schema.approvals
    working = sa.select(actions.c.card_key).where(
        actions.c.card_key.in_(keys),
        ~actions.c.retired,
        actions.c.used_at.is_(None),
        actions.c.expires_at > now,
    )
    needed = set(await tx.scalars(working))
    subjects = {key: key.split(":")[1] for key in keys if key.startswith(_SUBJECT_PREFIXES)}
    names = set(subjects.values())
    unfinished = sa.select(tasks.c.id).where(tasks.c.id.in_(names), tasks.c.status.not_in(_FINAL))
    waiting = sa.select(approvals.c.id).where(
        approvals.c.id.in_(names), approvals.c.state == ApprovalState.WAITING.value
    )
    open_subjects = {*(await tx.scalars(unfinished)), *(await tx.scalars(waiting))}
    return frozenset(needed | {key for key, name in subjects.items() if name in open_subjects})


async def _delete_outbox_rows(tx: Transaction, rows: Sequence[Any]) -> None:
    ids, keys = [row.id for row in rows], [row.key for row in rows]
    placements, actions = schema.placements, schema.actions
    await tx.execute(sa.delete(placements).where(placements.c.outbox_id.in_(ids)))
    await tx.execute(sa.delete(actions).where(actions.c.card_key.in_(keys)))
    await tx.execute(sa.delete(schema.outbox).where(schema.outbox.c.id.in_(ids)))


async def _delete_sessions(tx: Transaction, ids: Sequence[str]) -> None:
    summaries = memory_schema.summaries
    theirs = sa.select(summaries.c.id).where(summaries.c.session_id.in_(ids))
    sources = memory_schema.summary_sources
    gone = sources.c.summary_id.in_(theirs) | sources.c.part.in_(theirs)
    await tx.execute(sa.delete(sources).where(gone))
    tables: tuple[Any, ...] = (
        memory_schema.context_items,
        memory_schema.message_texts,
        summaries,
        schema.messages,
    )
    for table in tables:
        await tx.execute(sa.delete(table).where(table.c.session_id.in_(ids)))
