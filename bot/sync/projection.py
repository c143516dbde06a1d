"""Says what the rows of a task, its steps and logs, and of a memory show."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from storage.records.bitable import LogField, MemoryField, SyncedKind, SyncedValue, TaskField
from storage.records.memory import MemoryEntry
from storage.records.task_logs import LogEntry
from storage.records.tasks import (
    NodeStatus,
    Task,
    TaskControl,
    TaskId,
    TaskStatus,
    TaskStep,
    TaskView,
)

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
