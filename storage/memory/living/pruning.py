"""What stood before answers of long ago, taken away: nobody asks for it any more."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import and_, delete, func, or_, select

from storage.db import Database
from storage.memory.tables import memory_uses

_U = memory_uses.c
_AT_ONCE = 500


class UsePruning:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def run(self, *, before: datetime, answers: int) -> int:
        """Of each chat its last `answers` stay, if they are no older than `before`; the very last
        stays in any case. Of tasks all that is no older. How many rows went, some hundred in a
        transaction."""
        gone = await self._old(before, answers)
        for at in range(0, len(gone), _AT_ONCE):
            some = gone[at : at + _AT_ONCE]
            async with self._db.write() as tx:
                await tx.execute(delete(memory_uses).where(_U.id.in_(some)))
        return len(gone)

    async def _old(self, before: datetime, answers: int) -> list[int]:
        newest_first = func.row_number().over(
            partition_by=_U.chat_id, order_by=func.max(_U.id).desc()
        )
        of_chats = _U.task_id.is_(None)
        turns = (
            select(_U.session_id, _U.turn, newest_first.label("place"))
            .where(of_chats)
            .group_by(_U.chat_id, _U.session_id, _U.turn)
            .subquery()
        )
        same = and_(turns.c.session_id == _U.session_id, turns.c.turn == _U.turn)
        place = turns.c.place
        old = or_(place > answers, and_(place > 1, _U.at < before))
        talk = select(_U.id).join(turns, same).where(of_chats, old)
        work = select(_U.id).where(_U.task_id.is_not(None), _U.at < before)
        async with self._db.read() as view:
            return [*(await view.scalars(talk)).all(), *(await view.scalars(work)).all()]
