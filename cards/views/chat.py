"""Renders answers, task proposals, the chat's model and folder, the worker context and
the history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeAlias
from zoneinfo import ZoneInfo

from cards import formats, model
from cards.actions import AnswerWithoutTask, ChooseModel, DecideHeldMessages, StartTask
from cards.catalog import TextCatalog
from cards.views import task_parts
from cards.views.backends import (
    connect_button,
    needs_model,
    offline_note_blocks,
    strip_offline_note,
)
from storage.records.messages import InboxRow, Incoming, IncomingMessage
from storage.records.system import AUTO_MODEL, ModelChoice
from storage.records.tasks import FolderKind
from storage.records.workers import ContextPart, ContextPartState, SessionInfo

MAX_HELD_SHOWN = 10

_MAX_INSTRUCTION = 800

_MAX_SUMMARY = 80
_MAX_NAME = 40
_MAX_HELD_TEXT = 100
_MAX_FILES = 5


def answer_card(
    text: str,
    words: TextCatalog,
    *,
    notes: Sequence[str] = (),
    files: Sequence[str] = (),
    sizes: Mapping[str, int] | None = None,
    can_connect: bool = False,
) -> model.Card:
    """A plain answer. Files are attached if their size is known. `can_connect`: the reader may
    connect a model where one is needed."""
    sizes = sizes or {}
    answer = strip_offline_note(text)
    blocks: list[model.Block] = [model.TextBlock(answer)] if answer else []
    blocks += [model.file_block(path, sizes[path]) for path in files if path in sizes][:_MAX_FILES]
    blocks += [model.NoteBlock(note) for note in notes if note]
    if can_connect and needs_model(text):
        blocks.append(model.ButtonsBlock((connect_button(words),)))
    return model.Card(
        blocks=(*blocks, *offline_note_blocks((text,), words)),
        summary=formats.single_line(answer, _MAX_SUMMARY),
    )


def held_messages_card(
    rows: Sequence[InboxRow], total: int, words: TextCatalog, *, now: datetime, zone: ZoneInfo
) -> model.Card:
    """Offer messages that were not acted on: `rows` are the first of `total`."""
    lines = [_held_line(row.incoming, zone) for row in rows[:MAX_HELD_SHOWN]]
    if total > len(lines):
        lines.append(words("held.more", n=total - len(lines)))
    return model.titled_card(
        words("held.title", n=total),
        model.TextBlock(words("held.why", now=formats.date_time(now, zone))),
        model.TextBlock("\n".join(lines)),
        model.ButtonsBlock(
            (
                model.CardButton(
                    words("held.handle"), DecideHeldMessages(handle=True), model.ButtonStyle.PRIMARY
                ),
                model.CardButton(words("held.drop"), DecideHeldMessages(handle=False)),
            )
        ),
        tone=model.CardTone.WARN,
    )


def _held_line(incoming: Incoming, zone: ZoneInfo) -> str:
    name = formats.escape_markdown(incoming.sender.name, _MAX_NAME)
    if not isinstance(incoming, IncomingMessage):
        return f"- {name}"
    said = " ".join((incoming.text, *(each.name for each in incoming.attachments)))
    text = formats.escape_markdown(said, _MAX_HELD_TEXT)
    return f"- {formats.date_time(incoming.sent_at, zone)} {name}: {text}"


def proposal_card(
    start: StartTask,
    decline: AnswerWithoutTask,
    words: TextCatalog,
    *,
    answer_text: str = "",
    requested_time: str = "",
    notes: Sequence[str] = (),
) -> model.Card:
    """Ask before work is started. `requested_time` is a start time that nobody understood."""
    answer = strip_offline_note(answer_text)
    question = words("proposal.question")
    blocks: list[model.Block] = [model.TextBlock(answer)] if answer else []
    blocks += [
        model.TextBlock(f"**{formats.single_line(start.title or start.text, _MAX_SUMMARY)}**"),
        *_instruction_blocks(start, words),
        model.TextBlock(
            words("proposal.no_schedule", when=requested_time) if requested_time else question
        ),
        model.ButtonsBlock(
            (
                model.CardButton(words("button.start"), start, style=model.ButtonStyle.PRIMARY),
                model.CardButton(words("button.talk"), decline),
            )
        ),
        model.SelectBlock(
            placeholder=words("proposal.priority", priority=words(f"priority.{start.priority}")),
            action=start,
            options=task_parts.priority_options(words),
        ),
        model.NoteBlock(words("proposal.note")),
        *(model.NoteBlock(note) for note in notes if note),
        *offline_note_blocks((answer_text,), words),
    ]
    return model.titled_card(
        words("proposal.title"),
        *blocks,
        summary=words(
            "proposal.summary", title=formats.single_line(start.title or start.text, _MAX_SUMMARY)
        ),
    )


def _instruction_blocks(start: StartTask, words: TextCatalog) -> list[model.Block]:
    """The instruction as it will run, in full, so that people can read it before they agree."""
    text = formats.show_exactly(start.text).strip()
    if formats.single_line(start.text, _MAX_SUMMARY) == (start.title or start.text):
        return []
    front = model.TextBlock(formats.escape_markdown_lines(text, _MAX_INSTRUCTION))
    if len(text) <= _MAX_INSTRUCTION:
        return [front]
    title = words("proposal.whole", n=len(text))
    return [front, model.CollapsibleBlock(title, (model.CodeBlock(text),))]


def task_started_card(title: str, task_id: str, words: TextCatalog) -> model.Card:
    """Replaces a proposal or form that led to a task."""
    text = f"{words('proposal.started')} · `{task_id}` {formats.single_line(title, _MAX_SUMMARY)}"
    return model.Card(blocks=(model.NoteBlock(text),), summary=words("proposal.started"))


def proposal_declined_card(text: str, words: TextCatalog) -> model.Card:
    """Replaces a declined proposal."""
    return model.titled_card(
        words("proposal.declined"),
        model.TextBlock(formats.single_line(text, 200)),
        tone=model.CardTone.NEUTRAL,
    )


def session_card(
    *, turns: int, choice: ModelChoice, last_used_at: datetime, now: datetime, words: TextCatalog
) -> model.Card:
    pairs = (
        (words("session.turns"), str(turns)),
        (words("session.model"), choice.name),
        (words("session.used"), formats.time_ago(last_used_at, now, words)),
    )
    return model.titled_card(
        words("session.title"), model.FieldsBlock(pairs), model.NoteBlock(words("session.note"))
    )


def models_card(
    choices: Sequence[ModelChoice],
    *,
    chosen_name: str,
    words: TextCatalog,
    auto: bool = False,
    changed: bool = False,
) -> model.Card:
    """The available models. `chosen_name` is the chat's own choice, empty if none; `auto`: it has
    chosen automatic selection for each message."""
    default = words("model.default", name=choices[0].name if choices else "-")
    current = chosen_name or (words("model.auto") if auto else default)
    lines = [_choice_line(choice, words) for choice in choices]
    options = [model.SelectOption(words("model.auto_option"), AUTO_MODEL)]
    options += [model.SelectOption(choice.name, choice.name) for choice in choices]
    options.append(model.SelectOption(words("model.default_option"), "default"))
    key = "model.changed" if changed else "model.current"
    return model.titled_card(
        words("model.title"),
        model.TextBlock(words(key, name=current)),
        model.TextBlock("\n".join(lines)),
        model.SelectBlock(
            placeholder=words("model.pick"), action=ChooseModel(), options=tuple(options)
        ),
        model.NoteBlock(words("model.note")),
        tone=model.CardTone.GOOD if changed else model.CardTone.INFO,
        summary=words(key, name=current),
    )


def _choice_line(choice: ModelChoice, words: TextCatalog) -> str:
    name = f"`{choice.name}`" + (f" · {choice.service}" if choice.service else "")
    if not choice.problem:
        return f"- {name}"
    return f"- {name} ⚠️ {words.get_or_literal(choice.problem)}"


def project_card(folder: str, words: TextCatalog, *, kind: FolderKind) -> model.Card:
    """The chat's folder; empty for none."""
    lines = [words("project.none")]
    if folder:
        lines = [words("project.here", folder=folder), words(f"project.{kind}", folder=folder)]
        lines.append(words("project.change"))
    text = model.TextBlock("\n\n".join(lines))
    return model.titled_card(words("project.title"), text)


_PROJECT_BRIEF = "project"
_CHARACTERS_PER_TOKEN = 4
_MAX_PART_NAME = 80


def context_card(parts: Sequence[ContextPart], words: TextCatalog) -> model.Card:
    """The loaded parts as a table; the missing ones in one line."""
    title = words("context.title")
    present_parts = [each for each in parts if each.state is not ContextPartState.MISSING]
    missing = [each.name for each in parts if each.state is ContextPartState.MISSING]
    used = sum(each.used_characters for each in parts)
    total = words("context.nothing")
    if used:
        tokens = formats.compact_number(-(-used // _CHARACTERS_PER_TOKEN))
        total = words("context.total", used=formats.compact_number(used), tokens=tokens)
    blocks: list[model.Block] = [model.TextBlock(total)]
    if present_parts:
        columns = tuple(words(f"context.{each}") for each in ("part", "size", "state"))
        rows = tuple(_part_row(each, words) for each in present_parts)
        blocks.append(model.TableBlock(columns, rows))
    if missing:
        names = ", ".join(_part_name(name, words) for name in missing)
        blocks.append(model.NoteBlock(words("context.missing_ones", names=names)))
    blocks.append(model.NoteBlock(words("context.note")))
    return model.titled_card(title, *blocks, summary=total)


def _part_row(part: ContextPart, words: TextCatalog) -> tuple[str, str, str]:
    size = formats.compact_number(part.used_characters)
    if part.used_characters != part.size:
        size = words("context.of", used=size, size=formats.compact_number(part.size))
    return _part_name(part.name, words), size, words(f"context.is_{part.state}")


def _part_name(name: str, words: TextCatalog) -> str:
    return (
        words("context.brief")
        if name == _PROJECT_BRIEF
        else formats.single_line(name, _MAX_PART_NAME)
    )


HistoryRow: TypeAlias = tuple[datetime, bool, str, str, bool]
"""Time, whether the bot said it, text, task id, and whether it was in another chat."""

_MAX_HISTORY_TEXT = 240
_MAX_QUERY = 60


def history_card(
    lines: Sequence[HistoryRow],
    query: str,
    words: TextCatalog,
    *,
    zone: ZoneInfo,
    partial: bool = False,
    incomplete: bool = False,
) -> model.Card:
    """Lines in the given order; without `query` they are the latest. `partial`: no line has all
    words. `incomplete`: the search ran out of time."""
    topic = formats.single_line(query, _MAX_QUERY)
    title = words("history.found", words=topic) if query else words("history.title")
    nothing = words("history.nothing") if query else words("history.none")
    blocks: list[model.Block] = [model.TextBlock(nothing)]
    if lines:
        columns = tuple(words(f"history.{name}") for name in ("at", "by", "said"))
        rows = tuple(_history_row(each, words, zone) for each in lines)
        hint = [model.TextBlock(words("history.near"))] if partial else []
        blocks = [*hint, model.TableBlock(columns, rows)]
    if incomplete:
        blocks.append(model.TextBlock(words("history.cut")))
    blocks.append(model.NoteBlock(words("history.note")))
    return model.titled_card(title, *blocks)


def _history_row(row: HistoryRow, words: TextCatalog, zone: ZoneInfo) -> tuple[str, str, str]:
    at, by_bot, text, task, elsewhere = row
    who = words("history.bot" if by_bot else "history.person")
    where = words("history.task", id=task) if task else ""
    if elsewhere and not task:
        where = words("history.elsewhere")
    by = f"{who} · {where}" if where else who
    return formats.date_time(at, zone), by, formats.single_line(text, _MAX_HISTORY_TEXT)


MAX_ATTACHED_BYTES = 20_000_000
_MAX_KEY = 40


def sessions_card(
    sessions: Sequence[SessionInfo], words: TextCatalog, *, zone: ZoneInfo
) -> model.Card:
    blocks: list[model.Block] = [model.TextBlock(words("transcript.none"))]
    if sessions:
        columns = tuple(words(f"transcript.{each}") for each in ("id", "of", "by", "size", "used"))
        rows = tuple(
            (
                each.id,
                formats.single_line(each.key, _MAX_KEY),
                formats.single_line(":".join(filter(None, (each.backend, each.model))), _MAX_KEY),
                str(each.message_count),
                formats.date_time(each.last_used_at, zone),
            )
            for each in sessions
        )
        blocks = [model.TableBlock(columns, rows), model.NoteBlock(words("transcript.note"))]
    return model.titled_card(words("transcript.title"), *blocks)


def transcript_card(
    session: SessionInfo, path: str, *, size: int, lines: int, words: TextCatalog
) -> model.Card:
    text = words("transcript.lines", n=lines, key=formats.single_line(session.key, _MAX_KEY))
    blocks: list[model.Block] = [model.TextBlock(text)]
    if size <= MAX_ATTACHED_BYTES:
        blocks.append(model.file_block(path, size))
    else:
        blocks.append(model.NoteBlock(words("transcript.too_large", path=path)))
    return model.titled_card(words("transcript.one", id=session.id), *blocks)
