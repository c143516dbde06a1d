"""Chapters of the team handbook, one entry each, in the global scope."""

from __future__ import annotations

from bot.engine.memory.access import ManualMemory
from cards.catalog import TextCatalog, catalog_for
from storage.records.memory import GLOBAL_SCOPE, MemoryKind
from storage.records.people import Language

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
