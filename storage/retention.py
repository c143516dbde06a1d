"""Deletes rows older than their retention, in small transactions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

import sqlalchemy as sa

from storage import autonomy_schema, memory_schema, schema
from storage.db import Database, Transaction, records_from
from storage.records.approvals import ApprovalState, ToolCallState
from storage.records.messages import InboxState, OutboxState
from storage.records.prompt_versions import VersionState
from storage.records.schedules import ScheduleState
from storage.records.tasks import Task, TaskStatus
from storage.records.triggers import TriggerKind

log = logging.getLogger(__name__)

_BATCH = 200
_PAUSE = 0.05
_SUBJECT_PREFIXES = ("task:", "approval:")
_FINAL = tuple(each.value for each in TaskStatus if each.is_final)


class RetentionRepo:
    """Deletes old rows, but nothing that an unfinished task, an open request or a waiting message
    needs."""

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

    async def delete_conversations(self, *, before: datetime, now: datetime) -> int:
        """Delete the messages and summaries of conversations and their sub-agents that were last
        used before, and of the others what was said before and is summarised; returns the number of
        conversations. One that waits for a decision stays."""
        sessions, helpers, calls = schema.sessions.c, schema.helpers.c, schema.tool_calls.c
        of_chats = sa.or_(
            sessions.key.startswith("chat:"),
            sessions.id.in_(sa.select(helpers.session_id).where(helpers.task_id.is_(None))),
        )
        waits = sa.exists().where(
            calls.session_id == sessions.id,
            calls.state.in_([ToolCallState.OPEN.value, ToolCallState.RUNNING.value])
            | calls.suspended,
        )
        there = sa.exists().where(schema.messages.c.session_id == sessions.id)
        query = sa.select(sessions.id).where(
            of_chats, sessions.last_used_at < before, ~waits, there
        )
        total = 0
        while True:
            async with self._db.write() as tx:
                ids = [*await tx.scalars(query.limit(_BATCH))]
                # The next message starts a new one, because a deleted conversation cannot continue.
                ended = sa.update(schema.sessions).where(sessions.id.in_(ids))
                await tx.execute(ended.where(sessions.closed_at.is_(None)).values(closed_at=now))
                await _delete_sessions(tx, ids)
            total += len(ids)
            if not ids:
                break
            await asyncio.sleep(_PAUSE)
        return total + await self._delete_summarised(before)

    async def _delete_summarised(self, before: datetime) -> int:
        """Delete the messages from before that a summary replaces in the model's context."""
        context, messages, texts = (
            memory_schema.context_items,
            schema.messages,
            memory_schema.message_texts,
        )
        through = (
            sa.select(context.c.session_id, sa.func.max(context.c.through).label("last"))
            .join(schema.sessions, schema.sessions.c.id == context.c.session_id)
            .where(schema.sessions.c.key.startswith("chat:"))
            .group_by(context.c.session_id)
        )
        total = 0
        for session_id, last in await self._db.fetch_all(through):
            # From the front, so that no hole is left where the clock was set back.
            mine = messages.c.session_id == session_id
            old = sa.select(sa.func.max(messages.c.seq)).where(
                mine, messages.c.seq <= last, messages.c.at < before
            )
            async with self._db.write() as tx:
                cut = await tx.scalar(old)
                if cut is None:
                    continue
                await tx.execute(sa.delete(messages).where(mine, messages.c.seq <= cut))
                said = (texts.c.session_id == session_id, texts.c.message <= cut)
                await tx.execute(sa.delete(texts).where(*said))
            total += 1
        return total

    async def delete_records(self, *, before: datetime) -> int:
        """Delete the events, commands, tool calls and sub-agents of tasks that ended before, and
        those outside tasks from before, with firings, schedules and incidents that are over, runs
        of the self-check and of the heartbeat, signals of evolution, firings of triggers, and
        versions of texts that nothing names; returns how many. A transcript keeps its sub-agent."""
        tasks, events, commands = schema.tasks.c, schema.events, schema.commands
        calls, helpers = schema.tool_calls, schema.helpers
        schedules, firings = schema.schedules, schema.firings
        fired = sa.exists().where(firings.c.schedule_id == schedules.c.id)
        ended = sa.select(tasks.id).where(tasks.status.in_(_FINAL), tasks.ended_at < before)
        read = sa.exists().where(schema.messages.c.session_id == helpers.c.session_id)
        old: dict[sa.Table, sa.ColumnElement[bool]] = {
            events: events.c.task_id.in_(ended) & events.c.told_at.is_not(None),
            commands: commands.c.task_id.in_(ended),
            calls: calls.c.task_id.in_(ended)
            | (calls.c.task_id.is_(None) & (calls.c.ended_at < before)),
            helpers: ~read
            & (
                helpers.c.task_id.in_(ended)
                | (helpers.c.task_id.is_(None) & (helpers.c.delivered_at < before))
            ),
            schema.pairings: schema.pairings.c.expires_at < before,
            firings: firings.c.ended_at < before,
            autonomy_schema.incidents: autonomy_schema.incidents.c.ended_at < before,
            autonomy_schema.self_check_runs: autonomy_schema.self_check_runs.c.at < before,
            autonomy_schema.heartbeat_runs: autonomy_schema.heartbeat_runs.c.ended_at < before,
            # What is known of files keeps them from being taken again.
            autonomy_schema.trigger_firings: (autonomy_schema.trigger_firings.c.fired_at < before)
            & autonomy_schema.trigger_firings.c.trigger_id.in_(
                sa.select(autonomy_schema.triggers.c.id).where(
                    autonomy_schema.triggers.c.kind != TriggerKind.FILE.value
                )
            ),
            autonomy_schema.evolution_signals: autonomy_schema.evolution_signals.c.fired_at
            < before,
            autonomy_schema.prompt_versions: _is_unneeded_version(before),
            schedules: ~fired
            & (schedules.c.created_at < before)
            & schedules.c.state.in_([ScheduleState.ENDED.value, ScheduleState.PROPOSED.value]),
        }
        return sum([await self._delete_batches(table, which) for table, which in old.items()])

    async def delete_held(self, *, before: datetime) -> int:
        """Delete held events that nobody has decided about; a card offered them. Returns how
        many."""
        inbox = schema.inbox
        held = inbox.c.state == InboxState.HELD.value
        return await self._delete_batches(inbox, held & (inbox.c.received_at < before))

    async def _delete_batches(self, table: sa.Table, which: sa.ColumnElement[bool]) -> int:
        (key,) = table.primary_key
        batch = sa.select(key).where(which).limit(_BATCH).scalar_subquery()
        total = 0
        while True:
            async with self._db.write() as tx:
                gone = (await tx.execute(sa.delete(table).where(key.in_(batch)))).rowcount
            total += gone
            if gone < _BATCH:
                return total
            await asyncio.sleep(_PAUSE)

    async def list_ended_tasks(self, ids: Iterable[str], *, before: datetime) -> Sequence[Task]:
        """The tasks among these that ended before."""
        tasks, found = schema.tasks, list[Task]()
        ended = sa.select(tasks).where(tasks.c.status.in_(_FINAL), tasks.c.ended_at < before)
        rest = iter(sorted(ids))
        while some := list(islice(rest, _BATCH)):
            rows = await self._db.fetch_all(ended.where(tasks.c.id.in_(some)))
            found += records_from(Task, rows)
        return found

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

    async def find_needed_cli_sessions(self) -> Mapping[str, datetime]:
        """Return when the oldest session that can still go on began, by coding CLI: of open
        conversations, of unfinished tasks and their sub-agents, and with a call that waits."""
        sessions, tasks = schema.sessions.c, schema.tasks.c
        ended = sa.select(tasks.id).where(tasks.status.in_(_FINAL))
        settled = [
            sa.select(table.c.session_id).where(table.c.task_id.in_(ended))
            for table in (schema.node_attempts, schema.helpers)
        ]
        calls = schema.tool_calls.c
        waits = sa.exists().where(
            calls.session_id == sessions.id,
            calls.suspended | (calls.state == ToolCallState.OPEN.value),
        )
        over = sessions.closed_at.is_not(None) | sa.or_(
            *(sessions.id.in_(each) for each in settled)
        )
        oldest = sa.select(sessions.backend, sa.func.min(sessions.started_at))
        rows = await self._db.fetch_all(
            oldest.where(sessions.external_id != "", ~over | waits).group_by(sessions.backend)
        )
        return {row[0]: row[1] for row in rows}


def _is_unneeded_version(before: datetime) -> sa.ColumnElement[bool]:
    """Whether a version ended before and no attempt or other version was made with it. The newest
    of each text stays, so that no number is given twice."""
    version, used = autonomy_schema.prompt_versions.c, autonomy_schema.attempt_versions.c
    other = autonomy_schema.prompt_versions.alias()
    same_text = (other.c.kind == version.kind) & (other.c.name == version.name)
    return (
        (version.state == VersionState.RETIRED.value)
        & (version.ended_at < before)
        & ~sa.exists().where(used.version_id == version.id)
        & ~sa.exists().where(same_text, other.c.parent == version.number)
        & sa.exists().where(same_text, other.c.number > version.number)
    )


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
