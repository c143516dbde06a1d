"""What was said before."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeAlias
from zoneinfo import ZoneInfo

from cards import formats
from cards.model import Block, Card, Note, Table, Text, Tone
from cards.words import Words

Said: TypeAlias = tuple[datetime, bool, str, str, bool]
"""When, whether the bot said it, its words, the task it belongs to, and whether elsewhere."""

_LONGEST = 240
_TITLE = 60


def history_card(
    said: Sequence[Said],
    searched: str,
    words: Words,
    *,
    zone: ZoneInfo,
    near: bool = False,
    cut: bool = False,
) -> Card:
    """In the order in which they are given. Without `searched` they are the last lines; `near`
    says that none has all that was searched for, `cut` that there was no time to look at all."""
    wanted = formats.line(searched, _TITLE)
    title = words("history.found", words=wanted) if searched else words("history.title")
    nothing = words("history.nothing") if searched else words("history.none")
    blocks: list[Block] = [Text(markdown=nothing)]
    if said:
        columns = tuple(words(f"history.{name}") for name in ("at", "by", "said"))
        rows = tuple(_row(each, words, zone) for each in said)
        told = [Text(markdown=words("history.near"))] if near else []
        blocks = [*told, Table(columns=columns, rows=rows)]
    if cut:
        blocks.append(Text(markdown=words("history.cut")))
    blocks.append(Note(markdown=words("history.note")))
    return Card(title=title, tone=Tone.INFO, blocks=tuple(blocks), summary=title)


def _row(said: Said, words: Words, zone: ZoneInfo) -> tuple[str, str, str]:
    at, by_bot, text, task, elsewhere = said
    who = words("history.bot" if by_bot else "history.person")
    where = words("history.task", id=task) if task else ""
    if elsewhere and not task:
        where = words("history.elsewhere")
    by = f"{who} · {where}" if where else who
    return formats.moment(at, zone), by, formats.line(text, _LONGEST)
