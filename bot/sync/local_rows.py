"""Reads the store's present rows of tasks, their steps and logs, and memories."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from handlers.ports import PeoplePort, TaskPort
from storage.bitable import BitableRepo
from storage.errors import NotFound
from storage.records.bitable import LogField, MemoryField, SyncedKind, SyncedValue, TaskField
from storage.records.memory import MemoryEntry
from storage.records.people import Chat, PersonId
from storage.records.task_logs import LogEntry
from storage.records.tasks import (
    EventKind,
    NodeStatus,
    Task,
    TaskControl,
    TaskEvent,
    TaskId,
    TaskStatus,
    TaskStep,
    TaskView,
)

MAX_LOGS = 500
"""Rows of logs of one task; older logs stay in the store only."""

_RECENT_EVENTS = 30
_CHANGED_BY = {
    TaskField.TITLE.value: {EventKind.NOTE},
    TaskField.INSTRUCTION.value: {EventKind.NOTE},
    TaskField.PRIORITY.value: {EventKind.REORDERED},
    TaskField.STATUS.value: set(EventKind) - {EventKind.NOTE, EventKind.REORDERED},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRow:
    """A row of the store. `is_live`: it is created again if people delete it."""

    kind: SyncedKind
    local_id: str
    cells: Cells
    is_live: bool = False
    task: Task | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRowReader:
    repo: BitableRepo
    tasks: TaskPort
    people: PeoplePort
    list_memories: Callable[[Chat], Awaitable[Sequence[MemoryEntry]]]
    _names: dict[PersonId, str] = field(default_factory=dict)

    async def read_tasks(self, ids: Sequence[TaskId]) -> Sequence[LocalRow]:
        """The rows of existing tasks with their steps and logs."""
        rows: list[LocalRow] = []
        for task_id in ids:
            try:
                view = await self.tasks.view(task_id)
            except NotFound:
                continue
            rows.append(self._task_row(view.task, task_cells(view, await self._name(view.task))))
            rows += (
                LocalRow(
                    kind=SyncedKind.STEP,
                    local_id=step_id(task_id, step),
                    cells=step_cells(view.task, step),
                )
                for step in view.steps
            )
            rows += (
                LocalRow(kind=SyncedKind.LOG, local_id=str(each.id), cells=log_cells(each))
                for each in await self.repo.list_logs(task_id, MAX_LOGS)
            )
        return rows

    async def read_task(self, task_id: str) -> LocalRow | None:
        """The task alone; None if it does not exist."""
        try:
            view = await self.tasks.view(TaskId(task_id))
        except NotFound:
            return None
        return self._task_row(view.task, task_cells(view, await self._name(view.task)))

    async def read_memories(self, chat: Chat) -> Sequence[LocalRow]:
        return tuple(
            LocalRow(
                kind=SyncedKind.MEMORY,
                local_id=each.id,
                cells=memory_cells(each),
                is_live=True,
            )
            for each in await self.list_memories(chat)
        )

    async def list_later(self, task: Task, keys: Collection[str], at: int) -> frozenset[str]:
        """The columns among `keys` that the store changed before `at`, by its history."""
        events = await self.tasks.events(task.id, _RECENT_EVENTS)
        return frozenset(key for key in keys if _changed_at(key, events) <= at)

    def _task_row(self, task: Task, cells: Cells) -> LocalRow:
        return LocalRow(
            kind=SyncedKind.TASK,
            local_id=task.id,
            cells=cells,
            is_live=not task.status.is_final,
            task=task,
        )

    async def _name(self, task: Task) -> str:
        if task.created_by not in self._names:
            self._names[task.created_by] = (await self.people.get(task.created_by)).name
        return self._names[task.created_by]


def _changed_at(key: str, events: Sequence[TaskEvent]) -> int:
    kinds = _CHANGED_BY.get(key, set())
    return max((milliseconds(each.at) or 0 for each in events if each.kind in kinds), default=0)


ORDERABLE = frozenset((TaskField.TITLE.value, TaskField.STATUS.value, TaskField.PRIORITY.value)) | {
    TaskField.INSTRUCTION.value
}
"""The columns of a task in which people may order something."""

_MICROS = 1_000_000
_TITLE_LENGTH = 60
_IMPORTANT, _MEDIUM = 0.7, 0.4
_STEP_STATUS = {
    NodeStatus.PENDING: TaskStatus.PENDING,
    NodeStatus.RUNNING: TaskStatus.RUNNING,
    NodeStatus.WAITING: TaskStatus.WAITING,
    NodeStatus.DONE: TaskStatus.COMPLETED,
    NodeStatus.SKIPPED: TaskStatus.CANCELLED,
    NodeStatus.CANCELLED: TaskStatus.CANCELLED,
    NodeStatus.FAILED: TaskStatus.FAILED,
}

Cells = Mapping[str, SyncedValue]


def task_cells(view: TaskView, person: str) -> Cells:
    """`person` is the name of the person whose task it is."""
    task = view.task
    return {
        TaskField.TITLE.value: task.title,
        TaskField.STATUS.value: shown_status(task),
        TaskField.PRIORITY.value: task.priority.value,
        TaskField.INSTRUCTION.value: task.instruction,
        TaskField.STAGE.value: _stage(view),
        TaskField.PLAN.value: view.plan,
        TaskField.RESULT.value: task.summary,
        TaskField.ERRORS.value: task.errors,
        TaskField.TOKENS.value: view.spent.tokens,
        TaskField.COST.value: view.spent.cost_micros / _MICROS,
        TaskField.PERSON.value: person,
        TaskField.PARENT.value: None,
        TaskField.CREATED.value: milliseconds(task.created_at),
        TaskField.STARTED.value: milliseconds(task.started_at),
        TaskField.ENDED.value: milliseconds(task.ended_at),
        TaskField.ID.value: task.id,
    }


def shown_status(task: Task) -> str:
    """A task that pauses after its step counts as paused, as the person who ordered it sees."""
    pausing = task.status is TaskStatus.RUNNING and task.control is TaskControl.PAUSE
    return (TaskStatus.PAUSED if pausing else task.status).value


def step_cells(task: Task, step: TaskStep) -> Cells:
    return {
        TaskField.TITLE.value: step.title or step.path,
        TaskField.STATUS.value: _STEP_STATUS[step.status].value,
        TaskField.RESULT.value: step.error or step.summary,
        TaskField.PARENT.value: task.id,
        TaskField.STARTED.value: milliseconds(step.started_at),
        TaskField.ENDED.value: milliseconds(step.ended_at),
        TaskField.ID.value: step_id(task.id, step),
    }


def step_id(task_id: TaskId, step: TaskStep) -> str:
    return f"{task_id}/{step.path}"


def log_cells(entry: LogEntry) -> Cells:
    return {
        LogField.CONTENT.value: entry.text,
        LogField.TASK.value: entry.task_id,
        LogField.KIND.value: entry.kind.value,
        LogField.STAGE.value: entry.stage,
        LogField.AT.value: milliseconds(entry.at),
        LogField.ID.value: str(entry.id),
    }


def memory_cells(entry: MemoryEntry) -> Cells:
    title = entry.abstract or entry.text
    return {
        MemoryField.TITLE.value: " ".join(title.split())[:_TITLE_LENGTH],
        MemoryField.KIND.value: entry.category.value,
        MemoryField.CONTENT.value: entry.text,
        MemoryField.IMPORTANCE.value: _importance(entry.importance),
        MemoryField.AT.value: milliseconds(entry.said_at),
        MemoryField.ACTIVE.value: True,
        MemoryField.ID.value: entry.id,
    }


def orderable_keys(kind: SyncedKind) -> frozenset[str]:
    return ORDERABLE if kind is SyncedKind.TASK else frozenset()


def milliseconds(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp() * 1000)


def _stage(view: TaskView) -> str:
    if view.task.stage:
        return view.task.stage
    if not view.total:
        return ""
    running = [step.title for step in view.steps if step.status is NodeStatus.RUNNING]
    counted = f"{view.done}/{view.total}"
    return f"{counted} · {running[0]}" if running else counted


def _importance(value: float) -> str:
    if value >= _IMPORTANT:
        return "high"
    return "medium" if value >= _MEDIUM else "low"
