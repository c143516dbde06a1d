"""Transcripts written out as files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from bot.engine.agent.transcript import Mask, lines_of
from handlers.services.transcripts import Exported
from storage.agents.transcripts import TranscriptRepo
from storage.records.sessions import SessionFacts, Written

FOLDER = "exports"
_PAGE = 200


class TranscriptService:
    """Satisfies `handlers.services.transcripts.Transcripts`."""

    def __init__(self, repo: TranscriptRepo, home: Path, mask: Mask) -> None:
        self._repo = repo
        self._home = home
        self._mask = mask

    async def newest(self, limit: int) -> Sequence[SessionFacts]:
        return await self._repo.newest(limit)

    async def export(self, prefix: str) -> Exported:
        session = await self._repo.find(prefix)
        path = self._home / FOLDER / f"session-{session.id}.jsonl"
        part = path.with_suffix(".part")
        lines, last = 0, 0
        mode = "w"
        while page := await self._repo.page(session.id, after=last, limit=_PAGE):
            lines += await asyncio.to_thread(self._write, part, page, mode)
            last, mode = page[-1].seq, "a"
        if not last:
            await asyncio.to_thread(self._write, part, (), mode)
        size = await asyncio.to_thread(_put_in_place, part, path)
        name = str(path.relative_to(self._home))
        return Exported(session=session, path=name, full=str(path), size=size, lines=lines)

    def _write(self, path: Path, page: Sequence[Written], mode: str) -> int:
        lines = [line for row in page for line in lines_of(row, self._mask)]
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with open(path, mode, encoding="utf-8", opener=_private) as file:
            file.writelines(f"{line}\n" for line in lines)
        return len(lines)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _put_in_place(part: Path, path: Path) -> int:
    part.replace(path)
    return path.stat().st_size
