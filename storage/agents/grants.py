"""What people allowed beyond one call, until they take it back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, insert, or_, select, update

from storage.agents.tables import tool_grants
from storage.db import Database, Transaction
from storage.records.people import ChatId, PersonId
from storage.records.tasks import TaskId
from storage.records.tools import GrantRecord, GrantScope

_G = tool_grants.c


class GrantRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(
        self,
        tx: Transaction,
        *,
        scope: GrantScope,
        subject: str,
        tool: str,
        pattern: str,
        approval_id: str,
        by: PersonId,
        now: datetime,
    ) -> None:
        await tx.execute(
            insert(tool_grants).values(
                scope=scope.value,
                subject=subject,
                tool=tool,
                pattern=pattern,
                approval_id=approval_id,
                granted_by=by,
                at=now,
            )
        )

    async def binding(
        self, *, task: TaskId | None, chat: ChatId | None, tx: Transaction | None = None
    ) -> Sequence[GrantRecord]:
        """Those that hold for this task, in this chat, and always."""
        held = [_G.scope == GrantScope.ALWAYS.value]
        if task is not None:
            held.append((_G.scope == GrantScope.TASK.value) & (_G.subject == task))
        if chat is not None:
            held.append((_G.scope == GrantScope.CHAT.value) & (_G.subject == chat))
        return await self._where(or_(*held), tx=tx)

    async def all(self) -> Sequence[GrantRecord]:
        return await self._where()

    async def revoke(self, grant_id: int, *, now: datetime) -> bool:
        """False if it does not hold any more."""
        async with self._db.write() as tx:
            ended = await tx.execute(
                update(tool_grants)
                .where(_G.id == grant_id, _G.revoked_at.is_(None))
                .values(revoked_at=now)
            )
        return ended.rowcount == 1

    async def _where(
        self, *conditions: ColumnElement[bool], tx: Transaction | None = None
    ) -> Sequence[GrantRecord]:
        query = select(tool_grants).where(_G.revoked_at.is_(None), *conditions).order_by(_G.id)
        async with self._db.read(tx) as view:
            rows = (await view.execute(query)).all()
        return tuple(_record(row) for row in rows)


def _record(row: Row[Any]) -> GrantRecord:
    return GrantRecord(
        id=row.id,
        scope=GrantScope(row.scope),
        subject=row.subject,
        tool=row.tool,
        pattern=row.pattern,
        approval_id=row.approval_id or "",
        granted_by=PersonId(row.granted_by),
        at=row.at,
    )
