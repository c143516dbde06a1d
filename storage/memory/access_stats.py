"""Tracks which memory entries models were shown and used, counts entries, and prunes old
records."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, case, delete, func, literal, or_, select, update

from storage import schema
from storage.db import Database, Transaction
from storage.dialect import insert_or_ignore
from storage.memory_schema import entry_from_row, memories, memory_jobs, memory_scopes, memory_uses
from storage.records.memory import (
    EntryId,
    MemoryEntry,
    MemoryKind,
    MemoryOrigin,
    MemoryScope,
    MemoryState,
    MemoryStrength,
    MemoryTier,
)
from storage.records.people import ChatId
from storage.records.tasks import TaskId

_M = memories.c


class MemoryCounts:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def list_scopes(self) -> Sequence[MemoryScope]:
        """All scopes that have or had entries."""
        query = select(memory_scopes.c.name).order_by(memory_scopes.c.name)
        return [MemoryScope.parse(name) for name in await self._db.fetch_column(query)]

    async def count_by_kind(
        self, scopes: Sequence[MemoryScope], *, state: MemoryState | None = None
    ) -> Mapping[str, int]:
        return await self._count_by(_M.kind, scopes, state)

    async def count_by_state(self, scopes: Sequence[MemoryScope]) -> Mapping[str, int]:
        return await self._count_by(_M.state, scopes)

    async def count_by_scope(self, scopes: Sequence[MemoryScope]) -> Mapping[str, int]:
        return await self._count_by(_M.scope, scopes)

    async def count_jobs(self, state: str) -> int:
        query = select(func.count()).where(memory_jobs.c.state == state)
        return await self._db.fetch_value(query) or 0

    async def _count_by(
        self,
        column: ColumnElement[str],
        scopes: Sequence[MemoryScope],
        state: MemoryState | None = None,
    ) -> Mapping[str, int]:
        query = (
            select(column, func.count())
            .where(_M.scope.in_([str(scope) for scope in scopes]))
            .group_by(column)
            .order_by(column)
        )
        if state is not None:
            query = query.where(_M.state == state.value)
        return {row[0]: row[1] for row in await self._db.fetch_all(query)}


_U = memory_uses.c
_S = schema.sessions.c

MAX_UNUSED_SHOWS = 3
"""An entry shown this often in a row without being used is suppressed for a while."""
_SUPPRESSION_TIME = timedelta(minutes=30)
_STREAK_WINDOW = timedelta(hours=24)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """An entry shown to a model in one `block` of the context of one session turn."""

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
class AnswerTurn:
    """An answer by one `backend`, outside tasks."""

    session: str
    number: int
    backend: str
    at: datetime


class MemoryUseRepo:
    """Counting does not change an entry's revision, so it never conflicts with an edit."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(self, tx: Transaction, uses: Sequence[MemoryUse]) -> None:
        rows = [_use_values(use) for use in uses]
        if rows:
            await tx.execute(insert_or_ignore(self._db.dialect, memory_uses), rows)

    async def blocks_shown_since(self, session: str, since: int) -> Mapping[EntryId, str]:
        """The block of each entry shown in this session from turn `since` on."""
        query = select(_U.entry, _U.block).where(_U.session_id == session, _U.turn >= since)
        return {EntryId(row.entry): row.block for row in await self._db.fetch_all(query)}

    async def find_last_answer(self, chat: ChatId) -> AnswerTurn | None:
        """The latest answer in this chat outside tasks, whether it was shown entries or not."""
        newest = (
            select(_S.id, _S.turns, _S.backend, _S.last_used_at)
            .where(_S.key == f"chat:{chat}", _S.turns > 0)
            .order_by(_S.last_used_at.desc(), _S.started_at.desc(), _S.id.desc())
            .limit(1)
        )
        row = await self._db.fetch_one(newest)
        if row is None:
            return None
        return AnswerTurn(
            session=row.id, number=row.turns, backend=row.backend, at=row.last_used_at
        )

    async def list_by_turn(
        self, chat: ChatId, session: str, turn: int, *, tx: Transaction | None = None
    ) -> Sequence[MemoryUse]:
        """Entries shown for one answer in this chat outside tasks."""
        where = and_(
            _U.session_id == session, _U.turn == turn, _U.chat_id == chat, _U.task_id.is_(None)
        )
        async with self._db.read_once(tx) as view:
            return await _select_uses(view, where)

    async def list_by_task(
        self, task: TaskId, *, tx: Transaction | None = None
    ) -> Sequence[MemoryUse]:
        """Entries shown for all answers of a task, oldest first."""
        async with self._db.read_once(tx) as view:
            return await _select_uses(view, _U.task_id == task)

    async def confirm(
        self, tx: Transaction, session: str, turn: int, entries: Collection[EntryId], now: datetime
    ) -> frozenset[EntryId]:
        """Mark entries as used in a turn; returns those not confirmed before."""
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

    async def record_shown(
        self, tx: Transaction, entries: Collection[EntryId], now: datetime
    ) -> None:
        """Count entries as shown without being asked for. One shown repeatedly within a day without
        being used is suppressed for a while."""
        unused = or_(_M.last_used_at.is_(None), _M.last_used_at < _M.last_shown_at)
        row = and_(_M.last_shown_at.is_not(None), _M.last_shown_at > now - _STREAK_WINDOW)
        bad = case((and_(row, unused), _M.bad_recalls + 1), else_=0)
        rested = literal(now + _SUPPRESSION_TIME, _M.suppressed_until.type)
        await tx.execute(
            update(memories)
            .where(_M.id.in_(list(entries)))
            .values(
                shown=_M.shown + 1,
                last_shown_at=now,
                bad_recalls=bad,
                suppressed_until=case((bad >= MAX_UNUSED_SHOWS, rested), else_=_M.suppressed_until),
            )
        )

    async def record_used(
        self, tx: Transaction, entry: MemoryEntry, strength: MemoryStrength, now: datetime
    ) -> None:
        """Count a use and store the entry's new strength."""
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


async def _select_uses(view: Transaction, where: ColumnElement[bool]) -> Sequence[MemoryUse]:
    query = select(memory_uses).where(where).order_by(_U.id)
    return [_use(row) for row in (await view.execute(query)).all()]


def _use_values(use: MemoryUse) -> dict[str, Any]:
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


def _use(row: Row[Any]) -> MemoryUse:
    return MemoryUse(
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


_BATCH_SIZE = 500


class MemoryUsePruner:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def run(self, *, before: datetime, answers: int) -> int:
        """Delete old records in batches and return how many.

        Each chat retains its last `answers` answers that are no older than `before`, and always its
        very last. Tasks retain everything no older than `before`.
        """
        gone = await self._list_old(before, answers)
        for at in range(0, len(gone), _BATCH_SIZE):
            some = gone[at : at + _BATCH_SIZE]
            async with self._db.write() as tx:
                await tx.execute(delete(memory_uses).where(_U.id.in_(some)))
        return len(gone)

    async def _list_old(self, before: datetime, answers: int) -> list[int]:
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


class DecayRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def list_decaying_facts(
        self,
        *,
        after: int = 0,
        limit: int = 500,
        not_reinforced_since: datetime | None = None,
        states: Sequence[MemoryState] = (MemoryState.ACTIVE, MemoryState.ARCHIVED),
    ) -> Sequence[MemoryEntry]:
        """Automatically extracted facts with numbers above `after`, by number."""
        touched = func.coalesce(_M.reinforced_at, _M.created_at)
        query = (
            select(memories)
            .where(
                _M.number > after,
                _M.kind == MemoryKind.FACT.value,
                _M.origin != MemoryOrigin.MANUAL.value,
                _M.pinned.is_(False),
                _M.state.in_([state.value for state in states]),
                *([touched < not_reinforced_since] if not_reinforced_since else []),
            )
            .order_by(_M.number)
            .limit(limit)
        )
        return [entry_from_row(row) for row in await self._db.fetch_all(query)]

    async def set_tier(self, tx: Transaction, numbers: Collection[int], tier: MemoryTier) -> None:
        await tx.execute(
            update(memories).where(_M.number.in_(list(numbers))).values(tier=tier.value)
        )
