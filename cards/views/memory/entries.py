"""What is remembered, on cards: lists, one entry, candidates, the handbook."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from zoneinfo import ZoneInfo

from cards import formats
from cards.memory_actions import (
    DecideMemory,
    EditMemory,
    ForgetMemory,
    ListMemories,
    PinMemory,
)
from cards.model import (
    Block,
    Button,
    Buttons,
    ButtonStyle,
    Card,
    Confirm,
    FieldKind,
    Fields,
    Form,
    FormField,
    Note,
    Text,
    Tone,
)
from cards.words import Words
from storage.records.memory.entries import Entry, EntryState, Scope
from storage.records.memory.shown import EntryPage, FoundEntry, Wanted

_LINE = 160
_WHOLE = 3_000
_BUTTONS = 5
TEXT = "text"
"""The field of the form that changes an entry."""


def scope_name(scope: Scope, words: Words) -> str:
    return words(f"memory.scope.{scope.kind}", name=formats.line(scope.name, 60))


def entry_line(entry: Entry, words: Words) -> str:
    pin = "📌 " if entry.pinned else ""
    kind = words(f"memory.kind.{entry.kind}")
    whom = scope_name(entry.scope, words)
    return f"- `{entry.id}` {pin}{formats.line(entry.text, _LINE)} *({kind}, {whom})*"


def page_card(page: EntryPage, wanted: Wanted, words: Words, *, scope: str = "") -> Card:
    title = words("memory.title")
    blocks: list[Block] = []
    if page.entries:
        blocks.append(Text(markdown="\n".join(entry_line(each, words) for each in page.entries)))
        blocks.append(Note(markdown=words("memory.page", page=page.page, total=page.total)))
    else:
        key = "memory.none" if wanted is Wanted.ALL else "memory.none_here"
        blocks.append(Text(markdown=words(key)))
    turns = tuple(_turns(page, wanted, words, scope))
    if turns:
        blocks.append(Buttons(items=turns))
    blocks.append(Note(markdown=words("memory.hint")))
    if wanted is not Wanted.ALL:
        title = f"{title} · {words(f'memory.wanted.{wanted}')}"
    return Card(title=title, tone=Tone.INFO, blocks=tuple(blocks), summary=title)


def found_card(found: Sequence[FoundEntry], query: str, words: Words) -> Card:
    query = formats.line(query, 80)
    title = words("memory.searched", query=query)
    if not found:
        blocks: tuple[Block, ...] = (Text(markdown=words("memory.not_found", query=query)),)
    else:
        rows = [f"{entry_line(hit.entry, words)} · {hit.score:.2f}" for hit in found]
        blocks = (Text(markdown="\n".join(rows)), Note(markdown=words("memory.hint")))
    return Card(title=title, tone=Tone.INFO, blocks=blocks, summary=title)


def entry_card(entry: Entry, words: Words, *, zone: ZoneInfo, strength: float, mine: bool) -> Card:
    """`strength` is what is left of it now, out of 100; `mine` offers to change it."""
    title = words("memory.one", id=entry.id)
    pairs = tuple(
        (words(f"memory.label.{name}"), text)
        for name, text in _facts(entry, words, zone, strength)
        if text
    )
    blocks: list[Block] = [Text(markdown=formats.cut(entry.text, _WHOLE)), Fields(pairs=pairs)]
    if mine:
        blocks += _changes(entry, words)
    return Card(title=title, tone=Tone.INFO, blocks=tuple(blocks), summary=title)


def candidates_card(entries: Sequence[Entry], words: Words) -> Card:
    title = words("memory.candidates_title")
    if not entries:
        return Card(title=title, blocks=(Text(markdown=words("memory.candidates_none")),))
    blocks: list[Block] = [Text(markdown="\n".join(entry_line(e, words) for e in entries))]
    for entry in entries[:_BUTTONS]:
        keep = DecideMemory(entry_id=entry.id, keep=True)
        drop = DecideMemory(entry_id=entry.id, keep=False)
        items = (
            Button(
                label=words("memory.button.keep", id=entry.id),
                action=keep,
                style=ButtonStyle.PRIMARY,
            ),
            Button(label=words("memory.button.drop", id=entry.id), action=drop),
        )
        blocks.append(Buttons(items=items))
    return Card(title=title, tone=Tone.INFO, blocks=tuple(blocks), summary=title)


def profile_card(entries: Sequence[Entry], words: Words) -> Card:
    title = words("memory.profile_title")
    rows = "\n".join(entry_line(each, words) for each in entries)
    text = rows or words("memory.profile_none")
    return Card(title=title, tone=Tone.INFO, blocks=(Text(markdown=text),), summary=title)


def handbook_card(chapters: Sequence[Entry], words: Words) -> Card:
    title = words("memory.handbook_title")
    blocks: list[Block] = [
        Text(markdown=f"**{formats.line(each.label, 80)}**\n\n{formats.cut(each.text, _WHOLE)}")
        for each in chapters
    ]
    if not blocks:
        blocks = [Text(markdown=words("memory.handbook_none"))]
    blocks.append(Note(markdown=words("memory.handbook_note")))
    return Card(title=title, tone=Tone.INFO, blocks=tuple(blocks), summary=title)


def is_chapter(entry: Entry, name: str) -> bool:
    """Whether somebody means this one: by its title, or by what it is called in every language."""
    wanted = name.strip().casefold()
    return wanted in {entry.label.casefold(), entry.key.partition(":")[2]}


def _turns(page: EntryPage, wanted: Wanted, words: Words, scope: str) -> Iterator[Button]:
    def to(number: int) -> ListMemories:
        return ListMemories(wanted=wanted, scope=scope, page=number)

    if page.page > 1:
        yield Button(label=words("memory.button.previous"), action=to(page.page - 1))
    if page.more:
        yield Button(label=words("memory.button.next"), action=to(page.page + 1))


def _facts(
    entry: Entry, words: Words, zone: ZoneInfo, strength: float
) -> Iterator[tuple[str, str]]:
    yield "kind", words(f"memory.kind.{entry.kind}")
    yield "scope", scope_name(entry.scope, words)
    yield "state", words(f"memory.state.{entry.state}")
    yield "said", formats.moment(entry.said_at, zone)
    yield "by", formats.line(entry.sender, 60)
    yield "importance", f"{entry.importance:.2f}"
    yield "confidence", f"{entry.confidence:.2f}"
    yield "strength", f"{strength:.0f}"
    yield "used", str(entry.used) if entry.used else ""
    yield "until", formats.moment(entry.valid_until, zone) if entry.valid_until else ""
    yield "instead", f"`{entry.superseded_by}`" if entry.superseded_by else ""
    yield "evidence", str(len(entry.evidence)) if entry.evidence else ""
    yield "revision", str(entry.revision)


def _changes(entry: Entry, words: Words) -> Iterator[Block]:
    if entry.state is EntryState.CANDIDATE:
        keep = DecideMemory(entry_id=entry.id, keep=True)
        drop = DecideMemory(entry_id=entry.id, keep=False)
        yield Buttons(
            items=(
                Button(label=words("memory.button.keep", id=entry.id), action=keep),
                Button(label=words("memory.button.drop", id=entry.id), action=drop),
            )
        )
    pin = "unpin" if entry.pinned else "pin"
    yield Buttons(
        items=(
            Button(
                label=words(f"memory.button.{pin}"),
                action=PinMemory(entry_id=entry.id, pinned=not entry.pinned),
            ),
            Button(
                label=words("memory.button.forget"),
                action=ForgetMemory(entry_id=entry.id),
                style=ButtonStyle.DANGER,
                confirm=Confirm(
                    title=words("memory.forget_title"), text=words("memory.forget_text")
                ),
            ),
        )
    )
    yield Form(
        fields=(FormField(name=TEXT, label=words("memory.edit"), field=FieldKind.PARAGRAPH),),
        submit=words("memory.edit_button"),
        action=EditMemory(entry_id=entry.id, revision=entry.revision),
    )
