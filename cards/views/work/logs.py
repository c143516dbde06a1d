"""Logs on cards: one as it was kept, a task's newest, and what a search found."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import PurePath
from zoneinfo import ZoneInfo

from cards import formats
from cards.model import Block, Buttons, Card, Code, Note, Text, Tone
from cards.views import controls
from cards.views.files import attached
from cards.words import Words
from storage.records.logs import LogEntry, LogKind
from storage.records.notebook import CHANGE_AT, MOST_ERRORS, Found, LogPage, Noted

_LINE = 300
_PAGE = 3000
_GOAL = 500
_WORDS = 60
_FILES = 5


def noted_card(noted: Noted, words: Words, *, hint: str = "") -> Card:
    """A log was kept, with all that the method has to say about it."""
    task = noted.task
    kind = kind_name(noted.entry.kind, words)
    texts = [words("logbook.noted", kind=kind, n=noted.number, id=task.id), hint]
    if noted.entry.file:
        texts.append(f"📎 {formats.verbatim(PurePath(noted.entry.file).name, _WORDS)}")
    texts += warnings(noted, words)
    blocks: list[Block] = [Text(markdown="\n\n".join(filter(None, texts)))]
    if noted.reminds:
        blocks.append(Text(markdown=words("logbook.remind", n=noted.number)))
        blocks.append(Note(markdown=formats.verbatim(task.instruction, _GOAL)))
    blocks.append(Buttons(items=(controls.details_button(task, words),)))
    warned = noted.planless or noted.blocked or noted.entry.kind is LogKind.ERROR
    return Card(tone=Tone.WARN if warned else Tone.NEUTRAL, blocks=tuple(blocks), summary=texts[0])


def warnings(noted: Noted, words: Words) -> list[str]:
    """What is amiss, one sentence each."""
    task, told = noted.task, []
    if noted.cut:
        told.append(words("logbook.cut"))
    if noted.planless and noted.entry.kind is not LogKind.PLAN:
        told.append(words("logbook.planless", id=task.id))
    if noted.entry.kind is LogKind.ERROR:
        told.append(words("logbook.errors", n=task.errors, most=MOST_ERRORS))
        if noted.blocked:
            told.append(words("logbook.blocked", id=task.id))
        elif task.errors >= CHANGE_AT:
            told.append(words("logbook.change", n=task.errors, id=task.id))
    return told


def page_card(page: LogPage, kind: LogKind | None, words: Words, *, zone: ZoneInfo) -> Card:
    """A task's newest logs, oldest first, with their files."""
    task = page.task
    if kind is None:
        title = words("logbook.title", id=task.id, n=page.total)
    else:
        name = kind_name(kind, words)
        title = words("logbook.title_kind", id=task.id, n=page.total, kind=name)
    blocks: list[Block] = []
    if page.entries:
        lines = "\n".join(_line(entry, words, zone) for entry in page.entries)
        blocks.append(Code(text=formats.tail(lines, _PAGE)))
    else:
        blocks.append(Text(markdown=words("logbook.empty", id=task.id)))
    files = dict.fromkeys(entry.file for entry in reversed(page.entries))
    kept = [path for path in files if path in page.sizes][:_FILES]
    blocks += [attached(path, page.sizes[path]) for path in kept]
    blocks.append(Buttons(items=(controls.details_button(task, words),)))
    return Card(title=title, tone=Tone.INFO, blocks=tuple(blocks), summary=title)


def found_card(hits: Sequence[Found], wanted: str, words: Words, *, now: datetime) -> Card:
    title = words("logbook.found_title", words=formats.line(wanted, _WORDS), n=len(hits))
    body = found_rows(hits, words, now=now) or words("logbook.found_none")
    return Card(title=title, tone=Tone.INFO, blocks=(Text(markdown=body),), summary=title)


def found_rows(hits: Sequence[Found], words: Words, *, now: datetime) -> str:
    """Logs of several tasks, one a paragraph."""
    return "\n\n".join(
        words(
            "logbook.found_row",
            id=hit.task.id,
            kind=kind_name(hit.entry.kind, words),
            text=formats.verbatim(hit.entry.text, _LINE),
            at=formats.age(hit.entry.at, now, words),
        )
        for hit in hits
    )


def kind_name(kind: LogKind, words: Words) -> str:
    return words(f"logbook.kind.{kind}")


def _line(entry: LogEntry, words: Words, zone: ZoneInfo) -> str:
    parts = [
        formats.moment(entry.at, zone),
        kind_name(entry.kind, words),
        f"[{formats.line(entry.stage, _WORDS)}]" if entry.stage else "",
        formats.line(entry.text, _LINE),
        f"📎 {PurePath(entry.file).name}" if entry.file else "",
    ]
    return " ".join(filter(None, parts))
