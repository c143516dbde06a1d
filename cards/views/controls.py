"""The buttons that move a task, wherever they stand."""

from __future__ import annotations

from cards.actions import (
    AskMessage,
    LetIn,
    PauseTask,
    ResumeTask,
    RetryTask,
    SetPriority,
    ShowLogs,
    ShowTask,
    StopTask,
)
from cards.model import Button, ButtonStyle, Confirm, Option, Select
from cards.views import marks
from cards.words import Words
from cards.workflow_actions import AskWorkflowName
from storage.records.tasks import Control, Priority, Task, TaskStatus, TaskView

_WORTH_KEEPING = 2


def live_buttons(task: Task, words: Words, *, let_in: bool = False) -> list[Button]:
    """`let_in` offers to let it work where another has left work half done."""
    details = details_button(task, words)
    others = [message_button(task, words), stop_button(task, words), details]
    match task.status:
        case TaskStatus.PENDING if let_in:
            return [let_in_button(task, words), pause_button(task, words), *others]
        case TaskStatus.RUNNING if task.control is Control.PAUSE:
            return [resume_button(task, words), *others]
        case TaskStatus.PENDING | TaskStatus.RUNNING | TaskStatus.WAITING:
            return [pause_button(task, words), *others]
        case TaskStatus.PAUSED | TaskStatus.BLOCKED:
            return [resume_button(task, words), *others]
        case TaskStatus.FAILED | TaskStatus.CANCELLED:
            return [retry_button(task, words), details]
        case _:
            return [details, logs_button(task, words)]


def ending_buttons(view: TaskView, words: Words) -> list[Button]:
    task = view.task
    shown = [details_button(task, words), logs_button(task, words)]
    if task.status is TaskStatus.BLOCKED:
        return [resume_button(task, words), *shown]
    if task.status in {TaskStatus.FAILED, TaskStatus.CANCELLED}:
        return [retry_button(task, words), *shown]
    if task.status is TaskStatus.COMPLETED and len(view.steps) >= _WORTH_KEEPING:
        return [*shown, keep_button(task, words)]
    return shown


def detail_buttons(task: Task, words: Words) -> list[Button]:
    logs = logs_button(task, words)
    if task.status in {TaskStatus.FAILED, TaskStatus.CANCELLED}:
        return [logs, retry_button(task, words)]
    if task.status in {TaskStatus.PAUSED, TaskStatus.BLOCKED}:
        return [logs, resume_button(task, words), stop_button(task, words)]
    if task.status.is_final:
        return [logs]
    return [logs, pause_button(task, words), stop_button(task, words)]


def priority_select(task: Task, words: Words) -> Select:
    return Select(
        placeholder=words("task.priority", priority=words(f"priority.{task.priority}")),
        action=SetPriority(task_id=task.id, priority=task.priority),
        options=priority_options(words),
    )


def priority_options(words: Words) -> tuple[Option, ...]:
    return tuple(Option(label=marks.priority(value, words), value=value) for value in Priority)


def retry_button(task: Task, words: Words, label: str = "") -> Button:
    return Button(
        label=label or words("button.retry"),
        action=RetryTask(task_id=task.id),
        style=ButtonStyle.PRIMARY,
    )


def resume_button(task: Task, words: Words, label: str = "") -> Button:
    return Button(
        label=label or words("button.resume"),
        action=ResumeTask(task_id=task.id),
        style=ButtonStyle.PRIMARY,
    )


def let_in_button(task: Task, words: Words) -> Button:
    return Button(
        label=words("folder.button"),
        action=LetIn(task_id=task.id),
        style=ButtonStyle.PRIMARY,
        confirm=Confirm(title=words("folder.confirm_title"), text=words("folder.confirm_text")),
    )


def pause_button(task: Task, words: Words, label: str = "") -> Button:
    return Button(label=label or words("button.pause"), action=PauseTask(task_id=task.id))


def stop_button(task: Task, words: Words, label: str = "") -> Button:
    return Button(
        label=label or words("button.stop"),
        action=StopTask(task_id=task.id),
        style=ButtonStyle.DANGER,
        confirm=Confirm(title=words("task.stop_title"), text=words("task.stop_text")),
    )


def keep_button(task: Task, words: Words) -> Button:
    return Button(label=words("workflows.button.save_as"), action=AskWorkflowName(task_id=task.id))


def message_button(task: Task, words: Words) -> Button:
    return Button(label=words("button.message"), action=AskMessage(task_id=task.id))


def details_button(task: Task, words: Words, label: str = "") -> Button:
    return Button(label=label or words("button.details"), action=ShowTask(task_id=task.id))


def logs_button(task: Task, words: Words, label: str = "") -> Button:
    return Button(label=label or words("button.logs"), action=ShowLogs(task_id=task.id))
