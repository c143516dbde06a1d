"""Stores tasks, the versions of their plans, the runs of their nodes, people's commands for them,
and the events that follow."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any, Self, TypedDict, Unpack

from sqlalchemy import (
    ColumnElement,
    Row,
    Select,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    or_,
    select,
    true,
    update,
)

from storage import autonomy_schema, run_schema, schema
from storage.db import Database, Transaction, record_from, records_from, row_from
from storage.dialect import PreparedWrite, UtcTimestamp, insert_or_ignore, upsert
from storage.errors import NotFound
from storage.ids import MAX_CANDIDATES, parse_id_prefix, single_match
from storage.people import current_person_id
from storage.records.people import ChatId, PersonId
from storage.records.prompt_versions import PromptKind
from storage.records.tasks import (
    EventKind,
    NewTask,
    NodeRun,
    NodeStatus,
    Task,
    TaskControl,
    TaskEvent,
    TaskGraph,
    TaskId,
    TaskPage,
    TaskPhase,
    TaskPriority,
    TaskStatus,
)

# --- tasks

_T = schema.tasks.c
_USED = autonomy_schema.attempt_versions.c
_CHAT = schema.chats.c
_CURRENT_CHAT = schema.chats.alias("here")
_ID_PREFIX = "task-"
_R = schema.node_runs.c
_FRESH_START_PATH = "@again"
"""Written by the engine: see `bot.engine.workflow.node_runs`."""

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
        values["created_by"] = await current_person_id(tx, new.created_by)
        await tx.execute(insert_or_ignore(self._db.dialect, schema.tasks).values(values))
        query = select(schema.tasks).where(_T.source == new.source)
        return record_from(Task, (await tx.execute(query)).one_or_none())

    async def get(self, task_id: TaskId, *, tx: Transaction | None = None) -> Task:
        async with self._db.read_once(tx) as connection:
            return await self._one(connection, task_id)

    async def get_cap(self, task_id: TaskId) -> str:
        """The task's own cap, empty for the usual one."""
        query = select(_T.cap).where(_T.id == task_id)
        return str(await self._db.fetch_value(query) or "")

    async def get_budget_start(self, task_id: TaskId) -> datetime | None:
        """When the task was last tried again: what it cost before counts for no cap of its own."""
        query = select(_R.started_at).where(_R.task_id == task_id, _R.path == _FRESH_START_PATH)
        start: datetime | None = await self._db.fetch_value(query)
        return start

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
        # By its name: to PostgreSQL, the same comparison with another parameter is another one.
        own = (_T.branch == "").label("own")
        query = select(_T.project_dir, own, started).where(_T.project_dir.in_(folders))
        rows = await self._db.fetch_all(query.group_by(_T.project_dir, own))
        itself, worktree = (
            {at: when for at, is_own, when in rows if is_own is kind} for kind in (True, False)
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


# --- plans and runs of nodes

_G = schema.task_graphs.c
_A = schema.node_attempts.c
_D = run_schema.discarded_runs.c

_RUN_COLUMNS = tuple(each.name for each in fields(NodeRun))
_ATTEMPT_COLUMNS = ("task_id", "path", "attempt", "session_id", "started_at")
_SAVE_RUN = PreparedWrite(
    lambda dialect: upsert(dialect, schema.node_runs, _RUN_COLUMNS, ("task_id", "path")),
    *_RUN_COLUMNS,
)
_START_ATTEMPT = PreparedWrite(lambda _: insert(schema.node_attempts), *_ATTEMPT_COLUMNS)
_END_ATTEMPT = PreparedWrite(
    lambda _: (
        update(schema.node_attempts)
        .where(
            _A.task_id == bindparam("task"),
            _A.path == bindparam("which"),
            _A.attempt == bindparam("nth"),
        )
        .values(ended_at=bindparam("at"), error=bindparam("why"))
    )
)


class TaskGraphRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(self, tx: Transaction, graph: TaskGraph, *, now: datetime) -> None:
        """Versions are only added, never changed."""
        await tx.execute(insert(schema.task_graphs).values(row_from(graph) | {"at": now}))

    async def find_latest(
        self, task_id: TaskId, *, before: int | None = None, tx: Transaction | None = None
    ) -> TaskGraph | None:
        """The newest version, or the newest before `before`."""
        wanted = _G.task_id == task_id
        if before is not None:
            wanted = wanted & (_G.version < before)
        query = select(schema.task_graphs).where(wanted).order_by(_G.version.desc()).limit(1)
        return record_from(TaskGraph, await self._db.fetch_one(query, tx=tx))

    async def list_runs(
        self, task_id: TaskId, *, tx: Transaction | None = None
    ) -> Mapping[str, NodeRun]:
        """Node runs by path. Nodes not reached have no entry."""
        query = select(schema.node_runs).where(_R.task_id == task_id)
        runs = records_from(NodeRun, await self._db.fetch_all(query, tx=tx))
        return {run.path: run for run in runs}

    async def start_attempt(self, tx: Transaction, run: NodeRun, *, session_id: str) -> None:
        """Store the start of an attempt, with the session it will pay for, but not its node's
        state."""
        attempted = (run.task_id, run.path, run.attempt, session_id, run.started_at)
        await _START_ATTEMPT.send(tx, dict(zip(_ATTEMPT_COLUMNS, attempted, strict=True)))

    async def finish_attempt(self, tx: Transaction, run: NodeRun) -> None:
        """Store how an attempt ended; not where that leaves its node."""
        ended = {"task": run.task_id, "which": run.path, "nth": run.attempt}
        await _END_ATTEMPT.send(tx, {**ended, "at": run.ended_at, "why": run.error})

    async def release_attempt(
        self, tx: Transaction, run: NodeRun, *, reason: str, now: datetime
    ) -> None:
        """Close the attempt with a reason and reset its step to run again."""
        free = replace(run, status=NodeStatus.PENDING, ended_at=now)
        await self.save_run(tx, free)
        await self.finish_attempt(tx, replace(free, error=reason))

    async def save_run(self, tx: Transaction, run: NodeRun) -> None:
        await _SAVE_RUN.send(tx, row_from(run))

    async def discard_runs(self, tx: Transaction, version: int, runs: Sequence[NodeRun]) -> None:
        """Keep these runs as results of that version of the plan."""
        if runs:
            rows = [row_from(run) | {"version": version} for run in runs]
            await tx.execute(insert(run_schema.discarded_runs), rows)

    async def remove_runs(self, tx: Transaction, task_id: TaskId, paths: Sequence[str]) -> None:
        """Their nodes count as not reached."""
        await tx.execute(delete(schema.node_runs).where(_R.task_id == task_id, _R.path.in_(paths)))

    async def list_discarded(self, task_id: TaskId, version: int) -> Sequence[NodeRun]:
        """The results of that version of the plan that count no more, in order of their start."""
        wanted = (_D.task_id == task_id) & (_D.version == version)
        columns = [_D[name] for name in _RUN_COLUMNS]
        query = select(*columns).where(wanted).order_by(_D.started_at, _D.path)
        return records_from(NodeRun, await self._db.fetch_all(query))

    async def find_version(self, task_id: TaskId, version: int) -> TaskGraph | None:
        query = select(schema.task_graphs).where(_G.task_id == task_id, _G.version == version)
        return record_from(TaskGraph, await self._db.fetch_one(query))

    async def find_run(self, task_id: TaskId, path: str) -> NodeRun | None:
        query = select(schema.node_runs).where(_R.task_id == task_id, _R.path == path)
        return record_from(NodeRun, await self._db.fetch_one(query))


# --- commands and events

_C = schema.commands.c
_E = schema.events.c

_APPEND_EVENT = PreparedWrite(lambda _: insert(schema.events), "task_id", "kind", "text", "at")


SUBAGENT_COMMAND = "helper"
"""The command kind of a sub-agent's report."""


class SubagentReport(str):
    """A sub-agent's report among the messages to a worker, marked as not from a person. `label` is
    the sub-agent's name; `path` is the step that started it, empty if unknown."""

    __slots__ = ("label", "path")

    label: str
    path: str

    def __new__(cls, text: str, label: str, path: str = "") -> Self:
        made = super().__new__(cls, text)
        made.label = label
        made.path = path
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInput:
    """Input for a task's worker.

    `messages` are people's messages and each SubagentReport, oldest first; `replan_command_id` is
    the last request for a new plan, 0 if none. `answered_steps` maps a message's index to the step
    whose question it answers, if an approver sent it.
    """

    messages: Sequence[str]
    replan_command_id: int
    replan_reason: str
    answered_steps: Mapping[int, str] = field(default_factory=dict)


class TaskEventRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def record_command(
        self,
        tx: Transaction,
        task_id: TaskId,
        kind: str,
        *,
        source: str,
        by: PersonId | None,
        now: datetime,
        payload: Mapping[str, Any] | None = None,
    ) -> bool:
        """Record a command; False if this source gave it before and it must have no effect."""
        noted = await tx.execute(
            insert_or_ignore(self._db.dialect, schema.commands).values(
                source=source,
                task_id=task_id,
                kind=kind,
                payload=dict(payload or {}),
                person_id=by,
                at=now,
            )
        )
        return noted.rowcount == 1

    async def get_worker_input(
        self, task_id: TaskId, *, tx: Transaction | None = None
    ) -> WorkerInput:
        """All commands of the task that concern its worker."""
        query = select(_C.id, _C.kind, _C.payload).where(_C.task_id == task_id).order_by(_C.id)
        said: list[str] = []
        answers: dict[int, str] = {}
        replan, why = 0, ""
        for row in await self._db.fetch_all(query, tx=tx):
            text = str(row.payload.get("said", ""))
            if row.kind == "replan":
                replan, why = row.id, text
            elif row.kind == SUBAGENT_COMMAND:
                known = {name: str(row.payload.get(name, "")) for name in ("label", "path")}
                said.append(SubagentReport(text, **known))
            elif text:
                if asked_by := row.payload.get("answers"):
                    answers[len(said)] = asked_by
                said.append(text)
        return WorkerInput(
            messages=tuple(said),
            replan_command_id=replan,
            replan_reason=why,
            answered_steps=answers,
        )

    async def append_event(
        self, tx: Transaction, task_id: TaskId, kind: EventKind, *, now: datetime, text: str = ""
    ) -> None:
        await _APPEND_EVENT.send(tx, {"task_id": task_id, "kind": kind, "text": text, "at": now})

    async def list_latest(self, task_id: TaskId, limit: int) -> Sequence[TaskEvent]:
        """The newest `limit` events, oldest first."""
        query = (
            select(schema.events).where(_E.task_id == task_id).order_by(_E.id.desc()).limit(limit)
        )
        return records_from(TaskEvent, reversed(await self._db.fetch_all(query)))

    async def list_after(
        self,
        event_id: int,
        of_tasks: ColumnElement[bool],
        *,
        limit: int,
        task_id: TaskId | None = None,
    ) -> Sequence[TaskEvent]:
        """Events after this one, oldest first, of tasks that are not deleted and fulfil the
        condition."""
        query = select(schema.events).join(schema.tasks, schema.tasks.c.id == _E.task_id)
        query = query.where(_E.id > event_id, schema.tasks.c.deleted_at.is_(None), of_tasks)
        if task_id is not None:
            query = query.where(_E.task_id == task_id)
        query = query.order_by(_E.id).limit(limit)
        return records_from(TaskEvent, await self._db.fetch_all(query))

    async def newest_id(self, of: TaskId | None = None, *, tx: Transaction | None = None) -> int:
        """Of all tasks or of one; 0 if there is none."""
        query = select(func.coalesce(func.max(_E.id), 0)).where(*[_E.task_id == of] * bool(of))
        return int(await self._db.fetch_value(query, tx=tx))

    async def list_unnotified(self, limit: int) -> Sequence[TaskEvent]:
        """The oldest events that no card shows yet."""
        query = select(schema.events).where(_E.told_at.is_(None)).order_by(_E.id).limit(limit)
        return records_from(TaskEvent, await self._db.fetch_all(query))

    async def list_unnotified_of(self, task_id: TaskId) -> Sequence[TaskEvent]:
        """All events of the task that no card shows yet, oldest first."""
        query = select(schema.events).where(_E.told_at.is_(None), _E.task_id == task_id)
        return records_from(TaskEvent, await self._db.fetch_all(query.order_by(_E.id)))

    async def is_newest(self, tx: Transaction, event: TaskEvent) -> bool:
        """True if nothing has happened to the event's task since."""
        query = select(_E.id).where(_E.task_id == event.task_id, _E.id > event.id).limit(1)
        return await self._db.fetch_value(query, tx=tx) is None

    async def mark_notified(
        self, tx: Transaction, events: Sequence[TaskEvent], *, now: datetime
    ) -> None:
        """Mark these as sent to the Boss. Call it in the transaction that stores the cards."""
        seen = _E.id.in_([event.id for event in events])
        await tx.execute(update(schema.events).where(seen).values(told_at=now))
