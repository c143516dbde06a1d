"""A plan as lines of a checklist: branches, rounds, who is waited for, and how long it may take."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from cards import formats
from cards.model import Check, Checklist, CheckState
from cards.views.backends import without_note
from cards.views.workers.personas import named
from cards.words import Words
from storage.records.tasks import (
    Control,
    Eta,
    NodeStatus,
    Phase,
    Rounds,
    Step,
    Task,
    TaskStatus,
    TaskView,
)

_DETAIL = 100
_LINE = 72
_SHORT = 24
_WAY = 24
_LONG = 12
_CHARACTERS = 2_000
_NAME = 40
_FEW = 2
_ERRORS = {TaskStatus.FAILED, TaskStatus.BLOCKED}
_SURE, _FAIR = 0.7, 0.4
_MINUTE, _DAY = 60, 24
_WORTH = 2

_CHECKS = {
    NodeStatus.PENDING: CheckState.PENDING,
    NodeStatus.RUNNING: CheckState.RUNNING,
    NodeStatus.WAITING: CheckState.WAITING,
    NodeStatus.DONE: CheckState.DONE,
    NodeStatus.FAILED: CheckState.FAILED,
    NodeStatus.SKIPPED: CheckState.SKIPPED,
}


def outline(
    view: TaskView,
    words: Words,
    *,
    now: datetime,
    zone: ZoneInfo | None = None,
    timed: bool = False,
) -> Checklist:
    """`timed` says of each step how long it took; without `zone` no time of the clock is said."""
    before, behind = view.left_out
    long = len(view.lines) > _LONG
    wrong = _wrong(view)
    checks = [
        Check(
            label=_label(step, words, _LINE if long else _DETAIL)
            + (_took(step, words, now) if timed else ""),
            state=CheckState.FAILED if step.path in wrong else step_state(step, view.task),
            detail=""
            if timed
            else formats.cut(
                _detail(step, view.task, words, now, zone), _NAME if long else _DETAIL
            ),
            depth=step.depth,
        )
        for step in view.lines
    ]
    if before:
        checks.insert(0, Check(label=words("graph.before", n=before), state=CheckState.DONE))
    if behind:
        checks.append(Check(label=words("graph.more", n=behind)))
    return Checklist(items=tuple(_within(checks, _CHARACTERS)))


def _within(checks: Sequence[Check], most: int) -> Sequence[Check]:
    """All lines, the longest of them cut where they are too much for one message together."""
    lengths = sorted(len(check.label) for check in checks)
    left = most - sum(len(check.detail) + 2 * check.depth for check in checks)
    if sum(lengths) <= left:
        return checks
    # The shorter ones leave room to the longer ones.
    room, n = left, len(lengths)
    for length in lengths:
        if length * n > room:
            break
        room, n = room - length, n - 1
    longest = max(_SHORT, room // max(1, n))
    return [replace(check, label=formats.cut(check.label, longest)) for check in checks]


def is_list(steps: Sequence[Step]) -> bool:
    """Whether a plan is no more than steps, one after the other."""
    plain = ("task", "human")
    return not any(step.depth or step.kind not in plain or step.round > 1 for step in steps)


def _wrong(view: TaskView) -> AbstractSet[str]:
    """The paths of what holds a step on which the task has failed."""
    if view.task.status not in _ERRORS:
        return frozenset()
    steps = (*view.steps, *view.lines)
    failed = {
        step.path
        for step in steps
        if not _is_made_up_for(step) and step_state(step, view.task) is CheckState.FAILED
    }
    return {
        step.path
        for step in steps
        if step.rounds is not None
        and not step.status.is_settled
        and any(path.startswith(f"{step.path}[") for path in failed)
    }


def _is_made_up_for(step: Step) -> bool:
    """Whether it has failed and the plan goes on all the same."""
    return step.status in {NodeStatus.DONE, NodeStatus.SKIPPED} and bool(step.error)


def step_state(step: Step, task: Task) -> CheckState:
    """A step of a task that nobody works on does not run: it was left, or is what went wrong."""
    if _is_made_up_for(step):
        return CheckState.FAILED
    if step.status is NodeStatus.WAITING and task.status.is_final:
        return CheckState.PAUSED
    if step.status is NodeStatus.RUNNING and task.status is not TaskStatus.RUNNING:
        waits = step.rounds is not None and task.status is TaskStatus.WAITING
        return CheckState.WAITING if waits else CheckState.PAUSED
    if step.status is NodeStatus.PENDING and step.started_at and task.status in _ERRORS:
        return CheckState.FAILED
    return _CHECKS[step.status]


def eta_text(view: TaskView, words: Words) -> str:
    """Empty where there is nothing to say: nobody works on it, or next to nothing is left."""
    task, eta = view.task, view.eta
    works = task.status is TaskStatus.RUNNING and task.control is Control.RUN
    if eta is None or not works or task.phase is not Phase.DOING or eta.steps < _WORTH:
        return ""
    return words("graph.eta.left", span=prefix(eta) + _span(eta.seconds, words))


def prefix(eta: Eta) -> str:
    """How sure it is: nothing before what is, `≈` before what is hardly more than a guess."""
    if eta.confidence >= _SURE:
        return ""
    return "~" if eta.confidence >= _FAIR else "≈"


def _span(seconds: float, words: Words) -> str:
    """In steps that are coarser the longer it is."""
    if seconds < _MINUTE:
        return words("graph.eta.seconds", s=max(10, round(seconds / 10) * 10))
    minutes = round(seconds / _MINUTE)
    for most, step in ((10, 1), (_MINUTE, 5)):
        if minutes < most:
            return words("graph.eta.minutes", m=round(minutes / step) * step)
    quarters = round(minutes / 15) * 15
    hours, rest = divmod(quarters, _MINUTE)
    if hours >= _DAY and not hours % _DAY:
        return words("graph.eta.whole_days", d=hours // _DAY)
    if hours >= _DAY:
        return words("graph.eta.days", d=hours // _DAY, h=hours % _DAY)
    return words("graph.eta.hours", h=hours, m=f"{rest:02}")


def _label(step: Step, words: Words, room: int) -> str:
    """What is behind the title is short, and never cut off."""
    parts: list[str] = []
    if step.round > 1 and step.status is not NodeStatus.SKIPPED:
        parts.append(f"×{step.round}")
    if step.way:
        parts.append("→ " + formats.cut(", ".join(step.way), _WAY))
    if step.folded:
        parts.append(words("graph.folded", n=step.folded))
    behind = " ".join(["", *parts])
    before = "🔁 " if step.rounds is not None else ""
    if step.rounds is not None:
        behind += _rounds(step, step.rounds, words)
    if step.branch is not None:
        name = formats.line(step.branch, _WAY)
        before = f"↳ {name}: {before}" if name else f"↳ {before}"
    title = formats.line(step.title, max(_SHORT, room - len(before) - len(behind)))
    return f"{before}{title}{behind}"


def _rounds(step: Step, rounds: Rounds, words: Words) -> str:
    """Nothing before the first, unless it is known how many there will be."""
    lost = f" · {words('graph.failed', n=rounds.failed)}" if rounds.failed else ""
    if rounds.total is not None:
        return f" · {rounds.done}/{rounds.total}{lost}"
    if not rounds.at or step.status.is_settled:
        return lost
    if rounds.most is None:
        return f" · {words('graph.round', n=rounds.at)}{lost}"
    return f" · {words('graph.round_of', n=rounds.at, most=rounds.most)}{lost}"


def _detail(step: Step, task: Task, words: Words, now: datetime, zone: ZoneInfo | None) -> str:
    if _is_made_up_for(step):
        why = formats.line(without_note(step.error), _DETAIL)
        return words("graph.made_up_for", why=why)
    if task.status.is_final and not step.status.is_settled:
        return ""
    if step.status is NodeStatus.FAILED and task.status not in _ERRORS:
        return formats.line(without_note(step.error), _DETAIL)
    who = named(step.persona, words) if step.persona != task.persona else ""
    waits = [_waits_for(step, words) if step.asked else "", _until(step, words, now, zone)]
    return " · ".join(filter(None, (*waits, who)))


def _waits_for(step: Step, words: Words) -> str:
    names = [formats.line(name, _NAME) for name in step.waits_for[:_FEW]]
    if not names:
        return words("graph.waits")
    if len(step.waits_for) > _FEW:
        return words("graph.waits_for_many", who=words("graph.comma").join(names))
    return words("graph.waits_for", who=words("graph.or").join(names))


def _until(step: Step, words: Words, now: datetime, zone: ZoneInfo | None) -> str:
    if step.until is None or zone is None or step.until <= now:
        return ""
    at, today = step.until.astimezone(zone), now.astimezone(zone)
    # Today's times without the day, and without seconds where they say nothing.
    if at.date() == today.date():
        near = at - today < timedelta(minutes=2)
        return words("graph.until", at=at.strftime("%H:%M:%S" if near else "%H:%M"))
    return words("graph.until", at=formats.moment(step.until, zone))


def _took(step: Step, words: Words, now: datetime) -> str:
    if not step.started_at:
        return ""
    return f" ({formats.duration((step.ended_at or now) - step.started_at, words)})"
