"""What stands in a file of memories, and what a line means that somebody has written into one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, tzinfo
from functools import lru_cache

from bot.engine.memory.handbook import CHAPTERS, chapter, chapter_of
from bot.engine.memory.mirror.places import Place, Sort
from bot.engine.memory.writing.service import ByHand
from cards.words import Words, words_for
from storage.memory.markdown.page import Line, Page, Section
from storage.memory.markdown.render import render
from storage.records.memory.entries import Category, Entry, MemoryKind, ScopeKind
from storage.records.people import Language

MOST_BYTES = 700_000
"""A file that we write can be read back with room for what people add."""

_LONGEST_HEADING = 200
_NOON = time(12)
_ABOUT = ("work", "style", "stack", "facts")
_STYLE = "style"


@dataclass(slots=True, kw_only=True)
class Pages:
    """Files in the language of whoever reads them, known once the program runs; headings are
    understood in all."""

    words: Words
    zone: tzinfo

    def page(self, place: Place, entries: Sequence[Entry], rivals: Mapping[int, int]) -> Page:
        """What the file is to show; `rivals` are numbers of two versions, the older by the newer:
        where both are there they stand together."""
        numbered = {each.number: each for each in entries}
        pairs = {new: old for new, old in rivals.items() if {new, old} <= numbered.keys()}
        newer: dict[int, list[Entry]] = {}
        for new, old in pairs.items():
            newer.setdefault(old, []).append(numbered[new])
        sections = {title: list[Line]() for title in self._headings(place)}
        for entry in entries:
            if entry.number in pairs:
                continue
            lines = sections.setdefault(self._heading(place, entry), [])
            lines.append(_line(entry))
            rivals_here = newer.get(entry.number, ())
            lines.extend(replace(_line(each), rival=entry.id) for each in rivals_here)
        page = Page(
            title=self._title(place),
            sections=tuple(
                Section(title=title, lines=tuple(lines))
                for title, lines in sections.items()
                if lines or place.sort in {Sort.HANDBOOK, Sort.PROFILE}
            ),
        )
        return _fitting(page)

    def body(self, place: Place, page: Page) -> str:
        hint = "mirror.hint_book" if place.sort is Sort.HANDBOOK else "mirror.hint"
        told = self.words(hint)
        if page.left_out:
            told += "\n" + self.words("mirror.hint_more", n=page.left_out)
        return render(page, place.sort.layout, hint=told, rivals=self.words("mirror.rivals"))

    def wanted(self, place: Place, text: str, heading: str, now: datetime) -> ByHand:
        """What somebody means by writing this under that heading."""
        heading = heading[:_LONGEST_HEADING]
        if place.sort is Sort.HANDBOOK:
            name = _named(heading, {each: f"mirror.chapter.{each}" for each in CHAPTERS})
            return chapter(name or heading or "notes", text, self.words)
        kind, category, label = _meant(place.sort, heading)
        return ByHand(
            text=text,
            scope=place.scope,
            kind=kind,
            category=category,
            label=label,
            said_at=self._said_at(place, heading, now),
        )

    def moved(self, place: Place, entry: Entry, heading: str) -> tuple[Category, str] | None:
        """What an entry is about if it stands below this heading now; None where that says nothing
        new of it."""
        heading = heading[:_LONGEST_HEADING]
        if place.sort not in {Sort.MEMORY, Sort.PROFILE} or not heading:
            return None
        if place.sort is Sort.PROFILE and not _about_named(heading):
            return None
        meant = _meant(place.sort, heading)[1:]
        return None if meant == _meant(place.sort, self._heading(place, entry))[1:] else meant

    def _said_at(self, place: Place, heading: str, now: datetime) -> datetime | None:
        """Of a line in a day's file: at the minute that it stands below, of a day of before at
        noon."""
        today = now.astimezone(self.zone).date()
        if place.day is None or place.sort is not Sort.DAY or place.day > today:
            return None
        minute = _minute(heading)
        if minute is None and place.day == today:
            return None
        told = datetime.combine(place.day, minute or _NOON, self.zone)
        return min(told.astimezone(UTC), now)

    def _title(self, place: Place) -> str:
        match place.sort:
            case Sort.HANDBOOK:
                return self.words("mirror.handbook")
            case Sort.PROFILE:
                return self.words("mirror.profile", name=place.name)
            case Sort.EPISODE:
                return self.words("mirror.episode", day=place.day)
            case Sort.MEMORY:
                return self._scope_title(place)
            case Sort.DAY:
                return self.words("mirror.day", title=self._scope_title(place), day=place.day)

    def _scope_title(self, place: Place) -> str:
        kind = place.scope.kind
        if kind is ScopeKind.CUSTOM:
            return place.scope.name
        return self.words(f"mirror.{kind}", name=place.name)

    def _headings(self, place: Place) -> Sequence[str]:
        """In the order in which they stand."""
        match place.sort:
            case Sort.HANDBOOK:
                return [self.words(f"mirror.chapter.{each}") for each in CHAPTERS]
            case Sort.PROFILE:
                return [self.words(f"mirror.about.{each}") for each in _ABOUT]
            case Sort.MEMORY:
                return [self.words(_key(each)) for each in Category]
            case Sort.DAY | Sort.EPISODE:
                return ()

    def _heading(self, place: Place, entry: Entry) -> str:
        match place.sort:
            case Sort.HANDBOOK:
                name = chapter_of(entry.key)
                return self.words(f"mirror.chapter.{name}") if name in CHAPTERS else _own(entry)
            case Sort.PROFILE:
                return self.words(f"mirror.about.{_about(entry)}")
            case Sort.MEMORY:
                own = entry.label if entry.category is Category.OTHER else ""
                return own or self.words(_key(entry.category))
            case Sort.DAY:
                return f"{entry.said_at.astimezone(self.zone):%H:%M}"
            case Sort.EPISODE:
                return self.words("mirror.episode_text")


_ABOUT_CATEGORY = {
    "work": (Category.PREFERENCES, ""),
    "style": (Category.PREFERENCES, _STYLE),
    "stack": (Category.TOOLS, ""),
    "facts": (Category.PROFILE, ""),
}


@lru_cache(maxsize=512)
def _meant(sort: Sort, heading: str) -> tuple[MemoryKind, Category, str]:
    match sort:
        case Sort.PROFILE:
            about = _about_named(heading)
            return MemoryKind.PROFILE, *_ABOUT_CATEGORY.get(about, (Category.PREFERENCES, ""))
        case Sort.MEMORY | Sort.HANDBOOK:
            name = _named(heading, {each: _key(each) for each in Category})
            own = (Category(name), "") if name else (Category.OTHER, heading)
            return MemoryKind.LONGTERM, *own
        case Sort.DAY | Sort.EPISODE:
            return MemoryKind.FACT, Category.OTHER, ""


@lru_cache(maxsize=512)
def _about_named(heading: str) -> str:
    return _named(heading, {each: f"mirror.about.{each}" for each in _ABOUT})


def _minute(heading: str) -> time | None:
    try:
        return datetime.strptime(heading.strip(), "%H:%M").time()  # noqa: DTZ007 - a time of day
    except ValueError:
        return None


def _about(entry: Entry) -> str:
    match entry.category:
        case Category.TOOLS:
            return "stack"
        case Category.PROFILE | Category.ENTITIES | Category.EVENTS:
            return "facts"
        case _:
            is_style = entry.label == _STYLE or entry.key.startswith("preferences:reply")
            return "style" if is_style else "work"


def _key(category: Category) -> str:
    # `other` is what texts with a plural have.
    return f"mirror.category.{'rest' if category is Category.OTHER else category}"


def _own(entry: Entry) -> str:
    return entry.label or chapter_of(entry.key) or entry.key


def _named(heading: str, keys: Mapping[str, str]) -> str:
    """Which of these a heading means, in whatever language; empty for none."""
    for language in Language:
        words = words_for(language)
        for name, key in keys.items():
            if heading.strip().casefold() == words(key).casefold():
                return name
    return ""


def _line(entry: Entry) -> Line:
    return Line(text=entry.text, id=entry.id, revision=entry.revision)


def _fitting(page: Page) -> Page:
    """Without so many of its first lines that the rest fits into a file."""
    room, left_out = MOST_BYTES, 0
    sections = []
    for section in reversed(page.sections):
        kept = []
        for line in reversed(section.lines):
            room -= len(line.text.encode("utf-8", "replace")) + 2 * line.text.count("\n") + 64
            if room > 0:
                kept.append(line)
            else:
                left_out += 1
        sections.append(replace(section, lines=tuple(reversed(kept))))
    return replace(page, sections=tuple(reversed(sections)), left_out=left_out)
