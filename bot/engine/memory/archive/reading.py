"""Makes the words of messages out of what backends have stored, of old sessions too."""

from __future__ import annotations

import asyncio

from bot.engine.memory.archive.words import parts_of
from storage.db import Database
from storage.memory.archive.hearing import Hearing
from storage.memory.archive.said import ArchiveRepo

_PAGE = 200


class Reading:
    def __init__(self, db: Database, said: ArchiveRepo) -> None:
        self._db = db
        self._said = said

    async def catch_up(self, session_id: str) -> None:
        """The words of all its messages are known after that."""
        while unread := await self._said.unread(session_id, _PAGE):
            parts = await asyncio.to_thread(
                lambda rows: [part for each in rows for part in parts_of(each)], unread
            )
            async with self._db.write() as tx:
                await self._said.put(tx, session_id, parts)

    async def catch_up_for(self, hearing: Hearing) -> None:
        """Those of all sessions that this listener may look into."""
        for session_id in await self._said.behind(hearing):
            await self.catch_up(session_id)
