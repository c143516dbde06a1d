"""Renders help, status, and notices about backups and restores."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never
from zoneinfo import ZoneInfo

from cards import formats
from cards.catalog import TextCatalog
from cards.model import Block, Card, CardTone, FieldsBlock, NoteBlock, TextBlock, titled_card
from cards.views import task_parts
from storage.records.messages import InboxState, Incoming, IncomingMessage, ReceivedEvent
from storage.records.people import ChatMemory, Language
from storage.records.processes import ProcessSituation, WaitingHome
from storage.records.system import (
    BackupState,
    ChannelHealth,
    DiskUse,
    RestoreRecord,
    SettingsReading,
    SystemStatus,
)
from storage.records.tasks import Task, TaskStatus

_MAX_TITLE = 60
_MAX_NAME, _MAX_RECEIVED_TEXT = 40, 60
_PERCENT = 100
_JUDGED_STATUSES = (TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.BLOCKED)

_SETTING_FAULTS = tuple(
    (re.compile(f"(?:{pattern})$"), key)
    for pattern, key in (
        (r"Input should be a valid integer\b.*", "integer"),
        (r"Input should be a valid number\b.*", "number"),
        (r"Input should be a valid boolean\b.*", "boolean"),
        (r"Input should be greater than or equal to (?P<n>\S+)", "least"),
        (r"Input should be greater than (?P<n>\S+)", "more"),
        (r"Input should be less than or equal to (?P<n>\S+)", "most"),
        (r"Input should be (?P<choices>'.+)", "choice"),
        (r"'[^']*' is not of the form 23:00-08:00", "hours"),
        (r"'[^']*' is not of the form telegram:123 or feishu:ou_x", "owner"),
        (r"'[^']*' is not of the form anthropic:<model>, .*", "model"),
        (r"there is no time zone .*", "zone"),
        (r"must begin with http:// or https://", "address"),
        (r"'[^']*' is not an absolute path", "path"),
    )
)
FAULT_SEPARATOR = " · "
"""Between several of them in one fact of an error."""
_MAX_LINES = 10
_MAX_LINE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class HelpLine:
    """A command as /help shows it; `aliases` include the slash."""

    family: str
    name: str
    usage: str
    text: str
    aliases: tuple[str, ...] = ()


def help_card(lines: Sequence[HelpLine], words: TextCatalog) -> Card:
    blocks: list[Block] = [TextBlock(words("help.intro"))]
    for family in dict.fromkeys(line.family for line in lines):
        rows = [_help_line(line, words) for line in lines if line.family == family]
        blocks.append(TextBlock(f"**{words(f'help.family.{family}')}**\n\n" + "\n".join(rows)))
    blocks.append(NoteBlock(words("help.note")))
    return titled_card(words("help.title"), *blocks)


def short_help_card(
    main: Sequence[HelpLine], lines: Sequence[HelpLine], words: TextCatalog
) -> Card:
    """The commands that most people need, and where the rest is."""
    groups = [
        f"`/help {words(f'help.family.{family}')}`"
        for family in dict.fromkeys(line.family for line in lines)
    ]
    return titled_card(
        words("help.title"),
        TextBlock(words("help.intro")),
        TextBlock("\n".join(_help_line(line, words) for line in main)),
        TextBlock(words("help.more", groups=" · ".join(groups))),
        NoteBlock(words("help.note")),
    )


def status_card(
    status: SystemStatus,
    words: TextCatalog,
    *,
    now: datetime,
    zone: ZoneInfo,
    memory: ChatMemory | None = None,
) -> Card:
    ill = [health for health in status.channels if health.alert]
    blocks: list[Block] = [
        FieldsBlock(_program_facts(status, words, now, zone)),
        FieldsBlock(_task_facts(status, words)),
    ]
    if status.channels:
        lines = [_channel_line(health, words) for health in status.channels]
        blocks.append(TextBlock("\n".join(lines)))
    if status.started_at is None:
        blocks.insert(0, TextBlock(words("system.not_running")))
    blocks.append(TextBlock("\n".join(_protection_lines(status, words, memory))))
    if status.backup is not None:
        blocks.append(TextBlock(_backup_line(status.backup, words, zone)))
    if status.disk:
        blocks.append(TextBlock(_disk_line(status.disk, words)))
    if status.processes:
        rows = [_process_line(each, words) for each in status.processes]
        blocks.append(TextBlock(f"**{words('system.processes')}**\n\n" + "\n".join(rows)))
    if status.waiting_homes:
        rows = [_waiting_home_line(each, words, now, zone) for each in status.waiting_homes]
        blocks.append(TextBlock("\n".join(rows)))
    if status.unlisted_owner:
        name = formats.escape_markdown(status.unlisted_owner, _MAX_TITLE)
        blocks.append(TextBlock(words("system.unnamed_owner", name=name)))
    if status.model.problem:
        blocks.append(TextBlock(f"⚠️ {words.get_or_literal(status.model.problem)}"))
    if status.recent:
        rows = [_recent_task_line(task, words, now) for task in status.recent]
        blocks.append(TextBlock(f"**{words('system.recent')}**\n\n" + "\n".join(rows)))
    tone = CardTone.WARN if ill or status.model.problem else CardTone.INFO
    return titled_card(words("system.title"), *blocks, tone=tone)


def _protection_lines(
    status: SystemStatus, words: TextCatalog, memory: ChatMemory | None
) -> Sequence[str]:
    protection = [
        words(f"system.sandbox.{status.sandbox}", program=status.sandbox_program),
        words(f"system.limits.{status.limits}"),
    ]
    if status.command_user is not None:
        key = "dropped" if status.command_user else "kept"
        protection.append(words(f"system.root.{key}", user=status.command_user))
    if memory is not None:
        protection.append(words(f"memory.status_{memory}"))
    return protection


def _waiting_home_line(home: WaitingHome, words: TextCatalog, now: datetime, zone: ZoneInfo) -> str:
    """A data directory that still has what must be forgotten."""
    return words(
        f"system.forgets.{home.fault(now)}",
        place=formats.code_text(home.place, _MAX_NAME * 3),
        n=home.erasures,
        since=formats.date_time(home.asked_at, zone),
        seen=formats.date_time(home.seen_at or home.asked_at, zone),
    )


def _process_line(situation: ProcessSituation, words: TextCatalog) -> str:
    """One process with the tasks that it runs."""
    process = situation.process
    name, host = (formats.code_text(each, _MAX_NAME) for each in (process.name, process.host))
    state = "alive" if process.is_alive(situation.store_now) else "silent"
    if state == "alive" and process.draining:
        state = "draining"
    line = words(
        f"system.process.{process.role}",
        symbol=words(f"system.process_state.{state}"),
        name=name,
        host=host,
        version=process.version,
        busy=len(situation.tasks),
        slots=process.slots,
    )
    held = [words.get_or_literal(f"system.service.{each}") for each in situation.services]
    titles = [
        f"{task} {formats.escape_markdown(title, _MAX_NAME)}" for task, title in situation.tasks
    ]
    return line + "".join(f"\n　{each}" for each in (*held, *titles))


def received_card(events: Sequence[ReceivedEvent], words: TextCatalog, *, zone: ZoneInfo) -> Card:
    """The newest events with their outcomes, newest first."""
    lines = [_received_line(each, words, zone) for each in events] or [words("inbox.none")]
    return titled_card(
        words("inbox.title"), TextBlock("\n".join(lines)), NoteBlock(words("inbox.note"))
    )


def _received_line(event: ReceivedEvent, words: TextCatalog, zone: ZoneInfo) -> str:
    row, place = event.row, event.row.incoming.place
    names = (words(f"channel.{place.channel}"), place.title, row.incoming.sender.name)
    return words(
        "inbox.line",
        number=row.id,
        at=formats.date_time(row.received_at, zone),
        where=" · ".join(formats.escape_markdown(each, _MAX_NAME) for each in names if each),
        text=_received_text(row.incoming, words),
        ended=_received_end(event, words),
    )


def _received_text(incoming: Incoming, words: TextCatalog) -> str:
    if not isinstance(incoming, IncomingMessage):
        return words(f"inbox.{incoming.kind}")
    said = " ".join((incoming.text or incoming.told, *(each.name for each in incoming.attachments)))
    return words("inbox.quote", text=formats.escape_markdown(said, _MAX_RECEIVED_TEXT))


def _received_end(event: ReceivedEvent, words: TextCatalog) -> str:
    row = event.row
    kind, _, detail = row.outcome.partition(" ")
    match row.state:
        case InboxState.NEW:
            return words("inbox.trying", n=row.attempts) if row.attempts else words("inbox.waits")
        case InboxState.HELD:
            return words("inbox.held")
        case InboxState.FAILED if kind == "dropped":
            return words("inbox.restored")
        case InboxState.FAILED:
            return words("inbox.failed", n=row.attempts)
        case InboxState.HANDLED:
            answer = "" if event.answer is None else event.answer.value
            key = {"card": answer or "shown", "silent": detail}.get(kind, kind)
            known = f"inbox.end.{key}"
            return words(known, number=detail) if words.has(known) else words("inbox.end.handled")
    assert_never(row.state)


def _backup_line(backup: BackupState, words: TextCatalog, zone: ZoneInfo) -> str:
    last = formats.date_time(backup.last_at, zone) if backup.last_at else words("store.no_backup")
    line = words("store.last_backup", when=last)
    if backup.failed_since is not None:
        since = formats.date_time(backup.failed_since, zone)
        return f"⚠️ {line} {words('store.failing', when=since)}"
    return f"💾 {line}" if backup.is_on else f"💾 {line} {words('store.backups_off')}"


def _disk_line(disk: Sequence[DiskUse], words: TextCatalog) -> str:
    parts = [
        f"{words(f'store.disk.{each.kind}')} {formats.file_size(each.size)}"
        + ("+" if each.is_partial else "")
        for each in disk
    ]
    return words("store.disk_use", parts=" · ".join(parts))


def _help_line(line: HelpLine, words: TextCatalog) -> str:
    """One command. Chinese aliases are shown to readers of Chinese only."""
    usage = f"/{line.name} {line.usage}".rstrip()
    is_chinese = words.language is Language.CHINESE
    shown = [each for each in line.aliases if is_chinese or each.isascii()]
    aliases = f" ({' '.join(shown)})" if shown else ""
    return f"- `{usage}` {line.text}{aliases}"


def _program_facts(
    status: SystemStatus, words: TextCatalog, now: datetime, zone: ZoneInfo
) -> tuple[tuple[str, str], ...]:
    up = ""
    if status.started_at is not None:
        since = formats.date_time(status.started_at, zone)
        up = f"{formats.duration(now - status.started_at, words)} ({since})"
    facts = (
        ("version", status.version),
        ("pid", str(status.pid) if status.pid else ""),
        ("up", up),
        ("memory", formats.file_size(status.memory_bytes) if status.memory_bytes else ""),
        ("model", status.model.label),
    )
    return tuple((words(f"system.{key}"), value) for key, value in facts if value)


def _task_facts(status: SystemStatus, words: TextCatalog) -> tuple[tuple[str, str], ...]:
    counts = status.counts
    running = counts.get(TaskStatus.RUNNING, 0)
    status_counts = [
        f"{task_parts.STATUS_ICONS[each]} {words(f'status.{each}')} {counts[each]}"
        for each in TaskStatus
        if counts.get(each)
    ]
    judged = sum(counts.get(each, 0) for each in _JUDGED_STATUSES)
    good = counts.get(TaskStatus.COMPLETED, 0)
    facts = (
        ("slots", f"{running}/{status.slots}"),
        ("tasks", " · ".join(status_counts) or words("system.no_tasks")),
        ("today", str(status.today)),
        ("success", f"{_PERCENT * good // judged} %" if judged else "-"),
        ("approvals", str(status.waiting_approvals)),
        ("queue", str(status.queued_messages)),
    )
    return tuple((words(f"system.{key}"), value) for key, value in facts)


def _channel_line(health: ChannelHealth, words: TextCatalog) -> str:
    name = words(f"channel.{health.channel}")
    if not health.alert:
        return f"- ✅ {name}"
    return f"- ⚠️ {name}: {alert_text(health, words)}"


def alert_text(health: ChannelHealth, words: TextCatalog) -> str:
    for key in (health.alert, f"alert.{health.channel}.{health.alert}"):
        if words.has(key):
            return words(key, **(health.facts or {}))
    return health.alert


def _recent_task_line(task: Task, words: TextCatalog, now: datetime) -> str:
    age = formats.time_ago(task.created_at, now, words)
    title = formats.single_line(task.title, _MAX_TITLE)
    return f"- {task_parts.STATUS_ICONS[task.status]} `{task.id}` {title} · {age}"


def restored_card(record: RestoreRecord, words: TextCatalog, *, zone: ZoneInfo) -> Card:
    """The work that was unfinished in a restored backup, for the owners to decide on."""
    counts = {
        "unsent": record.unsent,
        "unhandled": record.unhandled_count,
        "presses": record.presses,
        "tasks": len(record.tasks),
        "approvals": record.approvals,
    }
    told = [words(f"store.not_done.{key}", n=count) for key, count in counts.items() if count]
    when = formats.date_time(record.backup_at, zone)
    blocks: list[Block] = [TextBlock(words("store.restored", when=when))]
    if told:
        blocks.append(TextBlock("\n".join(f"- {line}" for line in told)))
    if record.unhandled:
        quotes = [formats.escape_markdown(each, _MAX_LINE) for each in record.unhandled]
        blocks.append(_listed(words("store.messages"), quotes))
    if record.tasks:
        lines = [
            f"`{task}` {formats.escape_markdown(title, _MAX_LINE)}" for task, title in record.tasks
        ]
        blocks.append(_listed(words("store.tasks"), lines))
    blocks.append(NoteBlock(words("store.restored_note")))
    return titled_card(words("store.restored_title"), *blocks, tone=CardTone.WARN)


def backup_failed_card(reason: str, words: TextCatalog) -> Card:
    text = words("store.backup_failed", reason=formats.escape_markdown(reason, _MAX_LINE))
    return titled_card(words("store.backup_failed_title"), TextBlock(text), tone=CardTone.WARN)


def settings_card(reading: SettingsReading, words: TextCatalog) -> Card:
    """The changes made by reloading the settings: names, never values."""
    if reading.faults:
        told = (setting_fault_text(each, words) for each in reading.faults)
        lines = [formats.escape_markdown(each, _MAX_LINE) for each in told]
        listed = _listed(words("settings.faults"), lines)
        note = NoteBlock(words("settings.kept"))
        return titled_card(words("settings.refused"), listed, note, tone=CardTone.WARN)
    parts = {"applied": reading.applied, "waiting": reading.waiting}
    blocks = [
        _listed(words(f"settings.{key}"), [f"`{name}`" for name in names])
        for key, names in parts.items()
        if names
    ]
    if not blocks:
        return titled_card(words("settings.same"))
    return titled_card(words("settings.title"), *blocks)


def setting_fault_text(fault: str, words: TextCatalog) -> str:
    """An error in the settings in the reader's language where it is a frequent one, else in
    English. It begins with the setting's name and file."""
    for pattern, key in _SETTING_FAULTS:
        if found := pattern.search(fault):
            told = words(f"settings.fault.{key}", **found.groupdict())
            return f"{fault[: found.start()]}{told}"
    return fault


def _listed(title: str, lines: Sequence[str]) -> TextBlock:
    shown = [f"- {line}" for line in lines[:_MAX_LINES]]
    more = ["- …"] if len(lines) > _MAX_LINES else []
    return TextBlock("\n".join([f"**{title}**\n", *shown, *more]))
