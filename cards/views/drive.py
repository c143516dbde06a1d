"""Cards of drive: the goals that the program pursues by itself."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from cards import formats, model
from cards.catalog import TextCatalog
from storage.records.drive import DriveStatus, GoalState, GoalStatus
from storage.records.schedules import Firing, FiringState
from storage.records.tasks import Task
from storage.records.usage import SpendingCap

_MAX_TITLE = 60
_MAX_NOTE = 120
_SYMBOLS = {FiringState.DONE: "✅", FiringState.FAILED: "❌", FiringState.STARTED: "⏳"}


def drive_line(status: DriveStatus, words: TextCatalog) -> str:
    """One line for the overview."""
    if status.is_stopped:
        return words("self.drive_line_stopped")
    active = sum(each.state is GoalState.ON for each in status.goals)
    return words("self.drive_line", n=active, all=len(status.goals))


def drive_card(
    status: DriveStatus, words: TextCatalog, *, now: datetime, zone: ZoneInfo, news: str = ""
) -> model.Card:
    """`news` is a text key: what has just changed."""
    rows = [_goal_row(each, words, now, zone) for each in status.goals]
    blocks: list[model.Block] = [model.TextBlock("\n".join(rows))]
    if status.cap:
        blocks.append(model.TextBlock(_budget_text(status, words)))
    if status.tasks:
        tasks = "\n".join(_task_row(each, words) for each in status.tasks)
        blocks.append(model.TextBlock(f"**{words('self.drive_tasks')}**\n\n{tasks}"))
    blocks.append(model.NoteBlock(words("self.drive_note")))
    return model.titled_card(words(news or "self.drive_title"), *blocks)


def drive_data(status: DriveStatus) -> Mapping[str, Any]:
    return {
        "stopped": status.is_stopped,
        "goals": [
            {
                "name": each.name.value,
                "every_hours": each.every.total_seconds() / 3600,
                "state": each.state.value,
                "next_due": each.next_due.isoformat() if each.next_due else None,
                "last": each.last.state.value if each.last else None,
            }
            for each in status.goals
        ],
        "used_micros": status.used.micros,
        "used_tokens": status.used.tokens,
        "tasks": [each.id for each in status.tasks],
    }


def _goal_row(goal: GoalStatus, words: TextCatalog, now: datetime, zone: ZoneInfo) -> str:
    mark = "●" if goal.state is GoalState.ON else "○"
    every = words("self.every_hours", n=int(goal.every.total_seconds() // 3600))
    parts = [f"{mark} **{words(f'self.goal.{goal.name}')}** (`{goal.name}`)", every]
    if goal.state is not GoalState.ON:
        parts.append(words(f"self.goal_state.{goal.state}"))
    elif goal.next_due is not None:
        parts.append(words("self.goal_next", at=formats.date_time(goal.next_due, zone)))
    parts.append(_outcome(goal.last, words, now))
    row = " · ".join(parts)
    return f"- {row}"


def _outcome(last: Firing | None, words: TextCatalog, now: datetime) -> str:
    if last is None:
        return "—"
    ago = formats.time_ago(last.fired_at, now, words)
    text = f"{_SYMBOLS.get(last.state, '—')} {ago}"
    if not last.note:
        return text
    return f"{text}: {formats.escape_markdown(words.get_or_literal(last.note), _MAX_NOTE)}"


def _budget_text(status: DriveStatus, words: TextCatalog) -> str:
    return words(
        "self.drive_budget",
        used=_amounts(status.used, status.cap),
        cap=_amounts(status.cap, status.cap),
    )


def _amounts(amount: SpendingCap, cap: SpendingCap) -> str:
    parts: list[str] = []
    if cap.micros:
        parts.append(formats.money(amount.micros))
    if cap.tokens:
        parts.append(formats.compact_number(amount.tokens))
    return " · ".join(parts)


def _task_row(task: Task, words: TextCatalog) -> str:
    title = formats.escape_markdown(task.title, _MAX_TITLE)
    return f"- `{task.id}` {title} · {words(f'status.{task.status}')}"
