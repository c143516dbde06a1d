"""What was said in chats and is no episode yet, and what has happened there meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, func, select, union

from storage import schema
from storage.db import Database
from storage.memory.rows import entry_of
from storage.memory.tables import memories
from storage.records.memory.entries import Entry, EntryState, MemoryKind, Origin, Scope
from storage.records.people import ChatId

_M = memories.c


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """What is said in one chat, for one scope; `last` is the number of its latest cell."""

    scope: Scope
    thread: str
    chat: ChatId
    last: int


class TalkRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def since(self, number: int) -> Sequence[Talk]:
        """Chats in which something was said after this cell."""
        query = (
            select(_M.scope, _M.thread, _M.chat_id, func.max(_M.number).label("last"))
            .where(_M.number > number, _is_said(), _M.chat_id.is_not(None))
            .group_by(_M.scope, _M.thread, _M.chat_id)
        )
        async with self._db.read() as view:
            rows = (await view.execute(query)).all()
        return [
            Talk(scope=Scope.of(row.scope), thread=row.thread, chat=row.chat_id, last=row.last)
            for row in rows
        ]

    async def cells(self, talk: Talk, after: int, limit: int) -> Sequence[Entry]:
        """In the order in which they were said."""
        query = (
            select(memories)
            .where(
                _M.number > after,
                _is_said(),
                _M.scope == str(talk.scope),
                _M.thread == talk.thread,
            )
            .order_by(_M.number)
            .limit(limit)
        )
        async with self._db.read() as view:
            return [entry_of(row) for row in (await view.execute(query)).all()]

    async def turns(self, chat: ChatId, since: datetime) -> Sequence[datetime]:
        """When something else began there: a conversation anew, another backend, a task."""
        sessions, tasks = schema.sessions.c, schema.tasks.c
        mine = sessions.key == f"chat:{chat}"
        query = union(
            select(sessions.started_at).where(mine, sessions.started_at > since),
            select(sessions.closed_at).where(mine, sessions.closed_at > since),
            select(tasks.created_at).where(tasks.chat_id == chat, tasks.created_at > since),
        )
        async with self._db.read() as view:
            return sorted((await view.execute(query)).scalars())


def _is_said() -> ColumnElement[bool]:
    return (
        (_M.kind == MemoryKind.CELL.value)
        & (_M.state == EntryState.ACTIVE.value)
        & (_M.origin == Origin.CHAT.value)
    )
