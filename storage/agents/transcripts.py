"""The transcripts of all sessions, to be read only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, Select, func, select

from storage import schema
from storage.db import Database
from storage.errors import AmbiguousId, NotFound
from storage.records.sessions import SessionFacts, Written

_S = schema.sessions.c
_M = schema.messages.c
_COUNT = select(func.count()).where(_M.session_id == _S.id).scalar_subquery()
_LONGEST_ID = 64
_MOST_CANDIDATES = 5


class TranscriptRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def newest(self, limit: int) -> Sequence[SessionFacts]:
        """Those used last first."""
        return await self._all(_facts().order_by(_S.last_used_at.desc(), _S.id).limit(limit))

    async def find(self, prefix: str) -> SessionFacts:
        """By id or its beginning. NotFound, AmbiguousId."""
        wanted = prefix.strip().lower()
        if not wanted.isalnum() or len(wanted) > _LONGEST_ID:
            raise NotFound("session", prefix)
        query = _facts().where(_S.id.startswith(wanted, autoescape=True))
        found = await self._all(query.order_by(_S.id).limit(_MOST_CANDIDATES + 1))
        exact = [each for each in found if each.id == wanted]
        if not found:
            raise NotFound("session", prefix)
        if len(found) > 1 and not exact:
            raise AmbiguousId(prefix, tuple(each.id for each in found[:_MOST_CANDIDATES]))
        return (exact or found)[0]

    async def page(self, session_id: str, *, after: int, limit: int) -> Sequence[Written]:
        """Rows with higher numbers than `after`, in order."""
        query = (
            select(_M.seq, _M.at, _M.content)
            .where(_M.session_id == session_id, _M.seq > after)
            .order_by(_M.seq)
            .limit(limit)
        )
        async with self._db.read() as connection:
            rows = (await connection.execute(query)).all()
        return [Written(seq=row.seq, at=row.at, content=row.content) for row in rows]

    async def _all(self, query: Select[Any]) -> list[SessionFacts]:
        async with self._db.read() as connection:
            return [_session(row) for row in await connection.execute(query)]


def _facts() -> Select[Any]:
    return select(schema.sessions, _COUNT.label("messages"))


def _session(row: Row[Any]) -> SessionFacts:
    return SessionFacts(
        id=row.id,
        key=row.key,
        backend=row.backend,
        model=row.model,
        persona=row.persona,
        turns=row.turns,
        messages=row.messages,
        started_at=row.started_at,
        last_used_at=row.last_used_at,
        open=row.closed_at is None,
    )
