"""Maps memories to Markdown files: which files a scope has, with the chapters of the handbook,
their content, and the meaning of edited lines; notifies owners of files that need attention."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from enum import StrEnum
from functools import lru_cache
from typing import Protocol

from bot.engine.memory.access import ManualMemory
from cards.catalog import TextCatalog, catalog_for
from cards.courier import OwnerCardSender
from cards.model import Card, CardTone, TextBlock
from storage.memory.markdown.page_format import (
    EntryLine,
    MarkdownLayout,
    MarkdownPage,
    PageSection,
    render_page,
)
from storage.records.memory import (
    GLOBAL_SCOPE,
    EntryId,
    MemoryCategory,
    MemoryEntry,
    MemoryKind,
    MemoryScope,
    MemoryScopeKind,
)
from storage.records.people import Language

# --- the handbook: one entry a chapter, in the global scope

CHAPTERS = (
    "principles",
    "communication",
    "process",
    "quality",
    "learning",
    "forbidden",
    "notes",
    "updates",
)
"""Default chapters in order; custom chapters follow them."""

_KEY_PREFIX = "handbook:"


def chapter_key(chapter: str) -> str:
    """Entry key of a chapter; custom chapters use their title."""
    return f"{_KEY_PREFIX}{chapter.strip().casefold()}"


def chapter_name(key: str) -> str:
    """Chapter name of an entry key; empty for other keys."""
    return key.removeprefix(_KEY_PREFIX) if key.startswith(_KEY_PREFIX) else ""


def chapter_order(key: str) -> int:
    """Sort position: default chapters first."""
    name = chapter_name(key)
    return CHAPTERS.index(name) if name in CHAPTERS else len(CHAPTERS)


def build_chapter(name: str, text: str, words: TextCatalog) -> ManualMemory:
    """An entry that replaces the chapter's text. `name` is a default chapter or a custom title."""
    known = name.strip().casefold()
    title = words(f"mirror.chapter.{known}") if known in CHAPTERS else name.strip()
    return ManualMemory(
        text=text,
        scope=GLOBAL_SCOPE,
        kind=MemoryKind.HANDBOOK,
        key=chapter_key(name),
        label=title,
        importance=1.0,
    )


def default_chapters(words: TextCatalog) -> list[ManualMemory]:
    """Initial texts of the chapters; some are empty."""
    told = [name for name in CHAPTERS if words.has(f"mirror.default.{name}")]
    return [build_chapter(name, words(f"mirror.default.{name}"), words) for name in told]


def find_chapter(title: str) -> str:
    """Default chapter with this title in any language; empty if there is none."""
    wanted = title.strip().casefold()
    for name in CHAPTERS:
        titles = (catalog_for(language)(f"mirror.chapter.{name}") for language in Language)
        if wanted in {name, *(each.casefold() for each in titles)}:
            return name
    return ""


# --- notices about files that need attention, once per problem


class OwnerNotifier(Protocol):
    async def __call__(self, path: str, what: str, state: str, **facts: object) -> None:
        """`what` is a text key below `mirror.notice`; repeats with the same `state` are dropped."""
        ...


@dataclass(slots=True, kw_only=True)
class OwnerNoticeSender:
    """Implements `OwnerNotifier`. Notices name the file and never quote its content."""

    owners: OwnerCardSender

    async def __call__(self, path: str, what: str, state: str, **facts: object) -> None:
        def draw(words: TextCatalog) -> Card:
            return Card(
                title=words("mirror.notice.title", path=path),
                tone=CardTone.INFO if what == "brought" else CardTone.WARN,
                blocks=(TextBlock(words(f"mirror.notice.{what}", **facts)),),
            )

        digest = hashlib.sha256(f"{path}\n{what}\n{state}".encode("utf-8", "replace")).hexdigest()
        await self.owners.notify(f"mirror:{digest[:32]}", draw)


# --- which files a scope has, their content, and the meaning of edited lines

_SLUG = re.compile(r"[^\w]+")
_MAX_SLUG_CHARS = 40
_SUFFIX_CHARS = 6
_ROOT = "memory"
_FOLDER_BY_SCOPE = {
    MemoryScopeKind.PERSON: "people",
    MemoryScopeKind.CHAT: "chats",
    MemoryScopeKind.PROJECT: "projects",
    MemoryScopeKind.SKILL: "skills",
    MemoryScopeKind.AGENT: "agents",
}


class MemoryFileKind(StrEnum):
    MEMORY = "memory"
    PROFILE = "profile"
    HANDBOOK = "handbook"
    DAY = "day"
    EPISODE = "episode"

    @property
    def is_standing(self) -> bool:
        """Whether a scope has a single file of this kind, rather than one per day or episode."""
        return self not in {MemoryFileKind.DAY, MemoryFileKind.EPISODE}

    @property
    def layout(self) -> MarkdownLayout:
        return (
            MarkdownLayout.BOOK
            if self in {MemoryFileKind.HANDBOOK, MemoryFileKind.EPISODE}
            else MarkdownLayout.LIST
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFile:
    """A file of a scope. `name` is the scope's display name; `day` or `entry` identifies files that
    exist per day or episode."""

    path: str
    kind: MemoryFileKind
    scope: MemoryScope
    name: str = ""
    day: date | None = None
    entry: EntryId | None = None

    @property
    def entry_kinds(self) -> Sequence[MemoryKind]:
        return entry_kinds_of(self.scope, self.kind)

    def span(self, zone: tzinfo) -> tuple[datetime, datetime] | None:
        """From midnight to midnight in `zone`, for a day's file."""
        if self.day is None:
            return None
        begins = datetime.combine(self.day, time(), zone)
        return begins, datetime.combine(self.day + timedelta(days=1), time(), zone)


def entry_kinds_of(scope: MemoryScope, kind: MemoryFileKind) -> Sequence[MemoryKind]:
    match kind:
        case MemoryFileKind.HANDBOOK:
            return (MemoryKind.HANDBOOK,)
        case MemoryFileKind.PROFILE:
            return (MemoryKind.PROFILE,)
        case MemoryFileKind.DAY:
            return (MemoryKind.CELL, MemoryKind.FACT)
        case MemoryFileKind.EPISODE:
            return (MemoryKind.EPISODE,)
        case MemoryFileKind.MEMORY:
            own = {
                MemoryScopeKind.PERSON: MemoryKind.PROFILE,
                MemoryScopeKind.GLOBAL: MemoryKind.HANDBOOK,
            }
            others = {MemoryKind.LONGTERM, MemoryKind.PROFILE, MemoryKind.HANDBOOK}
            return tuple(each for each in MemoryKind if each in others - {own.get(scope.kind)})


def has_files(scope: MemoryScope) -> bool:
    """Import scopes have no files: they may be large and are not edited."""
    return scope.kind is not MemoryScopeKind.CUSTOM


def standing_files(scope: MemoryScope, folder: str, name: str) -> Sequence[MemoryFile]:
    """Files that the scope always has, even if empty."""
    if scope.kind is MemoryScopeKind.GLOBAL:
        return (
            MemoryFile(path="BOSS.md", kind=MemoryFileKind.HANDBOOK, scope=scope),
            MemoryFile(path="MEMORY.md", kind=MemoryFileKind.MEMORY, scope=scope),
        )
    memory = MemoryFile(
        path=f"{folder}/MEMORY.md", kind=MemoryFileKind.MEMORY, scope=scope, name=name
    )
    if scope.kind is not MemoryScopeKind.PERSON:
        return (memory,)
    return (
        MemoryFile(
            path=f"{folder}/PROFILE.md", kind=MemoryFileKind.PROFILE, scope=scope, name=name
        ),
        memory,
    )


def day_file(scope: MemoryScope, folder: str, name: str, day: date) -> MemoryFile:
    path = f"{folder}/{day.isoformat()}.md"
    return MemoryFile(path=path, kind=MemoryFileKind.DAY, scope=scope, name=name, day=day)


def episode_file(scope: MemoryScope, name: str, entry: EntryId, day: date) -> MemoryFile:
    path = f"{_ROOT}/episodes/{entry}.md"
    return MemoryFile(
        path=path, kind=MemoryFileKind.EPISODE, scope=scope, name=name, entry=entry, day=day
    )


def scope_folder(scope: MemoryScope, name: str, known_paths: Iterable[str] = ()) -> str:
    """The scope's folder. The folder of `known_paths` stays when the scope is renamed."""
    if scope.kind is MemoryScopeKind.GLOBAL:
        return f"{_ROOT}/global"
    root = f"{_ROOT}/{_FOLDER_BY_SCOPE[scope.kind]}"
    slug, suffix = _slug(name), _suffix(scope, name)
    if not suffix:
        return f"{root}/{slug}"
    for path in known_paths:
        folder = path.rpartition("/")[0]
        if folder.startswith(f"{root}/") and folder.endswith(f"-{suffix}"):
            return folder
    return f"{root}/{slug}-{suffix}"


def _suffix(scope: MemoryScope, name: str) -> str:
    """Suffix that separates scopes of the same name. Skills and agents need none if their names,
    already unique, are valid folder names."""
    if scope.kind in {MemoryScopeKind.SKILL, MemoryScopeKind.AGENT} and _slug(name) == scope.name:
        return ""
    return hashlib.sha256(str(scope).encode()).hexdigest()[:_SUFFIX_CHARS]


def _slug(name: str) -> str:
    plain = unicodedata.normalize("NFKC", name).casefold()
    return _SLUG.sub("-", plain)[:_MAX_SLUG_CHARS].strip("-_") or "unnamed"


MAX_FILE_BYTES = 700_000
"""Size limit of written files; the reader accepts more, for what people add."""

_MAX_HEADING_CHARS = 200
_NOON = time(12)
_PROFILE_SECTIONS = ("work", "style", "stack", "facts")
_STYLE_SECTION = "style"


@dataclass(slots=True, kw_only=True)
class MemoryPageMapper:
    """Builds and parses pages. Files use the configured language; headings are recognised in all
    languages."""

    words: TextCatalog
    zone: tzinfo

    def build_page(
        self, file: MemoryFile, entries: Sequence[MemoryEntry], rivals: Mapping[int, int]
    ) -> MarkdownPage:
        """Build the file's page. `rivals` maps the number of a newer version to the older one; both
        are placed together."""
        numbered = {each.number: each for each in entries}
        pairs = {new: old for new, old in rivals.items() if {new, old} <= numbered.keys()}
        newer: dict[int, list[MemoryEntry]] = {}
        for new, old in pairs.items():
            newer.setdefault(old, []).append(numbered[new])
        sections = {title: list[EntryLine]() for title in self._headings(file)}
        for entry in entries:
            if entry.number in pairs:
                continue
            lines = sections.setdefault(self._heading(file, entry), [])
            lines.append(_to_line(entry, self.zone))
            rivals_here = newer.get(entry.number, ())
            lines.extend(
                replace(_to_line(each, self.zone), conflict_id=entry.id) for each in rivals_here
            )
        page = MarkdownPage(
            title=self._title(file),
            sections=tuple(
                PageSection(title=title, lines=tuple(lines))
                for title, lines in sections.items()
                if lines or file.kind in {MemoryFileKind.HANDBOOK, MemoryFileKind.PROFILE}
            ),
        )
        return _fit_file(page)

    def render_page(self, file: MemoryFile, page: MarkdownPage) -> str:
        hint = "mirror.hint_book" if file.kind is MemoryFileKind.HANDBOOK else "mirror.hint"
        told = self.words(hint)
        if page.left_out:
            told += "\n" + self.words("mirror.hint_more", n=page.left_out)
        return render_page(
            page, file.kind.layout, hint=told, conflict_note=self.words("mirror.rivals")
        )

    def parse_line(self, file: MemoryFile, text: str, heading: str, now: datetime) -> ManualMemory:
        """The memory that a line written under this heading stands for."""
        heading = heading[:_MAX_HEADING_CHARS]
        if file.kind is MemoryFileKind.HANDBOOK:
            name = _match_heading(heading, {each: f"mirror.chapter.{each}" for each in CHAPTERS})
            return build_chapter(name or heading or "notes", text, self.words)
        kind, category, label = _parse_heading(file.kind, heading)
        return ManualMemory(
            text=text,
            scope=file.scope,
            kind=kind,
            category=category,
            label=label,
            said_at=self._said_at(file, heading, now),
        )

    def find_new_category(
        self, file: MemoryFile, entry: MemoryEntry, heading: str
    ) -> tuple[MemoryCategory, str] | None:
        """The category that a heading implies for an entry; None if it stays the same."""
        heading = heading[:_MAX_HEADING_CHARS]
        if file.kind not in {MemoryFileKind.MEMORY, MemoryFileKind.PROFILE} or not heading:
            return None
        if file.kind is MemoryFileKind.PROFILE and not _match_profile_section(heading):
            return None
        meant = _parse_heading(file.kind, heading)[1:]
        return None if meant == _parse_heading(file.kind, self._heading(file, entry))[1:] else meant

    def _said_at(self, file: MemoryFile, heading: str, now: datetime) -> datetime | None:
        """Time of a line in a day's file: its heading's time, or noon on earlier days."""
        today = now.astimezone(self.zone).date()
        if file.day is None or file.kind is not MemoryFileKind.DAY or file.day > today:
            return None
        minute = _parse_minute(heading)
        if minute is None and file.day == today:
            return None
        told = datetime.combine(file.day, minute or _NOON, self.zone)
        return min(told.astimezone(UTC), now)

    def _title(self, file: MemoryFile) -> str:
        match file.kind:
            case MemoryFileKind.HANDBOOK:
                return self.words("mirror.handbook")
            case MemoryFileKind.PROFILE:
                return self.words("mirror.profile", name=file.name)
            case MemoryFileKind.EPISODE:
                return self.words("mirror.episode", day=file.day)
            case MemoryFileKind.MEMORY:
                return self._scope_title(file)
            case MemoryFileKind.DAY:
                return self.words("mirror.day", title=self._scope_title(file), day=file.day)

    def _scope_title(self, file: MemoryFile) -> str:
        kind = file.scope.kind
        if kind is MemoryScopeKind.CUSTOM:
            return file.scope.name
        return self.words(f"mirror.{kind}", name=file.name)

    def _headings(self, file: MemoryFile) -> Sequence[str]:
        """Headings in order."""
        match file.kind:
            case MemoryFileKind.HANDBOOK:
                return [self.words(f"mirror.chapter.{each}") for each in CHAPTERS]
            case MemoryFileKind.PROFILE:
                return [self.words(f"mirror.about.{each}") for each in _PROFILE_SECTIONS]
            case MemoryFileKind.MEMORY:
                return [self.words(_category_text_key(each)) for each in MemoryCategory]
            case MemoryFileKind.DAY | MemoryFileKind.EPISODE:
                return ()

    def _heading(self, file: MemoryFile, entry: MemoryEntry) -> str:
        match file.kind:
            case MemoryFileKind.HANDBOOK:
                name = chapter_name(entry.key)
                return (
                    self.words(f"mirror.chapter.{name}")
                    if name in CHAPTERS
                    else _own_chapter_title(entry)
                )
            case MemoryFileKind.PROFILE:
                return self.words(f"mirror.about.{_profile_section(entry)}")
            case MemoryFileKind.MEMORY:
                own = entry.label if entry.category is MemoryCategory.OTHER else ""
                return own or self.words(_category_text_key(entry.category))
            case MemoryFileKind.DAY:
                return f"{entry.said_at.astimezone(self.zone):%H:%M}"
            case MemoryFileKind.EPISODE:
                return self.words("mirror.episode_text")


_CATEGORY_BY_SECTION = {
    "work": (MemoryCategory.PREFERENCES, ""),
    "style": (MemoryCategory.PREFERENCES, _STYLE_SECTION),
    "stack": (MemoryCategory.TOOLS, ""),
    "facts": (MemoryCategory.PROFILE, ""),
}


@lru_cache(maxsize=512)
def _parse_heading(sort: MemoryFileKind, heading: str) -> tuple[MemoryKind, MemoryCategory, str]:
    match sort:
        case MemoryFileKind.PROFILE:
            about = _match_profile_section(heading)
            return MemoryKind.PROFILE, *_CATEGORY_BY_SECTION.get(
                about, (MemoryCategory.PREFERENCES, "")
            )
        case MemoryFileKind.MEMORY | MemoryFileKind.HANDBOOK:
            name = _match_heading(
                heading, {each: _category_text_key(each) for each in MemoryCategory}
            )
            own = (MemoryCategory(name), "") if name else (MemoryCategory.OTHER, heading)
            return MemoryKind.LONGTERM, *own
        case MemoryFileKind.DAY | MemoryFileKind.EPISODE:
            return MemoryKind.FACT, MemoryCategory.OTHER, ""


@lru_cache(maxsize=512)
def _match_profile_section(heading: str) -> str:
    return _match_heading(heading, {each: f"mirror.about.{each}" for each in _PROFILE_SECTIONS})


def _parse_minute(heading: str) -> time | None:
    try:
        return datetime.strptime(heading.strip(), "%H:%M").time()  # noqa: DTZ007 - a time of day
    except ValueError:
        return None


def _profile_section(entry: MemoryEntry) -> str:
    match entry.category:
        case MemoryCategory.TOOLS:
            return "stack"
        case MemoryCategory.PROFILE | MemoryCategory.ENTITIES | MemoryCategory.EVENTS:
            return "facts"
        case _:
            is_style = entry.label == _STYLE_SECTION or entry.key.startswith("preferences:reply")
            return "style" if is_style else "work"


def _category_text_key(category: MemoryCategory) -> str:
    # Texts with plural forms have the key `other`.
    return f"mirror.category.{'rest' if category is MemoryCategory.OTHER else category}"


def _own_chapter_title(entry: MemoryEntry) -> str:
    return entry.label or chapter_name(entry.key) or entry.key


def _match_heading(heading: str, keys: Mapping[str, str]) -> str:
    """The key that a heading matches in any language; empty if none."""
    for language in Language:
        words = catalog_for(language)
        for name, key in keys.items():
            if heading.strip().casefold() == words(key).casefold():
                return name
    return ""


def _to_line(entry: MemoryEntry, zone: tzinfo) -> EntryLine:
    times: list[str] = []
    if entry.valid_from != entry.said_at:
        word = "from" if entry.valid_from > entry.said_at else "since"
        times.append(f"{word} {entry.valid_from.astimezone(zone):%Y-%m-%d}")
    if entry.valid_until is not None:
        times.append(f"until {entry.valid_until.astimezone(zone):%Y-%m-%d}")
    return EntryLine(text=entry.text, id=entry.id, revision=entry.revision, times=" ".join(times))


def _fit_file(page: MarkdownPage) -> MarkdownPage:
    """Drop the first lines until the rest fits into a file."""
    room, left_out = MAX_FILE_BYTES, 0
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
