"""Sessions with models, and what was said in one."""

from __future__ import annotations

from collections.abc import Sequence
from zoneinfo import ZoneInfo

from cards import formats
from cards.model import Block, Card, Note, Table, Text, Tone
from cards.views.files import attached
from cards.words import Words
from storage.records.sessions import SessionFacts

MOST_ATTACHED = 20_000_000
_KEY = 40


def sessions_card(sessions: Sequence[SessionFacts], words: Words, *, zone: ZoneInfo) -> Card:
    title = words("transcript.title")
    blocks: list[Block] = [Text(markdown=words("transcript.none"))]
    if sessions:
        columns = tuple(words(f"transcript.{each}") for each in ("id", "of", "by", "size", "used"))
        rows = tuple(
            (
                each.id,
                formats.line(each.key, _KEY),
                formats.line(":".join(filter(None, (each.backend, each.model))), _KEY),
                str(each.messages),
                formats.moment(each.last_used_at, zone),
            )
            for each in sessions
        )
        blocks = [Table(columns=columns, rows=rows), Note(markdown=words("transcript.note"))]
    return Card(title=title, tone=Tone.INFO, blocks=tuple(blocks), summary=title)


def exported_card(session: SessionFacts, path: str, *, size: int, lines: int, words: Words) -> Card:
    title = words("transcript.one", id=session.id)
    told = words("transcript.lines", n=lines, key=formats.line(session.key, _KEY))
    blocks: list[Block] = [Text(markdown=told)]
    if size <= MOST_ATTACHED:
        blocks.append(attached(path, size))
    else:
        blocks.append(Note(markdown=words("transcript.too_large", path=path)))
    return Card(title=title, tone=Tone.INFO, blocks=tuple(blocks), summary=title)
