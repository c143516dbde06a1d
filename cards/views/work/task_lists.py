"""Tasks on a page, one task in full, and its log."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from cards import formats
from cards.actions import ListTasks, NewTask
from cards.model import (
    Block,
    Button,
    Buttons,
    Card,
    Code,
    Collapsible,
    FieldKind,
    Fields,
    Form,
    FormField,
    Note,
    Text,
    Tone,
)
from cards.views import controls, marks
from cards.views.backends import noted, without_note
from cards.views.work.helpers import helper_blocks
from cards.views.work.outline import is_list, outline
from cards.views.workers.personas import named
from cards.words import Words
from storage.records.tasks import (
    EventKind,
    NodeStatus,
    Priority,
    Step,
    Task,
    TaskEvent,
    TaskPage,
    TaskStatus,
    TaskView,
)

PAGE = 5
LOG_LINES = 50

_TITLE = 60
_LOG = 3000
_LOG_LINE = 300
_INSTRUCTION = 1000
_RESULT = 3000
_STEPS = 30
_ERROR = 200
_MOVABLE = {TaskStatus.PENDING, TaskStatus.RUNNING, TaskStatus.WAITING}


def list_card(
    page: TaskPage, words: Words, *, now: datetime, status: TaskStatus | None = None
) -> Card:
    """One page of tasks, unfinished ones first, each with its buttons."""
    blocks: list[Block] = []
    first = (page.page - 1) * PAGE + 1
    numbered = list(enumerate(page.tasks, first))
    for key, finished in (("list.running", False), ("list.finished", True)):
        group = [(n, task) for n, task in numbered if task.status.is_final is finished]
        if group:
            blocks.append(Text(markdown=words(key)))
        for number, task in group:
            blocks += _row(number, task, words, now)
    if not page.tasks:
        empty = words("list.empty_status", status=words(f"status.{status}")) if status else ""
        blocks.append(Text(markdown=empty or words("list.empty")))
    blocks += _turning(page, words, status)
    title = words("list.title", n=page.total)
    return Card(title=title, tone=Tone.INFO, blocks=tuple(blocks), summary=title)


def detail_card(view: TaskView, words: Words, *, now: datetime, zone: ZoneInfo) -> Card:
    """All there is to know about one task."""
    task = view.task
    blocks: list[Block] = [Fields(pairs=_facts(view, words, now, zone))]
    blocks.append(
        Collapsible(
            title=words("detail.instruction"),
            blocks=(Text(markdown=formats.cut(task.instruction, _INSTRUCTION)),),
        )
    )
    if view.plan:
        blocks.append(Text(markdown=f"**{words('detail.plan')}**\n\n{without_note(view.plan)}"))
    if view.steps:
        blocks.append(Text(markdown=f"**{words('detail.steps')}**"))
        blocks += _steps(view, words, now, zone)
    blocks += helper_blocks(view.helpers, words)
    if task.summary:
        result = Text(markdown=formats.cut(without_note(task.summary), _RESULT))
        blocks.append(Collapsible(title=words("detail.result"), blocks=(result,)))
    told = (view.plan, task.summary, *(step.summary for step in view.steps))
    blocks += noted(told, words)
    blocks.append(Buttons(items=tuple(controls.detail_buttons(task, words))))
    title = words("detail.title", title=formats.line(task.title, _TITLE))
    return Card(title=title, tone=Tone.INFO, blocks=tuple(blocks), summary=title)


def logs_card(task: Task, events: Sequence[TaskEvent], words: Words, *, zone: ZoneInfo) -> Card:
    """The newest lines of a task's history, oldest first."""
    title = words("logs.title", id=task.id)
    text = "\n".join(_log_line(event, words, zone) for event in events)
    body = Code(text=formats.tail(text, _LOG)) if text else Text(markdown=words("logs.empty"))
    buttons = Buttons(items=(controls.details_button(task, words),))
    return Card(title=title, tone=Tone.INFO, blocks=(body, buttons), summary=title)


def ask_card(words: Words) -> Card:
    """A form for a new task."""
    form = Form(
        fields=(
            FormField(
                name="text",
                label=words("ask.text"),
                field=FieldKind.PARAGRAPH,
                placeholder=words("ask.placeholder"),
            ),
            FormField(
                name="priority",
                label=words("ask.priority"),
                field=FieldKind.CHOICE,
                required=False,
                options=controls.priority_options(words),
            ),
        ),
        submit=words("ask.submit"),
        action=NewTask(),
    )
    return Card(
        title=words("ask.title"), tone=Tone.INFO, blocks=(form,), summary=words("ask.title")
    )


def moved_card(task: Task, text: str, words: Words) -> Card:
    """A command moved a task."""
    return Card(
        blocks=(
            Text(markdown=f"{text}\n\n`{task.id}` {formats.line(task.title, _TITLE)}"),
            Buttons(items=(controls.details_button(task, words),)),
        ),
        summary=text,
    )


def _row(number: int, task: Task, words: Words, now: datetime) -> list[Block]:
    row = words(
        "list.row",
        n=number,
        mark=f"{marks.STATUS[task.status]}{marks.PRIORITY[task.priority]}",
        id=task.id,
        title=formats.line(task.title, _TITLE),
        age=formats.age(task.created_at, now, words),
    )
    items = [controls.details_button(task, words, words("list.details", n=number))]
    if not task.status.is_final:
        items.append(controls.logs_button(task, words, words("list.logs", n=number)))
        if task.status in _MOVABLE:
            items.append(controls.pause_button(task, words, words("list.pause", n=number)))
        else:
            items.append(controls.resume_button(task, words, words("list.resume", n=number)))
        items.append(controls.stop_button(task, words, words("list.stop", n=number)))
    return [Text(markdown=row), Buttons(items=tuple(items))]


def _turning(page: TaskPage, words: Words, status: TaskStatus | None) -> list[Block]:
    if page.pages <= 1:
        return []
    items: list[Button] = []
    for key, to in (("previous", page.page - 1), ("next", page.page + 1)):
        if 1 <= to <= page.pages:
            action = ListTasks(page=to, status=status or "")
            items.append(Button(label=words(f"button.{key}"), action=action))
    note = words("list.page", page=page.page, pages=page.pages)
    return [Buttons(items=tuple(items)), Note(markdown=note)]


def _facts(
    view: TaskView, words: Words, now: datetime, zone: ZoneInfo
) -> tuple[tuple[str, str], ...]:
    task = view.task
    by = ":".join(part for part in (task.backend, task.model) if part)
    facts = [
        ("id", task.id),
        ("status", marks.status(task.status, words)),
        ("priority", marks.priority(task.priority, words)),
        ("made", formats.moment(task.created_at, zone)),
        ("by", words("detail.by_self") if task.outside else by or words("detail.by_default")),
    ]
    if who := named(task.persona, words):
        facts.append(("persona", who))
    if task.stage:
        facts.append(("stage", formats.line(task.stage, _TITLE)))
    if task.project_dir:
        facts.append(("project", f"`{task.project_dir}`"))
    if task.branch:
        facts.append(("branch", f"`{task.branch}`"))
    if task.started_at:
        took = (task.ended_at or now) - task.started_at
        facts.append(("elapsed", formats.duration(took, words)))
    if view.spent.calls:
        cost = f"{formats.cost(view.spent, words)} · {formats.tokens(view.spent, words)}"
        facts.append(("spent", cost))
    return tuple((words(f"detail.{key}"), value) for key, value in facts)


def _steps(view: TaskView, words: Words, now: datetime, zone: ZoneInfo) -> list[Block]:
    """One after the other with what each brought; branches and rounds as on the live card, and
    what they brought below."""
    if is_list(view.steps):
        return _timeline(view.steps, words, now)
    over = view.task.status.is_final
    told = [step for step in view.steps if step.summary or step.error]
    blocks: list[Block] = [outline(view, words, now=now, zone=zone, timed=over)]
    if told:
        results = tuple(Text(markdown=each) for each in _moments(told, words, now))
        blocks.append(Collapsible(title=words("detail.results"), blocks=results))
    if len(told) > _STEPS:
        blocks.append(Note(markdown=words("detail.more_steps", n=len(told) - _STEPS)))
    return blocks


def _moments(steps: Sequence[Step], words: Words, now: datetime) -> list[str]:
    """The last of them, in the order in which they began."""
    ordered = sorted(steps, key=lambda step: step.started_at or now)
    return [_moment(step, words, now) for step in ordered[-_STEPS:]]


def _timeline(steps: Sequence[Step], words: Words, now: datetime) -> list[Block]:
    """Steps in the order they began; those not begun keep their place in the plan."""
    started = sorted((s for s in steps if s.started_at), key=lambda s: s.started_at or now)
    ordered = [*started, *(step for step in steps if not step.started_at)]
    blocks: list[Block] = [Text(markdown=_moment(step, words, now)) for step in ordered[:_STEPS]]
    if len(ordered) > _STEPS:
        blocks.append(Note(markdown=words("detail.more_steps", n=len(ordered) - _STEPS)))
    return blocks


def _moment(step: Step, words: Words, now: datetime) -> str:
    elapsed = ""
    if step.started_at:
        elapsed = formats.duration((step.ended_at or now) - step.started_at, words)
    title = formats.line(step.title, _TITLE)
    # A step that failed and may run again waits; what went wrong is still worth a sign.
    waits = step.error and step.status is NodeStatus.PENDING
    mark = marks.NODE[NodeStatus.FAILED if waits else step.status]
    parts = [words("detail.step", mark=mark, title=title, elapsed=elapsed)]
    if step.error:
        parts.append(words("detail.error", error=formats.line(without_note(step.error), _ERROR)))
    elif step.summary:
        parts.append(formats.preview(without_note(step.summary)))
    return "\n".join(part.rstrip() for part in parts)


def _log_line(event: TaskEvent, words: Words, zone: ZoneInfo) -> str:
    kind = words(f"logs.kind.{event.kind}")
    text = formats.line(without_note(event.text), _LOG_LINE)
    if event.kind is EventKind.REORDERED and text in list(Priority):
        text = words(f"priority.{text}")
    return f"{formats.clock(event.at, zone)} {kind} {text}".rstrip()
