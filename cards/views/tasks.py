"""Renders the task list, one task in full, its history, and the form for a message to its
worker."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from cards import formats, model
from cards.actions import ListTasks, SubmitMessageForm, SubmitTaskForm
from cards.catalog import TextCatalog
from cards.views import task_parts
from cards.views.backends import offline_note_blocks, strip_offline_note
from cards.views.personas import persona_label
from cards.views.task_parts import is_plain_list, outline_block, subagent_blocks
from storage.records.tasks import (
    EventKind,
    NodeStatus,
    Task,
    TaskEvent,
    TaskPage,
    TaskPriority,
    TaskStatus,
    TaskStep,
    TaskView,
)
from storage.records.workflows import RunPictures

PAGE_SIZE = 5
MAX_LOG_LINES = 50

_MAX_TITLE = 60
_MAX_LOG = 3000
_MAX_LOG_LINE = 300
_MAX_INSTRUCTION = 1000
_MAX_RESULT = 3000
_MAX_STEPS = 30
_MAX_ERROR = 200
_MAX_VALUE = 60
_PAUSABLE = {TaskStatus.PENDING, TaskStatus.RUNNING, TaskStatus.WAITING}


def task_list_card(
    page: TaskPage, words: TextCatalog, *, now: datetime, status: TaskStatus | None = None
) -> model.Card:
    """One page of tasks, unfinished ones first, each with its buttons."""
    blocks: list[model.Block] = []
    first = (page.page - 1) * PAGE_SIZE + 1
    numbered = list(enumerate(page.tasks, first))
    for key, finished in (("list.running", False), ("list.finished", True)):
        group = [(n, task) for n, task in numbered if task.status.is_final is finished]
        if group:
            blocks.append(model.TextBlock(words(key)))
        for number, task in group:
            blocks += _task_row(number, task, words, now)
    if not page.tasks:
        empty = words("list.empty_status", status=words(f"status.{status}")) if status else ""
        blocks.append(model.TextBlock(empty or words("list.empty")))
    blocks += _page_buttons(page, words, status)
    return model.titled_card(words("list.title", n=page.total), *blocks)


def task_detail_card(
    view: TaskView, words: TextCatalog, *, now: datetime, zone: ZoneInfo
) -> model.Card:
    """Everything about one task."""
    task = view.task
    blocks: list[model.Block] = [model.FieldsBlock(_task_facts(view, words, now, zone))]
    blocks.append(
        model.CollapsibleBlock(
            words("detail.instruction"),
            (model.TextBlock(formats.truncate(task.instruction, _MAX_INSTRUCTION)),),
        )
    )
    if view.plan:
        blocks.append(
            model.TextBlock(f"**{words('detail.plan')}**\n\n{strip_offline_note(view.plan)}")
        )
    if view.steps:
        blocks.append(model.TextBlock(f"**{words('detail.steps')}**"))
        blocks += _step_blocks(view, words, now, zone)
    blocks += subagent_blocks(view.subagents, words)
    if task.summary:
        result = model.TextBlock(formats.truncate(strip_offline_note(task.summary), _MAX_RESULT))
        blocks.append(model.CollapsibleBlock(words("detail.result"), (result,)))
    texts = (view.plan, task.summary, *(step.summary for step in view.steps))
    blocks += offline_note_blocks(texts, words)
    blocks.append(model.ButtonsBlock(tuple(task_parts.task_detail_buttons(task, words))))
    return model.titled_card(
        words("detail.title", title=formats.single_line(task.title, _MAX_TITLE)), *blocks
    )


def task_history_card(
    task: Task, events: Sequence[TaskEvent], words: TextCatalog, *, zone: ZoneInfo
) -> model.Card:
    """The newest lines of a task's history, oldest first."""
    text = "\n".join(event_line(event, words, zone) for event in events)
    body = (
        model.CodeBlock(formats.last_lines(text, _MAX_LOG))
        if text
        else model.TextBlock(words("logs.empty"))
    )
    buttons = model.ButtonsBlock((task_parts.details_button(task, words),))
    return model.titled_card(words("logs.title", id=task.id), body, buttons)


def new_task_form(words: TextCatalog) -> model.Card:
    """The form for a new task."""
    form = model.FormBlock(
        fields=(
            model.FormField(
                name="text",
                label=words("ask.text"),
                field=model.FormFieldKind.PARAGRAPH,
                placeholder=words("ask.placeholder"),
            ),
            model.FormField(
                name="priority",
                label=words("ask.priority"),
                field=model.FormFieldKind.CHOICE,
                required=False,
                options=task_parts.priority_options(words),
            ),
        ),
        submit=words("ask.submit"),
        action=SubmitTaskForm(),
    )
    return model.titled_card(words("ask.title"), form)


def task_changed_card(task: Task, text: str, words: TextCatalog) -> model.Card:
    """The result of a command on a task."""
    return model.Card(
        blocks=(
            model.TextBlock(f"{text}\n\n`{task.id}` {formats.single_line(task.title, _MAX_TITLE)}"),
            model.ButtonsBlock((task_parts.details_button(task, words),)),
        ),
        summary=text,
    )


def _task_row(number: int, task: Task, words: TextCatalog, now: datetime) -> list[model.Block]:
    row = words(
        "list.row",
        n=number,
        mark=f"{task_parts.STATUS_ICONS[task.status]}{task_parts.PRIORITY_ICONS[task.priority]}",
        id=task.id,
        title=formats.single_line(task.title, _MAX_TITLE),
        age=formats.time_ago(task.created_at, now, words),
    )
    items = [task_parts.details_button(task, words, words("list.details", n=number))]
    if not task.status.is_final:
        items.append(task_parts.logs_button(task, words, words("list.logs", n=number)))
        if task.status in _PAUSABLE and not task.is_pausing:
            items.append(task_parts.pause_button(task, words, words("list.pause", n=number)))
        else:
            items.append(task_parts.resume_button(task, words, words("list.resume", n=number)))
        items.append(task_parts.stop_button(task, words, words("list.stop", n=number)))
    return [model.TextBlock(row), model.ButtonsBlock(tuple(items))]


def _page_buttons(
    page: TaskPage, words: TextCatalog, status: TaskStatus | None
) -> list[model.Block]:
    if page.pages <= 1:
        return []
    items: list[model.CardButton] = []
    for key, to in (("previous", page.page - 1), ("next", page.page + 1)):
        if 1 <= to <= page.pages:
            action = ListTasks(page=to, status=status or "")
            items.append(model.CardButton(words(f"button.{key}"), action))
    note = words("list.page", page=page.page, pages=page.pages)
    return [model.ButtonsBlock(tuple(items)), model.NoteBlock(note)]


def _task_facts(
    view: TaskView, words: TextCatalog, now: datetime, zone: ZoneInfo
) -> tuple[tuple[str, str], ...]:
    task = view.task
    by = ":".join(part for part in (task.backend, task.model) if part)
    facts = [
        ("id", task.id),
        ("status", task_parts.status_label(task.status, words)),
        ("priority", task_parts.priority_label(task.priority, words)),
        ("made", formats.date_time(task.created_at, zone)),
        ("by", words("detail.by_self") if task.outside else by or words("detail.by_default")),
    ]
    if who := persona_label(task.persona, words):
        facts.append(("persona", who))
    if task.stage:
        facts.append(("stage", formats.single_line(task.stage, _MAX_TITLE)))
    if task.project_dir:
        facts.append(("project", f"`{task.project_dir}`"))
    if task.branch:
        facts.append(("branch", f"`{task.branch}`"))
    if task.started_at:
        took = (task.ended_at or now) - task.started_at
        facts.append(("elapsed", formats.duration(took, words)))
    if view.spent.calls:
        cost = (
            f"{formats.spent_cost(view.spent, words)} · {formats.spent_tokens(view.spent, words)}"
        )
        facts.append(("spent", cost))
    return tuple((words(f"detail.{key}"), value) for key, value in facts)


def _step_blocks(
    view: TaskView, words: TextCatalog, now: datetime, zone: ZoneInfo
) -> list[model.Block]:
    """Plain plans as steps with their results; others as on the live card with results below."""
    if is_plain_list(view.steps):
        return _timeline(view.steps, words, now)
    over = view.task.status.is_final
    steps = [step for step in view.steps if step.summary or step.error]
    blocks: list[model.Block] = [
        outline_block(view, words, now=now, zone=zone, with_durations=over)
    ]
    if steps:
        results = tuple(model.TextBlock(each) for each in _step_texts(steps, words, now))
        blocks.append(model.CollapsibleBlock(words("detail.results"), results))
    if len(steps) > _MAX_STEPS:
        blocks.append(model.NoteBlock(words("detail.more_steps", n=len(steps) - _MAX_STEPS)))
    return blocks


def _step_texts(steps: Sequence[TaskStep], words: TextCatalog, now: datetime) -> list[str]:
    """The latest steps with results, in the order they started."""
    ordered = sorted(steps, key=lambda step: step.started_at or now)
    return [_step_text(step, words, now) for step in ordered[-_MAX_STEPS:]]


def _timeline(steps: Sequence[TaskStep], words: TextCatalog, now: datetime) -> list[model.Block]:
    """Steps in the order they started; others stay at their place in the plan."""
    started = sorted((s for s in steps if s.started_at), key=lambda s: s.started_at or now)
    ordered = [*started, *(step for step in steps if not step.started_at)]
    blocks: list[model.Block] = [
        model.TextBlock(_step_text(step, words, now)) for step in ordered[:_MAX_STEPS]
    ]
    if len(ordered) > _MAX_STEPS:
        blocks.append(model.NoteBlock(words("detail.more_steps", n=len(ordered) - _MAX_STEPS)))
    return blocks


def _step_text(step: TaskStep, words: TextCatalog, now: datetime) -> str:
    elapsed = ""
    if step.started_at:
        elapsed = formats.duration((step.ended_at or now) - step.started_at, words)
    title = formats.single_line(step.title, _MAX_TITLE)
    # A failed step that may run again is pending; its error still deserves a symbol.
    waits = step.error and step.status is NodeStatus.PENDING
    mark = task_parts.NODE_ICONS[NodeStatus.FAILED if waits else step.status]
    parts = [words("detail.step", mark=mark, title=title, elapsed=elapsed)]
    if step.values:
        pairs = (
            f"`{name}`: {formats.escape_markdown(each, _MAX_VALUE)}" for name, each in step.values
        )
        parts.append(" · ".join(pairs))
    if step.error:
        parts.append(
            words(
                "detail.error",
                error=formats.single_line(strip_offline_note(step.error), _MAX_ERROR),
            )
        )
    elif step.summary:
        parts.append(formats.first_lines(strip_offline_note(step.summary)))
    return "\n".join(part.rstrip() for part in parts)


def event_line(event: TaskEvent, words: TextCatalog, zone: ZoneInfo) -> str:
    kind = words(f"logs.kind.{event.kind}")
    text = formats.single_line(strip_offline_note(event.text), _MAX_LOG_LINE)
    if event.kind is EventKind.REORDERED and text in list(TaskPriority):
        text = words(f"priority.{text}")
    return f"{formats.time_of_day(event.at, zone)} {kind} {text}".rstrip()


_MAX_FORM_TITLE = 60
_MAX_SENT_TEXT = 500


def task_message_form(task: Task, words: TextCatalog) -> model.Card:
    form = model.FormBlock(
        fields=(
            model.FormField(
                name="text",
                label=words("steer.text"),
                field=model.FormFieldKind.PARAGRAPH,
                placeholder=words("steer.placeholder"),
            ),
            model.FormField(
                name="as",
                label=words("steer.as"),
                field=model.FormFieldKind.CHOICE,
                required=False,
                options=(
                    model.SelectOption(words("steer.as_message"), "message"),
                    model.SelectOption(words("steer.as_step"), "step"),
                ),
            ),
        ),
        submit=words("steer.submit"),
        action=SubmitMessageForm(task_id=task.id),
    )
    return model.titled_card(
        words("steer.title", title=formats.single_line(task.title, _MAX_FORM_TITLE)), form
    )


def task_message_sent_card(task: Task, text: str, outcome: str) -> model.Card:
    """Replaces the message form after sending; `outcome` is the effect of the message."""
    note = model.NoteBlock(f"`{task.id}` {formats.escape_markdown(task.title, _MAX_FORM_TITLE)}")
    quote = model.TextBlock(f"{outcome}\n\n> {formats.escape_markdown(text, _MAX_SENT_TEXT)}")
    return model.Card(blocks=(quote, note), summary=outcome)


NODES_PER_PAGE = 40
_MAX_NODE_TITLE = 60


def task_nodes_card(
    view: TaskView,
    nodes: Sequence[TaskStep],
    pictures: RunPictures,
    words: TextCatalog,
    *,
    page: int,
    now: datetime,
) -> model.Card:
    """All nodes of a task's plan with their ids, and pictures of the plan and of its timeline."""
    title = formats.single_line(view.task.title, _MAX_NODE_TITLE)
    pages = max(1, -(-len(nodes) // NODES_PER_PAGE))
    page = min(max(1, page), pages)
    first = (page - 1) * NODES_PER_PAGE
    rows = [_node_row(each, words, now) for each in nodes[first : first + NODES_PER_PAGE]]
    steps = words("task.steps", done=view.done, total=view.total)
    blocks: list[model.Block] = [model.ProgressBlock(percent=view.percent, label=steps)]
    if page == 1 and pictures.plan:
        alt = words("nodes.plan_alt", title=title)
        vector = pictures.drawing.svg if pictures.drawing is not None else ""
        blocks.append(model.ImageBlock(path=pictures.plan, alt=alt, vector=vector))
    elif page == 1 and pictures.drawing is not None and pictures.drawing.svg:
        drawing = pictures.drawing
        blocks.append(model.FileBlock(path=drawing.svg, name="plan.svg", size=drawing.size))
    if page == 1 and pictures.timeline:
        alt = words("nodes.timeline_alt", title=title)
        blocks.append(model.ImageBlock(path=pictures.timeline, alt=alt))
    blocks.append(model.TextBlock("\n".join(rows) or words("nodes.none")))
    if pages > 1:
        following = page % pages + 1
        more = words("nodes.page", page=following, pages=pages, id=view.task.id)
        blocks.append(model.NoteBlock(more))
    return model.titled_card(words("nodes.title", title=title), *blocks)


def _node_row(node: TaskStep, words: TextCatalog, now: datetime) -> str:
    name = formats.escape_markdown(formats.single_line(node.title, _MAX_NODE_TITLE), 200)
    parts = [f"{task_parts.NODE_ICONS[node.status]} `{node.path}` {name}"]
    if node.started_at is not None and node.status is not NodeStatus.SKIPPED:
        parts.append(formats.duration((node.ended_at or now) - node.started_at, words))
    if node.error:
        error = formats.single_line(node.error, _MAX_NODE_TITLE)
        parts.append(formats.escape_markdown(error, 200))
    return "- " + "\u2003" * min(node.depth, 4) + " · ".join(parts)
