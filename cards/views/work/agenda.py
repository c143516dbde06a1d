"""What to do now, where to go on, a plan with its subtasks, and what a search found."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from cards import formats
from cards.model import Block, Button, Buttons, Card, Check, Checklist, Text, Tone
from cards.views import controls, marks
from cards.views.backends import without_note
from cards.views.work.logs import found_rows, kind_name
from cards.views.work.outline import is_list, outline, step_state
from cards.views.work.tasks import reason_of
from cards.words import Words
from storage.records.logs import LogEntry
from storage.records.notebook import Agenda, Found, Recap
from storage.records.tasks import Step, Task, TaskStatus, TaskView

_TITLE = 80
_GOAL = 120
_PLAN = 600
_LINE = 200
_STEPS = 5
_BUTTONS = 5
_ROWS = 10


def next_card(agenda: Agenda, words: Words) -> Card:
    first = agenda.first
    advice = _advice(agenda, first, words) if first else words("agenda.nothing")
    blocks: list[Block] = [Text(markdown=advice)]
    if agenda.queue:
        rows = [
            words("agenda.row", n=n, task=task_line(task, words))
            for n, task in enumerate(agenda.queue, 2)
        ]
        blocks.append(Text(markdown="\n\n".join([words("agenda.queue"), *rows])))
    if agenda.held:
        held = [task_line(task, words) for task in agenda.held]
        blocks.append(Text(markdown="\n\n".join([words("agenda.held"), *held])))
    if first:
        blocks.append(Buttons(items=_take_up(first, words)))
    title = words("agenda.title")
    return Card(title=title, tone=Tone.INFO, blocks=tuple(blocks), summary=title)


def recap_card(recap: Recap, words: Words, *, now: datetime) -> Card:
    """The five questions and their answers."""
    blocks: list[Block] = [
        Text(markdown=_where(recap, words)),
        Text(markdown=_going(recap, words)),
        Text(markdown=words("recap.goal", goal=formats.verbatim(recap.task.instruction, _GOAL))),
        Text(markdown=_kept("recap.learned", _entries(recap.learned, words), words)),
        Text(markdown=_kept("recap.done", _done(recap, words), words)),
        *recalled(recap.recalled, words, now=now),
        Buttons(items=_take_up(recap.task, words)),
    ]
    title = words("recap.title", title=formats.line(recap.task.title, _TITLE))
    return Card(title=title, tone=Tone.INFO, blocks=tuple(blocks), summary=title)


def plan_card(view: TaskView, words: Words) -> Card:
    """The plan and its steps, numbered as they may be named."""
    task = view.task
    blocks: list[Block] = []
    if view.plan:
        blocks.append(Text(markdown=formats.cut(without_note(view.plan), _PLAN)))
    if view.outline and not is_list(view.outline):
        blocks.append(outline(view, words, now=view.task.created_at))
    elif view.steps:
        checks = (
            Check(label=f"{n}. {formats.line(step.title, _LINE)}", state=step_state(step, task))
            for n, step in enumerate(view.steps, 1)
        )
        blocks.append(Checklist(items=tuple(checks)))
    if not blocks:
        blocks.append(Text(markdown=words("plan.none", id=task.id)))
    blocks.append(Buttons(items=(controls.details_button(task, words),)))
    title = words("plan.title", id=task.id)
    return Card(title=title, tone=Tone.INFO, blocks=tuple(blocks), summary=title)


def found_tasks_card(tasks: Sequence[Task], wanted: str, words: Words) -> Card:
    title = words("agenda.found_title", words=formats.line(wanted, _TITLE), n=len(tasks))
    if not tasks:
        return _said(title, words("agenda.found_none"))
    rows = [
        words("agenda.row", n=n, task=task_line(task, words)) for n, task in enumerate(tasks, 1)
    ]
    buttons = [
        controls.details_button(task, words, words("list.details", n=n))
        for n, task in enumerate(tasks[:_BUTTONS], 1)
    ]
    blocks = (Text(markdown="\n\n".join(rows[:_ROWS])), Buttons(items=tuple(buttons)))
    return Card(title=title, tone=Tone.INFO, blocks=blocks, summary=title)


def outside_card(task: Task, hits: Sequence[Found], words: Words, *, now: datetime) -> Card:
    """Work that is kept here and done elsewhere has begun."""
    blocks: list[Block] = [
        Text(markdown=f"{words('agenda.made_self', id=task.id)}\n\n{_title(task)}"),
        Text(markdown=words("agenda.made_rules", id=task.id)),
        *recalled(hits, words, now=now),
        Buttons(items=(controls.details_button(task, words),)),
    ]
    return Card(blocks=tuple(blocks), summary=formats.line(task.title, _TITLE))


def recalled(hits: Sequence[Found], words: Words, *, now: datetime) -> list[Block]:
    if not hits:
        return []
    return [Text(markdown=f"{words('logbook.recalled')}\n\n{found_rows(hits, words, now=now)}")]


def task_line(task: Task, words: Words) -> str:
    return words(
        "agenda.task_self" if task.outside else "agenda.task",
        mark=marks.STATUS[task.status],
        priority=marks.PRIORITY[task.priority],
        id=task.id,
        title=_title(task),
    )


def _advice(agenda: Agenda, first: Task, words: Words) -> str:
    line = task_line(first, words)
    if first.status is TaskStatus.RUNNING:
        text = words("agenda.keep", task=line)
    elif agenda.current is not None:
        current = agenda.current
        text = words("agenda.switch", task=line, current=task_line(current, words), id=current.id)
    else:
        text = words("agenda.begin", task=line)
    stage = words("agenda.stage", stage=formats.verbatim(first.stage, _LINE))
    return f"{text}\n\n{stage}" if first.stage else text


def _where(recap: Recap, words: Words) -> str:
    reason = formats.cut(without_note(reason_of(recap.task, words)), _LINE)
    view, stage = recap.view, formats.verbatim(recap.task.stage, _LINE)
    steps = words("recap.steps", done=view.done, total=view.total) if view.total else ""
    where = words(
        "recap.where",
        status=marks.status(recap.task.status, words),
        stage=words("recap.stage", stage=stage) if stage else "",
        steps=steps,
    )
    return f"{where}\n\n{words('task.reason', reason=reason)}" if reason else where


def _going(recap: Recap, words: Words) -> str:
    plan = formats.cut(without_note(recap.plan), _PLAN)
    if not plan and not recap.steps_left:
        plan = words("recap.no_plan", id=recap.task.id)
    text = words("recap.going", plan=plan)
    if not recap.steps_left:
        return text
    titles = " → ".join(formats.verbatim(step.title, _LINE) for step in recap.steps_left[:_STEPS])
    return f"{text}\n\n{words('recap.next', steps=titles)}"


def _done(recap: Recap, words: Words) -> list[str]:
    return [
        *(_ticked(step, words) for step in recap.steps_done[-_STEPS:]),
        *_entries(recap.done, words),
    ]


def _ticked(step: Step, words: Words) -> str:
    return words("recap.step_done", title=formats.verbatim(step.title, _LINE))


def _kept(key: str, lines: Sequence[str], words: Words) -> str:
    return "\n\n".join([words(key), *(lines or [words("recap.nothing")])])


def _entries(entries: Sequence[LogEntry], words: Words) -> list[str]:
    return [
        f"**{kind_name(each.kind, words)}** {formats.verbatim(each.text, _LINE)}"
        for each in entries
    ]


def _take_up(task: Task, words: Words) -> tuple[Button, ...]:
    details = controls.details_button(task, words)
    if task.status in {TaskStatus.PAUSED, TaskStatus.BLOCKED}:
        return (controls.resume_button(task, words), details)
    return (details,)


def _title(task: Task) -> str:
    return formats.verbatim(task.title, _TITLE)


def _said(title: str, text: str) -> Card:
    return Card(title=title, tone=Tone.INFO, blocks=(Text(markdown=text),), summary=title)
