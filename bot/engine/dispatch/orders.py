"""What an order does to a task in each of its states: pure functions.

Each returns what changes, or None where the task already is as ordered; it raises WrongState
where the state forbids the order.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from storage.errors import WrongState
from storage.records.tasks import (
    Control,
    EventKind,
    NodeStatus,
    Phase,
    Priority,
    Task,
    TaskStatus,
)
from storage.work.tasks import TaskChanges

_IDLE = {TaskStatus.PENDING, TaskStatus.WAITING, TaskStatus.BLOCKED}
_RESTARTABLE = {TaskStatus.FAILED, TaskStatus.BLOCKED, TaskStatus.CANCELLED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """`frees` are steps in that state that may run again from now on."""

    changes: TaskChanges
    event: EventKind
    text: str = ""
    frees: NodeStatus | None = None


def carried_out(task: Task, order: Order, now: datetime) -> TaskChanges:
    """All that it changes: whatever enters the queue, or moves within it, waits from now on, and
    in its own priority's place."""
    changes = order.changes
    if changes.get("status") is TaskStatus.PENDING or "priority" in changes:
        return {"priority": task.priority, **changes, "waiting_since": now}
    return changes


def pause(task: Task, reason: str) -> Order | None:
    """A running task pauses at its next step boundary, a waiting one at once, and so does work
    that is only kept here."""
    if task.status is TaskStatus.PAUSED or task.control is Control.PAUSE:
        return None
    if task.status is TaskStatus.RUNNING and not task.outside:
        return Order(
            changes={"control": Control.PAUSE, "status_reason": reason}, event=EventKind.NOTE
        )
    if task.status not in _IDLE and not (task.outside and task.status is TaskStatus.RUNNING):
        raise WrongState("task", task.id, task.status)
    return Order(
        changes={
            "status": TaskStatus.PAUSED,
            "status_reason": reason,
            "resumed_first": 0,
            "wake_at": None,
        },
        event=EventKind.PAUSED,
        text=reason,
    )


def resume(task: Task) -> Order | None:
    """Queue it again, before new work of its priority; or take a pause back not yet made."""
    if task.status in {TaskStatus.PAUSED, TaskStatus.BLOCKED}:
        changes: TaskChanges = {
            "status": _again(task),
            "status_reason": "",
            "failures_in_row": 0,
            "errors": 0,
        }
        return Order(changes=changes, event=EventKind.RESUMED)
    if task.status is TaskStatus.RUNNING and task.control is Control.PAUSE:
        taken_back: TaskChanges = {"control": Control.RUN, "status_reason": ""}
        return Order(changes=taken_back, event=EventKind.RESUMED)
    if task.status in {TaskStatus.PENDING, TaskStatus.RUNNING}:
        return None
    raise WrongState("task", task.id, task.status)


def stop(task: Task, now: datetime) -> Order | None:
    """End it now, a step in progress included."""
    if task.status is TaskStatus.CANCELLED:
        return None
    if task.status.is_final:
        raise WrongState("task", task.id, task.status)
    changes: TaskChanges = {
        "status": TaskStatus.CANCELLED,
        "status_reason": "",
        "phase": Phase.ENDED,
        "control": Control.RUN,
        "ended_at": now,
    }
    return Order(changes=changes, event=EventKind.CANCELLED, frees=NodeStatus.RUNNING)


def retry(task: Task) -> Order | None:
    """Run what did not succeed again; what is finished stays finished."""
    if task.status in {TaskStatus.PENDING, TaskStatus.RUNNING}:
        return None
    if task.status not in _RESTARTABLE:
        raise WrongState("task", task.id, task.status)
    changes: TaskChanges = {
        "status": _again(task),
        "status_reason": "",
        "phase": Phase.DOING if task.graph_version or task.outside else Phase.QUEUED,
        "control": Control.RUN,
        "failures_in_row": 0,
        "errors": 0,
        "ended_at": None,
    }
    return Order(changes=changes, event=EventKind.RESUMED, frees=NodeStatus.FAILED)


def reorder(task: Task, priority: Priority) -> Order | None:
    if task.priority is priority:
        return None
    if task.status.is_final:
        raise WrongState("task", task.id, task.status)
    return Order(changes={"priority": priority}, event=EventKind.REORDERED, text=priority)


def tell(task: Task, text: str) -> Order | None:
    """Only what is over cannot be told anything."""
    if task.status.is_final:
        raise WrongState("task", task.id, task.status)
    return Order(changes={}, event=EventKind.MESSAGE, text=text)


def replan(task: Task, why: str) -> Order | None:
    if task.status.is_final or task.outside or not task.graph_version:
        raise WrongState("task", task.id, task.status)
    return Order(changes={}, event=EventKind.NOTE, text=why)


def let_in(task: Task) -> Order | None:
    if task.let_in:
        return None
    if task.status.is_final:
        raise WrongState("task", task.id, task.status)
    return Order(changes={"let_in": True}, event=EventKind.NOTE)


def _again(task: Task) -> TaskStatus:
    """Outside work does not queue: whoever does it goes on at once."""
    return TaskStatus.RUNNING if task.outside else TaskStatus.PENDING
