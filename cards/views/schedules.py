"""Renders cards about reminders and scheduled jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, assert_never
from zoneinfo import ZoneInfo

from cards import formats, model
from cards.actions import AnswerReminder, ControlSchedule, DecideMissedFiring, DecideSchedule
from cards.catalog import TextCatalog
from cards.views.timings import timing_text
from storage.records.schedules import (
    EXPIRED,
    Firing,
    FiringState,
    MessageBody,
    OneTime,
    Schedule,
    ScheduledFiring,
    ScheduleKind,
    ScheduleState,
    ServiceBody,
    TaskBody,
    WorkflowBody,
)
from storage.records.tasks import Task

_MAX_TITLE = 80
_MAX_TEXT = 600
_MAX_MISSED = 20
MAX_COUNTED_MISSED = 1000
"""Missed due times of one schedule that are counted; more are only said to be more."""
_MAX_ASKED = 4
_MAX_LISTED_BUTTONS = 4
_SNOOZES = (10, 60, 24 * 60)
"""Minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedFiring:
    """`count` due times of a schedule were missed; `firing` stands for the newest."""

    schedule: Schedule
    firing: Firing
    count: int


def due_text(at: datetime, schedule: Schedule, words: TextCatalog) -> str:
    """A due time in the schedule's zone, with the weekday."""
    local = at.astimezone(ZoneInfo(schedule.zone))
    weekday = words("schedule.weekdays").split()[local.weekday()]
    return f"{weekday} {formats.date_time(local, ZoneInfo(schedule.zone))}"


def schedule_proposed_card(
    schedule: Schedule, upcoming: Sequence[datetime], words: TextCatalog
) -> model.Card:
    """Repeats what was understood; the schedule is inactive until somebody confirms it."""
    key = "reminder" if schedule.kind is ScheduleKind.REMINDER else "job"
    return model.titled_card(
        words(f"schedule.proposed_{key}"),
        *_body_blocks(schedule, words),
        _when_block(schedule, upcoming, words),
        model.ButtonsBlock(
            (
                model.CardButton(
                    words("schedule.button_confirm"),
                    DecideSchedule(schedule_id=schedule.id, confirm=True),
                    style=model.ButtonStyle.PRIMARY,
                ),
                model.CardButton(
                    words("schedule.button_decline"),
                    DecideSchedule(schedule_id=schedule.id, confirm=False),
                ),
            )
        ),
        model.NoteBlock(words("schedule.proposed_note", id=schedule.id)),
        summary=words("schedule.proposed_summary", title=_title(schedule)),
    )


def schedule_card(
    schedule: Schedule,
    upcoming: Sequence[datetime],
    words: TextCatalog,
    *,
    news: str = "",
) -> model.Card:
    """One schedule and its next firings. `news` describes the change just made."""
    blocks: list[model.Block] = [
        *_body_blocks(schedule, words),
        _when_block(schedule, upcoming, words),
    ]
    if schedule.state is ScheduleState.PAUSED:
        reason = words.get_or_literal(schedule.reason)
        blocks.append(model.TextBlock(words("schedule.is_paused", why=reason)))
    buttons = _control_buttons(schedule, upcoming, words)
    if buttons:
        blocks.append(model.ButtonsBlock(buttons))
    blocks.append(model.NoteBlock(words("schedule.id_note", id=schedule.id)))
    state = EXPIRED if schedule.reason == EXPIRED else f"schedule.state_{schedule.state}"
    return model.titled_card(
        news or words(state),
        *blocks,
        summary=_title(schedule),
    )


def reminder_card(fired: ScheduledFiring, words: TextCatalog) -> model.Card:
    schedule, firing = fired.schedule, fired.firing
    body = schedule.body
    text = body.text if isinstance(body, MessageBody) else schedule.title
    snoozes = [
        model.CardButton(
            words(f"schedule.snooze_{minutes}"),
            AnswerReminder(firing_id=firing.id, snooze_minutes=minutes),
        )
        for minutes in _SNOOZES
    ]
    done = model.CardButton(
        words("schedule.button_done"),
        AnswerReminder(firing_id=firing.id),
        style=model.ButtonStyle.PRIMARY,
    )
    blocks: list[model.Block] = [
        model.TextBlock(formats.escape_markdown_lines(text, _MAX_TEXT)),
        model.ButtonsBlock((done, *snoozes)),
    ]
    if not isinstance(schedule.timing, OneTime):
        blocks.append(
            model.ButtonsBlock(
                (_control(schedule, "skip", words), _control(schedule, "pause", words))
            )
        )
    return model.titled_card(
        words("schedule.reminder"),
        *blocks,
        summary=words("schedule.reminder_summary", text=formats.single_line(text, _MAX_TITLE)),
    )


def reminder_answered_card(
    schedule: Schedule, words: TextCatalog, *, snoozed_until: datetime | None = None
) -> model.Card:
    if snoozed_until is None:
        title = words("schedule.done")
    else:
        title = words("schedule.snoozed", at=due_text(snoozed_until, schedule, words))
    text = f"{title} · {_title(schedule)}"
    return model.Card(blocks=(model.NoteBlock(text),), summary=text)


def missed_firings_card(missed: Sequence[MissedFiring], words: TextCatalog) -> model.Card:
    """Everything that was due while Shiftboss was not running, with the outcome of each."""
    rows = [_missed_row(each, words) for each in missed[:_MAX_MISSED]]
    blocks: list[model.Block] = [model.TextBlock("\n".join(rows))]
    if len(missed) > _MAX_MISSED:
        blocks.append(model.NoteBlock(words("schedule.missed_more", n=len(missed) - _MAX_MISSED)))
    asked = [each for each in missed if each.firing.state is FiringState.MISSED][:_MAX_ASKED]
    for each in asked:
        title = formats.single_line(each.schedule.title, 24)
        blocks.append(
            model.ButtonsBlock(
                tuple(
                    model.CardButton(
                        words(f"schedule.button_{'run' if run else 'leave'}_missed", title=title),
                        DecideMissedFiring(firing_id=each.firing.id, run=run),
                    )
                    for run in (True, False)
                )
            )
        )
    return model.titled_card(
        words("schedule.missed_title", n=sum(each.count for each in missed)),
        *blocks,
        tone=model.CardTone.WARN,
    )


def missed_decided_card(fired: ScheduledFiring, words: TextCatalog) -> model.Card:
    keys = {FiringState.SKIPPED: "schedule.missed_left", FiringState.FAILED: "schedule.failed"}
    key = keys.get(fired.firing.state, "schedule.ran_now")
    return model.notice_card("", words(key, title=_title(fired.schedule)))


def firing_failed_card(fired: ScheduledFiring, words: TextCatalog) -> model.Card:
    schedule = fired.schedule
    return model.titled_card(
        words("schedule.failed", title=_title(schedule)),
        model.TextBlock(
            formats.escape_markdown(words.get_or_literal(fired.firing.note), _MAX_TEXT)
        ),
        model.ButtonsBlock((_control(schedule, "run", words), _control(schedule, "pause", words))),
        tone=model.CardTone.BAD,
    )


def schedule_paused_card(schedule: Schedule, words: TextCatalog) -> model.Card:
    return model.titled_card(
        words("schedule.paused_by_itself", title=_title(schedule)),
        model.TextBlock(words.get_or_literal(schedule.reason)),
        model.ButtonsBlock(tuple(_control(schedule, each, words) for each in ("resume", "delete"))),
        model.NoteBlock(words("schedule.id_note", id=schedule.id)),
        tone=model.CardTone.WARN,
    )


def schedules_card(
    views: Sequence[tuple[Schedule, Sequence[datetime], Firing | None]], words: TextCatalog
) -> model.Card:
    if not views:
        return model.titled_card(
            words("schedule.list_title", n=0), model.TextBlock(words("schedule.none"))
        )
    rows = [_list_row(*each, words) for each in views]
    blocks: list[model.Block] = [model.TextBlock("\n".join(rows))]
    for schedule, _, _ in views[:_MAX_LISTED_BUTTONS]:
        change = "resume" if schedule.state is ScheduleState.PAUSED else "pause"
        changes = (change, "run", "delete")
        title = formats.single_line(schedule.title, 16)
        blocks.append(
            model.ButtonsBlock(
                tuple(
                    model.CardButton(
                        f"{words(f'schedule.button_{each}')} · {title}",
                        ControlSchedule(
                            schedule_id=schedule.id,
                            change=each,  # type: ignore[arg-type]
                            listed=True,
                        ),
                    )
                    for each in changes
                )
            )
        )
    blocks.append(model.NoteBlock(words("schedule.list_note")))
    return model.titled_card(words("schedule.list_title", n=len(views)), *blocks)


def schedule_log_card(
    schedule: Schedule, firings: Sequence[tuple[Firing, Task | None]], words: TextCatalog
) -> model.Card:
    rows = [
        words(
            "schedule.log_row",
            at=due_text(firing.due_at, schedule, words),
            outcome=firing_outcome(firing, task, words),
        )
        for firing, task in firings
    ]
    return model.titled_card(
        words("schedule.log_title", title=_title(schedule)),
        model.TextBlock("\n".join(rows) or words("schedule.log_empty")),
        model.NoteBlock(words("schedule.id_note", id=schedule.id)),
    )


def firing_outcome(firing: Firing, task: Task | None, words: TextCatalog) -> str:
    """How a firing ended. The status of a task comes from the task itself."""
    if task is not None and firing.state is FiringState.STARTED:
        text = words(f"status.{task.status}")
    else:
        text = words(f"schedule.firing_{firing.state}")
    parts = [text]
    if firing.note:
        parts.append(formats.single_line(words.get_or_literal(firing.note), 120))
    if firing.attempt:
        parts.append(words("schedule.attempts", n=firing.attempt + 1))
    if firing.task_id:
        parts.append(f"`{firing.task_id}`")
    return " · ".join(parts)


def schedule_data(
    schedule: Schedule, upcoming: Sequence[datetime], last: Firing | None = None
) -> Mapping[str, Any]:
    return {
        "id": schedule.id,
        "kind": schedule.kind.value,
        "state": schedule.state.value,
        "reason": schedule.reason,
        "title": schedule.title,
        "zone": schedule.zone,
        "missed": schedule.missed.value,
        "retries": schedule.retries,
        "upcoming": [each.astimezone(ZoneInfo(schedule.zone)).isoformat() for each in upcoming],
        "last": None if last is None else firing_data(last),
    }


def firing_data(firing: Firing) -> Mapping[str, Any]:
    return {
        "id": firing.id,
        "due_at": firing.due_at.isoformat(),
        "fired_at": firing.fired_at.isoformat(),
        "state": firing.state.value,
        "attempt": firing.attempt,
        "task": firing.task_id,
        "note": firing.note,
    }


def _title(schedule: Schedule) -> str:
    return formats.escape_markdown(schedule.title, _MAX_TITLE)


def _body_blocks(schedule: Schedule, words: TextCatalog) -> list[model.Block]:
    body = schedule.body
    match body:
        case MessageBody(text=text):
            return [model.TextBlock(f"**{formats.escape_markdown(text, _MAX_TEXT)}**")]
        case TaskBody(instruction=text):
            shown = formats.show_exactly(text).strip()
            blocks: list[model.Block] = [
                model.TextBlock(formats.escape_markdown_lines(shown, _MAX_TEXT))
            ]
            if len(shown) > _MAX_TEXT:
                title = words("proposal.whole", n=len(shown))
                blocks.append(model.CollapsibleBlock(title, (model.CodeBlock(shown),)))
            return blocks
        case WorkflowBody(name=name, inputs=inputs):
            values = ", ".join(f"{key}={value}" for key, value in inputs.items())
            text = words("schedule.workflow", name=formats.escape_markdown(name, _MAX_TITLE))
            shown = formats.escape_markdown(values, _MAX_TEXT)
            return [model.TextBlock(f"{text} · {shown}" if shown else text)]
        case ServiceBody(name=name):
            return [model.TextBlock(f"**{_title(schedule)}** (`{name}`)")]
        case _:
            assert_never(body)


def _when_block(
    schedule: Schedule, upcoming: Sequence[datetime], words: TextCatalog
) -> model.FieldsBlock:
    pairs = [(words("schedule.when"), timing_text(schedule.timing, words, ZoneInfo(schedule.zone)))]
    times = "\n".join(due_text(each, schedule, words) for each in upcoming)
    if times:
        pairs.append((words("schedule.next"), times))
    pairs.append((words("schedule.zone"), schedule.zone))
    if schedule.kind is ScheduleKind.JOB:
        pairs.append((words("schedule.if_missed"), words(f"schedule.missed_{schedule.missed}")))
        if schedule.retries:
            pairs.append((words("schedule.retries"), str(schedule.retries)))
        if schedule.cap:
            pairs.append((words("schedule.cap"), schedule.cap))
    return model.FieldsBlock(tuple(pairs))


def _control(
    schedule: Schedule, change: str, words: TextCatalog, *, due_at: datetime | None = None
) -> model.CardButton:
    return model.CardButton(
        words(f"schedule.button_{change}"),
        ControlSchedule(
            schedule_id=schedule.id,
            change=change,  # type: ignore[arg-type]
            due_at=due_at,
        ),
    )


def _control_buttons(
    schedule: Schedule, upcoming: Sequence[datetime], words: TextCatalog
) -> tuple[model.CardButton, ...]:
    match schedule.state:
        case ScheduleState.ACTIVE:
            changes = ["pause", "run", "skip", "delete"]
            if isinstance(schedule.timing, OneTime):
                changes = ["run", "delete"]
        case ScheduleState.PAUSED:
            changes = ["resume", "run", "delete"]
        case ScheduleState.PROPOSED | ScheduleState.ENDED:
            changes = []
        case _:
            assert_never(schedule.state)
    shown = next(iter(upcoming), None)
    return tuple(
        _control(schedule, each, words, due_at=shown if each == "skip" else None)
        for each in changes
    )


def _missed_row(each: MissedFiring, words: TextCatalog) -> str:
    at = due_text(each.firing.due_at, each.schedule, words)
    count = f"{each.count}+" if each.count >= MAX_COUNTED_MISSED else each.count
    times = words("schedule.missed_times", n=count) if each.count > 1 else ""
    outcome = words(f"schedule.missed_now_{each.firing.state}")
    return f"- **{_title(each.schedule)}** · {at}{times}: {outcome}"


def _list_row(
    schedule: Schedule, upcoming: Sequence[datetime], last: Firing | None, words: TextCatalog
) -> str:
    mark = {ScheduleKind.REMINDER: "⏰"}.get(schedule.kind, "🔁")
    when = timing_text(schedule.timing, words, ZoneInfo(schedule.zone))
    if schedule.state is ScheduleState.PAUSED:
        state = words("schedule.state_paused")
    else:
        state = due_text(upcoming[0], schedule, words) if upcoming else "—"
    row = f"- {mark} `{schedule.id}` **{_title(schedule)}** · {when} · {state}"
    if last is not None and last.state is FiringState.FAILED:
        row += f" · {words('schedule.last_failed')}"
    return row
