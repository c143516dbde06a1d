"""Renders the live card of a task with its running steps, and the message about its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import PurePath
from zoneinfo import ZoneInfo

from cards import formats, model
from cards.catalog import TextCatalog
from cards.views import task_parts
from cards.views.backends import (
    connect_button,
    needs_model,
    offline_note_blocks,
    strip_offline_note,
)
from cards.views.personas import persona_label
from cards.views.task_parts import FAILED_STATUSES, eta_text, outline_block, subagent_blocks
from storage.records.tasks import (
    SUBAGENTS_RUNNING_REASON,
    LiveStep,
    LiveToolCall,
    Task,
    TaskPhase,
    TaskStatus,
    TaskStep,
    TaskView,
)

_MAX_LIVE_LINE = 100
_MAX_STEP_TITLE = 60
_MAX_PARALLEL_CALLS = 2
_MAX_PARALLEL_LINE = 60
_MAX_PLAN_ENTRIES = 12
_MAX_DIFF = 1_200
_MAX_OUTPUT = 300

_PLAN_STATES = {
    "pending": model.ChecklistState.PENDING,
    "in_progress": model.ChecklistState.RUNNING,
    "completed": model.ChecklistState.DONE,
}


def live_blocks(
    live: Sequence[LiveStep], words: TextCatalog, titles: Mapping[str, str] | None = None
) -> list[model.Block]:
    """The running steps' output for the live card; `titles` are step titles by path, for several
    running at once."""
    if len(live) == 1:
        return _single_step_blocks(live[0], words)
    busy = [each for each in live if each.calls]
    if not busy:
        return []
    names = titles or {}
    now = [
        _parallel_step_line(each, words, names) for each in busy if each.current_call is not None
    ]
    checks = [
        _call_item(call, _MAX_PARALLEL_LINE)
        for each in busy
        for call in each.calls[-_MAX_PARALLEL_CALLS:]
    ]
    used = words("live.calls", n=sum(each.call_count for each in busy))
    folded = model.CollapsibleBlock(used, (model.ChecklistBlock(tuple(checks)),))
    return [*([model.TextBlock("\n\n".join(now))] if now else []), folded]


def _single_step_blocks(live: LiveStep, words: TextCatalog) -> list[model.Block]:
    blocks: list[model.Block] = []
    if live.plan:
        blocks.append(model.TextBlock(words("live.plan")))
        blocks.append(model.ChecklistBlock(_live_plan_items(live)))
    if live.current_call is not None:
        what = formats.escape_markdown(
            formats.single_line(live.current_call.title, _MAX_LIVE_LINE), _MAX_LIVE_LINE
        )
        blocks.append(model.TextBlock(words("live.now", what=what)))
    if live.calls:
        title = words("live.calls", n=live.call_count)
        blocks.append(model.CollapsibleBlock(title, tuple(_call_blocks(live))))
    passing = () if live.passing_note is None else (live.passing_note,)
    blocks += [
        model.NoteBlock(formats.notice_text(key, facts, words))
        for key, facts in (*live.notes, *passing)
    ]
    return blocks


def _parallel_step_line(live: LiveStep, words: TextCatalog, titles: Mapping[str, str]) -> str:
    """One line, because several steps share the space."""
    assert live.current_call is not None
    step = formats.escape_markdown(titles.get(live.path, live.path), _MAX_STEP_TITLE)
    what = formats.escape_markdown(live.current_call.title, _MAX_PARALLEL_LINE)
    return words("graph.doing", step=step, what=what)


def _live_plan_items(live: LiveStep) -> tuple[model.ChecklistItem, ...]:
    """A long plan is cut to start near the current item."""
    at = next((n for n, (_, state) in enumerate(live.plan) if state != "completed"), 0)
    first = max(0, min(at - 2, len(live.plan) - _MAX_PLAN_ENTRIES))
    entries = live.plan[first : first + _MAX_PLAN_ENTRIES]
    return tuple(
        model.ChecklistItem(
            label=formats.single_line(text, _MAX_LIVE_LINE), state=_PLAN_STATES[state]
        )
        for text, state in entries
    )


def _call_blocks(live: LiveStep) -> list[model.ContentBlock]:
    blocks: list[model.ContentBlock] = [model.ChecklistBlock(tuple(map(_call_item, live.calls)))]
    last = next((each for each in reversed(live.calls) if each.diff or each.output), None)
    if last is not None and last.diff:
        blocks.append(model.CodeBlock(formats.truncate(last.diff, _MAX_DIFF), language="diff"))
    elif last is not None:
        blocks.append(model.CodeBlock(formats.truncate(last.output, _MAX_OUTPUT)))
    return blocks


def _call_item(call: LiveToolCall, room: int = _MAX_LIVE_LINE) -> model.ChecklistItem:
    return model.ChecklistItem(label=formats.single_line(call.title, room), state=_call_state(call))


def _call_state(call: LiveToolCall) -> model.ChecklistState:
    if call.succeeded is None:
        return model.ChecklistState.RUNNING
    return model.ChecklistState.DONE if call.succeeded else model.ChecklistState.FAILED


MAX_COUNTED_AHEAD = 10
"""Maximum number of tasks counted ahead of a waiting one. A card with a count is redrawn whenever
the queue moves; all others must stay true without."""

_MAX_TITLE = 80
_MAX_PLAN = 600
_MANY_LINES = 12
_MAX_SUMMARY = 2000
_MAX_SHORT_SUMMARY = 400
_MAX_ERROR = 200
_MAX_FILES = 5
_DOCUMENT_SUFFIXES = {".md", ".markdown"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultDelivery:
    """How a long result is delivered. `report` is the file with all of it, empty if the card has
    it; Markdown files become documents of the account `owner` if `as_documents`. `late` files
    follow by themselves."""

    report: str = ""
    as_documents: bool = False
    owner: str = ""
    late: tuple[str, ...] = ()


CARD_ONLY = ResultDelivery()


def full_report(task: Task) -> str:
    """A result that is longer than what the task's card shows; else empty."""
    summary = _summary(task)
    return summary if len(summary) > _MAX_SUMMARY else ""


def task_card(
    view: TaskView, words: TextCatalog, *, now: datetime, zone: ZoneInfo | None = None
) -> model.Card:
    """The card that follows a task for its whole life, under the key `task:<id>`, and shows its
    result in the end. Without `zone` it shows no clock times."""
    task = view.task
    trouble = _failure_text(view, words)
    blocks: list[model.Block] = [
        *_situation_blocks(view, words),
        *_result_blocks(view, words),
        *_plan_blocks(view, words, now, zone),
        *live_blocks(view.live_steps, words, {step.path: step.title for step in view.steps}),
        *subagent_blocks(view.subagents, words),
        *([model.TextBlock(_failure_explanation(task, trouble, words))] if trouble else []),
        *_retry_blocks(view, words, zone),
        *offline_note_blocks((view.plan, task.summary, trouble), words),
        model.NoteBlock(_stats_line(view, words, now)),
        model.ButtonsBlock(
            (
                *_connect_buttons(trouble, words),
                *task_parts.task_card_buttons(
                    view, words, offer_start_anyway=can_start_anyway(view)
                ),
            )
        ),
    ]
    if view.schedule_id:
        blocks.append(model.ButtonsBlock(task_parts.schedule_buttons(view.schedule_id, words)))
    if not task.status.is_final:
        blocks.append(task_parts.priority_select(task, words))
    return model.titled_card(
        f"{task_parts.STATUS_ICONS[task.status]} " + formats.single_line(task.title, _MAX_TITLE),
        *blocks,
        tone=task_parts.STATUS_TONES[task.status],
        summary=_summary_line(task, words),
    )


def task_ended_card(
    view: TaskView,
    words: TextCatalog,
    *,
    now: datetime,
    zone: ZoneInfo,
    sizes: Mapping[str, int] | None = None,
    delivery: ResultDelivery = CARD_ONLY,
) -> model.Card:
    """The notice when a task ends or is blocked, since platforms do not notify people of changed
    cards: the result or the reason in short, and the files. It answers the card, which has the
    rest.

    `sizes` maps existing result files to their size in bytes; files not in it are only named, not
    attached.
    """
    task = view.task
    at = formats.date_time(task.ended_at or now, zone)
    blocks: list[model.Block] = [
        model.TextBlock(f"**{formats.single_line(task.title, _MAX_TITLE)}**"),
        *_short_outcome_blocks(view, words),
        *_retry_blocks(view, words, zone),
        *_file_blocks(view, words, sizes or {}, delivery),
        model.NoteBlock(
            f"{_ended_stats_line(view, words, now)} | " + words("ended.note", id=task.id, at=at)
        ),
    ]
    connect = _connect_buttons(_failure_text(view, words), words)
    if buttons := (*connect, *task_parts.task_notice_buttons(task, words)):
        blocks.append(model.ButtonsBlock(buttons))
    key = task.status if words.has(f"ended.{task.status}") else TaskStatus.COMPLETED
    return model.titled_card(
        words(f"ended.{key}"),
        *blocks,
        tone=task_parts.STATUS_TONES[task.status],
        summary=_summary_line(task, words),
    )


def result_files(steps: Sequence[TaskStep]) -> tuple[str, ...]:
    """The steps' result files, each path once, newest first."""
    paths = [path for step in reversed(steps) for path in step.files]
    return tuple(dict.fromkeys(paths))


def status_reason_text(task: Task, words: TextCatalog) -> str:
    """The reason for the task's status: a catalogue text or a person's own words."""
    return words.get_or_literal(task.status_reason)


def last_error(view: TaskView) -> str:
    return next((step.error for step in reversed(view.steps) if step.error), "")


def _situation_blocks(view: TaskView, words: TextCatalog) -> list[model.Block]:
    """The current situation if the steps do not show it."""
    task = view.task
    texts: list[str] = []
    match task.status:
        case TaskStatus.PENDING if not task.outside:
            texts.append(folder_status_text(view, words) or _queue_text(view, words))
        case TaskStatus.RUNNING if task.is_pausing:
            texts.append(words("task.pausing"))
        case TaskStatus.RUNNING if task.let_in:
            texts.append(folder_status_text(view, words))
        case TaskStatus.RUNNING if task.phase is TaskPhase.PLANNING and not view.steps:
            texts.append(words("task.planning"))
        case TaskStatus.WAITING if task.status_reason == SUBAGENTS_RUNNING_REASON:
            return [model.TextBlock(words(SUBAGENTS_RUNNING_REASON))]
        case TaskStatus.WAITING if task.wake_at and task.status_reason and not _awaits_person(view):
            # The approval card gives the reason.
            texts.append(words("task.waiting_time"))
        case TaskStatus.WAITING | TaskStatus.PAUSED | TaskStatus.CANCELLED:
            texts.append(words(f"task.{task.status}"))
        case _:
            pass
    if task.status_reason and task.status not in FAILED_STATUSES:
        texts.append(
            words(
                "task.reason", reason=formats.truncate(status_reason_text(task, words), _MAX_ERROR)
            )
        )
    text = "\n\n".join(filter(None, texts))
    return [model.TextBlock(text)] if text else []


def _awaits_person(view: TaskView) -> bool:
    return any(step.awaits_person for step in (*view.steps, *view.visible_steps))


def _queue_text(view: TaskView, words: TextCatalog) -> str:
    if view.tasks_ahead > MAX_COUNTED_AHEAD:
        return words("task.far", n=MAX_COUNTED_AHEAD)
    if view.tasks_ahead:
        return words("task.ahead", n=view.tasks_ahead)
    if view.task.status_reason:
        return ""  # the reason says what it waits for
    return words("task.queued_again" if view.done else "task.pending_first")


def _plan_blocks(
    view: TaskView, words: TextCatalog, now: datetime, zone: ZoneInfo | None
) -> list[model.Block]:
    blocks: list[model.Block] = []
    if view.workflow is not None and view.workflow[1]:
        name, number = view.workflow
        parts = [words("workflows.version.used", name=name, n=number)]
        parts += [
            words("workflows.version.inside", name=each, n=n) for each, n in view.subworkflows
        ]
        blocks.append(model.NoteBlock(" · ".join(parts)))
    if view.plan:
        room = _MAX_PLAN if len(view.visible_steps) <= _MANY_LINES else _MAX_PLAN // 2
        plan = formats.truncate(strip_offline_note(view.plan), room)
        blocks.append(model.TextBlock(words("task.plan", plan=plan)))
    if view.visible_steps:
        steps = words("task.steps", done=view.done, total=view.total)
        label = " · ".join(filter(None, (steps, eta_text(view, words))))
        blocks.append(model.ProgressBlock(percent=view.percent, label=label))
        ended = view.task.status.is_final or view.task.status is TaskStatus.BLOCKED
        blocks.append(outline_block(view, words, now=now, zone=zone, with_durations=ended))
    return blocks


def _retry_blocks(
    view: TaskView, words: TextCatalog, zone: ZoneInfo | None
) -> list[model.TextBlock]:
    if view.retry_at is None or zone is None:
        return []
    return [model.TextBlock(words("task.retries", at=formats.date_time(view.retry_at, zone)))]


def _failure_text(view: TaskView, words: TextCatalog) -> str:
    """The reason why the task failed or is blocked, else empty."""
    if view.task.status not in FAILED_STATUSES:
        return ""
    return status_reason_text(view.task, words) or last_error(view) or words("task.no_error")


def _failure_explanation(task: Task, trouble: str, words: TextCatalog) -> str:
    key = "offline.next" if needs_model(trouble) else f"task.{task.status}_next"
    return f"{_short_trouble(trouble)}\n\n{words(key, id=task.id)}"


def _short_trouble(trouble: str) -> str:
    return f"⚠️ {formats.truncate(strip_offline_note(trouble), _MAX_ERROR)}"


def _connect_buttons(trouble: str, words: TextCatalog) -> tuple[model.CardButton, ...]:
    return (connect_button(words),) if needs_model(trouble) else ()


def _result_blocks(view: TaskView, words: TextCatalog) -> list[model.Block]:
    """A completed task's report and the names of its files."""
    summary = _summary(view.task)
    text = [model.TextBlock(formats.truncate(summary, _MAX_SUMMARY))] if summary else []
    return [*text, *_file_blocks(view, words, {})]


def _short_outcome_blocks(view: TaskView, words: TextCatalog) -> list[model.Block]:
    if trouble := _failure_text(view, words):
        return [model.TextBlock(_short_trouble(trouble))]
    short = formats.first_lines(_summary(view.task), limit=_MAX_SHORT_SUMMARY)
    return [model.TextBlock(short)] if short else []


def _summary(task: Task) -> str:
    return strip_offline_note(task.summary) if task.status is TaskStatus.COMPLETED else ""


def _file_blocks(
    view: TaskView,
    words: TextCatalog,
    sizes: Mapping[str, int],
    delivery: ResultDelivery = CARD_ONLY,
) -> list[model.Block]:
    if view.task.status is not TaskStatus.COMPLETED:
        return []
    paths = (*filter(None, (delivery.report,)), *result_files(view.steps))
    attachments = [path for path in paths if path in sizes][:_MAX_FILES]
    unsent = (*attachments, *delivery.late)
    others = [PurePath(path).name for path in paths if path not in unsent]
    blocks: list[model.Block] = [
        _attachment(view.task, path, sizes[path], number, delivery)
        for number, path in enumerate(attachments)
    ]
    if others:
        key = "task.more_files" if attachments else "task.file_names"
        names = formats.truncate(", ".join(others), 300)
        blocks.append(model.NoteBlock(words(key, n=len(others), names=names)))
    if delivery.late:
        names = formats.truncate(", ".join(PurePath(path).name for path in delivery.late), 300)
        blocks.append(model.NoteBlock(words("task.late_files", names=names)))
    if left_out := list(dict.fromkeys(name for step in view.steps for name in step.files_left_out)):
        names = formats.truncate(", ".join(left_out), 300)
        blocks.append(model.NoteBlock(words("task.left_out", names=names)))
    return blocks


def late_file_card(task: Task, path: str, size: int, words: TextCatalog) -> model.Card:
    """A file that the notice of the task's end went out without."""
    return model.titled_card(
        words("task.late_file_title"),
        model.TextBlock(f"**{formats.single_line(task.title, _MAX_TITLE)}**"),
        model.file_block(path, size),
        model.NoteBlock(words("task.late_file", id=task.id)),
    )


def _attachment(
    task: Task, path: str, size: int, number: int, delivery: ResultDelivery
) -> model.Block:
    block = model.file_block(path, size)
    is_text = PurePath(path).suffix.lower() in _DOCUMENT_SUFFIXES
    if not (delivery.as_documents and is_text and isinstance(block, model.FileBlock)):
        return block
    name = task.title if path == delivery.report else PurePath(path).stem
    # The number tells apart files of the same name in several folders.
    mark = f"{task.id}-{number}" if number else task.id
    title = f"{formats.single_line(name, _MAX_TITLE)} ({mark})"
    return replace(block, document_title=title, document_owner=delivery.owner)


def _stats_line(view: TaskView, words: TextCatalog, now: datetime) -> str:
    task = view.task
    parts = [f"`{task.id}`", task_parts.priority_label(task.priority, words)]
    if task.started_at:
        parts.append(f"⏱️ {formats.duration((task.ended_at or now) - task.started_at, words)}")
    if view.spent.calls:
        parts += [
            f"💰 {formats.spent_cost(view.spent, words)}",
            formats.spent_tokens(view.spent, words),
        ]
    return " · ".join(
        [*parts, *filter(None, (persona_label(task.persona, words), workspace_label(task)))]
    )


def _ended_stats_line(view: TaskView, words: TextCatalog, now: datetime) -> str:
    task = view.task
    started = task.started_at or task.created_at
    return words(
        "ended.stats",
        elapsed=formats.duration((task.ended_at or now) - started, words),
        done=view.done,
        total=view.total,
        cost=formats.spent_cost(view.spent, words),
    )


def _summary_line(task: Task, words: TextCatalog) -> str:
    return words(
        "task.summary_line",
        mark=task_parts.STATUS_ICONS[task.status],
        status=words(f"status.{task.status}"),
        title=formats.single_line(task.title, _MAX_TITLE),
    )


_MAX_FOLDER_NAME = 60


def can_start_anyway(view: TaskView) -> bool:
    """True if the task waits for a folder with another task's unfinished work and may start anyway.
    Worktrees need no such permission."""
    task = view.task
    waits = task.status is TaskStatus.PENDING and view.directory_holder is not None
    return waits and not (task.let_in or task.branch)


def folder_status_text(view: TaskView, words: TextCatalog) -> str:
    """Which task it waits for in its folder, or that it shares the folder; else empty."""
    task, holder = view.task, view.directory_holder
    if task.status not in {TaskStatus.PENDING, TaskStatus.RUNNING}:
        return ""
    if task.let_in:
        return words("folder.let_in" if task.status is TaskStatus.PENDING else "folder.beside")
    if holder is None:
        return ""
    key = "folder.same_project" if task.branch else "folder.held"
    return words(key, title=_holder_name(holder, task, words))


def workspace_label(task: Task) -> str:
    """The folder's name and the branch as small print; empty for a task with its own folder."""
    if not task.project_dir:
        return ""
    parts = [f"📁 {formats.single_line(PurePath(task.project_dir).name, _MAX_FOLDER_NAME)}"]
    if task.branch:
        parts.append(f"🌿 `{task.branch}`")
    return " · ".join(parts)


def _holder_name(holder: Task, task: Task, words: TextCatalog) -> str:
    """The holder's title, unless it belongs to another chat, whose tasks this chat's readers must
    not learn."""
    if holder.chat_id == task.chat_id:
        return formats.single_line(holder.title, _MAX_FOLDER_NAME)
    return words("folder.another", id=holder.id)
