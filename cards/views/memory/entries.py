"""What is remembered, on cards: lists, candidates, the handbook."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from zoneinfo import ZoneInfo

from cards import formats
from cards.memory_actions import DecideMemory, ForgetMemory, ListMemories, ShowMemory
from cards.model import (
    Block,
    Button,
    Buttons,
    ButtonStyle,
    Card,
    Collapsible,
    Confirm,
    Note,
    Option,
    Select,
    Text,
    Tone,
)
from cards.views.memory.lines import chapter_of, entry_line
from cards.words import Words
from storage.records.memory.entries import Entry
from storage.records.memory.offers import wording
from storage.records.memory.shown import A_PAGE, EntryPage, Wanted

_WHOLE = 3_000
_BUTTONS = 5
_NEAR = 5


def page_card(
    page: EntryPage,
    wanted: Wanted,
    words: Words,
    *,
    zone: ZoneInfo,
    scope: str = "",
    shared: bool = False,
) -> Card:
    """`shared` says that others read along: then nobody's own is on it."""
    title = words("memory.title")
    blocks: list[Block] = []
    if page.entries:
        first = (page.page - 1) * A_PAGE + 1
        blocks.append(Text(markdown=_numbered(page.entries, words, zone, first)))
        blocks.append(_open(page.entries, words, first))
    else:
        key = "memory.none" if wanted in {Wanted.KNOWN, Wanted.ALL} else "memory.none_here"
        blocks.append(Text(markdown=words(key)))
    rows = (_turns(page, wanted, words, scope), _kinds(page, wanted, words, scope))
    blocks.extend(Buttons(items=items) for row in rows if (items := tuple(row)))
    if page.page > 1 or page.more:
        blocks.append(Note(markdown=words("memory.page", page=page.page, total=page.total)))
    blocks.append(Note(markdown=words("memory.shared" if shared else "memory.hint")))
    if wanted is not Wanted.KNOWN:
        title = f"{title} · {words(f'memory.wanted.{wanted}')}"
    return _card(title, blocks)


def found_card(
    told: Sequence[Entry], near: Sequence[Entry], query: str, words: Words, *, zone: ZoneInfo
) -> Card:
    """What is told about it; what only stands near such is folded away."""
    query = formats.line(query, 80)
    title = words("memory.searched", query=query)
    if not told:
        text = words("memory.not_found", query=formats.verbatim(query, 80))
        return _card(title, [Text(markdown=text)])
    blocks: list[Block] = [
        Text(markdown=_numbered(told, words, zone)),
        _open(told, words),
        *_folded(words("memory.near"), near[:_NEAR], words, zone),
        Note(markdown=words("memory.hint")),
    ]
    return _card(title, blocks)


def forget_card(
    told: Sequence[Entry], query: str, words: Words, *, zone: ZoneInfo, gone: str = ""
) -> Card:
    """Which of these is to be forgotten: nothing is, until somebody presses. `gone` is what has
    been just now."""
    title = words("memory.forget_which", query=formats.line(query, 80))
    entries = told[:_BUTTONS]
    blocks: list[Block] = [Text(markdown=gone)] if gone else []
    if entries:
        blocks.append(Text(markdown=_numbered(entries, words, zone)))
        blocks.append(Buttons(items=tuple(_forget(entries, query, words))))
    note = "memory.forget_hint" if entries else "memory.forget_done"
    blocks.append(Note(markdown=words(note, query=formats.verbatim(query, 80))))
    return _card(title, blocks)


def forget_button(
    entry: Entry, words: Words, *, label: str, among: str = "", also: Sequence[Entry] = ()
) -> Button:
    others = tuple(each.id for each in also)
    return Button(
        label=label,
        action=ForgetMemory(
            entry_id=entry.id,
            among=among,
            also=others,
            revisions=(entry.revision, *(each.revision for each in also)),
        ),
        style=ButtonStyle.DANGER,
        confirm=Confirm(title=words("memory.forget_title"), text=words("memory.forget_text")),
    )


def _forget(entries: Sequence[Entry], query: str, words: Words) -> Iterator[Button]:
    for number, each in enumerate(entries, start=1):
        yield forget_button(each, words, label=f"🗑 {number}", among=query)
    if len(entries) > 1:
        label = words("memory.button.forget_all", n=len(entries))
        yield forget_button(entries[0], words, label=label, among=query, also=entries[1:])


def candidates_card(
    entries: Sequence[Entry], words: Words, *, zone: ZoneInfo, done: str = ""
) -> Card:
    """`done` is what was decided just now."""
    title = words("memory.candidates_title")
    if not entries:
        return _card(title, [Text(markdown=words("memory.candidates_none"))])
    blocks: list[Block] = [Text(markdown=done)] if done else []
    for number, entry in enumerate(entries[:_BUTTONS], start=1):
        blocks.append(Text(markdown=f"**{number}** · {entry_line(entry, words, zone=zone)}"))
        blocks.append(Buttons(items=decisions(entry, words, number)))
    rest = entries[_BUTTONS:]
    blocks += _folded(words("memory.later", n=len(rest)), rest, words, zone)
    blocks.append(Note(markdown=words("memory.candidates_hint")))
    return _card(title, blocks)


def decisions(entry: Entry, words: Words, number: int = 0) -> tuple[Button, ...]:
    """`number` is its place, where others stand beside it."""
    mark, listed = f" {number}" if number else "", bool(number)
    shown = wording(entry)
    keep = DecideMemory(entry_id=entry.id, keep=True, listed=listed, wording=shown)
    drop = DecideMemory(entry_id=entry.id, keep=False, listed=listed, wording=shown)
    return (
        Button(label=words("memory.button.keep") + mark, action=keep, style=ButtonStyle.PRIMARY),
        Button(label=words("memory.button.drop") + mark, action=drop),
    )


def profile_card(entries: Sequence[Entry], words: Words, *, zone: ZoneInfo, shared: bool) -> Card:
    if not entries:
        key = "memory.shared" if shared else "memory.profile_none"
        return _card(words("memory.profile_title"), [Text(markdown=words(key))])
    blocks: list[Block] = [Text(markdown=_numbered(entries, words, zone)), _open(entries, words)]
    blocks.append(Note(markdown=words("memory.shared" if shared else "memory.profile_hint")))
    return _card(words("memory.profile_title"), blocks)


def handbook_card(chapters: Sequence[Entry], words: Words) -> Card:
    told = [chapter_of(each, words) for each in chapters]
    blocks: list[Block] = [
        Text(markdown=f"**{formats.verbatim(title, 80)}**\n\n{formats.cut(text, _WHOLE)}")
        for title, text in told
    ]
    if not blocks:
        blocks = [Text(markdown=words("memory.handbook_none"))]
    blocks.append(Note(markdown=words("memory.handbook_note")))
    return _card(words("memory.handbook_title"), blocks)


def is_chapter(entry: Entry, name: str) -> bool:
    """Whether somebody means this one: by its title, or by what it is called in every language."""
    wanted = name.strip().casefold()
    return wanted in {entry.label.casefold(), entry.key.partition(":")[2]}


def _card(title: str, blocks: Sequence[Block]) -> Card:
    return Card(title=title, tone=Tone.INFO, blocks=tuple(blocks), summary=title)


def _numbered(entries: Sequence[Entry], words: Words, zone: ZoneInfo, first: int = 1) -> str:
    return "\n".join(
        f"{number}. {entry_line(each, words, zone=zone)}"
        for number, each in enumerate(entries, start=first)
    )


def _folded(
    title: str, entries: Sequence[Entry], words: Words, zone: ZoneInfo
) -> Iterator[Collapsible]:
    if entries:
        rows = "\n".join(f"- {entry_line(each, words, zone=zone)}" for each in entries)
        yield Collapsible(title=title, blocks=(Text(markdown=rows),))


def _open(entries: Sequence[Entry], words: Words, first: int = 1) -> Select:
    return Select(
        placeholder=words("memory.open"),
        action=ShowMemory(),
        options=tuple(
            Option(label=str(number), value=each.id)
            for number, each in enumerate(entries, start=first)
        ),
    )


def _turns(page: EntryPage, wanted: Wanted, words: Words, scope: str) -> Iterator[Button]:
    def to(number: int) -> ListMemories:
        return ListMemories(wanted=wanted, scope=scope, page=number)

    if page.page > 1:
        yield Button(label=words("memory.button.previous"), action=to(page.page - 1))
    if page.more:
        yield Button(label=words("memory.button.next"), action=to(page.page + 1))


def _kinds(page: EntryPage, wanted: Wanted, words: Words, scope: str) -> Iterator[Button]:
    for kind, count in page.others.items():
        if count and kind is not wanted:
            label = f"{words(f'memory.wanted.{kind}')} {count}"
            yield Button(label=label, action=ListMemories(wanted=kind, scope=scope))
