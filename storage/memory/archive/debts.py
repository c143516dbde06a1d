"""Sessions that are to be made shorter: one job each, however often it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, and_, func, or_, select, update

from storage import schema
from storage.db import Database, Transaction
from storage.dialect import insert_or_ignore
from storage.memory.tables import memory_jobs
from storage.records.memory.archive import Debt

KIND = "compact"
_J = memory_jobs.c
_S = schema.sessions.c
_OPEN, _DONE = "pending", "done"
_FORCED = "forced"


class DebtRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def owe(
        self, tx: Transaction, session_id: str, *, now: datetime, forced: bool = False
    ) -> None:
        """It is due at once if it is new; one under way keeps its time, unless it is `forced`:
        wanted by somebody, however short the session still is."""
        new = insert_or_ignore(self._db.dialect, memory_jobs).values(
            kind=KIND,
            source=_source(session_id),
            payload={_FORCED: forced},
            state=_OPEN,
            due_at=now,
            created_at=now,
        )
        made = await tx.execute(new)
        if made.rowcount:
            return
        again: ColumnElement[bool] = _J.state == _DONE
        if forced:
            again = or_(again, _J.state == _OPEN)
        values = {
            "state": _OPEN,
            "payload": {_FORCED: forced},
            "tries": 0,
            "due_at": now,
            "why": "",
            "ended_at": None,
        }
        await tx.execute(update(memory_jobs).where(_is(session_id), again).values(values))

    async def due(self, now: datetime, limit: int) -> Sequence[Debt]:
        query = (
            select(_J.id, _J.source, _J.tries, _J.payload)
            .where(_J.kind == KIND, _J.state == _OPEN, _J.due_at <= now)
            .order_by(_J.due_at, _J.id)
            .limit(limit)
        )
        async with self._db.read() as view:
            rows = (await view.execute(query)).all()
        return [
            Debt(
                id=row.id,
                session_id=row.source.partition(":")[2],
                tries=row.tries,
                forced=bool(row.payload.get(_FORCED)),
            )
            for row in rows
        ]

    async def next_due(self) -> datetime | None:
        query = select(func.min(_J.due_at)).where(_J.kind == KIND, _J.state == _OPEN)
        async with self._db.read() as view:
            found: datetime | None = await view.scalar(query)
        return found

    async def put_off(
        self, tx: Transaction, debt: Debt, *, until: datetime, why: str, failed: bool
    ) -> None:
        """Until then, because it `failed`, or because part of it is done."""
        values = {
            "due_at": until,
            "why": why[:500],
            "tries": debt.tries + 1 if failed else 0,
            "payload": {_FORCED: debt.forced},
        }
        await tx.execute(update(memory_jobs).where(_J.id == debt.id).values(values))

    async def settle(self, tx: Transaction, debt: Debt, *, now: datetime) -> None:
        values = {"state": _DONE, "why": "", "tries": 0, "ended_at": now}
        await tx.execute(update(memory_jobs).where(_J.id == debt.id).values(values))

    async def overgrown(self, most_tokens: int) -> Sequence[str]:
        """Sessions under way that were longer than that at their last turn."""
        query = select(_S.id).where(_S.closed_at.is_(None), _S.tokens > most_tokens)
        async with self._db.read() as view:
            return list((await view.scalars(query.order_by(_S.last_used_at.desc()))).all())


def _source(session_id: str) -> str:
    return f"{KIND}:{session_id}"


def _is(session_id: str) -> ColumnElement[bool]:
    return and_(_J.source == _source(session_id), _J.kind == KIND)
