"""Which entries stood before a model when it answered, and which of them it has used."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, case, func, literal, or_, select, update

from storage import schema
from storage.db import Database, Transaction
from storage.dialect import insert_or_ignore
from storage.memory.tables import memories, memory_uses
from storage.records.memory.entries import Entry, EntryId, Strength
from storage.records.people import ChatId
from storage.records.tasks import TaskId

_U = memory_uses.c
_M = memories.c
_S = schema.sessions.c

IN_VAIN = 3
"""So often in a row, and an entry rests."""
_REST = timedelta(minutes=30)
_IN_A_ROW = timedelta(hours=24)


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """An entry as it stood in one `block` before the answer to one turn of a session."""

    session: str
    turn: int
    chat: ChatId | None
    task: TaskId | None
    entry: EntryId
    block: str
    score: float
    parts: Mapping[str, float]
    at: datetime
    confirmed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """An answer of one `backend`, outside tasks."""

    session: str
    number: int
    backend: str
    at: datetime


class UseRepo:
    """Counting changes no revision: whoever edits an entry meanwhile is not told off for it."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(self, tx: Transaction, uses: Sequence[Use]) -> None:
        rows = [_row(use) for use in uses]
        if rows:
            await tx.execute(insert_or_ignore(self._db.dialect, memory_uses), rows)

    async def heard(
        self, session: str, since: int, *, tx: Transaction | None = None
    ) -> Mapping[EntryId, str]:
        """What stood in this session's turns from this one on: the block of each entry."""
        query = select(_U.entry, _U.block).where(_U.session_id == session, _U.turn >= since)
        async with self._db.read(tx) as view:
            return {EntryId(row.entry): row.block for row in (await view.execute(query)).all()}

    async def last(self, chat: ChatId, *, tx: Transaction | None = None) -> Turn | None:
        """The latest answer in this chat outside tasks, whether anything stood before it or not."""
        newest = (
            select(_S.id, _S.turns, _S.backend, _S.last_used_at)
            .where(_S.key == f"chat:{chat}", _S.turns > 0)
            .order_by(_S.last_used_at.desc(), _S.started_at.desc(), _S.id.desc())
            .limit(1)
        )
        async with self._db.read(tx) as view:
            row = (await view.execute(newest)).one_or_none()
        if row is None:
            return None
        return Turn(session=row.id, number=row.turns, backend=row.backend, at=row.last_used_at)

    async def of_turn(
        self, chat: ChatId, session: str, turn: int, *, tx: Transaction | None = None
    ) -> Sequence[Use]:
        """Of one answer in this chat outside tasks."""
        where = and_(
            _U.session_id == session, _U.turn == turn, _U.chat_id == chat, _U.task_id.is_(None)
        )
        async with self._db.read(tx) as view:
            return await _uses(view, where)

    async def of_task(self, task: TaskId, *, tx: Transaction | None = None) -> Sequence[Use]:
        """Of all answers that a task was given, the latest last."""
        async with self._db.read(tx) as view:
            return await _uses(view, _U.task_id == task)

    async def confirm(
        self, tx: Transaction, session: str, turn: int, entries: Collection[EntryId], now: datetime
    ) -> frozenset[EntryId]:
        """These were of use. Those that were not known to be so before are given back."""
        query = (
            update(memory_uses)
            .where(
                _U.session_id == session,
                _U.turn == turn,
                _U.entry.in_(list(entries)),
                _U.confirmed_at.is_(None),
            )
            .values(confirmed_at=now)
            .returning(_U.entry)
        )
        return frozenset(EntryId(entry) for entry in (await tx.execute(query)).scalars())

    async def showed(self, tx: Transaction, entries: Collection[EntryId], now: datetime) -> None:
        """They stood there unasked. One that does so again and again within a day without being
        used rests for a while."""
        unused = or_(_M.last_used_at.is_(None), _M.last_used_at < _M.last_shown_at)
        row = and_(_M.last_shown_at.is_not(None), _M.last_shown_at > now - _IN_A_ROW)
        bad = case((and_(row, unused), _M.bad_recalls + 1), else_=0)
        rested = literal(now + _REST, _M.suppressed_until.type)
        await tx.execute(
            update(memories)
            .where(_M.id.in_(list(entries)))
            .values(
                shown=_M.shown + 1,
                last_shown_at=now,
                bad_recalls=bad,
                suppressed_until=case((bad >= IN_VAIN, rested), else_=_M.suppressed_until),
            )
        )

    async def used(self, tx: Transaction, entry: Entry, strength: Strength, now: datetime) -> None:
        """It was of use: it is counted, and lives longer."""
        await tx.execute(
            update(memories)
            .where(_M.number == entry.number)
            .values(
                used=func.coalesce(_M.used, 0) + 1,
                last_used_at=now,
                bad_recalls=0,
                suppressed_until=None,
                strength=strength.value,
                stability=strength.stability,
                decay=strength.decay,
                reinforced=strength.reinforced,
                reinforced_at=strength.reinforced_at,
            )
        )


async def _uses(view: Transaction, where: ColumnElement[bool]) -> Sequence[Use]:
    query = select(memory_uses).where(where).order_by(_U.id)
    return [_use(row) for row in (await view.execute(query)).all()]


def _row(use: Use) -> dict[str, Any]:
    return {
        "session_id": use.session,
        "turn": use.turn,
        "chat_id": use.chat,
        "task_id": use.task,
        "entry": use.entry,
        "block": use.block,
        "score": use.score,
        "parts": dict(use.parts),
        "at": use.at,
        "confirmed_at": use.confirmed_at,
    }


def _use(row: Row[Any]) -> Use:
    return Use(
        session=row.session_id,
        turn=row.turn,
        chat=row.chat_id,
        task=row.task_id,
        entry=EntryId(row.entry),
        block=row.block,
        score=row.score,
        parts=row.parts,
        at=row.at,
        confirmed_at=row.confirmed_at,
    )
