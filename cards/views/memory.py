"""Renders memories: lists, single entries, candidates, the handbook, and JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from cards import formats, memory_actions, model
from cards.catalog import TextCatalog, catalog_for
from storage.records import memory
from storage.records.memory import (
    EntryId,
    FactSupport,
    MemoryEntry,
    MemoryKind,
    MemoryListFilter,
    MemoryScope,
    MemoryScopeKind,
    MemoryState,
    candidate_digest,
    offered_scope,
    support_from_extra,
)
from storage.records.memory_evidence import QUOTE_KEY, doubt_of
from storage.records.people import Language

_MAX_ENTRY_LINE = 160
_MAX_NAME = 60
_MAX_QUOTE = 200
_SPOKEN_LENGTH_KEY = "said"


def scope_name(scope: MemoryScope, words: TextCatalog) -> str:
    return words(f"memory.scope.{scope.kind}", name=formats.escape_markdown(scope.name, _MAX_NAME))


def entry_line(entry: MemoryEntry, words: TextCatalog, *, zone: ZoneInfo | None = None) -> str:
    """One line of Markdown without a bullet. With a `zone`, turns show their day."""
    about = " · ".join(_entry_facts(entry, words, zone))
    pin = "📌 " if entry.pinned else ""
    return f"{pin}{entry_text(entry, words)} · *{about}* `{entry.id}`"


def entry_text(entry: MemoryEntry, words: TextCatalog, limit: int = _MAX_ENTRY_LINE) -> str:
    """An entry's text without links, mentions or styles: of a turn only the person's words, of a
    chapter also its title."""
    if entry.kind is MemoryKind.HANDBOOK and entry.label:
        title, text = localized_chapter(entry, words)
        label = formats.escape_markdown(title, _MAX_NAME)
        return f"**{label}:** {formats.escape_markdown(text, limit)}"
    return formats.escape_markdown(spoken_text(entry), limit)


def localized_chapter(entry: MemoryEntry, words: TextCatalog) -> tuple[str, str]:
    """Title and text; a built-in chapter is in the reader's language."""
    name = entry.key.partition(":")[2]
    if not words.has(f"mirror.chapter.{name}"):
        return entry.label, entry.text
    title, ours = words(f"mirror.chapter.{name}"), f"mirror.default.{name}"
    if not words.has(ours):
        return title, entry.text
    unchanged = any(catalog_for(each)(ours) == entry.text for each in Language)
    return title, words(ours) if unchanged else entry.text


def spoken_text(entry: MemoryEntry) -> str:
    length = entry.extra.get(_SPOKEN_LENGTH_KEY)
    if entry.kind is MemoryKind.CELL and isinstance(length, int) and length > 0:
        return entry.text[:length]
    return entry.text


def _entry_facts(entry: MemoryEntry, words: TextCatalog, zone: ZoneInfo | None) -> Iterator[str]:
    yield words(f"memory.kind.{entry.kind}")
    if entry.scope.kind is not MemoryScopeKind.PERSON:
        yield scope_name(entry.scope, words)
    if entry.state is MemoryState.CANDIDATE and (to := offered_scope(entry)) is not None:
        yield words("memory.offered", scope=scope_name(to, words))
    if zone is not None and entry.kind is MemoryKind.CELL:
        yield formats.date_time(entry.said_at, zone)
    yield from _validity(entry, words, zone)
    if (doubt := doubt_of(entry)) is not None:
        yield words(f"memory.doubt.{doubt}")


def _validity(entry: MemoryEntry, words: TextCatalog, zone: ZoneInfo | None) -> Iterator[str]:
    """The time span in which the entry holds, as far as it is known."""
    if entry.valid_from > entry.said_at:
        yield words("memory.from_day", day=_day(entry.valid_from, zone))
    until = entry.held_until
    if until is not None:
        yield words("memory.until_day", day=_day(until, zone))


def _day(moment: datetime, zone: ZoneInfo | None) -> str:
    return f"{moment.astimezone(zone or moment.tzinfo):%Y-%m-%d}"


EXPORT_DATE_FIELDS = (
    "valid_from",
    "invalidated_at",
    "last_used_at",
    "last_shown_at",
    "suppressed_until",
    "created_at",
    "updated_at",
)
"""Dates that only an export contains."""


def entry_data(entry: MemoryEntry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "kind": entry.kind.value,
        "scope": str(entry.scope),
        "state": entry.state.value,
        "category": entry.category.value,
        "label": entry.label,
        "text": entry.text,
        "overview": entry.overview,
        "keywords": list(entry.keywords),
        "importance": entry.importance,
        "confidence": entry.confidence,
        "tier": entry.tier.value,
        "pinned": entry.pinned,
        "origin": entry.origin.value,
        "key": entry.key,
        "sender": entry.sender,
        "thread": entry.thread,
        "at": entry.said_at.isoformat(),
        "valid_from": entry.valid_from.isoformat(),
        "valid_until": entry.valid_until.isoformat() if entry.valid_until else None,
        "superseded_by": entry.superseded_by,
        "used": entry.used,
        "revision": entry.revision,
        "support": _support_data(support_from_extra(entry)),
        "admission": entry.extra.get("admission"),
    }


def entry_export_data(
    entry: MemoryEntry, sources: Sequence[EntryId], accounts: Sequence[str]
) -> dict[str, Any]:
    """A complete entry that `restore` accepts, with its `sources` and its person's `accounts`."""
    life = entry.strength
    return {
        **entry_data(entry),
        "abstract": entry.abstract,
        "dynamic": entry.dynamic,
        "source": entry.source,
        "evidence": list(entry.evidence),
        "from": list(sources),
        "person": entry.person,
        "accounts": list(accounts),
        "chat": entry.chat,
        "task": entry.task,
        "supersedes": entry.supersedes,
        "life": {
            "value": life.value,
            "stability": life.stability,
            "decay": life.decay,
            "reinforced": life.reinforced,
            "reinforced_at": _iso_timestamp(life.reinforced_at),
        },
        "shown": entry.shown,
        "bad_recalls": entry.bad_recalls,
        **{name: _iso_timestamp(getattr(entry, name)) for name in EXPORT_DATE_FIELDS},
        "extra": dict(entry.extra),
    }


def _iso_timestamp(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None


def _support_data(support: FactSupport) -> dict[str, Any]:
    return {
        "strength": round(support.strength, 3),
        "confirmed": support.confirmed,
        "contradicted": support.contradicted,
        "context": support.context,
        "slices": {name: round(each.strength, 3) for name, each in support.by_context.items()},
    }


def search_hit_data(hit: memory.MemoryMatch) -> dict[str, Any]:
    return {**entry_data(hit.entry), "score": hit.score, "parts": dict(hit.parts)}


def used_entry_data(used: memory.UsedMemory) -> dict[str, Any]:
    return {
        "id": used.id,
        "text": used.entry.text if used.entry else None,
        "block": used.block,
        "score": used.score,
        "parts": dict(used.parts),
        "at": used.at.isoformat(),
        "used": used.confirmed,
    }


_MAX_CHAPTER_TEXT = 3_000
_MAX_WITH_BUTTONS = 5
_MAX_NEAR = 5


def memories_page_card(
    page: memory.MemoryPage,
    listed_kind: MemoryListFilter,
    words: TextCatalog,
    *,
    zone: ZoneInfo,
    scope: str = "",
    shared: bool = False,
) -> model.Card:
    """One page of memories. `shared`: others read along, so nobody's private entries are on it."""
    title = words("memory.title")
    blocks: list[model.Block] = []
    if page.entries:
        first = (page.page - 1) * memory.MEMORY_PAGE_SIZE + 1
        blocks.append(model.TextBlock(_numbered(page.entries, words, zone, first)))
        blocks.append(_open_select(page.entries, words, first))
    else:
        key = (
            "memory.none"
            if listed_kind in {MemoryListFilter.KNOWN, MemoryListFilter.ALL}
            else "memory.none_here"
        )
        blocks.append(model.TextBlock(words(key)))
    rows = (
        _page_buttons(page, listed_kind, words, scope),
        _kind_buttons(page, listed_kind, words, scope),
    )
    blocks.extend(model.ButtonsBlock(items) for row in rows if (items := tuple(row)))
    if page.page > 1 or page.has_more:
        blocks.append(model.NoteBlock(words("memory.page", page=page.page, total=page.total)))
    blocks.append(model.NoteBlock(words("memory.shared" if shared else "memory.hint")))
    if listed_kind is not MemoryListFilter.KNOWN:
        title = f"{title} · {words(f'memory.wanted.{listed_kind}')}"
    return model.titled_card(title, *blocks)


def memory_search_card(
    matches: Sequence[MemoryEntry],
    related: Sequence[MemoryEntry],
    query: str,
    words: TextCatalog,
    *,
    zone: ZoneInfo,
) -> model.Card:
    """Direct matches; related entries are folded."""
    query = formats.single_line(query, 80)
    title = words("memory.searched", query=query)
    if not matches:
        text = words("memory.not_found", query=formats.escape_markdown(query, 80))
        return model.titled_card(title, model.TextBlock(text))
    blocks: list[model.Block] = [
        model.TextBlock(_numbered(matches, words, zone)),
        _open_select(matches, words),
        *folded_rows(
            words("memory.near"),
            [entry_line(each, words, zone=zone) for each in related[:_MAX_NEAR]],
        ),
        model.NoteBlock(words("memory.hint")),
    ]
    return model.titled_card(title, *blocks)


def forget_choice_card(
    matches: Sequence[MemoryEntry],
    query: str,
    words: TextCatalog,
    *,
    zone: ZoneInfo,
    forgotten_text: str = "",
) -> model.Card:
    """Let the person choose what to forget: nothing is deleted before a press. `forgotten_text`
    reports what was just forgotten."""
    title = words("memory.forget_which", query=formats.single_line(query, 80))
    entries = matches[:_MAX_WITH_BUTTONS]
    blocks: list[model.Block] = [model.TextBlock(forgotten_text)] if forgotten_text else []
    if entries:
        blocks.append(model.TextBlock(_numbered(entries, words, zone)))
        blocks.append(model.ButtonsBlock(tuple(_forget_buttons(entries, query, words))))
    if entries:
        note = words("memory.forget_hint", query=formats.code_text(query, 80))
    else:
        note = words("memory.forget_done", query=formats.escape_markdown(query, 80))
    blocks.append(model.NoteBlock(note))
    return model.titled_card(title, *blocks)


def noted_card(
    entries: Sequence[MemoryEntry], words: TextCatalog, *, zone: ZoneInfo, forgotten_text: str = ""
) -> model.Card:
    """Facts that a model has noted of late, each with a button that undoes it."""
    blocks: list[model.Block] = [model.TextBlock(forgotten_text)] if forgotten_text else []
    if entries:
        ids = [each.id for each in entries]
        buttons = [
            model.CardButton(
                words("memory.button.undo", n=number),
                memory_actions.ForgetMemory(
                    entry_id=each.id,
                    revisions=(each.revision,),
                    noted=tuple(other for other in ids if other != each.id),
                ),
            )
            for number, each in enumerate(entries, start=1)
        ]
        blocks.append(model.TextBlock(_numbered(entries, words, zone)))
        blocks.append(model.ButtonsBlock(tuple(buttons)))
    blocks.append(model.NoteBlock(words("memory.noted_hint")))
    return model.titled_card(words("memory.noted_title"), *blocks)


def forget_button(
    entry: MemoryEntry,
    words: TextCatalog,
    *,
    label: str,
    query: str = "",
    also: Sequence[MemoryEntry] = (),
) -> model.CardButton:
    others = tuple(each.id for each in also)
    return model.CardButton(
        label,
        memory_actions.ForgetMemory(
            entry_id=entry.id,
            among=query,
            also=others,
            revisions=(entry.revision, *(each.revision for each in also)),
        ),
        style=model.ButtonStyle.DANGER,
        confirm=model.ConfirmDialog(words("memory.forget_title"), words("memory.forget_text")),
    )


def _forget_buttons(
    entries: Sequence[MemoryEntry], query: str, words: TextCatalog
) -> Iterator[model.CardButton]:
    for number, each in enumerate(entries, start=1):
        yield forget_button(each, words, label=f"🗑 {number}", query=query)
    if len(entries) > 1:
        label = words("memory.button.forget_all", n=len(entries))
        yield forget_button(entries[0], words, label=label, query=query, also=entries[1:])


def candidates_card(
    entries: Sequence[MemoryEntry], words: TextCatalog, *, zone: ZoneInfo, decided_text: str = ""
) -> model.Card:
    """`decided_text` reports what was just decided."""
    title = words("memory.candidates_title")
    if not entries:
        return model.titled_card(title, model.TextBlock(words("memory.candidates_none")))
    blocks: list[model.Block] = [model.TextBlock(decided_text)] if decided_text else []
    for number, entry in enumerate(entries[:_MAX_WITH_BUTTONS], start=1):
        blocks.append(model.TextBlock(f"**{number}** · {entry_line(entry, words, zone=zone)}"))
        blocks.append(model.ButtonsBlock(candidate_buttons(entry, words, number)))
    rest = [entry_line(each, words, zone=zone) for each in entries[_MAX_WITH_BUTTONS:]]
    blocks += folded_rows(words("memory.later", n=len(rest)), rest)
    blocks.append(model.NoteBlock(words("memory.candidates_hint")))
    return model.titled_card(title, *blocks)


def candidate_buttons(
    entry: MemoryEntry, words: TextCatalog, number: int = 0
) -> tuple[model.CardButton, ...]:
    """`number` is its position in a list, 0 if it stands alone."""
    mark, in_list = f" {number}" if number else "", bool(number)
    digest = candidate_digest(entry)
    keep = memory_actions.DecideMemoryCandidate(
        entry_id=entry.id, keep=True, listed=in_list, wording=digest
    )
    drop = memory_actions.DecideMemoryCandidate(
        entry_id=entry.id, keep=False, listed=in_list, wording=digest
    )
    return (
        model.CardButton(words("memory.button.keep") + mark, keep, style=model.ButtonStyle.PRIMARY),
        model.CardButton(words("memory.button.drop") + mark, drop),
    )


def profile_card(
    entries: Sequence[MemoryEntry], words: TextCatalog, *, zone: ZoneInfo, shared: bool
) -> model.Card:
    if not entries:
        key = "memory.shared" if shared else "memory.profile_none"
        return model.titled_card(words("memory.profile_title"), model.TextBlock(words(key)))
    blocks: list[model.Block] = [
        model.TextBlock(_numbered(entries, words, zone)),
        _open_select(entries, words),
    ]
    blocks.append(model.NoteBlock(words("memory.shared" if shared else "memory.profile_hint")))
    return model.titled_card(words("memory.profile_title"), *blocks)


def handbook_card(chapters: Sequence[MemoryEntry], words: TextCatalog) -> model.Card:
    sections = [localized_chapter(each, words) for each in chapters]
    blocks: list[model.Block] = [
        model.TextBlock(
            f"**{formats.escape_markdown(title, 80)}**\n\n"
            + formats.truncate(text, _MAX_CHAPTER_TEXT)
        )
        for title, text in sections
    ]
    if not blocks:
        blocks = [model.TextBlock(words("memory.handbook_none"))]
    blocks.append(model.NoteBlock(words("memory.handbook_note")))
    return model.titled_card(words("memory.handbook_title"), *blocks)


def matches_chapter(entry: MemoryEntry, name: str) -> bool:
    """Whether `name` is the chapter's title, or its built-in name in any language."""
    title = name.strip().casefold()
    return title in {entry.label.casefold(), entry.key.partition(":")[2]}


def _numbered(
    entries: Sequence[MemoryEntry], words: TextCatalog, zone: ZoneInfo, first: int = 1
) -> str:
    return "\n".join(
        f"{number}. {entry_line(each, words, zone=zone)}"
        for number, each in enumerate(entries, start=first)
    )


def folded_rows(title: str, rows: Sequence[str]) -> Iterator[model.CollapsibleBlock]:
    """A folded list; nothing without rows."""
    if rows:
        text = "\n".join(f"- {row}" for row in rows)
        yield model.CollapsibleBlock(title, (model.TextBlock(text),))


def _open_select(
    entries: Sequence[MemoryEntry], words: TextCatalog, first: int = 1
) -> model.SelectBlock:
    return model.SelectBlock(
        placeholder=words("memory.open"),
        action=memory_actions.ShowMemory(),
        options=tuple(
            model.SelectOption(str(number), each.id)
            for number, each in enumerate(entries, start=first)
        ),
    )


def _page_buttons(
    page: memory.MemoryPage,
    kind: MemoryListFilter,
    words: TextCatalog,
    scope: str,
) -> Iterator[model.CardButton]:
    def to(number: int) -> memory_actions.ListMemories:
        return memory_actions.ListMemories(wanted=kind, scope=scope, page=number)

    if page.page > 1:
        yield model.CardButton(words("memory.button.previous"), to(page.page - 1))
    if page.has_more:
        yield model.CardButton(words("memory.button.next"), to(page.page + 1))


def _kind_buttons(
    page: memory.MemoryPage,
    current: MemoryListFilter,
    words: TextCatalog,
    scope: str,
) -> Iterator[model.CardButton]:
    for kind, count in page.other_counts.items():
        if count and kind is not current:
            label = f"{words(f'memory.wanted.{kind}')} {count}"
            yield model.CardButton(label, memory_actions.ListMemories(wanted=kind, scope=scope))


_MAX_ENTRY_TEXT = 3_000
_MAX_SENDER_NAME = 60
EDIT_FIELD = "text"
"""The field of the edit form."""


def entry_card(
    entry: MemoryEntry, words: TextCatalog, *, zone: ZoneInfo, strength: float, editable: bool
) -> model.Card:
    """`strength` is the current strength from 0 to 100; `editable` offers to change the entry."""
    pin = "📌 " if entry.pinned else ""
    blocks: list[model.Block] = [
        model.TextBlock(pin + formats.escape_markdown_lines(entry.text, _MAX_ENTRY_TEXT)),
        model.NoteBlock(" · ".join(_origin_parts(entry, words, zone))),
    ]
    if editable:
        blocks += _edit_blocks(entry, words)
    pairs = tuple(
        (words(f"memory.label.{name}"), text)
        for name, text in _facts(entry, words, zone, strength)
        if text
    )
    text = formats.escape_markdown_lines(entry.overview, _MAX_ENTRY_TEXT)
    overview = (model.TextBlock(text),) if entry.overview else ()
    details = (*overview, model.FieldsBlock(pairs))
    blocks.append(model.CollapsibleBlock(words("memory.details"), details))
    return model.titled_card(words("memory.one", kind=words(f"memory.kind.{entry.kind}")), *blocks)


def _origin_parts(entry: MemoryEntry, words: TextCatalog, zone: ZoneInfo) -> Iterator[str]:
    yield words("memory.for", scope=scope_name(entry.scope, words))
    yield formats.date_time(entry.said_at, zone)
    if entry.sender:
        yield formats.escape_markdown(entry.sender, _MAX_SENDER_NAME)
    if entry.state is not MemoryState.ACTIVE:
        yield words(f"memory.state.{entry.state}")
    yield f"`{entry.id}`"


def _facts(
    entry: MemoryEntry, words: TextCatalog, zone: ZoneInfo, strength: float
) -> Iterator[tuple[str, str]]:
    yield "state", words(f"memory.state.{entry.state}")
    yield "importance", f"{entry.importance:.0%}"
    yield "confidence", f"{entry.confidence:.0%}"
    yield "strength", f"{strength:.0f}%"
    yield "used", words("memory.times", n=entry.used) if entry.used else ""
    yield "since", formats.date_time(entry.valid_from, zone) if _has_own_start(entry) else ""
    until = entry.held_until
    yield "until", formats.date_time(until, zone) if until else ""
    quote = entry.extra.get(QUOTE_KEY)
    yield "quote", formats.escape_markdown(str(quote), _MAX_QUOTE) if quote else ""
    doubt = doubt_of(entry)
    yield "doubt", words(f"memory.doubt.{doubt}") if doubt else ""
    yield "instead", entry.superseded_by or ""
    yield "admission", _admission_text(entry, words)
    yield "evidence", words("memory.turns", n=len(entry.evidence)) if entry.evidence else ""
    yield "revision", str(entry.revision)


def _has_own_start(entry: MemoryEntry) -> bool:
    """Whether the entry holds from another time than when it was said."""
    return entry.valid_from != entry.said_at


def _admission_text(entry: MemoryEntry, words: TextCatalog) -> str:
    """How the entry was assessed, if an assessment was needed."""
    admission = entry.extra.get("admission")
    if not isinstance(admission, dict):
        return ""
    key = f"memory.admission.{admission.get('why') or 'admitted'}"
    return words(key, score=f"{admission.get('score', 0):.2f}") if words.has(key) else ""


def _edit_blocks(entry: MemoryEntry, words: TextCatalog) -> Iterator[model.Block]:
    if entry.state is MemoryState.CANDIDATE:
        yield model.ButtonsBlock(candidate_buttons(entry, words))
    pin = "unpin" if entry.pinned else "pin"
    yield model.ButtonsBlock(
        (
            model.CardButton(
                words(f"memory.button.{pin}"),
                memory_actions.PinMemory(entry_id=entry.id, pinned=not entry.pinned),
            ),
            forget_button(entry, words, label=words("memory.button.forget")),
        )
    )
    field = model.FormField(
        name=EDIT_FIELD,
        label=words("memory.edit"),
        field=model.FormFieldKind.PARAGRAPH,
        value=entry.text,
    )
    action = memory_actions.SubmitMemoryEdit(entry_id=entry.id, revision=entry.revision)
    yield model.FormBlock(fields=(field,), submit=words("memory.edit_button"), action=action)
