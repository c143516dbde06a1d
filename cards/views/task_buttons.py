"""Provides the buttons, symbols and tones of tasks on all cards."""

from __future__ import annotations

from cards import actions
from cards.catalog import TextCatalog
from cards.model import ButtonStyle, CardButton, CardTone, ConfirmDialog, SelectBlock, SelectOption
from storage.records.tasks import NodeStatus, Task, TaskControl, TaskPriority, TaskStatus, TaskView

STATUS_ICONS = {
    TaskStatus.PENDING: "🕐",
    TaskStatus.RUNNING: "🔄",
    TaskStatus.WAITING: "🔔",
    TaskStatus.PAUSED: "⏸️",
    TaskStatus.BLOCKED: "🔒",
    TaskStatus.COMPLETED: "✅",
    TaskStatus.FAILED: "❌",
    TaskStatus.CANCELLED: "🛑",
}

STATUS_TONES = {
    TaskStatus.PENDING: CardTone.NEUTRAL,
    TaskStatus.RUNNING: CardTone.INFO,
    TaskStatus.WAITING: CardTone.WARN,
    TaskStatus.PAUSED: CardTone.WARN,
    TaskStatus.BLOCKED: CardTone.BAD,
    TaskStatus.COMPLETED: CardTone.GOOD,
    TaskStatus.FAILED: CardTone.BAD,
    TaskStatus.CANCELLED: CardTone.NEUTRAL,
}

PRIORITY_ICONS = {
    TaskPriority.URGENT: "🔴",
    TaskPriority.IMPORTANT: "🟡",
    TaskPriority.NORMAL: "🟢",
}

NODE_ICONS = {
    NodeStatus.PENDING: "○",
    NodeStatus.RUNNING: "📍",
    NodeStatus.WAITING: "⏳",
    NodeStatus.DONE: "✅",
    NodeStatus.FAILED: "❌",
    NodeStatus.SKIPPED: "⏭️",
}


def status_label(value: TaskStatus, words: TextCatalog) -> str:
    return f"{STATUS_ICONS[value]} {words(f'status.{value}')}"


def priority_label(value: TaskPriority, words: TextCatalog) -> str:
    return f"{PRIORITY_ICONS[value]} {words(f'priority.{value}')}"


_MIN_STEPS_TO_SAVE = 2


def task_card_buttons(
    view: TaskView, words: TextCatalog, *, offer_start_anyway: bool = False
) -> list[CardButton]:
    """`offer_start_anyway` adds a button to start despite unfinished work of another task."""
    task = view.task
    if task.status.is_final:
        return _ended_card_buttons(view, words)
    others = [message_button(task, words), stop_button(task, words), details_button(task, words)]
    match task.status:
        case TaskStatus.PENDING if offer_start_anyway:
            return [start_anyway_button(task, words), pause_button(task, words), *others]
        case TaskStatus.RUNNING if task.control is TaskControl.PAUSE:
            return [resume_button(task, words), *others]
        case TaskStatus.PENDING | TaskStatus.RUNNING | TaskStatus.WAITING:
            return [pause_button(task, words), *others]
        case TaskStatus.BLOCKED:
            return [resume_button(task, words), *others, logs_button(task, words)]
        case _:
            return [resume_button(task, words), *others]


def task_notice_buttons(task: Task, words: TextCatalog) -> list[CardButton]:
    """The buttons of the notice that a task has ended; the card has the others."""
    if task.status is TaskStatus.BLOCKED:
        return [resume_button(task, words)]
    return [retry_button(task, words)] if task.status is TaskStatus.FAILED else []


def _ended_card_buttons(view: TaskView, words: TextCatalog) -> list[CardButton]:
    task = view.task
    buttons = [details_button(task, words), logs_button(task, words)]
    if task.status is not TaskStatus.COMPLETED:
        return [retry_button(task, words), *buttons]
    if len(view.steps) >= _MIN_STEPS_TO_SAVE:
        return [*buttons, save_workflow_button(task, words)]
    return buttons


def schedule_buttons(schedule_id: str, words: TextCatalog) -> tuple[CardButton, ...]:
    """Of the schedule that has started a task."""
    return (
        CardButton(
            words("schedule.button_pause_job"),
            actions.ControlSchedule(schedule_id=schedule_id, change="pause"),
        ),
        CardButton(
            words("schedule.button_skip_job"),
            actions.ControlSchedule(schedule_id=schedule_id, change="skip"),
        ),
    )


def task_detail_buttons(task: Task, words: TextCatalog) -> list[CardButton]:
    logs = logs_button(task, words)
    if task.status in {TaskStatus.FAILED, TaskStatus.CANCELLED}:
        return [logs, retry_button(task, words)]
    if task.status in {TaskStatus.PAUSED, TaskStatus.BLOCKED}:
        return [logs, resume_button(task, words), stop_button(task, words)]
    if task.status.is_final:
        return [logs]
    return [logs, pause_button(task, words), stop_button(task, words)]


def priority_select(task: Task, words: TextCatalog) -> SelectBlock:
    return SelectBlock(
        placeholder=words("task.priority", priority=words(f"priority.{task.priority}")),
        action=actions.SetPriority(task_id=task.id, priority=task.priority),
        options=priority_options(words),
    )


def priority_options(words: TextCatalog) -> tuple[SelectOption, ...]:
    return tuple(SelectOption(priority_label(value, words), value) for value in TaskPriority)


def retry_button(task: Task, words: TextCatalog) -> CardButton:
    return CardButton(
        words("button.retry"),
        actions.RetryTask(task_id=task.id),
        style=ButtonStyle.PRIMARY,
    )


def resume_button(task: Task, words: TextCatalog, label: str = "") -> CardButton:
    return CardButton(
        label or words("button.resume"),
        actions.ResumeTask(task_id=task.id),
        style=ButtonStyle.PRIMARY,
    )


def start_anyway_button(task: Task, words: TextCatalog) -> CardButton:
    return CardButton(
        words("folder.button"),
        actions.StartTaskAnyway(task_id=task.id),
        style=ButtonStyle.PRIMARY,
        confirm=ConfirmDialog(words("folder.confirm_title"), words("folder.confirm_text")),
    )


def pause_button(task: Task, words: TextCatalog, label: str = "") -> CardButton:
    return CardButton(label or words("button.pause"), actions.PauseTask(task_id=task.id))


def stop_button(task: Task, words: TextCatalog, label: str = "") -> CardButton:
    return CardButton(
        label or words("button.stop"),
        actions.StopTask(task_id=task.id),
        style=ButtonStyle.DANGER,
        confirm=ConfirmDialog(words("task.stop_title"), words("task.stop_text")),
    )


def save_workflow_button(task: Task, words: TextCatalog) -> CardButton:
    return CardButton(
        words("workflows.button.save_as"), actions.ShowWorkflowNameForm(task_id=task.id)
    )


def message_button(task: Task, words: TextCatalog) -> CardButton:
    return CardButton(words("button.message"), actions.ShowMessageForm(task_id=task.id))


def details_button(task: Task, words: TextCatalog, label: str = "") -> CardButton:
    return CardButton(label or words("button.details"), actions.ShowTask(task_id=task.id))


def logs_button(task: Task, words: TextCatalog, label: str = "") -> CardButton:
    return CardButton(label or words("button.logs"), actions.ShowLogs(task_id=task.id))
