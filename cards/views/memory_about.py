"""Renders what is known about a person, project or place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from zoneinfo import ZoneInfo

from cards import formats, model
from cards.catalog import TextCatalog
from cards.views.memory import entry_line, folded_rows
from storage.records.memory import MemoryEntry, MemoryKind
from storage.records.memory_evidence import QUOTE_KEY, EntityEntries

_MAX_NAME = 60
_MAX_SHOWN = 12
_MAX_QUOTE = 120


def memory_about_card(
    groups: Sequence[EntityEntries], name: str, words: TextCatalog, *, zone: ZoneInfo
) -> model.Card:
    """Each of that name apart. Facts with the words they rest on; turns are folded."""
    name = formats.single_line(name, _MAX_NAME)
    title = words("memory.searched", query=name)
    if not groups:
        text = words("memory.not_found", query=formats.escape_markdown(name, _MAX_NAME))
        return model.titled_card(title, model.TextBlock(text))
    blocks: list[model.Block] = []
    if len(groups) > 1:
        text = words("memory.several_called", name=formats.escape_markdown(name, _MAX_NAME))
        blocks.append(model.TextBlock(text))
    for group in groups:
        blocks += _group_blocks(group, words, zone, alone=len(groups) == 1)
    told = [each.description for each in groups if each.description]
    if len(told) > 1:
        example = formats.code_text(f"/memory about {name} {told[0]}", 2 * _MAX_NAME)
        blocks.append(model.NoteBlock(words("memory.which_called", example=example)))
    return model.titled_card(title, *blocks)


def _group_blocks(
    group: EntityEntries, words: TextCatalog, zone: ZoneInfo, *, alone: bool
) -> Iterator[model.Block]:
    if group.description or not alone:
        shown = formats.escape_markdown(group.description, _MAX_NAME)
        yield model.TextBlock(f"**{shown or words('memory.unclear_called')}**")
    facts = [each for each in group.entries if each.kind is not MemoryKind.CELL]
    turns = [each for each in group.entries if each.kind is MemoryKind.CELL]
    if facts:
        lines = (f"- {_fact_line(each, words, zone)}" for each in facts[:_MAX_SHOWN])
        yield model.TextBlock("\n".join(lines))
    rest = [entry_line(each, words, zone=zone) for each in facts[_MAX_SHOWN:]]
    yield from folded_rows(words("memory.later", n=len(rest)), rest)
    said = [entry_line(each, words, zone=zone) for each in turns[:_MAX_SHOWN]]
    yield from folded_rows(words("memory.about_turns", n=len(turns)), said)


def _fact_line(entry: MemoryEntry, words: TextCatalog, zone: ZoneInfo) -> str:
    quote = entry.extra.get(QUOTE_KEY)
    day = formats.date_time(entry.said_at, zone)
    source = f" · {day}"
    if quote:
        source += f" “{formats.escape_markdown(str(quote), _MAX_QUOTE)}”"
    return entry_line(entry, words, zone=zone) + source
