"""Memories written out as JSON lines, and read in again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.app.exports import ExportFile
from bot.engine.memory.writing.rights import By
from bot.engine.memory.writing.service import ByHand, MemoryWriter
from cards.views.memory.data import entry_data
from handlers.services.memory import MemoryRefused
from storage.memory.entries import EntryRepo
from storage.records.memory.entries import (
    Category,
    Entry,
    MemoryKind,
    Scope,
)
from storage.records.memory.refusals import NotKept
from storage.records.memory.shown import Brought, ExportedEntries

_A_PAGE = 500
_MOST_BYTES = 20_000_000
_MOST_LINES = 10_000
_NO_HAND = {MemoryKind.CELL, MemoryKind.EPISODE, MemoryKind.HANDBOOK}


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrying:
    """`home` is the data directory: what is written out is below it, what is read in too."""

    entries: EntryRepo
    writer: MemoryWriter
    home: Path

    async def out(self, scopes: Sequence[Scope] | None, *, name: str) -> ExportedEntries:
        """Everything of these scopes in every state, in the order in which it was kept; None: of
        all."""
        file, count, last = ExportFile(self.home, f"{name}.jsonl"), 0, 0
        try:
            while page := await self.entries.page(scopes, after=last, limit=_A_PAGE):
                await asyncio.to_thread(_add, file, page)
                count, last = count + len(page), page[-1].number
            size = await asyncio.to_thread(file.put)
        finally:
            await asyncio.to_thread(file.drop)
        return ExportedEntries(path=file.told, size=size, entries=count)

    async def bring(self, path: str, by: By, scope: Scope) -> Brought:
        """One that is there already with the same words is not written again."""
        added, known, bad = 0, 0, {}
        for number, line in enumerate(await asyncio.to_thread(self._lines, path), 1):
            if not line.strip():
                continue
            try:
                wanted = _wanted(json.loads(line), scope)
                if await self.entries.same_as(scope, wanted.text):
                    known += 1
                else:
                    await self.writer.add(wanted, by)
                    added += 1
            except (ValueError, RecursionError, NotKept) as error:
                bad[number] = str(error)[:200]
        return Brought(added=added, known=known, bad=bad)

    def _lines(self, path: str) -> Sequence[str]:
        whole = (self.home / path).resolve()
        if not whole.is_relative_to(self.home.resolve()):
            raise MemoryRefused("unreadable", path)
        try:
            if whole.stat().st_size > _MOST_BYTES:
                raise MemoryRefused("unreadable", f"> {_MOST_BYTES // 1_000_000} MB")
            text = whole.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise MemoryRefused("unreadable", type(error).__name__) from error
        lines = text.splitlines()
        if len(lines) > _MOST_LINES:
            raise MemoryRefused("unreadable", f"> {_MOST_LINES}: `shiftboss memory import`")
        return lines


def _add(file: ExportFile, page: Sequence[Entry]) -> None:
    file.add(json.dumps(entry_data(each), ensure_ascii=False) for each in page)


def _wanted(row: Any, scope: Scope) -> ByHand:
    text = row.get("text") if isinstance(row, dict) else None
    if not isinstance(text, str):
        raise ValueError("no text")  # noqa: TRY004 - the row is wrong, not our call
    kind = MemoryKind(row.get("kind") or MemoryKind.LONGTERM)
    return ByHand(
        text=text,
        scope=scope,
        kind=MemoryKind.LONGTERM if kind in _NO_HAND else kind,
        category=Category(row.get("category") or Category.OTHER),
        label=str(row.get("label") or "")[:200],
        keywords=tuple(str(each)[:80] for each in row.get("keywords") or ())[:20],
        pinned=bool(row.get("pinned")),
    )
