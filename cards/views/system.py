"""Help and status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from cards import formats
from cards.model import Block, Card, Fields, Note, Text, Tone
from cards.views import marks
from cards.words import Words
from storage.records.status import ChannelHealth, SystemStatus
from storage.records.tasks import Task, TaskStatus

_TITLE = 60
_WHOLE = 100
_ENDED = (TaskStatus.COMPLETED, TaskStatus.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class HelpLine:
    """One command as /help shows it; `aliases` with their slash."""

    family: str
    name: str
    usage: str
    text: str
    aliases: tuple[str, ...] = ()


def help_card(lines: Sequence[HelpLine], words: Words) -> Card:
    blocks: list[Block] = [Text(markdown=words("help.intro"))]
    for family in dict.fromkeys(line.family for line in lines):
        rows = [_help_line(line) for line in lines if line.family == family]
        blocks.append(Text(markdown=f"**{words(f'help.family.{family}')}**\n\n" + "\n".join(rows)))
    blocks.append(Note(markdown=words("help.note")))
    title = words("help.title")
    return Card(title=title, tone=Tone.INFO, blocks=tuple(blocks), summary=title)


def status_card(status: SystemStatus, words: Words, *, now: datetime, zone: ZoneInfo) -> Card:
    ill = [health for health in status.channels if health.alert]
    blocks: list[Block] = [
        Fields(pairs=_program(status, words, now, zone)),
        Fields(pairs=_work(status, words)),
        Text(markdown="\n".join(_channel(health, words) for health in status.channels)),
    ]
    blocks.append(Text(markdown=words(f"system.sandbox.{status.sandbox}")))
    if status.unnamed_owner:
        name = formats.verbatim(status.unnamed_owner, _TITLE)
        blocks.append(Text(markdown=words("system.unnamed_owner", name=name)))
    if status.model.problem:
        blocks.append(Text(markdown=f"⚠️ {words.or_own(status.model.problem)}"))
    if status.recent:
        rows = [_recent(task, words, now) for task in status.recent]
        blocks.append(Text(markdown=f"**{words('system.recent')}**\n\n" + "\n".join(rows)))
    title = words("system.title")
    tone = Tone.WARN if ill or status.model.problem else Tone.INFO
    return Card(title=title, tone=tone, blocks=tuple(blocks), summary=title)


def _help_line(line: HelpLine) -> str:
    usage = f"/{line.name} {line.usage}".rstrip()
    aliases = f" ({' '.join(line.aliases)})" if line.aliases else ""
    return f"- `{usage}` {line.text}{aliases}"


def _program(
    status: SystemStatus, words: Words, now: datetime, zone: ZoneInfo
) -> tuple[tuple[str, str], ...]:
    since = formats.moment(status.started_at, zone)
    up = formats.duration(now - status.started_at, words)
    facts = (
        ("version", status.version),
        ("pid", str(status.pid) if status.pid else ""),
        ("up", f"{up} ({since})"),
        ("memory", formats.size(status.memory_bytes) if status.memory_bytes else ""),
        ("model", status.model.name),
    )
    return tuple((words(f"system.{key}"), value) for key, value in facts if value)


def _work(status: SystemStatus, words: Words) -> tuple[tuple[str, str], ...]:
    counts = status.counts
    running = counts.get(TaskStatus.RUNNING, 0)
    listed = [
        f"{marks.STATUS[each]} {words(f'status.{each}')} {counts[each]}"
        for each in TaskStatus
        if counts.get(each)
    ]
    ended = sum(counts.get(each, 0) for each in _ENDED)
    good = counts.get(TaskStatus.COMPLETED, 0)
    facts = (
        ("slots", f"{running}/{status.slots}"),
        ("tasks", " · ".join(listed) or words("system.no_tasks")),
        ("today", str(status.today)),
        ("success", f"{_WHOLE * good // ended} %" if ended else "-"),
        ("approvals", str(status.waiting_approvals)),
        ("queue", str(status.queued_messages)),
    )
    return tuple((words(f"system.{key}"), value) for key, value in facts)


def _channel(health: ChannelHealth, words: Words) -> str:
    name = words(f"channel.{health.channel}")
    if not health.alert:
        return f"- ✅ {name}"
    return f"- ⚠️ {name}: {_alert(health, words)}"


def _alert(health: ChannelHealth, words: Words) -> str:
    for key in (health.alert, f"alert.{health.channel}.{health.alert}"):
        if words.has(key):
            return words(key, **(health.facts or {}))
    return health.alert


def _recent(task: Task, words: Words, now: datetime) -> str:
    age = formats.age(task.created_at, now, words)
    title = formats.line(task.title, _TITLE)
    return f"- {marks.STATUS[task.status]} `{task.id}` {title} · {age}"
