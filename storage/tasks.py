"""Stores tasks: creation, search, listing, locking and updates."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict, Unpack

from sqlalchemy import ColumnElement, Row, Select, and_, case, func, or_, select, true, update

from storage import autonomy_schema, schema
from storage.db import Database, Transaction, record_from, records_from, row_from
from storage.dialect import UtcTimestamp, insert_or_ignore
from storage.errors import NotFound
from storage.ids import MAX_CANDIDATES, parse_id_prefix, single_match
from storage.records.people import ChatId, PersonId
from storage.records.prompt_versions import PromptKind
from storage.records.tasks import (
    NewTask,
    Task,
    TaskControl,
    TaskId,
    TaskPage,
    TaskPhase,
    TaskPriority,
    TaskStatus,
)

_T = schema.tasks.c
_USED = autonomy_schema.attempt_versions.c
_CHAT = schema.chats.c
_CURRENT_CHAT = schema.chats.alias("here")
_ID_PREFIX = "task-"

_FINAL_STATUSES = tuple(status for status in TaskStatus if status.is_final)
_LIST_ORDER = (case((_T.status.in_(_FINAL_STATUSES), 1), else_=0), _T.created_at.desc(), _T.id)

NOT_DELETED = _T.deleted_at.is_(None)


class TaskChanges(TypedDict, total=False):
    """The columns of a task that may be updated."""

    title: str
    instruction: str
    priority: TaskPriority
    status: TaskStatus
    status_reason: str
    phase: TaskPhase
    control: TaskControl
    resumed_first: int
    graph_version: int
    failures_in_row: int
    errors: int
    replans: int
    summary: str
    stage: str
    tokens_before: int | None
    let_in: bool
    wake_at: datetime | None
    waiting_since: datetime
    started_at: datetime | None
    ended_at: datetime | None
    deleted_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskVisibility:
    """The tasks a reader may see: all; or those of one chat with all its threads and of `person`,
    if given."""

    sees_all: bool
    person: PersonId | None
    chat: ChatId

    @property
    def where_clause(self) -> ColumnElement[bool]:
        if self.sees_all:
            return true()
        here = _T.chat_id.in_(all_threads(self.chat))
        return here if self.person is None else or_(_T.created_by == self.person, here)


class TaskRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def create(
        self, tx: Transaction, new: NewTask, *, id: TaskId, now: datetime
    ) -> Task | None:
        """Create a task, or return the one this source created before.

        None if another task has this id: retry with another.
        """
        values = new_task_row(new, id, now)
        await tx.execute(insert_or_ignore(self._db.dialect, schema.tasks).values(values))
        query = select(schema.tasks).where(_T.source == new.source)
        return record_from(Task, (await tx.execute(query)).one_or_none())

    async def get(self, task_id: TaskId, *, tx: Transaction | None = None) -> Task:
        async with self._db.read(tx) as connection:
            return await self._one(connection, task_id)

    async def get_cap(self, task_id: TaskId) -> str:
        """The task's own cap, empty for the usual one."""
        query = select(_T.cap).where(_T.id == task_id)
        return str(await self._db.fetch_value(query) or "")

    async def find_by_command_source(self, source: str) -> Task | None:
        """The task that this message has already changed, deleted or not."""
        moved = select(schema.commands.c.task_id).where(schema.commands.c.source == source)
        query = select(schema.tasks).where(_T.id.in_(moved))
        return record_from(Task, await self._db.fetch_one(query))

    async def find_by_source(self, source: str) -> Task | None:
        """The task that this message has created, unless it is deleted."""
        query = select(schema.tasks).where(_T.source == source, NOT_DELETED)
        return record_from(Task, await self._db.fetch_one(query))

    async def lock(self, tx: Transaction, task_id: TaskId) -> Task:
        """Read the task and lock it until the transaction ends."""
        return await self._one(tx, task_id, lock=True)

    async def find(self, prefix: str, visibility: TaskVisibility) -> Task:
        """Find a visible task by its id or a prefix, with or without `task-`."""
        wanted = parse_id_prefix("task", prefix.strip().lower().removeprefix(_ID_PREFIX))
        query = (
            select(schema.tasks)
            .where(_T.id.startswith(wanted, autoescape=True), NOT_DELETED, visibility.where_clause)
            .order_by(_T.created_at.desc())
            .limit(MAX_CANDIDATES + 1)
        )
        found = records_from(Task, await self._db.fetch_all(query))
        return single_match(found, wanted, "task", prefix)

    async def list_page(
        self, visibility: TaskVisibility, status: TaskStatus | None, page: int, size: int
    ) -> TaskPage:
        """Unfinished first, then newest first; a page beyond the end gives the last one."""
        wanted = and_(
            NOT_DELETED, visibility.where_clause, true() if status is None else _T.status == status
        )
        async with self._db.read() as connection:
            counted = select(func.count()).select_from(schema.tasks).where(wanted)
            total = await connection.scalar(counted) or 0
            pages = max(1, -(-total // size))
            page = min(max(1, page), pages)
            ordered = select(schema.tasks).where(wanted).order_by(*_LIST_ORDER)
            rows = await connection.execute(ordered.limit(size).offset((page - 1) * size))
        return TaskPage(tasks=records_from(Task, rows), page=page, pages=pages, total=total)

    async def list_newest(
        self,
        visibility: TaskVisibility,
        *,
        limit: int,
        statuses: Collection[TaskStatus] = (),
        text: str = "",
        before: tuple[datetime, TaskId] | None = None,
    ) -> Sequence[Task]:
        """Newest first, from the one after `before` on; `text` is in the title or instruction."""
        query = select(schema.tasks).where(NOT_DELETED, visibility.where_clause)
        if statuses:
            query = query.where(_T.status.in_(tuple(statuses)))
        if text:
            found = (each.icontains(text, autoescape=True) for each in (_T.title, _T.instruction))
            query = query.where(or_(*found))
        if before is not None:
            at, task_id = before
            query = query.where(or_(_T.created_at < at, and_(_T.created_at == at, _T.id > task_id)))
        query = query.order_by(_T.created_at.desc(), _T.id).limit(limit)
        return records_from(Task, await self._db.fetch_all(query))

    async def list_workflow_runs(
        self, visibility: TaskVisibility, names: Collection[str], *, limit: int
    ) -> Mapping[str, Sequence[Task]]:
        """The newest tasks of each of these named workflows, at most `limit` of each."""
        by_age = func.row_number().over(
            partition_by=_USED.name, order_by=(_T.created_at.desc(), _T.id)
        )
        ranked = (
            select(_USED.name.label("workflow"), _T.id, by_age.label("rank"))
            .join(schema.tasks, _T.id == _USED.task_id)
            .where(
                _USED.kind == PromptKind.WORKFLOW.value,
                _USED.name.in_(tuple(names)),
                _USED.path == "",
                NOT_DELETED,
                visibility.where_clause,
            )
            .subquery()
        )
        query = (
            select(ranked.c.workflow, schema.tasks)
            .join(schema.tasks, _T.id == ranked.c.id)
            .where(ranked.c.rank <= limit)
            .order_by(_T.created_at.desc(), _T.id)
        )
        runs: dict[str, list[Task]] = {}
        for row in await self._db.fetch_all(query):
            runs.setdefault(row.workflow, []).append(record_from(Task, row))
        return runs

    async def count_by_status(self) -> Mapping[TaskStatus, int]:
        query = select(_T.status, func.count()).where(NOT_DELETED).group_by(_T.status)
        return {TaskStatus(status): n for status, n in await self._db.fetch_all(query)}

    async def count_created_since(self, when: datetime) -> int:
        return await self._db.fetch_value(select(func.count()).where(_T.created_at >= when)) or 0

    async def list_recent(self, limit: int) -> Sequence[Task]:
        newest = select(schema.tasks).where(NOT_DELETED).order_by(_T.created_at.desc(), _T.id)
        return records_from(Task, await self._db.fetch_all(newest.limit(limit)))

    async def list_by_source(
        self, prefix: str, *, since: datetime | None = None, limit: int | None = None
    ) -> Sequence[Task]:
        """Tasks whose source begins so, created since then; the newest first."""
        query = select(schema.tasks).where(_T.source.startswith(prefix, autoescape=True))
        if since is not None:
            query = query.where(_T.created_at >= since)
        query = query.order_by(_T.created_at.desc(), _T.id).limit(limit)
        return records_from(Task, await self._db.fetch_all(query))

    async def newest_uses(
        self, folders: Collection[str]
    ) -> tuple[Mapping[str, datetime], Mapping[str, datetime]]:
        """Return when a task last started in each of these folders itself, and when in a worktree
        of it."""
        started = func.max(func.coalesce(_T.started_at, _T.created_at, type_=UtcTimestamp))
        query = select(_T.project_dir, _T.branch == "", started).where(_T.project_dir.in_(folders))
        rows = await self._db.fetch_all(query.group_by(_T.project_dir, _T.branch == ""))
        itself, worktree = (
            {at: when for at, own, when in rows if own is kind} for kind in (True, False)
        )
        return itself, worktree

    async def update(self, tx: Transaction, task: Task, **changes: Unpack[TaskChanges]) -> Task:
        """Update a task locked by this transaction. Leaving `running` ends the lease."""
        values: dict[str, Any] = dict(changes)
        if "priority" in changes:
            values["rank"] = changes["priority"].rank
        status = changes.get("status", TaskStatus.RUNNING)
        if status is not TaskStatus.RUNNING:
            values |= {"epoch": _T.epoch + 1, "owner": "", "lease_until": None}
        if status.is_final:
            values |= {"holds_dir": False, "let_in": False, "wake_at": None}
        moved = update(schema.tasks).where(_T.id == task.id).values(values).returning(schema.tasks)
        row: Row[Any] = (await tx.execute(moved)).one()
        return record_from(Task, row)

    async def _one(self, connection: Transaction, task_id: TaskId, *, lock: bool = False) -> Task:
        query = select(schema.tasks).where(_T.id == task_id)
        row = (await connection.execute(query.with_for_update() if lock else query)).one_or_none()
        if row is None:
            raise NotFound("task", task_id)
        return record_from(Task, row)


def new_task_row(new: NewTask, id: TaskId, now: datetime) -> dict[str, Any]:
    values = row_from(new) | {
        "id": id,
        "rank": new.priority.rank,
        "status": TaskStatus.PENDING,
        "phase": TaskPhase.QUEUED,
        "control": TaskControl.RUN,
        "branch": f"shiftboss/{id}" if new.in_git else "",
        "created_at": now,
        "waiting_since": now,
    }
    del values["in_git"]
    return values


def all_threads(chat: ChatId) -> Select[tuple[str]]:
    """The ids of this chat and of all its threads."""
    same = and_(
        _CURRENT_CHAT.c.channel == _CHAT.channel, _CURRENT_CHAT.c.external_id == _CHAT.external_id
    )
    return select(_CHAT.id).join(_CURRENT_CHAT, same).where(_CURRENT_CHAT.c.id == chat)
