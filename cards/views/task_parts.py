"""Renders what the cards of tasks share: buttons, symbols and tones, and plans as checklist lines
with branches, rounds, waits and estimates."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from cards import actions, formats
from cards.catalog import TextCatalog
from cards.model import (
    Block,
    ButtonStyle,
    CardButton,
    CardTone,
    ChecklistBlock,
    ChecklistItem,
    ChecklistState,
    ConfirmDialog,
    NoteBlock,
    SelectBlock,
    SelectOption,
    TextBlock,
)
from cards.views.backends import strip_offline_note
from cards.views.personas import persona_label
from storage.records.tasks import (
    LoopProgress,
    NodeStatus,
    SubagentLine,
    SubagentStatus,
    Task,
    TaskControl,
    TaskEta,
    TaskPhase,
    TaskPriority,
    TaskStatus,
    TaskStep,
    TaskView,
)

# --- buttons, symbols and tones

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
    NodeStatus.CANCELLED: "🚫",
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
        case TaskStatus.RUNNING if task.is_pausing:
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
    return [*buttons, save_workflow_button(task, words)] if is_worth_saving(view) else buttons


def is_worth_saving(view: TaskView) -> bool:
    """Whether the plan is offered for saving as a workflow."""
    return view.task.status is TaskStatus.COMPLETED and len(view.steps) >= _MIN_STEPS_TO_SAVE


def schedule_buttons(schedule_id: str, words: TextCatalog) -> tuple[CardButton, ...]:
    """Buttons of the schedule that has started the task."""
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
    if task.status in {TaskStatus.PAUSED, TaskStatus.BLOCKED} or task.is_pausing:
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


# --- plans and sub-agents

_MAX_SUBAGENT_LABEL = 60
_MAX_SUBAGENTS = 10


def subagent_blocks(subagents: Sequence[SubagentLine], words: TextCatalog) -> list[Block]:
    """The newest sub-agents and their status; empty if there are none."""
    if not subagents:
        return []
    newest = subagents[-_MAX_SUBAGENTS:]
    blocks: list[Block] = [
        TextBlock(words("helpers.title")),
        ChecklistBlock(tuple(_subagent_item(each, words) for each in newest)),
    ]
    if len(subagents) > _MAX_SUBAGENTS:
        blocks.append(NoteBlock(words("helpers.more", n=len(subagents) - _MAX_SUBAGENTS)))
    return blocks


def _subagent_item(helper: SubagentLine, words: TextCatalog) -> ChecklistItem:
    queued = helper.status is SubagentStatus.ACCEPTED
    return ChecklistItem(
        label=formats.single_line(helper.label, _MAX_SUBAGENT_LABEL),
        state=ChecklistState.PENDING if queued else ChecklistState(helper.status.value),
        detail=words(f"helpers.status.{helper.status}"),
    )


_MAX_DETAIL = 100
_MAX_LINE = 72
_MIN_LABEL = 24
_MAX_BRANCH = 24
_LONG_PLAN = 12
_MAX_CHARACTERS = 2_000
_MAX_NAME = 40
_MAX_WAITED_FOR = 2
FAILED_STATUSES = {TaskStatus.FAILED, TaskStatus.BLOCKED}
_CONFIDENT, _UNCERTAIN = 0.7, 0.4
_MINUTES_IN_HOUR, _HOURS_IN_DAY = 60, 24
_MIN_ETA_STEPS = 2


def outline_block(
    view: TaskView,
    words: TextCatalog,
    *,
    now: datetime,
    zone: ZoneInfo | None = None,
    with_durations: bool = False,
) -> ChecklistBlock:
    """`with_durations` adds each step's duration; without `zone` no clock times are shown."""
    lines_before, lines_after = view.lines_left_out
    long = len(view.visible_steps) > _LONG_PLAN
    failures = _failed_containers(view)
    checks = [
        ChecklistItem(
            label=_step_label(step, words, _MAX_LINE if long else _MAX_DETAIL)
            + (_duration_suffix(step, words, now) if with_durations else ""),
            state=ChecklistState.FAILED if step.path in failures else step_state(step, view.task),
            detail=""
            if with_durations
            else formats.truncate(
                _step_detail(step, view.task, words, now, zone), _MAX_NAME if long else _MAX_DETAIL
            ),
            depth=step.depth,
        )
        for step in view.visible_steps
    ]
    if lines_before:
        checks.insert(
            0, ChecklistItem(label=words("graph.before", n=lines_before), state=ChecklistState.DONE)
        )
    if lines_after:
        checks.append(ChecklistItem(label=words("graph.more", n=lines_after)))
    return ChecklistBlock(tuple(_fit_labels(checks, _MAX_CHARACTERS)))


def _fit_labels(checks: Sequence[ChecklistItem], most: int) -> Sequence[ChecklistItem]:
    """All lines, the longest cut if together they exceed one message."""
    lengths = sorted(len(check.label) for check in checks)
    available = most - sum(len(check.detail) + 2 * check.depth for check in checks)
    if sum(lengths) <= available:
        return checks
    # Short labels leave room for long ones.
    room, n = available, len(lengths)
    for length in lengths:
        if length * n > room:
            break
        room, n = room - length, n - 1
    longest = max(_MIN_LABEL, room // max(1, n))
    return [replace(check, label=formats.truncate(check.label, longest)) for check in checks]


def is_plain_list(steps: Sequence[TaskStep]) -> bool:
    """Whether the plan is a plain sequence of steps."""
    plain = ("task", "human")
    return not any(step.depth or step.kind not in plain or step.round > 1 for step in steps)


def _failed_containers(view: TaskView) -> AbstractSet[str]:
    """The paths of containers with a step on which the task failed."""
    if view.task.status not in FAILED_STATUSES:
        return frozenset()
    steps = (*view.steps, *view.visible_steps)
    failed = {
        step.path
        for step in steps
        if not _failed_but_continued(step) and step_state(step, view.task) is ChecklistState.FAILED
    }
    return {
        step.path
        for step in steps
        if step.rounds is not None
        and not step.status.is_settled
        and any(path.startswith(f"{step.path}[") for path in failed)
    }


def _failed_but_continued(step: TaskStep) -> bool:
    """Whether the step failed but the plan continues."""
    return step.status in {NodeStatus.DONE, NodeStatus.SKIPPED} and bool(step.error)


def step_state(step: TaskStep, task: Task) -> ChecklistState:
    """A step of an inactive task is not running: it was interrupted or caused the failure."""
    if _failed_but_continued(step):
        return ChecklistState.FAILED
    if step.status is NodeStatus.WAITING and task.status.is_final:
        return ChecklistState.PAUSED
    if step.status is NodeStatus.RUNNING and task.status is not TaskStatus.RUNNING:
        waits = step.rounds is not None and task.status is TaskStatus.WAITING
        return ChecklistState.WAITING if waits else ChecklistState.PAUSED
    if step.status is NodeStatus.PENDING and step.started_at and task.status in FAILED_STATUSES:
        return ChecklistState.FAILED
    return ChecklistState(step.status.value)


def eta_text(view: TaskView, words: TextCatalog) -> str:
    """The estimated time left; empty if the task is not running or almost finished."""
    task, eta = view.task, view.eta
    works = task.status is TaskStatus.RUNNING and task.control is TaskControl.RUN
    if eta is None or not works or task.phase is not TaskPhase.DOING or eta.steps < _MIN_ETA_STEPS:
        return ""
    return words("graph.eta.left", span=eta_prefix(eta) + _eta_span(eta.seconds, words))


def eta_prefix(eta: TaskEta) -> str:
    """No prefix if the estimate is certain, `≈` if it is little more than a guess."""
    if eta.confidence >= _CONFIDENT:
        return ""
    return "~" if eta.confidence >= _UNCERTAIN else "≈"


def _eta_span(seconds: float, words: TextCatalog) -> str:
    """The estimate as a span; the longer it is, the coarser its unit."""
    if seconds < _MINUTES_IN_HOUR:
        return words("graph.eta.seconds", s=max(10, round(seconds / 10) * 10))
    minutes = round(seconds / _MINUTES_IN_HOUR)
    for most, step in ((10, 1), (_MINUTES_IN_HOUR, 5)):
        if minutes < most:
            return words("graph.eta.minutes", m=round(minutes / step) * step)
    quarters = round(minutes / 15) * 15
    hours, rest = divmod(quarters, _MINUTES_IN_HOUR)
    if hours >= _HOURS_IN_DAY and not hours % _HOURS_IN_DAY:
        return words("graph.eta.whole_days", d=hours // _HOURS_IN_DAY)
    if hours >= _HOURS_IN_DAY:
        return words("graph.eta.days", d=hours // _HOURS_IN_DAY, h=hours % _HOURS_IN_DAY)
    return words("graph.eta.hours", h=hours, m=f"{rest:02}")


def _step_label(step: TaskStep, words: TextCatalog, room: int) -> str:
    """The step's title, cut to make room for the suffix, which is short and never cut."""
    parts: list[str] = []
    if step.round > 1 and step.status is not NodeStatus.SKIPPED:
        parts.append(f"×{step.round}")
    if step.chosen_branches:
        parts.append("→ " + formats.truncate(", ".join(step.chosen_branches), _MAX_BRANCH))
    if step.folded_steps:
        parts.append(words("graph.folded", n=step.folded_steps))
    suffix = " ".join(["", *parts])
    prefix = "🔁 " if step.rounds is not None else ""
    if step.rounds is not None:
        suffix += _rounds_text(step, step.rounds, words)
    if step.branch is not None:
        name = formats.single_line(step.branch, _MAX_BRANCH)
        prefix = f"↳ {name}: {prefix}" if name else f"↳ {prefix}"
    title = formats.single_line(step.title, max(_MIN_LABEL, room - len(prefix) - len(suffix)))
    return f"{prefix}{title}{suffix}"


def _rounds_text(step: TaskStep, rounds: LoopProgress, words: TextCatalog) -> str:
    """The rounds of a loop; empty before the first round, unless the number of rounds is known."""
    lost = f" · {words('graph.failed', n=rounds.failed)}" if rounds.failed else ""
    if rounds.total is not None:
        return f" · {rounds.done}/{rounds.total}{lost}"
    if not rounds.current or step.status.is_settled:
        return lost
    if rounds.max_total is None:
        return f" · {words('graph.round', n=rounds.current)}{lost}"
    return f" · {words('graph.round_of', n=rounds.current, most=rounds.max_total)}{lost}"


def _step_detail(
    step: TaskStep, task: Task, words: TextCatalog, now: datetime, zone: ZoneInfo | None
) -> str:
    if _failed_but_continued(step):
        why = formats.single_line(strip_offline_note(step.error), _MAX_DETAIL)
        return words("graph.made_up_for", why=why)
    if task.status.is_final and not step.status.is_settled:
        return ""
    if step.status is NodeStatus.CANCELLED:
        return formats.single_line(step.error, _MAX_DETAIL)
    if step.status is NodeStatus.FAILED and task.status not in FAILED_STATUSES:
        return formats.single_line(strip_offline_note(step.error), _MAX_DETAIL)
    who = persona_label(step.persona, words) if step.persona != task.persona else ""
    waits = [
        _waits_for_text(step, words) if step.awaits_person else "",
        _until_text(step, words, now, zone),
    ]
    return " · ".join(filter(None, (*waits, *map(": ".join, step.values), who)))


def _waits_for_text(step: TaskStep, words: TextCatalog) -> str:
    names = [formats.single_line(name, _MAX_NAME) for name in step.awaited_names[:_MAX_WAITED_FOR]]
    if not names:
        return words("graph.waits")
    if len(step.awaited_names) > _MAX_WAITED_FOR:
        return words("graph.waits_for_many", who=words("graph.comma").join(names))
    return words("graph.waits_for", who=words("graph.or").join(names))


def _until_text(step: TaskStep, words: TextCatalog, now: datetime, zone: ZoneInfo | None) -> str:
    if step.waits_until is None or zone is None or step.waits_until <= now:
        return ""
    at, today = step.waits_until.astimezone(zone), now.astimezone(zone)
    # Today's times omit the day, and times omit seconds where these say nothing.
    if at.date() == today.date():
        near = at - today < timedelta(minutes=2)
        return words("graph.until", at=at.strftime("%H:%M:%S" if near else "%H:%M"))
    return words("graph.until", at=formats.date_time(step.waits_until, zone))


def _duration_suffix(step: TaskStep, words: TextCatalog, now: datetime) -> str:
    if not step.started_at:
        return ""
    return f" ({formats.duration((step.ended_at or now) - step.started_at, words)})"
