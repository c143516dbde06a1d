"""The effects of commands on a task in every state: the rule, and named exceptions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engine.tasks import service
from bot.engine.tasks.service import CommandEffect
from storage.errors import WrongState
from storage.records.people import ChatId, PersonId
from storage.records.tasks import Task, TaskControl, TaskId, TaskPhase, TaskPriority, TaskStatus

NOW = datetime(2026, 1, 5, tzinfo=UTC)
TASK = Task(
    id=TaskId("k3m9qa"),
    title="t",
    instruction="t",
    priority=TaskPriority.IMPORTANT,
    status=TaskStatus.PENDING,
    status_reason="",
    phase=TaskPhase.QUEUED,
    control=TaskControl.RUN,
    chat_id=ChatId("c"),
    reply_to="",
    created_by=PersonId("p"),
    project_dir="",
    model="",
    backend="",
    files=(),
    graph_version=0,
    epoch=0,
    failures_in_row=0,
    replans=0,
    summary="",
    created_at=NOW,
    started_at=None,
    ended_at=None,
)

COMMANDS: dict[str, Callable[[Task], CommandEffect | None]] = {
    "pause": lambda task: service.pause(task, ""),
    "resume": service.resume,
    "stop": lambda task: service.stop(task, NOW),
    "retry": service.retry,
    "urgent": lambda task: service.set_priority(task, TaskPriority.URGENT),
}


def refusing_statuses(name: str) -> set[TaskStatus]:
    found = set()
    for status in TaskStatus:
        try:
            COMMANDS[name](replace(TASK, status=status))
        except WrongState:
            found.add(status)
    return found


def test_each_order_is_refused_in_exactly_these_states() -> None:
    final = {TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED}

    assert refusing_statuses("pause") == final
    assert refusing_statuses("resume") == final | {TaskStatus.WAITING}
    assert refusing_statuses("stop") == {TaskStatus.COMPLETED, TaskStatus.FAILED}
    assert refusing_statuses("retry") == {
        TaskStatus.COMPLETED,
        TaskStatus.PAUSED,
        TaskStatus.WAITING,
    }
    assert refusing_statuses("urgent") == final


@given(st.lists(st.sampled_from(sorted(COMMANDS)), max_size=12), st.sampled_from(TaskStatus))
def test_the_same_order_twice_changes_nothing_the_second_time(
    names: list[str], status: TaskStatus
) -> None:
    task = replace(TASK, status=status)
    for name in names:
        task = applied(task, name)
        assert applied(task, name) == task


@given(st.lists(st.sampled_from(sorted(COMMANDS)), max_size=12), st.sampled_from(TaskStatus))
def test_no_order_makes_a_task_run_or_finish(names: list[str], status: TaskStatus) -> None:
    task = replace(TASK, status=status)
    for name in names:
        before, task = task.status, applied(task, name)
        made = {task.status} - {before}
        assert not made & {TaskStatus.RUNNING, TaskStatus.COMPLETED, TaskStatus.FAILED}


def test_a_pause_not_yet_made_can_be_taken_back() -> None:
    running = replace(TASK, status=TaskStatus.RUNNING)
    pausing = applied(running, "pause")

    assert pausing.status is TaskStatus.RUNNING
    assert applied(pausing, "resume").control is TaskControl.RUN


def test_a_refusal_names_the_state() -> None:
    with pytest.raises(WrongState) as refusal:
        service.stop(replace(TASK, status=TaskStatus.COMPLETED), NOW)
    assert refusal.value.state == "completed"


def applied(task: Task, name: str) -> Task:
    try:
        order = COMMANDS[name](task)
    except WrongState:
        return task
    if order is None:
        return task
    changes: dict[str, Any] = dict(order.changes)
    changes.pop("resumed_first", None)
    return replace(task, **changes)
