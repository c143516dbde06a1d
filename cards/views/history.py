"""Renders search results from the history, recent messages, and model sessions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeAlias
from zoneinfo import ZoneInfo

from cards import formats, model
from cards.catalog import TextCatalog
from storage.records.workers import SessionInfo

HistoryRow: TypeAlias = tuple[datetime, bool, str, str, bool]
"""Time, whether the bot said it, text, task id, and whether it was in another chat."""

_MAX_TEXT = 240
_MAX_TITLE = 60


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
    wanted = formats.single_line(query, _MAX_TITLE)
    title = words("history.found", words=wanted) if query else words("history.title")
    nothing = words("history.nothing") if query else words("history.none")
    blocks: list[model.Block] = [model.TextBlock(nothing)]
    if lines:
        columns = tuple(words(f"history.{name}") for name in ("at", "by", "said"))
        rows = tuple(_history_row(each, words, zone) for each in lines)
        told = [model.TextBlock(words("history.near"))] if partial else []
        blocks = [*told, model.TableBlock(columns, rows)]
    if incomplete:
        blocks.append(model.TextBlock(words("history.cut")))
    blocks.append(model.NoteBlock(words("history.note")))
    return model.titled_card(title, *blocks)


def _history_row(said: HistoryRow, words: TextCatalog, zone: ZoneInfo) -> tuple[str, str, str]:
    at, by_bot, text, task, elsewhere = said
    who = words("history.bot" if by_bot else "history.person")
    where = words("history.task", id=task) if task else ""
    if elsewhere and not task:
        where = words("history.elsewhere")
    by = f"{who} · {where}" if where else who
    return formats.date_time(at, zone), by, formats.single_line(text, _MAX_TEXT)


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
