"""Effects of commands on a task in each of its states, as pure functions, and new versions of its
plan. Each command returns the changes, or None if the task is already in the desired state, and
raises WrongState if the state forbids it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from bot.engine.workflow.definition import Workflow, dump_workflow
from bot.engine.workflow.task_store import TaskStore
from storage.db import Transaction
from storage.errors import WrongState
from storage.records.people import PersonId
from storage.records.tasks import (
    EventKind,
    NodeStatus,
    Task,
    TaskControl,
    TaskGraph,
    TaskPhase,
    TaskPriority,
    TaskStatus,
)
from storage.tasks import TaskChanges

_PAUSABLE = {TaskStatus.PENDING, TaskStatus.WAITING, TaskStatus.BLOCKED}
_RESTARTABLE = {TaskStatus.FAILED, TaskStatus.BLOCKED, TaskStatus.CANCELLED}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEffect:
    """The changes that a command makes in a task. `released_status` is the status of the steps that
    may run again; None if no step is released."""

    changes: TaskChanges
    event: EventKind
    text: str = ""
    released_status: NodeStatus | None = None


def resolve_changes(task: Task, effect: CommandEffect, now: datetime) -> TaskChanges:
    """All changes of the effect; a task that enters the queue or moves in it waits from now on, at
    its own priority."""
    changes = effect.changes
    if changes.get("status") is TaskStatus.PENDING or "priority" in changes:
        return {"priority": task.priority, **changes, "waiting_since": now}
    return changes


def pause(task: Task, reason: str) -> CommandEffect | None:
    """A running task pauses after its current step; waiting and tracked tasks pause at once."""
    if task.status is TaskStatus.PAUSED or task.control is TaskControl.PAUSE:
        return None
    if task.status is TaskStatus.RUNNING and not task.outside:
        return CommandEffect(
            changes={"control": TaskControl.PAUSE, "status_reason": reason}, event=EventKind.NOTE
        )
    if task.status not in _PAUSABLE and not (task.outside and task.status is TaskStatus.RUNNING):
        raise WrongState("task", task.id, task.status)
    return CommandEffect(
        changes={
            "status": TaskStatus.PAUSED,
            "status_reason": reason,
            "resumed_first": 0,
            "wake_at": None,
        },
        event=EventKind.PAUSED,
        text=reason,
    )


def resume(task: Task) -> CommandEffect | None:
    """Queue the task before new work of its priority, or cancel a pause not yet in effect."""
    if task.status in {TaskStatus.PAUSED, TaskStatus.BLOCKED}:
        changes: TaskChanges = {
            "status": _restart_status(task),
            "status_reason": "",
            "failures_in_row": 0,
            "errors": 0,
        }
        return CommandEffect(changes=changes, event=EventKind.RESUMED)
    if task.status is TaskStatus.RUNNING and task.control is TaskControl.PAUSE:
        taken_back: TaskChanges = {"control": TaskControl.RUN, "status_reason": ""}
        return CommandEffect(changes=taken_back, event=EventKind.RESUMED)
    if task.status in {TaskStatus.PENDING, TaskStatus.RUNNING}:
        return None
    raise WrongState("task", task.id, task.status)


def stop(task: Task, now: datetime) -> CommandEffect | None:
    """End the task now and interrupt a running step."""
    if task.status is TaskStatus.CANCELLED:
        return None
    if task.status.is_final:
        raise WrongState("task", task.id, task.status)
    changes: TaskChanges = {
        "status": TaskStatus.CANCELLED,
        "status_reason": "",
        "phase": TaskPhase.ENDED,
        "control": TaskControl.RUN,
        "ended_at": now,
    }
    return CommandEffect(
        changes=changes, event=EventKind.CANCELLED, released_status=NodeStatus.RUNNING
    )


def retry(task: Task) -> CommandEffect | None:
    """Run unsuccessful steps again; finished steps stay finished."""
    if task.status in {TaskStatus.PENDING, TaskStatus.RUNNING}:
        return None
    if task.status not in _RESTARTABLE:
        raise WrongState("task", task.id, task.status)
    changes: TaskChanges = {
        "status": _restart_status(task),
        "status_reason": "",
        "phase": TaskPhase.DOING if task.graph_version or task.outside else TaskPhase.QUEUED,
        "control": TaskControl.RUN,
        "failures_in_row": 0,
        "errors": 0,
        "ended_at": None,
    }
    return CommandEffect(
        changes=changes, event=EventKind.RESUMED, released_status=NodeStatus.FAILED
    )


def set_priority(task: Task, priority: TaskPriority) -> CommandEffect | None:
    if task.priority is priority:
        return None
    if task.status.is_final:
        raise WrongState("task", task.id, task.status)
    return CommandEffect(changes={"priority": priority}, event=EventKind.REORDERED, text=priority)


def send_message(task: Task, text: str) -> CommandEffect | None:
    """Allowed unless the task is finished."""
    if task.status.is_final:
        raise WrongState("task", task.id, task.status)
    return CommandEffect(changes={}, event=EventKind.MESSAGE, text=text)


def replan(task: Task, reason: str) -> CommandEffect | None:
    if task.status.is_final or task.outside or not task.graph_version:
        raise WrongState("task", task.id, task.status)
    return CommandEffect(changes={}, event=EventKind.NOTE, text=reason)


def start_anyway(task: Task) -> CommandEffect | None:
    if task.let_in:
        return None
    if task.status.is_final:
        raise WrongState("task", task.id, task.status)
    return CommandEffect(changes={"let_in": True}, event=EventKind.NOTE)


async def store_plan(
    store: TaskStore,
    tx: Transaction,
    task: Task,
    workflow: Workflow,
    *,
    reason: str,
    author: PersonId,
    now: datetime,
) -> Task:
    """Store the workflow as the next version of the task's plan."""
    graph = TaskGraph(
        task_id=task.id,
        version=task.graph_version + 1,
        body=dump_workflow(workflow),
        reason=reason,
        author=author,
    )
    await store.graphs.add(tx, graph, now=now)
    return await store.tasks.update(tx, task, graph_version=graph.version)


def _restart_status(task: Task) -> TaskStatus:
    """Tracked tasks are not queued: they continue at once."""
    return TaskStatus.RUNNING if task.outside else TaskStatus.PENDING
