"""The chapters of the Boss's handbook: one entry each, for everybody."""

from __future__ import annotations

from bot.engine.memory.writing.service import ByHand
from cards.words import Words, words_for
from storage.records.memory.entries import GLOBAL, MemoryKind
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
"""In their order; chapters that people add themselves come behind."""

_KEY = "handbook:"


def chapter_key(chapter: str) -> str:
    """What an entry of this chapter has as its key; of people's own chapters by their title."""
    return f"{_KEY}{chapter.strip().casefold()}"


def chapter_of(key: str) -> str:
    """The chapter that an entry's key names; empty for other keys."""
    return key.removeprefix(_KEY) if key.startswith(_KEY) else ""


def place_of(key: str) -> int:
    """Where the chapter stands, whenever it was written; people's own come behind ours."""
    name = chapter_of(key)
    return CHAPTERS.index(name) if name in CHAPTERS else len(CHAPTERS)


def chapter(name: str, text: str, words: Words) -> ByHand:
    """The text of a chapter: it takes the place of what the chapter said. `name` is one of ours or
    a title of somebody's own."""
    known = name.strip().casefold()
    title = words(f"mirror.chapter.{known}") if known in CHAPTERS else name.strip()
    return ByHand(
        text=text,
        scope=GLOBAL,
        kind=MemoryKind.HANDBOOK,
        key=chapter_key(name),
        label=title,
        importance=1.0,
    )


def defaults(words: Words) -> list[ByHand]:
    """What the handbook says before anybody has written in it; some chapters say nothing yet."""
    told = [name for name in CHAPTERS if words.has(f"mirror.default.{name}")]
    return [chapter(name, words(f"mirror.default.{name}"), words) for name in told]


def named(title: str) -> str:
    """Which of our chapters somebody means, in any language; empty for none."""
    wanted = title.strip().casefold()
    for name in CHAPTERS:
        titles = (words_for(language)(f"mirror.chapter.{name}") for language in Language)
        if wanted in {name, *(each.casefold() for each in titles)}:
            return name
    return ""
