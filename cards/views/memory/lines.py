"""One remembered thing on one line: what it says, what it is, and by what to call it."""

from __future__ import annotations

from collections.abc import Iterator
from zoneinfo import ZoneInfo

from cards import formats
from cards.words import Words, words_for
from storage.records.memory.entries import Entry, EntryState, MemoryKind, Scope, ScopeKind
from storage.records.memory.offers import offered_to
from storage.records.people import Language

_LINE = 160
_NAME = 60
_SAID = "said"


def scope_name(scope: Scope, words: Words) -> str:
    return words(f"memory.scope.{scope.kind}", name=formats.verbatim(scope.name, _NAME))


def entry_line(entry: Entry, words: Words, *, zone: ZoneInfo | None = None) -> str:
    """Markdown, without a bullet. With a `zone` what was said has its day."""
    about = " · ".join(_about(entry, words, zone))
    return f"{_pin(entry)}{entry_words(entry, words)} · *{about}* `{entry.id}`"


def entry_words(entry: Entry, words: Words, limit: int = _LINE) -> str:
    """What it says, as it stands there: nobody's links, mentions or styles. Of a turn only what
    the person said, of a chapter its title too."""
    if entry.kind is MemoryKind.HANDBOOK and entry.label:
        title, text = chapter_of(entry, words)
        return f"**{formats.verbatim(title, _NAME)}:** {formats.verbatim(text, limit)}"
    return formats.verbatim(spoken(entry), limit)


def chapter_of(entry: Entry, words: Words) -> tuple[str, str]:
    """Title and text: one of ours, and what we wrote in it, as whoever reads it understands."""
    name = entry.key.partition(":")[2]
    if not words.has(f"mirror.chapter.{name}"):
        return entry.label, entry.text
    title, ours = words(f"mirror.chapter.{name}"), f"mirror.default.{name}"
    if not words.has(ours):
        return title, entry.text
    unchanged = any(words_for(each)(ours) == entry.text for each in Language)
    return title, words(ours) if unchanged else entry.text


def spoken(entry: Entry) -> str:
    length = entry.extra.get(_SAID)
    if entry.kind is MemoryKind.CELL and isinstance(length, int) and length > 0:
        return entry.text[:length]
    return entry.text


def _pin(entry: Entry) -> str:
    return "📌 " if entry.pinned else ""


def _about(entry: Entry, words: Words, zone: ZoneInfo | None) -> Iterator[str]:
    yield words(f"memory.kind.{entry.kind}")
    if entry.scope.kind is not ScopeKind.PERSON:
        yield scope_name(entry.scope, words)
    if entry.state is EntryState.CANDIDATE and (to := offered_to(entry)) is not None:
        yield words("memory.offered", scope=scope_name(to, words))
    if zone is not None and entry.kind is MemoryKind.CELL:
        yield formats.moment(entry.said_at, zone)
