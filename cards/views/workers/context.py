"""What a worker is told first, with sizes."""

from __future__ import annotations

from collections.abc import Sequence

from cards import formats
from cards.model import Block, Card, Note, Table, Text, Tone
from cards.words import Words
from storage.records.context import ContextPart, PartState

_BRIEF = "project"
_PER_TOKEN = 4
_NAME = 80


def context_card(parts: Sequence[ContextPart], words: Words) -> Card:
    """The parts that are there as a table; the missing ones in a line."""
    title = words("context.title")
    there = [each for each in parts if each.state is not PartState.MISSING]
    missing = [each.name for each in parts if each.state is PartState.MISSING]
    used = sum(each.used for each in parts)
    total = words("context.nothing")
    if used:
        total = words("context.total", used=formats.count(used), tokens=_tokens(used))
    blocks: list[Block] = [Text(markdown=total)]
    if there:
        columns = tuple(words(f"context.{each}") for each in ("part", "size", "state"))
        rows = tuple(_row(each, words) for each in there)
        blocks.append(Table(columns=columns, rows=rows))
    if missing:
        names = ", ".join(_named(name, words) for name in missing)
        blocks.append(Note(markdown=words("context.missing_ones", names=names)))
    blocks.append(Note(markdown=words("context.note")))
    return Card(title=title, tone=Tone.INFO, blocks=tuple(blocks), summary=total)


def _row(part: ContextPart, words: Words) -> tuple[str, str, str]:
    size = formats.count(part.used)
    if part.used != part.size:
        size = words("context.of", used=size, size=formats.count(part.size))
    return _named(part.name, words), size, words(f"context.is_{part.state}")


def _named(name: str, words: Words) -> str:
    return words("context.brief") if name == _BRIEF else formats.line(name, _NAME)


def _tokens(characters: int) -> str:
    return formats.count(-(-characters // _PER_TOKEN))
