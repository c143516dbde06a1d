"""Renders notices about backups and restores."""

from __future__ import annotations

from collections.abc import Sequence
from zoneinfo import ZoneInfo

from cards import formats
from cards.catalog import TextCatalog
from cards.model import Block, Card, CardTone, NoteBlock, TextBlock, titled_card
from storage.records.system import RestoreRecord

_MAX_LINES = 10
_MAX_LINE = 200


def restored_card(record: RestoreRecord, words: TextCatalog, *, zone: ZoneInfo) -> Card:
    """The work that a restore left undone, so that the owners can decide about it."""
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


def _listed(title: str, lines: Sequence[str]) -> TextBlock:
    shown = [f"- {line}" for line in lines[:_MAX_LINES]]
    more = ["- …"] if len(lines) > _MAX_LINES else []
    return TextBlock("\n".join([f"**{title}**\n", *shown, *more]))
