"""The live card of one task, and the message that tells how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import PurePath
from zoneinfo import ZoneInfo

from cards import formats
from cards.model import (
    Block,
    Buttons,
    Card,
    Collapsible,
    Note,
    Progress,
    Text,
)
from cards.views import controls, marks
from cards.views.backends import noted, without_note
from cards.views.files import attached
from cards.views.work.helpers import helper_blocks
from cards.views.work.live import live_blocks
from cards.views.work.outline import eta_text, outline
from cards.views.work.projects import folder_story, may_let_in, place
from cards.views.workers.personas import named
from cards.words import Words
from storage.records.helping import HELPERS_WORK
from storage.records.tasks import (
    Control,
    Phase,
    Step,
    Task,
    TaskStatus,
    TaskView,
)

MOST_AHEAD = 10
"""How many tasks before a waiting one are counted: a card that counts is drawn again whenever the
queue moves, and all others have to stay true without that."""

_TITLE = 80
_PLAN = 600
_MANY = 12
_SUMMARY = 2000
_ERROR = 200
_FILES = 5
_ERRORS = {TaskStatus.FAILED, TaskStatus.BLOCKED}


def task_card(view: TaskView, words: Words, *, now: datetime, zone: ZoneInfo | None = None) -> Card:
    """The one card that follows a task through its life; it belongs under key `task:<id>`. What
    came out of it is told by the ending's message, not twice. Without `zone` it says no time of
    the clock."""
    task = view.task
    trouble = _trouble(view, words)
    blocks: list[Block] = [
        *_situation(view, words),
        *_plan(view, words, now, zone),
        *live_blocks(view.live, words, {step.path: step.title for step in view.steps}),
        *helper_blocks(view.helpers, words),
        *([Text(markdown=_explained(task, trouble, words))] if trouble else []),
        *noted((view.plan, trouble), words),
        Note(markdown=_stats(view, words, now)),
        Buttons(items=tuple(controls.live_buttons(task, words, let_in=may_let_in(view)))),
    ]
    if not task.status.is_final:
        blocks.append(controls.priority_select(task, words))
    return Card(
        title=f"{marks.STATUS[task.status]} {formats.line(task.title, _TITLE)}",
        tone=marks.TONE[task.status],
        blocks=tuple(blocks),
        summary=_summary_line(task, words),
    )


def ending_card(
    view: TaskView,
    words: Words,
    *,
    now: datetime,
    zone: ZoneInfo,
    sizes: Mapping[str, int] | None = None,
) -> Card:
    """The message of its own that the Boss gets when a task ends or is stuck.

    `sizes` gives the sizes in bytes of the files that the steps made and that still exist, by
    path; files it does not name are only named on the card, not attached.
    """
    task = view.task
    at = formats.moment(task.ended_at or now, zone)
    blocks: list[Block] = [
        Text(markdown=f"**{formats.line(task.title, _TITLE)}**"),
        *_outcome(view, words),
        *_files(view, words, sizes or {}),
        *_folded_steps(view, words, now),
        *noted((task.summary, _trouble(view, words)), words),
        Note(
            markdown=f"{_ending_stats(view, words, now)} | {words('ended.note', id=task.id, at=at)}"
        ),
        Buttons(items=tuple(controls.ending_buttons(view, words))),
    ]
    key = task.status if words.has(f"ended.{task.status}") else TaskStatus.COMPLETED
    return Card(
        title=words(f"ended.{key}"),
        tone=marks.TONE[task.status],
        blocks=tuple(blocks),
        summary=_summary_line(task, words),
    )


def result_paths(steps: Sequence[Step]) -> tuple[str, ...]:
    """What the steps made, each path once, the last made first."""
    paths = [path for step in reversed(steps) for path in step.files]
    return tuple(dict.fromkeys(paths))


def reason_of(task: Task, words: Words) -> str:
    """Why the task is where it is: a text of the catalogue, or somebody's own words."""
    return words.or_own(task.status_reason)


def last_error(view: TaskView) -> str:
    return next((step.error for step in reversed(view.steps) if step.error), "")


def _situation(view: TaskView, words: Words) -> list[Block]:
    """What is going on where the steps do not show it."""
    task = view.task
    texts: list[str] = []
    match task.status:
        case TaskStatus.PENDING if not task.outside:
            texts.append(folder_story(view, words) or _queue(view, words))
        case TaskStatus.RUNNING if task.control is Control.PAUSE:
            texts.append(words("task.pausing"))
        case TaskStatus.RUNNING if task.let_in:
            texts.append(folder_story(view, words))
        case TaskStatus.RUNNING if task.phase is Phase.PLANNING and not view.steps:
            texts.append(words("task.planning"))
        case TaskStatus.WAITING if task.status_reason == HELPERS_WORK:
            return [Text(markdown=words(HELPERS_WORK))]
        case TaskStatus.WAITING if task.wake_at and task.status_reason and not _is_asked(view):
            # Where somebody is asked, the card that asks is the reason.
            texts.append(words("task.waiting_time"))
        case TaskStatus.WAITING | TaskStatus.PAUSED | TaskStatus.CANCELLED:
            texts.append(words(f"task.{task.status}"))
        case _:
            pass
    if task.status_reason and task.status not in _ERRORS:
        texts.append(words("task.reason", reason=formats.cut(reason_of(task, words), _ERROR)))
    told = "\n\n".join(filter(None, texts))
    return [Text(markdown=told)] if told else []


def _is_asked(view: TaskView) -> bool:
    return any(step.asked for step in (*view.steps, *view.lines))


def _queue(view: TaskView, words: Words) -> str:
    if view.ahead > MOST_AHEAD:
        return words("task.far", n=MOST_AHEAD)
    if view.ahead:
        return words("task.ahead", n=view.ahead)
    if view.task.status_reason:
        return ""  # the reason says what it waits for
    return words("task.queued_again" if view.done else "task.pending_first")


def _plan(view: TaskView, words: Words, now: datetime, zone: ZoneInfo | None) -> list[Block]:
    blocks: list[Block] = []
    if view.plan:
        room = _PLAN if len(view.lines) <= _MANY else _PLAN // 2
        plan = formats.cut(without_note(view.plan), room)
        blocks.append(Text(markdown=words("task.plan", plan=plan)))
    if view.lines:
        steps = words("task.steps", done=view.done, total=view.total)
        label = " · ".join(filter(None, (steps, eta_text(view, words))))
        blocks.append(Progress(percent=view.percent, label=label))
        blocks.append(outline(view, words, now=now, zone=zone))
    return blocks


def _folded_steps(view: TaskView, words: Words, now: datetime) -> list[Block]:
    """They stand open on the live card."""
    if not view.lines:
        return []
    steps = outline(view, words, now=now, timed=True)
    return [Collapsible(title=words("detail.steps"), blocks=(steps,))]


def _trouble(view: TaskView, words: Words) -> str:
    """Why it failed or is stuck; empty where it is not."""
    if view.task.status not in _ERRORS:
        return ""
    return reason_of(view.task, words) or last_error(view) or words("task.no_error")


def _explained(task: Task, trouble: str, words: Words) -> str:
    next_step = words(f"task.{task.status}_next", id=task.id)
    return f"⚠️ {formats.cut(without_note(trouble), _ERROR)}\n\n{next_step}"


def _outcome(view: TaskView, words: Words) -> list[Block]:
    task = view.task
    if trouble := _trouble(view, words):
        return [Text(markdown=_explained(task, trouble, words))]
    summary = without_note(task.summary) if task.status is TaskStatus.COMPLETED else ""
    return [Text(markdown=formats.cut(summary, _SUMMARY))] if summary else []


def _files(view: TaskView, words: Words, sizes: Mapping[str, int]) -> list[Block]:
    if view.task.status is not TaskStatus.COMPLETED:
        return []
    paths = result_paths(view.steps)
    shown = [path for path in paths if path in sizes][:_FILES]
    others = [PurePath(path).name for path in paths if path not in shown]
    blocks: list[Block] = [attached(path, sizes[path]) for path in shown]
    if others:
        key = "task.more_files" if shown else "task.file_names"
        names = formats.cut(", ".join(others), 300)
        blocks.append(Note(markdown=words(key, n=len(others), names=names)))
    if left_out := list(dict.fromkeys(name for step in view.steps for name in step.left_out)):
        names = formats.cut(", ".join(left_out), 300)
        blocks.append(Note(markdown=words("task.left_out", names=names)))
    return blocks


def _stats(view: TaskView, words: Words, now: datetime) -> str:
    task = view.task
    parts = [f"`{task.id}`", marks.priority(task.priority, words)]
    if task.started_at:
        parts.append(f"⏱️ {formats.duration((task.ended_at or now) - task.started_at, words)}")
    if view.spent.calls:
        parts += [f"💰 {formats.cost(view.spent, words)}", formats.tokens(view.spent, words)]
    return " · ".join([*parts, *filter(None, (named(task.persona, words), place(task)))])


def _ending_stats(view: TaskView, words: Words, now: datetime) -> str:
    task = view.task
    started = task.started_at or task.created_at
    return words(
        "ended.stats",
        elapsed=formats.duration((task.ended_at or now) - started, words),
        done=view.done,
        total=view.total,
        cost=formats.cost(view.spent, words),
    )


def _summary_line(task: Task, words: Words) -> str:
    return words(
        "task.summary_line",
        mark=marks.STATUS[task.status],
        status=words(f"status.{task.status}"),
        title=formats.line(task.title, _TITLE),
    )
