"""The words of what was said in sessions: a view of their messages, made when it is wanted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, desc, func, select

from storage import schema
from storage.db import Database, Transaction
from storage.dialect import insert_or_ignore
from storage.memory.archive.hearing import (
    Hearing,
    Spell,
    cut_at,
    has_all,
    how_many,
    stretches_of,
)
from storage.memory.tables import message_texts
from storage.memory.tombstones import Tombstones, Unsaid
from storage.records.memory.archive import Line, Part, Size, Speaker

_S = schema.sessions.c
_M = schema.messages.c
_T = message_texts.c
_BARE = re.compile("[:/]")
"""What ends a task's id in the key of one of its sessions."""

_LAST = (
    select(func.coalesce(func.max(_T.message), 0)).where(_T.session_id == _S.id).scalar_subquery()
)
_SAID = select(func.coalesce(func.max(_M.seq), 0)).where(_M.session_id == _S.id).scalar_subquery()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A message in its backend's own form, mostly one whose words are not known yet."""

    message: int
    content: Any
    at: datetime


class ArchiveRepo:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._tombstones = Tombstones(db)

    async def behind(self, hearing: Hearing | None = None) -> Sequence[str]:
        """Sessions with messages whose words are not known yet; of one listener, or all."""
        query = select(_S.id).where(_SAID > _LAST)
        if hearing is not None:
            query = query.where(hearing.clause)
        async with self._db.read() as view:
            return list((await view.scalars(query.order_by(_S.last_used_at.desc()))).all())

    async def unread(self, session_id: str, limit: int) -> Sequence[Unread]:
        """Its first messages whose words are not known yet, in order."""
        known = select(func.coalesce(func.max(_T.message), 0)).where(_T.session_id == session_id)
        query = (
            select(_M.seq, _M.content, _M.at)
            .where(_M.session_id == session_id, _M.seq > known.scalar_subquery())
            .order_by(_M.seq)
            .limit(limit)
        )
        async with self._db.read() as view:
            rows = (await view.execute(query)).all()
        return [Unread(message=row.seq, content=row.content, at=row.at) for row in rows]

    async def message(self, session_id: str, number: int) -> Unread | None:
        """As it is stored; None where there is none."""
        query = select(_M.seq, _M.content, _M.at)
        query = query.where(_M.session_id == session_id, _M.seq == number)
        async with self._db.read() as view:
            row = (await view.execute(query)).one_or_none()
        return None if row is None else Unread(message=row.seq, content=row.content, at=row.at)

    async def put(self, tx: Transaction, session_id: str, parts: Sequence[Part]) -> None:
        """The same again changes nothing. Every message needs at least one part."""
        rows = [
            {
                "session_id": session_id,
                "message": part.message,
                "ordinal": part.ordinal,
                "role": part.role.value,
                "text": part.text,
                "tokens": part.tokens,
                "at": part.at,
            }
            for part in parts
        ]
        if rows:
            await tx.execute(insert_or_ignore(self._db.dialect, message_texts), rows)

    async def sizes(self, session_id: str, *, after: int = 0) -> Sequence[Size]:
        """All its messages with higher numbers, in order."""
        query = (
            select(_T.message, _T.role, _T.tokens)
            .where(_T.session_id == session_id, _T.message > after)
            .order_by(_T.message, _T.ordinal)
        )
        found: dict[int, tuple[set[Speaker], int]] = {}
        async with self._db.read() as view:
            for row in await view.execute(query):
                roles, tokens = found.get(row.message, (set(), 0))
                found[row.message] = ({*roles, Speaker(row.role)}, tokens + row.tokens)
        return [
            Size(message=n, roles=frozenset(roles), tokens=tokens)
            for n, (roles, tokens) in found.items()
        ]

    async def parts(self, session_id: str, first: int, last: int) -> Sequence[Part]:
        """The words of these messages, in order."""
        query = (
            select(message_texts)
            .where(_T.session_id == session_id, _T.message.between(first, last))
            .order_by(_T.message, _T.ordinal)
        )
        async with self._db.read() as view:
            return [_part(row) for row in await view.execute(query)]

    async def last_lines(
        self, session_id: str, roles: Sequence[Speaker], limit: int
    ) -> Sequence[Part]:
        """The last of its parts that have words, in order."""
        query = (
            select(message_texts)
            .where(_T.session_id == session_id, _of(roles), _T.text != "")
            .order_by(_T.message.desc(), _T.ordinal.desc())
            .limit(limit)
        )
        async with self._db.read() as view:
            rows = (await view.execute(query)).all()
        return [_part(row) for row in reversed(rows)]

    async def search(
        self,
        hearing: Hearing,
        words: Sequence[str],
        spell: Spell,
        limit: int,
        *,
        roles: Sequence[Speaker] = tuple(Speaker),
    ) -> Sequence[Line]:
        """Parts with all of these words, the newest first."""
        query = _lines(hearing, spell, roles).where(*has_all(_T.text, words)).limit(limit)
        async with self._db.read() as view:
            return [_line(row) for row in await view.execute(query)]

    async def search_most(
        self,
        hearing: Hearing,
        words: Sequence[str],
        spell: Spell,
        limit: int,
        *,
        least: int,
        roles: Sequence[Speaker] = tuple(Speaker),
    ) -> Sequence[tuple[int, Line]]:
        """Parts with at least that many of these words, and how many: those with most first."""
        count = how_many(_T.text, words)
        query = _lines(hearing, spell, roles).add_columns(count.label("hits"))
        newest = (_T.at.desc(), _T.session_id, _T.message.desc())
        # By its name: it is not counted once more for the order.
        query = query.where(count >= least).order_by(None).order_by(desc("hits"), *newest)
        async with self._db.read() as view:
            rows = (await view.execute(query.limit(limit))).all()
        return [(row.hits, _line(row)) for row in rows]

    async def stretches(self, hearing: Hearing, spell: Spell, size: int) -> Sequence[Spell]:
        """All of that time in stretches of about so many parts, the newest first: by their times,
        so that what is said meanwhile moves none."""
        async with self._db.read() as view:
            cuts = (await view.scalars(stretches_of(_T.at, hearing, spell, size))).all()
        return cut_at(spell, cuts)

    async def may_hear(self, hearing: Hearing, session_id: str) -> bool:
        query = select(_S.id).where(_S.id == session_id, hearing.clause)
        async with self._db.read() as view:
            return await view.scalar(query) is not None

    async def before(self, session_id: str) -> str:
        """The session of the same key that came just before it; empty for none."""
        this = select(_S.key, _S.started_at).where(_S.id == session_id).subquery()
        query = (
            select(_S.id)
            .join(this, _S.key == this.c.key)
            .where(_S.id != session_id, _S.started_at <= this.c.started_at)
            .order_by(_S.started_at.desc(), _S.id.desc())
            .limit(1)
        )
        async with self._db.read() as view:
            return await view.scalar(query) or ""

    async def unsaid(self, session_id: str) -> Unsaid:
        """What somebody has forgotten of the conversation, or of the task, that it is of."""
        async with self._db.read() as view:
            key = await view.scalar(select(_S.key).where(_S.id == session_id)) or ""
        kind, _, name = key.partition(":")
        return await self._tombstones.unsaid(f"{kind}:{_BARE.split(name)[0]}")


def _lines(hearing: Hearing, spell: Spell, roles: Sequence[Speaker]) -> Select[Any]:
    return (
        select(message_texts, _S.key)
        .join(schema.sessions, _S.id == _T.session_id)
        .where(hearing.clause, _of(roles), _T.text != "", *spell.clauses(_T.at))
        .order_by(_T.at.desc(), _T.session_id, _T.message.desc(), _T.ordinal.desc())
    )


def _of(roles: Sequence[Speaker]) -> ColumnElement[bool]:
    return _T.role.in_([role.value for role in roles])


def _part(row: Row[Any]) -> Part:
    return Part(
        message=row.message,
        ordinal=row.ordinal,
        role=Speaker(row.role),
        text=row.text,
        tokens=row.tokens,
        at=row.at,
    )


def _line(row: Row[Any]) -> Line:
    return Line(
        session_id=row.session_id,
        key=row.key,
        message=row.message,
        role=Speaker(row.role),
        text=row.text,
        at=row.at,
    )
