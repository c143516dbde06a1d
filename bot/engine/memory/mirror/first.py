"""What is done once before files of memories are written: the handbook begins with something in
it, and what the Boss wrote into the older file of memories becomes part of the memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from pathlib import Path

from bot.engine.memory.handbook import defaults
from bot.engine.memory.mirror.notices import Tells
from bot.engine.memory.mirror.pages import Pages
from bot.engine.memory.writing.rights import HOME
from bot.engine.memory.writing.service import ByHand, MemoryWriter
from cards.words import words_for
from storage.marks import Marks
from storage.memory.entries import EntryRepo
from storage.memory.files.folder import Folder
from storage.memory.markdown.page import Layout
from storage.memory.markdown.parse import parse
from storage.memory.words import same
from storage.records.memory.entries import (
    GLOBAL,
    MOST_TEXT,
    MemoryKind,
    Scope,
    ScopeKind,
)
from storage.records.memory.refusals import NotKept
from storage.records.people import Language

log = logging.getLogger(__name__)

OLD = ("context/MEMORY.md", "context/memory.md")
KEPT = "MEMORY.before.md"

_MARK = "memory:handbook"
_BROUGHT = "memory:brought:"
_DIGITS = 16


class First:
    def __init__(
        self,
        *,
        home: Path,
        folder: Folder,
        entries: EntryRepo,
        writer: MemoryWriter,
        marks: Marks,
        pages: Pages,
        language: Callable[[], Awaitable[Language]],
        tell: Tells,
        owners: Callable[[], Awaitable[Collection[Scope]]],
    ) -> None:
        self._home = home
        self._folder = folder
        self._entries = entries
        self._writer = writer
        self._marks = marks
        self._pages = pages
        self._language = language
        self._tell = tell
        self._owners = owners

    async def __call__(self) -> None:
        self._pages.words = words_for(await self._language())
        await self._begin_handbook()
        for path in OLD:
            await self._bring(path)

    async def _begin_handbook(self) -> None:
        """Once in a data folder's life: a chapter that was removed stays away."""
        if await self._marks.get(_MARK):
            return
        found = await self._entries.list([GLOBAL], kinds=(MemoryKind.HANDBOOK,))
        written = {each.key for each in found}
        for chapter in defaults(self._pages.words):
            if chapter.key not in written:
                await self._writer.add(chapter, HOME)
        await self._marks.put(_MARK, True)

    async def _bring(self, path: str) -> None:
        """Only owners were told of it, and only in private: it becomes theirs. It is moved aside
        when all of it is kept; broken off before, it is brought once more and changes nothing.
        Where it cannot be moved, what was brought once is not brought again: it may have been
        forgotten since."""
        found = await asyncio.to_thread(self._folder.read, path)
        owners = [each for each in await self._owners() if each.kind is ScopeKind.PERSON]
        if found.body is None or not owners:
            return
        page = await asyncio.to_thread(parse, found.body, Layout.LIST)
        texts = [
            (section.title or page.title, text)
            for section in page.sections
            for line in section.lines
            for text in _pieces(line.text)
        ]
        known = set(await self._marks.get(_BROUGHT + path) or ())
        for owner in owners:
            for title, text in texts:
                if _short(text) in known:
                    continue
                wanted = ByHand(text=text, scope=owner, label=title, kind=MemoryKind.LONGTERM)
                with suppress(NotKept):
                    await self._writer.add(wanted, HOME)
        brought = known.union(_short(text) for _, text in texts)
        if brought != known:
            await self._marks.put(_BROUGHT + path, sorted(brought))
        try:
            kept = await asyncio.to_thread(_move_aside, self._home / path)
        except OSError as error:
            log.warning("%s is part of the memory now and cannot be moved aside: %s", path, error)
            return
        await self._marks.put(_BROUGHT + path, None)
        if texts:
            await self._tell(path, "brought", kept, n=len(texts), kept=kept)


def _pieces(text: str) -> list[str]:
    text = text.strip()
    return [text[at : at + MOST_TEXT] for at in range(0, len(text), MOST_TEXT)]


def _short(text: str) -> str:
    return same(text)[:_DIGITS]


def _move_aside(path: Path) -> str:
    """Never onto another file."""
    to, number = path.with_name(KEPT), 1
    while to.exists():
        number += 1
        to = path.with_name(f"{number}.{KEPT}")
    path.rename(to)
    return to.name
