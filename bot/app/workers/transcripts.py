"""Transcripts written out as files."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from bot.app.exports import ExportFile
from bot.engine.agent.transcript import Mask, lines_of
from handlers.services.transcripts import Exported
from storage.agents.transcripts import TranscriptRepo
from storage.records.sessions import SessionFacts, Written

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
        file = ExportFile(self._home, f"session-{session.id}.jsonl")
        count, last = 0, 0
        try:
            while page := await self._repo.page(session.id, after=last, limit=_PAGE):
                count += await asyncio.to_thread(self._write, file, page)
                last = page[-1].seq
            size = await asyncio.to_thread(file.put)
        finally:
            await asyncio.to_thread(file.drop)
        return Exported(
            session=session, path=file.told, full=str(file.path), size=size, lines=count
        )

    def _write(self, file: ExportFile, page: Sequence[Written]) -> int:
        lines = [line for row in page for line in lines_of(row, self._mask)]
        file.add(lines)
        return len(lines)
