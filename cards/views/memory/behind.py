"""What stood before a model when it answered, on a card."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from zoneinfo import ZoneInfo

from cards import formats
from cards.memory_actions import MemoriesHelped, ShowMemory
from cards.model import (
    Block,
    Button,
    Buttons,
    Card,
    Collapsible,
    Note,
    Option,
    Select,
    Text,
    Tone,
)
from cards.views.memory.lines import entry_words
from cards.words import Words
from storage.records.memory.shown import Behind, UsedEntry

_LINE = 140
_LISTED = 20
_HANDBOOK = "handbook"
_OFFLINE = "offline"
_LOOKED_FOR = "similar"
_ORDER = (_LOOKED_FOR, "recent")


def why_card(behind: Behind, words: Words, *, zone: ZoneInfo, thanked: bool = False) -> Card:
    """Of one answer. `thanked`: somebody has just said that what was looked for helped."""
    at = formats.moment(behind.at, zone) if behind.at else ""
    if key := _why_not(behind):
        return _card(words("memory.why_title"), [Text(markdown=words(key, at=at))])
    blocks: list[Block] = [Text(markdown=words("memory.why_thanks"))] if thanked else []
    blocks += _told(behind, words, helped=_may_help(behind))
    blocks.append(Note(markdown=words("memory.why_note", at=at)))
    return _card(words("memory.why_title"), blocks)


def why_task_card(behind: Behind, task: str, words: Words, *, zone: ZoneInfo) -> Card:
    """Of all that was answered in a task."""
    title = words("memory.why_task_title", task=formats.line(task, _LINE))
    if behind.at is None:
        return _card(title, [Text(markdown=words("memory.why_task_none"))])
    blocks = list(_told(behind, words, helped=None))
    at = formats.moment(behind.at, zone)
    blocks.append(Note(markdown=words("memory.why_task_note", at=at)))
    return _card(title, blocks)


def _why_not(behind: Behind) -> str:
    if behind.at is None:
        return "memory.why_no_answer"
    if behind.by == _OFFLINE:
        return "memory.why_offline"
    return "" if behind.used or behind.hidden else "memory.why_none"


def _may_help(behind: Behind) -> MemoriesHelped | None:
    """None where nothing was looked for, or all of it is known to have been used."""
    open_ones = (
        each
        for each in behind.used
        if each.entry is not None and each.block == _LOOKED_FOR and not each.confirmed
    )
    if not any(open_ones):
        return None
    return MemoriesHelped(session=behind.session, turn=behind.turn)


def _told(behind: Behind, words: Words, *, helped: MemoriesHelped | None) -> Iterator[Block]:
    """What was looked for comes first, of it what was used. The handbook stands before every
    answer, and is folded away."""
    told = [each for each in behind.used if each.block != _HANDBOOK]
    told.sort(key=_place)
    book = [each for each in behind.used if each.block == _HANDBOOK]
    first, rest = told[:_LISTED], told[_LISTED:]
    if first or not behind.hidden:
        rows = (f"{n}. {_line(each, words)}" for n, each in enumerate(first, 1))
        yield Text(markdown="\n".join(rows) or words("memory.why_book"))
    yield from _folded(words("memory.later", n=len(rest)), rest, words)
    if helped is not None:
        yield Buttons(items=(Button(label=words("memory.button.helped"), action=helped),))
    yield from _wrong(first, words)
    yield from _folded(f"{words('memory.wanted.handbook')} · {len(book)}", book, words)
    if behind.hidden:
        yield Note(markdown=words("memory.why_hidden", n=behind.hidden))


def _place(used: UsedEntry) -> tuple[int, bool]:
    block = _ORDER.index(used.block) if used.block in _ORDER else len(_ORDER)
    return block, not used.confirmed


def _wrong(used: Sequence[UsedEntry], words: Words) -> Iterator[Select]:
    options = tuple(
        Option(label=str(number), value=each.id)
        for number, each in enumerate(used, 1)
        if each.entry is not None
    )
    if options:
        placeholder = words("memory.why_wrong")
        yield Select(placeholder=placeholder, action=ShowMemory(), options=options)


def _folded(title: str, used: Sequence[UsedEntry], words: Words) -> Iterator[Collapsible]:
    if used:
        rows = "\n".join(f"- {_line(each, words)}" for each in used)
        yield Collapsible(title=title, blocks=(Text(markdown=rows),))


def _line(used: UsedEntry, words: Words) -> str:
    mark = "✓ " if used.confirmed else ""
    block = words(f"memory.block.{used.block}")
    if used.entry is None:
        return f"{mark}{words('memory.why_gone')} · *{block}* `{used.id}`"
    told = entry_words(used.entry, words, _LINE)
    parts = ", ".join(_parts(used, words))
    score = f" · {used.score:.2f}" + (f" ({parts})" if parts else "") if used.score else ""
    return f"{mark}{told} · *{block}{score}* `{used.id}`"


def _parts(used: UsedEntry, words: Words) -> Iterator[str]:
    """What the score was made of; what is the score says nothing more."""
    for name, value in used.parts.items():
        key = f"memory.part.{name}"
        if value != used.score:
            yield f"{words(key) if words.has(key) else name} {value:.2f}"


def _card(title: str, blocks: Sequence[Block]) -> Card:
    return Card(title=title, tone=Tone.INFO, blocks=tuple(blocks), summary=title)
