"""One remembered thing on a card of its own, with all that is known of it."""

from __future__ import annotations

from collections.abc import Iterator
from zoneinfo import ZoneInfo

from cards import formats
from cards.memory_actions import EditMemory, PinMemory
from cards.model import (
    Block,
    Button,
    Buttons,
    Card,
    Collapsible,
    FieldKind,
    Fields,
    Form,
    FormField,
    Note,
    Text,
    Tone,
)
from cards.views.memory.entries import decisions, forget_button
from cards.views.memory.lines import scope_name
from cards.words import Words
from storage.records.memory.entries import Entry, EntryState

_WHOLE = 3_000
_NAME = 60
TEXT = "text"
"""The field of the form that changes an entry."""


def entry_card(entry: Entry, words: Words, *, zone: ZoneInfo, strength: float, mine: bool) -> Card:
    """`strength` is what is left of it now, out of 100; `mine` offers to change it."""
    title = words("memory.one", kind=words(f"memory.kind.{entry.kind}"))
    pin = "📌 " if entry.pinned else ""
    blocks: list[Block] = [
        Text(markdown=pin + formats.verbatim_lines(entry.text, _WHOLE)),
        Note(markdown=" · ".join(_where(entry, words, zone))),
    ]
    if mine:
        blocks += _changes(entry, words)
    pairs = tuple(
        (words(f"memory.label.{name}"), text)
        for name, text in _facts(entry, words, zone, strength)
        if text
    )
    told = entry.overview
    detail = (Text(markdown=formats.verbatim_lines(told, _WHOLE)),) if told else ()
    known = (*detail, Fields(pairs=pairs))
    blocks.append(Collapsible(title=words("memory.details"), blocks=known))
    return Card(title=title, tone=Tone.INFO, blocks=tuple(blocks), summary=title)


def _where(entry: Entry, words: Words, zone: ZoneInfo) -> Iterator[str]:
    yield words("memory.for", scope=scope_name(entry.scope, words))
    yield formats.moment(entry.said_at, zone)
    if entry.sender:
        yield formats.verbatim(entry.sender, _NAME)
    if entry.state is not EntryState.ACTIVE:
        yield words(f"memory.state.{entry.state}")
    yield f"`{entry.id}`"


def _facts(
    entry: Entry, words: Words, zone: ZoneInfo, strength: float
) -> Iterator[tuple[str, str]]:
    yield "state", words(f"memory.state.{entry.state}")
    yield "importance", f"{entry.importance:.0%}"
    yield "confidence", f"{entry.confidence:.0%}"
    yield "strength", f"{strength:.0f} %"
    yield "used", words("memory.times", n=entry.used) if entry.used else ""
    yield "until", formats.moment(entry.valid_until, zone) if entry.valid_until else ""
    yield "instead", entry.superseded_by or ""
    yield "admission", _admission(entry, words)
    yield "evidence", words("memory.turns", n=len(entry.evidence)) if entry.evidence else ""
    yield "revision", str(entry.revision)


def _admission(entry: Entry, words: Words) -> str:
    """How it was judged, where admission asked something of it."""
    told = entry.extra.get("admission")
    if not isinstance(told, dict):
        return ""
    key = f"memory.admission.{told.get('why') or 'admitted'}"
    return words(key, score=f"{told.get('score', 0):.2f}") if words.has(key) else ""


def _changes(entry: Entry, words: Words) -> Iterator[Block]:
    if entry.state is EntryState.CANDIDATE:
        yield Buttons(items=decisions(entry, words))
    pin = "unpin" if entry.pinned else "pin"
    yield Buttons(
        items=(
            Button(
                label=words(f"memory.button.{pin}"),
                action=PinMemory(entry_id=entry.id, pinned=not entry.pinned),
            ),
            forget_button(entry, words, label=words("memory.button.forget")),
        )
    )
    field = FormField(
        name=TEXT, label=words("memory.edit"), field=FieldKind.PARAGRAPH, value=entry.text
    )
    action = EditMemory(entry_id=entry.id, revision=entry.revision)
    yield Form(fields=(field,), submit=words("memory.edit_button"), action=action)
