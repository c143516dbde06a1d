"""Renders task logs, the agenda, recaps, plans with subtasks, and search results."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import PurePath
from zoneinfo import ZoneInfo

from cards import formats, model
from cards.catalog import TextCatalog
from cards.views import task_parts
from cards.views.backends import strip_offline_note
from cards.views.task_card import status_reason_text
from cards.views.task_parts import is_plain_list, outline_block, step_state
from storage.records import task_logs
from storage.records.tasks import Task, TaskStatus, TaskView

_MAX_LOG_LINE = 300
_MAX_PAGE = 3000
_MAX_GOAL = 500
_MAX_QUERY = 60
_MAX_FILES = 5


def log_saved_card(
    result: task_logs.LogResult, words: TextCatalog, *, hint: str = ""
) -> model.Card:
    """A saved log, with warnings and an optional hint."""
    task = result.task
    kind = log_kind_name(result.entry.kind, words)
    texts = [words("logbook.noted", kind=kind, n=result.log_count, id=task.id), hint]
    if result.entry.file:
        texts.append(f"📎 {formats.escape_markdown(PurePath(result.entry.file).name, _MAX_QUERY)}")
    texts += log_warnings(result, words)
    blocks: list[model.Block] = [model.TextBlock("\n\n".join(filter(None, texts)))]
    if result.is_reminder_due:
        blocks.append(model.TextBlock(words("logbook.remind", n=result.log_count)))
        blocks.append(model.NoteBlock(formats.escape_markdown(task.instruction, _MAX_GOAL)))
    blocks.append(model.ButtonsBlock((task_parts.details_button(task, words),)))
    warned = result.has_no_plan or result.blocked or result.entry.kind is task_logs.LogKind.ERROR
    return model.Card(
        tone=model.CardTone.WARN if warned else model.CardTone.NEUTRAL,
        blocks=tuple(blocks),
        summary=texts[0],
    )


def log_warnings(result: task_logs.LogResult, words: TextCatalog) -> list[str]:
    """One sentence for each problem."""
    task, warnings = result.task, []
    if result.is_truncated:
        warnings.append(words("logbook.cut"))
    if result.has_no_plan and result.entry.kind is not task_logs.LogKind.PLAN:
        warnings.append(words("logbook.planless", id=task.id))
    if result.entry.kind is task_logs.LogKind.ERROR:
        warnings.append(words("logbook.errors", n=task.errors, most=task_logs.MAX_ERRORS))
        if result.blocked:
            warnings.append(words("logbook.blocked", id=task.id))
        elif task.errors >= task_logs.CHANGE_APPROACH_AT:
            warnings.append(words("logbook.change", n=task.errors, id=task.id))
    return warnings


def logs_page_card(
    page: task_logs.LogPage, kind: task_logs.LogKind | None, words: TextCatalog, *, zone: ZoneInfo
) -> model.Card:
    """A task's newest logs, oldest first, with their files."""
    task = page.task
    if kind is None:
        title = words("logbook.title", id=task.id, n=page.total)
    else:
        name = log_kind_name(kind, words)
        title = words("logbook.title_kind", id=task.id, n=page.total, kind=name)
    blocks: list[model.Block] = []
    if page.entries:
        lines = "\n".join(_log_line(entry, words, zone) for entry in page.entries)
        blocks.append(model.CodeBlock(formats.last_lines(lines, _MAX_PAGE)))
    else:
        blocks.append(model.TextBlock(words("logbook.empty", id=task.id)))
    files = dict.fromkeys(entry.file for entry in reversed(page.entries))
    paths = [path for path in files if path in page.sizes][:_MAX_FILES]
    blocks += [model.file_block(path, page.sizes[path]) for path in paths]
    blocks.append(model.ButtonsBlock((task_parts.details_button(task, words),)))
    return model.titled_card(title, *blocks)


def log_search_card(
    hits: Sequence[task_logs.LogMatch], query: str, words: TextCatalog, *, now: datetime
) -> model.Card:
    body = log_search_rows(hits, words, now=now) or words("logbook.found_none")
    return model.titled_card(
        words("logbook.found_title", words=formats.single_line(query, _MAX_QUERY), n=len(hits)),
        model.TextBlock(body),
    )


def log_search_rows(
    hits: Sequence[task_logs.LogMatch], words: TextCatalog, *, now: datetime
) -> str:
    """Logs of several tasks, one per paragraph."""
    return "\n\n".join(
        words(
            "logbook.found_row",
            id=hit.task.id,
            kind=log_kind_name(hit.entry.kind, words),
            text=formats.escape_markdown(hit.entry.text, _MAX_LOG_LINE),
            at=formats.time_ago(hit.entry.at, now, words),
        )
        for hit in hits
    )


def log_kind_name(kind: task_logs.LogKind, words: TextCatalog) -> str:
    return words(f"logbook.kind.{kind}")


def _log_line(entry: task_logs.LogEntry, words: TextCatalog, zone: ZoneInfo) -> str:
    parts = [
        formats.date_time(entry.at, zone),
        log_kind_name(entry.kind, words),
        f"[{formats.single_line(entry.stage, _MAX_QUERY)}]" if entry.stage else "",
        formats.single_line(entry.text, _MAX_LOG_LINE),
        f"📎 {PurePath(entry.file).name}" if entry.file else "",
    ]
    return " ".join(filter(None, parts))


_MAX_TITLE = 80
_MAX_RECAP_GOAL = 120
_MAX_PLAN = 600
_MAX_AGENDA_LINE = 200
_MAX_STEPS = 5
_MAX_BUTTONS = 5
_MAX_ROWS = 10


def next_card(agenda: task_logs.TaskAgenda, words: TextCatalog) -> model.Card:
    first = agenda.first
    idle = "agenda.nothing_but_held" if agenda.needs_person else "agenda.nothing"
    advice = _advice(agenda, first, words) if first else words(idle)
    blocks: list[model.Block] = [model.TextBlock(advice)]
    if agenda.queue:
        rows = [
            words("agenda.row", n=n, task=task_line(task, words))
            for n, task in enumerate(agenda.queue, 2)
        ]
        blocks.append(model.TextBlock("\n\n".join([words("agenda.queue"), *rows])))
    if agenda.needs_person:
        lines = [task_line(task, words) for task in agenda.needs_person]
        blocks.append(model.TextBlock("\n\n".join([words("agenda.held"), *lines])))
    if first:
        blocks.append(model.ButtonsBlock(_resume_buttons(first, words)))
    return model.titled_card(words("agenda.title"), *blocks)


def recap_card(recap: task_logs.TaskRecap, words: TextCatalog, *, now: datetime) -> model.Card:
    """Where the task stands, what comes next, the goal, what was learned and what is done."""
    blocks: list[model.Block] = [
        model.TextBlock(_recap_status(recap, words)),
        model.TextBlock(_recap_plan(recap, words)),
        model.TextBlock(
            words(
                "recap.goal", goal=formats.escape_markdown(recap.task.instruction, _MAX_RECAP_GOAL)
            )
        ),
        model.TextBlock(_recap_section("recap.learned", _log_lines(recap.learned, words), words)),
        model.TextBlock(_recap_section("recap.done", _recap_done_lines(recap, words), words)),
        *recalled_log_blocks(recap.recalled, words, now=now),
        model.ButtonsBlock(_resume_buttons(recap.task, words)),
    ]
    return model.titled_card(
        words("recap.title", title=formats.single_line(recap.task.title, _MAX_TITLE)), *blocks
    )


def plan_card(view: TaskView, words: TextCatalog) -> model.Card:
    """The plan and its steps, with the numbers that commands accept."""
    task = view.task
    blocks: list[model.Block] = []
    if view.plan:
        blocks.append(model.TextBlock(formats.truncate(strip_offline_note(view.plan), _MAX_PLAN)))
    if view.outline and not is_plain_list(view.outline):
        blocks.append(outline_block(view, words, now=view.task.created_at))
    elif view.steps:
        checks = (
            model.ChecklistItem(
                label=f"{n}. {formats.single_line(step.title, _MAX_AGENDA_LINE)}",
                state=step_state(step, task),
            )
            for n, step in enumerate(view.steps, 1)
        )
        blocks.append(model.ChecklistBlock(tuple(checks)))
    if not blocks:
        blocks.append(model.TextBlock(words("plan.none", id=task.id)))
    blocks.append(model.ButtonsBlock((task_parts.details_button(task, words),)))
    return model.titled_card(words("plan.title", id=task.id), *blocks)


def task_search_card(tasks: Sequence[Task], query: str, words: TextCatalog) -> model.Card:
    title = words("agenda.found_title", words=formats.single_line(query, _MAX_TITLE), n=len(tasks))
    if not tasks:
        return model.titled_card(title, model.TextBlock(words("agenda.found_none")))
    rows = [
        words("agenda.row", n=n, task=task_line(task, words)) for n, task in enumerate(tasks, 1)
    ]
    buttons = [
        task_parts.details_button(task, words, words("list.details", n=n))
        for n, task in enumerate(tasks[:_MAX_BUTTONS], 1)
    ]
    blocks = (model.TextBlock("\n\n".join(rows[:_MAX_ROWS])), model.ButtonsBlock(tuple(buttons)))
    return model.titled_card(title, *blocks)


def tracked_task_card(
    task: Task, hits: Sequence[task_logs.LogMatch], words: TextCatalog, *, now: datetime
) -> model.Card:
    """A tracked task has started."""
    blocks: list[model.Block] = [
        model.TextBlock(f"{words('agenda.made_self', id=task.id)}\n\n{_task_title(task)}"),
        model.TextBlock(words("agenda.made_rules", id=task.id)),
        *recalled_log_blocks(hits, words, now=now),
        model.ButtonsBlock((task_parts.details_button(task, words),)),
    ]
    return model.Card(blocks=tuple(blocks), summary=formats.single_line(task.title, _MAX_TITLE))


def recalled_log_blocks(
    hits: Sequence[task_logs.LogMatch], words: TextCatalog, *, now: datetime
) -> list[model.Block]:
    if not hits:
        return []
    return [
        model.TextBlock(f"{words('logbook.recalled')}\n\n{log_search_rows(hits, words, now=now)}")
    ]


def task_line(task: Task, words: TextCatalog) -> str:
    return words(
        "agenda.task_self" if task.outside else "agenda.task",
        mark=task_parts.STATUS_ICONS[task.status],
        priority=task_parts.PRIORITY_ICONS[task.priority],
        id=task.id,
        title=_task_title(task),
    )


def _advice(agenda: task_logs.TaskAgenda, first: Task, words: TextCatalog) -> str:
    line = task_line(first, words)
    if first.status is TaskStatus.RUNNING:
        text = words("agenda.keep", task=line)
    elif agenda.current is not None:
        current = agenda.current
        text = words("agenda.switch", task=line, current=task_line(current, words), id=current.id)
    else:
        text = words("agenda.begin", task=line)
    stage = words("agenda.stage", stage=formats.escape_markdown(first.stage, _MAX_AGENDA_LINE))
    return f"{text}\n\n{stage}" if first.stage else text


def _recap_status(recap: task_logs.TaskRecap, words: TextCatalog) -> str:
    reason = formats.truncate(
        strip_offline_note(status_reason_text(recap.task, words)), _MAX_AGENDA_LINE
    )
    view, stage = recap.view, formats.escape_markdown(recap.task.stage, _MAX_AGENDA_LINE)
    steps = words("recap.steps", done=view.done, total=view.total) if view.total else ""
    where = words(
        "recap.where",
        status=task_parts.status_label(recap.task.status, words),
        stage=words("recap.stage", stage=stage) if stage else "",
        steps=steps,
    )
    return f"{where}\n\n{words('task.reason', reason=reason)}" if reason else where


def _recap_plan(recap: task_logs.TaskRecap, words: TextCatalog) -> str:
    plan = formats.truncate(strip_offline_note(recap.plan), _MAX_PLAN)
    if not plan and not recap.steps_left:
        plan = words("recap.no_plan", id=recap.task.id)
    text = words("recap.going", plan=plan)
    if not recap.steps_left:
        return text
    titles = " → ".join(
        formats.escape_markdown(step.title, _MAX_AGENDA_LINE)
        for step in recap.steps_left[:_MAX_STEPS]
    )
    return f"{text}\n\n{words('recap.next', steps=titles)}"


def _recap_done_lines(recap: task_logs.TaskRecap, words: TextCatalog) -> list[str]:
    return [
        *(
            words("recap.step_done", title=formats.escape_markdown(step.title, _MAX_AGENDA_LINE))
            for step in recap.steps_done[-_MAX_STEPS:]
        ),
        *_log_lines(recap.done, words),
    ]


def _recap_section(key: str, lines: Sequence[str], words: TextCatalog) -> str:
    return "\n\n".join([words(key), *(lines or [words("recap.nothing")])])


def _log_lines(entries: Sequence[task_logs.LogEntry], words: TextCatalog) -> list[str]:
    return [
        f"**{log_kind_name(each.kind, words)}** "
        + formats.escape_markdown(each.text, _MAX_AGENDA_LINE)
        for each in entries
    ]


def _resume_buttons(task: Task, words: TextCatalog) -> tuple[model.CardButton, ...]:
    details = task_parts.details_button(task, words)
    if task.status in {TaskStatus.PAUSED, TaskStatus.BLOCKED}:
        return (task_parts.resume_button(task, words), details)
    return (details,)


def _task_title(task: Task) -> str:
    return formats.escape_markdown(task.title, _MAX_TITLE)
