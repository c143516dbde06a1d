"""Stores conversation cells (verbatim turns), their links to extracted facts, and the memory jobs
that process them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, func, insert, or_, select, union, update

from storage import schema
from storage.db import Database, Transaction
from storage.dialect import insert_or_ignore
from storage.key_value import KeyValueStore
from storage.memory.entries import MemoryEntryRepo, cells_after, cells_before
from storage.memory_schema import entry_from_row, memories, memory_jobs, memory_links, memory_scopes
from storage.records.approvals import ToolCallState
from storage.records.conversation_archive import CompactionJob
from storage.records.memory import (
    EntryId,
    ExtractionJob,
    ExtractionJobState,
    MemoryEntry,
    MemoryKind,
    MemoryOrigin,
    MemoryScope,
    MemoryState,
    NewMemoryEntry,
    candidate_source,
    offer_source,
)
from storage.records.people import ChatId
from storage.records.tasks import EventKind, TaskId
from storage.schema import events, tool_calls
from storage.search.terms import NEIGHBOUR_WEIGHTS

# --- cells and their links to facts

DERIVED_FROM = "from"
"""Links a fact to a cell it was extracted from."""

_M = memories.c
_L = memory_links.c
_FULL_WEIGHT = 1.0
_PAGE_SIZE = 500


class CellRepo:
    """Methods that write must run within the caller's transaction."""

    def __init__(self, db: Database, entries: MemoryEntryRepo) -> None:
        self._db = db
        self._entries = entries

    async def add(
        self, tx: Transaction, new: NewMemoryEntry, *, now: datetime
    ) -> MemoryEntry | None:
        """Add a cell, indexed together with the cells before it. None where `MemoryEntryRepo.add`
        returns None."""
        before = await cells_before(tx, new, -min(NEIGHBOUR_WEIGHTS))
        around = {-apart: each.text for apart, each in enumerate(before, 1)}
        made = await self._entries.add(tx, new, now=now, neighbour_texts=around)
        if made is not None and before:
            await self.index(tx, before[0])
        return made

    async def remove_tombstone(self, tx: Transaction, new: NewMemoryEntry) -> None:
        """Allow a forgotten text again, because the person has said it again."""
        await self._entries.remove_tombstone(tx, new.scope, new.text)

    async def index(self, tx: Transaction, *cells: MemoryEntry) -> None:
        """Index cells by their own words, their neighbours' and those of their facts."""
        await self._entries.index_all(tx, [await self._index_input(tx, each) for each in cells])

    async def _index_input(
        self, tx: Transaction, cell: MemoryEntry
    ) -> tuple[MemoryEntry, Mapping[int, str], str]:
        before = await cells_before(tx, cell, -min(NEIGHBOUR_WEIGHTS))
        after = await cells_after(tx, cell, max(NEIGHBOUR_WEIGHTS))
        around = {-apart: each.text for apart, each in enumerate(before, 1)}
        around |= {apart: each.text for apart, each in enumerate(after, 1)}
        drawn = await self.list_facts(tx, cell)
        facts = " ".join(each.text for each in drawn if each.state is not MemoryState.REJECTED)
        return cell, around, facts

    async def list_by_ids(
        self, ids: Iterable[str], *, tx: Transaction | None = None
    ) -> Sequence[MemoryEntry]:
        """The cells that still exist, in the order they were said."""
        query = select(memories).where(_M.id.in_(list(ids))).order_by(_M.number)
        return [entry_from_row(row) for row in await self._db.fetch_all(query, tx=tx)]

    async def find(self, entry_id: EntryId, *, tx: Transaction | None = None) -> MemoryEntry | None:
        return next(iter(await self.list_by_ids([entry_id], tx=tx)), None)

    async def list_candidates(self) -> Sequence[MemoryEntry]:
        """All candidates of every scope, oldest first."""
        return await self._select_all(_M.state == MemoryState.CANDIDATE.value)

    async def list_extracted_longterm(self, tx: Transaction) -> Sequence[MemoryEntry]:
        """Active long-term entries that were extracted automatically and are not pinned, in all
        scopes."""
        return await self._select_all(
            _M.state == MemoryState.ACTIVE.value,
            _M.kind == MemoryKind.LONGTERM.value,
            _M.origin.in_([MemoryOrigin.CHAT.value, MemoryOrigin.TASK.value]),
            ~_M.pinned,
            tx=tx,
        )

    async def link_sources(
        self, tx: Transaction, fact: MemoryEntry, cells: Sequence[MemoryEntry]
    ) -> None:
        """Link a fact to its source cells and index them by its words."""
        for cell in cells:
            link = {
                "one": fact.number,
                "other": cell.number,
                "kind": DERIVED_FROM,
                "weight": _FULL_WEIGHT,
            }
            await tx.execute(insert_or_ignore(self._db.dialect, memory_links).values(link))
            await self.index(tx, cell)

    async def link(self, tx: Transaction, one: MemoryEntry, other: MemoryEntry, kind: str) -> None:
        """Link an entry to the one it is about."""
        link = {"one": one.number, "other": other.number, "kind": kind, "weight": _FULL_WEIGHT}
        await tx.execute(insert_or_ignore(self._db.dialect, memory_links).values(link))

    async def copy_sources(self, tx: Transaction, old: MemoryEntry, new: MemoryEntry) -> None:
        """Link `new` to the sources of `old`."""
        held = select(_L.other).where(_L.one == old.number, _L.kind == DERIVED_FROM)
        for other in (await tx.execute(held)).scalars().all():
            link = {"one": new.number, "other": other, "kind": DERIVED_FROM, "weight": _FULL_WEIGHT}
            await tx.execute(insert_or_ignore(self._db.dialect, memory_links).values(link))

    async def list_facts(self, tx: Transaction, cell: MemoryEntry) -> Sequence[MemoryEntry]:
        return await self._select_linked(tx, _L.other == cell.number, _L.one)

    async def list_restatements(self, tx: Transaction, entry: MemoryEntry) -> Sequence[MemoryEntry]:
        """Entries that would still state the same: a fact's cells, or a cell's facts without
        another source."""
        if entry.kind is not MemoryKind.CELL:
            return await self._select_linked(tx, _L.one == entry.number, _L.other)
        facts = await self.list_facts(tx, entry)
        sources = [await self._select_linked(tx, _L.one == each.number, _L.other) for each in facts]
        return [fact for fact, cells in zip(facts, sources, strict=True) if len(cells) == 1]

    async def list_drawn_from(self, tx: Transaction, cell: MemoryEntry) -> Sequence[MemoryEntry]:
        """Everything derived from this cell, also in part: facts, entries raised or shared from
        them, and other entries with the same words."""
        found: dict[EntryId, MemoryEntry] = {}
        ends = [*await self.list_facts(tx, cell)]
        while ends:
            found |= {each.id: each for each in ends}
            near: list[MemoryEntry] = []
            for each in ends:
                near += await self._entries.list_with_same_text(each.scope, each.text, tx=tx)
                for source in (candidate_source(each), offer_source(each)):
                    raised = await self._entries.find_by_source(source, tx=tx)
                    near += [] if raised is None else [raised]
            ends = [each for each in near if each.id not in found and not each.is_protected]
        return [each for each in found.values() if each.kind is not MemoryKind.CELL]

    async def _select_all(
        self, *where: ColumnElement[bool], tx: Transaction | None = None
    ) -> Sequence[MemoryEntry]:
        """Reads page by page. Naming the scopes makes the database use its index."""
        scopes = _M.scope.in_(select(memory_scopes.c.name))
        found: list[MemoryEntry] = []
        while True:
            after = found[-1].number if found else 0
            query = select(memories).where(scopes, *where, _M.number > after)
            rows = await self._db.fetch_all(query.order_by(_M.number).limit(_PAGE_SIZE), tx=tx)
            found += map(entry_from_row, rows)
            if len(rows) < _PAGE_SIZE:
                return found

    async def _select_linked(
        self, tx: Transaction, where: ColumnElement[bool], far_end: ColumnElement[int]
    ) -> Sequence[MemoryEntry]:
        linked = select(far_end).where(where, _L.kind == DERIVED_FROM)
        query = select(memories).where(_M.number.in_(linked)).order_by(_M.number)
        return [entry_from_row(row) for row in (await tx.execute(query)).all()]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCells:
    """One chat's cells in one scope; `last_number` is that of the latest."""

    scope: MemoryScope
    thread: str
    chat: ChatId
    last_number: int


class ChatCellRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def list_chats_since(self, number: int) -> Sequence[ChatCells]:
        """Chats with cells after this number."""
        query = (
            select(
                _M.scope,
                _M.thread,
                _M.chat_id,
                func.max(_M.number).label("last"),
            )
            .where(_M.number > number, _is_chat_cell(), _M.chat_id.is_not(None))
            .group_by(_M.scope, _M.thread, _M.chat_id)
        )
        rows = await self._db.fetch_all(query)
        return [
            ChatCells(
                scope=MemoryScope.parse(row.scope),
                thread=row.thread,
                chat=row.chat_id,
                last_number=row.last,
            )
            for row in rows
        ]

    async def list_cells(
        self, chat_cells: ChatCells, after: int, limit: int
    ) -> Sequence[MemoryEntry]:
        """Cells in the order they were said."""
        query = (
            select(memories)
            .where(
                _M.number > after,
                _is_chat_cell(),
                _M.scope == str(chat_cells.scope),
                _M.thread == chat_cells.thread,
            )
            .order_by(_M.number)
            .limit(limit)
        )
        return [entry_from_row(row) for row in await self._db.fetch_all(query)]

    async def list_topic_breaks(self, chat: ChatId, since: datetime) -> Sequence[datetime]:
        """Times at which a new conversation, another backend or a task started in the chat."""
        sessions, tasks = schema.sessions.c, schema.tasks.c
        mine = sessions.key == f"chat:{chat}"
        query = union(
            select(sessions.started_at).where(mine, sessions.started_at > since),
            select(sessions.closed_at).where(mine, sessions.closed_at > since),
            select(tasks.created_at).where(tasks.chat_id == chat, tasks.created_at > since),
        )
        return sorted(await self._db.fetch_column(query))


def _is_chat_cell() -> ColumnElement[bool]:
    return (
        (_M.kind == MemoryKind.CELL.value)
        & (_M.state == MemoryState.ACTIVE.value)
        & (_M.origin == MemoryOrigin.CHAT.value)
    )


# --- memory jobs: extraction, compaction, finished tasks

_J = memory_jobs.c
_EXTRACT = "extract"
_MAX_REASON = 300
_STARTED = "begun"
JOB_RETENTION = timedelta(days=14)
"""Jobs older than this are dropped."""


class ExtractionJobRepo:
    """Methods that write must run within the caller's transaction."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def add_cell(
        self,
        tx: Transaction,
        cell: MemoryEntry,
        *,
        batch_size: int,
        now: datetime,
        due_at: datetime,
    ) -> bool:
        """Add a cell to its thread's gathering batch. True if the batch is now full; it is then due
        at `due_at`."""
        source = f"open:{cell.scope}:{cell.thread}"
        row = (await tx.execute(select(memory_jobs).where(_J.source == source))).one_or_none()
        cells = [*(row.payload["cells"] if row is not None else ()), cell.id]
        values: dict[str, Any] = {
            "source": source,
            "payload": {"scope": str(cell.scope), "thread": cell.thread, "cells": cells},
            "state": ExtractionJobState.GATHERING.value,
            "due_at": due_at,
        }
        full = len(cells) >= batch_size
        if full:
            # Named by its first cell, so that no part of a conversation is processed twice.
            values |= {
                "source": f"{_EXTRACT}:{cells[0]}",
                "state": ExtractionJobState.WAITING.value,
            }
        if row is None:
            new = {**values, "kind": _EXTRACT, "created_at": now}
            await tx.execute(insert(memory_jobs).values(new))
        else:
            await tx.execute(update(memory_jobs).where(_J.id == row.id).values(values))
        return full

    async def close_idle(self, tx: Transaction, *, idle_since: datetime, min_cells: int) -> None:
        """Queue gathered cells of conversations idle since then, if they number at least
        `min_cells`."""
        idle = (_J.state == ExtractionJobState.GATHERING.value) & (_J.due_at < idle_since)
        for row in (await tx.execute(select(memory_jobs).where(idle))).all():
            cells = row.payload["cells"]
            if len(cells) >= min_cells:
                full = {
                    "source": f"{_EXTRACT}:{cells[0]}",
                    "state": ExtractionJobState.WAITING.value,
                }
                await tx.execute(update(memory_jobs).where(_J.id == row.id).values(full))

    async def find_next(self) -> ExtractionJob | None:
        """The waiting job that is due first."""
        query = (
            select(memory_jobs)
            .where(_J.state == ExtractionJobState.WAITING.value, _J.kind == _EXTRACT)
            .order_by(_J.due_at, _J.id)
            .limit(1)
        )
        row = await self._db.fetch_one(query)
        return None if row is None else _extraction_job(row)

    async def start_attempt(
        self, tx: Transaction, job: ExtractionJob, *, retry_at: datetime
    ) -> bool:
        """Count an attempt and schedule a retry at `retry_at`. False if the job is no longer
        waiting."""
        waits = (
            (_J.id == job.id)
            & (_J.state == ExtractionJobState.WAITING.value)
            & (_J.tries == job.attempts)
        )
        begun = {"tries": job.attempts + 1, "due_at": retry_at, "why": _STARTED}
        return bool((await tx.execute(update(memory_jobs).where(waits).values(begun))).rowcount)

    async def postpone(
        self, tx: Transaction, job: ExtractionJob, *, at: datetime, reason: str
    ) -> None:
        """Run the job again at `at`, with the attempts that `job` says."""
        values = {"due_at": at, "why": reason[:_MAX_REASON], "tries": job.attempts}
        await self._set(tx, job, values)

    async def finish(
        self,
        tx: Transaction,
        job: ExtractionJob,
        state: ExtractionJobState,
        *,
        now: datetime,
        reason: str = "",
    ) -> None:
        await self._set(
            tx, job, {"state": state.value, "ended_at": now, "why": reason[:_MAX_REASON]}
        )

    async def requeue_interrupted(self, tx: Transaction, *, now: datetime) -> None:
        """Make jobs due again whose process died during an attempt."""
        begun = (_J.state == ExtractionJobState.WAITING.value) & (_J.why == _STARTED)
        await tx.execute(update(memory_jobs).where(begun).values(due_at=now))

    async def expire_old(self, tx: Transaction, *, now: datetime) -> None:
        """Fail jobs that waited too long and delete those that ended long ago."""
        old = {"state": ExtractionJobState.FAILED.value, "ended_at": now, "why": "too old"}
        waits = (_J.state == ExtractionJobState.WAITING.value) & (
            _J.created_at < now - JOB_RETENTION
        )
        await tx.execute(update(memory_jobs).where(waits).values(old))
        await tx.execute(memory_jobs.delete().where(_J.ended_at < now - JOB_RETENTION))

    async def count(self, *states: ExtractionJobState) -> int:
        query = select(func.count()).where(_J.state.in_([each.value for each in states]))
        return int(await self._db.fetch_value(query) or 0)

    async def _set(self, tx: Transaction, job: ExtractionJob, values: dict[str, Any]) -> None:
        await tx.execute(update(memory_jobs).where(_J.id == job.id).values(values))


def _extraction_job(row: Row[Any]) -> ExtractionJob:
    return ExtractionJob(
        id=row.id,
        scope=MemoryScope.parse(row.payload["scope"]),
        thread=row.payload["thread"],
        cells=tuple(EntryId(each) for each in row.payload["cells"]),
        state=ExtractionJobState(row.state),
        attempts=row.tries,
        due_at=row.due_at,
        reason=row.why,
    )


COMPACTION_KIND = "compact"
_S = schema.sessions.c
_OPEN, _DONE = "pending", "done"
_FORCED = "forced"
IS_WAITING_JOB = _J.state.in_([ExtractionJobState.WAITING.value, _OPEN])
"""A job of either kind that waits for its time."""


class CompactionJobRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def enqueue(
        self, tx: Transaction, session_id: str, *, now: datetime, forced: bool = False
    ) -> None:
        """Queue a compaction, due at once if none is open. `forced` restarts an open one and
        compacts the session however short it is."""
        new = insert_or_ignore(self._db.dialect, memory_jobs).values(
            kind=COMPACTION_KIND,
            source=_compaction_source(session_id),
            payload={_FORCED: forced},
            state=_OPEN,
            due_at=now,
            created_at=now,
        )
        made = await tx.execute(new)
        if made.rowcount:
            return
        again: ColumnElement[bool] = _J.state == _DONE
        if forced:
            again = or_(again, _J.state == _OPEN)
        values = {
            "state": _OPEN,
            "payload": {_FORCED: forced},
            "tries": 0,
            "due_at": now,
            "why": "",
            "ended_at": None,
        }
        await tx.execute(
            update(memory_jobs).where(_is_compaction_of(session_id), again).values(values)
        )

    async def list_due(self, now: datetime, limit: int) -> Sequence[CompactionJob]:
        query = (
            select(_J.id, _J.source, _J.tries, _J.payload)
            .where(_J.kind == COMPACTION_KIND, _J.state == _OPEN, _J.due_at <= now)
            .order_by(_J.due_at, _J.id)
            .limit(limit)
        )
        rows = await self._db.fetch_all(query)
        return [
            CompactionJob(
                id=row.id,
                session_id=row.source.partition(":")[2],
                attempts=row.tries,
                is_forced=bool(row.payload.get(_FORCED)),
            )
            for row in rows
        ]

    async def next_due(self) -> datetime | None:
        query = select(func.min(_J.due_at)).where(_J.kind == COMPACTION_KIND, _J.state == _OPEN)
        due: datetime | None = await self._db.fetch_value(query)
        return due

    async def postpone(
        self, tx: Transaction, job: CompactionJob, *, until: datetime, reason: str, failed: bool
    ) -> None:
        """Schedule the job again because it `failed` or because only part of it is done."""
        values = {
            "due_at": until,
            "why": reason[:500],
            "tries": job.attempts + 1 if failed else 0,
            "payload": {_FORCED: job.is_forced},
        }
        await tx.execute(update(memory_jobs).where(_J.id == job.id).values(values))

    async def finish(self, tx: Transaction, job: CompactionJob, *, now: datetime) -> None:
        values = {"state": _DONE, "why": "", "tries": 0, "ended_at": now}
        await tx.execute(update(memory_jobs).where(_J.id == job.id).values(values))

    async def list_long_sessions(self, max_tokens: int) -> Sequence[str]:
        """Open sessions whose context exceeded `max_tokens` at their last turn."""
        query = select(_S.id).where(_S.closed_at.is_(None), _S.tokens > max_tokens)
        return list(await self._db.fetch_column(query.order_by(_S.last_used_at.desc())))


def _compaction_source(session_id: str) -> str:
    return f"{COMPACTION_KIND}:{session_id}"


def _is_compaction_of(session_id: str) -> ColumnElement[bool]:
    return and_(_J.source == _compaction_source(session_id), _J.kind == COMPACTION_KIND)


_E = events.c
_C = tool_calls.c
_SKILL_LOAD_TOOL = "skill_load"
_MAX_LOADED_SKILLS = 200
_CURSOR_KEY = "memory:tasks"
_MAX_FINISHED = 20
_END_EVENTS = (EventKind.COMPLETED.value, EventKind.FAILED.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedTask:
    """`event_id` identifies this ending: a retried task ends again."""

    event_id: int
    task: TaskId
    at: datetime


class FinishedTaskRepo:
    def __init__(self, db: Database, key_values: KeyValueStore) -> None:
        self._db = db
        self._key_values = key_values

    async def start_cursor(self) -> None:
        """Skip tasks that ended before the first call."""
        async with self._db.write() as tx:
            if await self._key_values.read(tx, _CURSOR_KEY) is None:
                newest = await tx.scalar(select(func.max(_E.id)))
                await self._key_values.write(tx, _CURSOR_KEY, newest or 0)

    async def list_next(self) -> Sequence[FinishedTask]:
        """The oldest unprocessed tasks."""
        seen = await self._key_values.get(_CURSOR_KEY)
        query = (
            select(_E.id, _E.task_id, _E.at)
            .where(_E.id > (seen or 0), _E.kind.in_(_END_EVENTS))
            .order_by(_E.id)
            .limit(_MAX_FINISHED)
        )
        rows = await self._db.fetch_all(query)
        return tuple(
            FinishedTask(event_id=row.id, task=TaskId(row.task_id), at=row.at) for row in rows
        )

    async def list_loaded_skills(self, task: TaskId) -> Sequence[str]:
        """Names of the skills loaded for a task, in order. Coding CLIs read skills as files, so
        theirs are unknown."""
        query = (
            select(_C.arguments)
            .where(
                _C.task_id == task,
                _C.tool == _SKILL_LOAD_TOOL,
                _C.state == ToolCallState.DONE.value,
            )
            .order_by(_C.id)
            .limit(_MAX_LOADED_SKILLS)
        )
        loaded = await self._db.fetch_column(query)
        names = (each.get("name") for each in loaded if isinstance(each, dict))
        return tuple(dict.fromkeys(str(each).strip().casefold() for each in names if each))

    async def mark_processed(self, tx: Transaction, finished: FinishedTask) -> None:
        """Call this in the transaction that stores the result."""
        await self._key_values.write(tx, _CURSOR_KEY, finished.event_id)
