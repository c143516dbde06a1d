"""Stores model sessions and their append-only transcripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Select, bindparam, case, func, insert, select, update

from storage import schema
from storage.db import Database, Transaction, record_from, records_from, row_from
from storage.dialect import PreparedWrite
from storage.ids import MAX_CANDIDATES, parse_id_prefix, single_match
from storage.memory.withheld_turns import erase_ended_conversation
from storage.records.people import ChatId
from storage.records.workers import ModelSession, SessionInfo, TranscriptRow

_S = schema.sessions.c
_M = schema.messages.c
_MAX_CACHED_HISTORIES = 4
_SESSIONS = select(schema.sessions, _S.closed_at.is_(None).label("is_open"))


def _count_messages(session_id: Any) -> Any:
    return (
        select(func.coalesce(func.max(_M.seq), 0))
        .where(_M.session_id == session_id)
        .scalar_subquery()
    )


_NEXT_MESSAGE = select(
    bindparam("which", type_=_M.session_id.type),
    func.coalesce(func.max(_M.seq), 0) + 1,
    bindparam("message", type_=_M.content.type),
    bindparam("now", type_=_M.at.type),
).where(_M.session_id == bindparam("which"))
_APPEND_MESSAGE = PreparedWrite(
    lambda _: insert(schema.messages).from_select(
        ["session_id", "seq", "content", "at"], _NEXT_MESSAGE
    )
)
_END_TURN = PreparedWrite(
    lambda _: (
        update(schema.sessions)
        .where(_S.id == bindparam("which"))
        .values(
            turns=_S.turns + 1,
            tokens=bindparam("size"),
            last_used_at=bindparam("now"),
            open_turn="",
        )
    )
)
_OPEN_TURN = PreparedWrite(
    lambda _: (
        update(schema.sessions)
        .where(_S.id == bindparam("which"))
        .values(
            tokens=bindparam("size"),
            last_used_at=bindparam("now"),
            open_turn=bindparam("turn"),
            open_turn_heard=bindparam("heard"),
            # Values of an update are those before it: a turn that is open keeps its start.
            open_turn_start=case(
                (_S.open_turn == bindparam("turn"), _S.open_turn_start),
                else_=_count_messages(bindparam("which")),
            ),
        )
    )
)
_MESSAGES_AFTER = (
    select(_M.content)
    .where(_M.session_id == bindparam("which"), _M.seq > bindparam("known"))
    .order_by(_M.seq)
)


def chat_session_key(chat: ChatId) -> str:
    """The key of a chat's conversation."""
    return f"chat:{chat}"


class SessionRepo:
    def __init__(self, db: Database) -> None:
        self._db = db
        # By session: the number of messages before the cached ones, and these.
        self._cached_histories: dict[str, tuple[int, tuple[Any, ...]]] = {}

    async def get(self, session_id: str) -> ModelSession | None:
        row = await self._db.fetch_one(_SESSIONS.where(_S.id == session_id))
        return record_from(ModelSession, row)

    async def find_open(self, key: str, *, tx: Transaction | None = None) -> ModelSession | None:
        """The key's open session, if any."""
        query = (
            _SESSIONS.where(_S.key == key, _S.closed_at.is_(None))
            .order_by(_S.started_at.desc(), _S.id.desc())
            .limit(1)
        )
        return record_from(ModelSession, await self._db.fetch_one(query, tx=tx))

    async def start(
        self,
        tx: Transaction,
        *,
        id: str,
        key: str,
        backend: str,
        model: str,
        now: datetime,
        persona: str = "",
    ) -> ModelSession:
        """Start a session for this key and close the previous one."""
        await self.close(tx, key, now=now)
        session = ModelSession(
            id=id,
            key=key,
            backend=backend,
            model=model,
            turns=0,
            tokens=0,
            started_at=now,
            last_used_at=now,
            persona=persona,
        )
        values = row_from(session)
        del values["is_open"]
        await tx.execute(insert(schema.sessions).values(values))
        return session

    async def set_external_id(self, tx: Transaction, session_id: str, external_id: str) -> None:
        """Save a coding CLI's id for the session, so that a later process can resume it."""
        await tx.execute(
            update(schema.sessions).where(_S.id == session_id).values(external_id=external_id)
        )

    async def move(
        self, tx: Transaction, session: ModelSession, *, backend: str, model: str
    ) -> ModelSession:
        """Continue the session on another backend that can read its transcript."""
        if session.backend == backend:
            return session
        moved = {"backend": backend, "model": model}
        await tx.execute(update(schema.sessions).where(_S.id == session.id).values(moved))
        return replace(session, backend=backend, model=model)

    async def close(self, tx: Transaction, key: str, *, now: datetime) -> bool:
        """Close the open session. False if there was none."""
        open_ones = (_S.key == key, _S.closed_at.is_(None))
        closed = await tx.execute(update(schema.sessions).where(*open_ones).values(closed_at=now))
        if closed.rowcount:
            await erase_ended_conversation(tx, key, now=now)
        return closed.rowcount > 0

    async def append_messages(
        self,
        tx: Transaction,
        session_id: str,
        messages: Sequence[Any],
        *,
        tokens: int,
        now: datetime,
    ) -> None:
        """Append one turn's messages, or the rest of its open turn, and end it."""
        await self._append(tx, session_id, messages, now=now)
        await _END_TURN.send(tx, {"which": session_id, "size": tokens, "now": now})

    async def append_open_turn(
        self,
        tx: Transaction,
        session_id: str,
        messages: Sequence[Any],
        *,
        turn: str,
        heard: int,
        tokens: int,
        now: datetime,
    ) -> None:
        """Append a part of a turn: it stays open under the key `turn`."""
        values = {
            "which": session_id,
            "turn": turn,
            "heard": heard,
            "size": tokens,
            "now": now,
        }
        await _OPEN_TURN.send(tx, values)
        await self._append(tx, session_id, messages, now=now)

    async def abandon_open_turn(
        self, tx: Transaction, session_id: str, messages: Sequence[Any], *, now: datetime
    ) -> None:
        """Append the last messages of a turn that will not be continued."""
        await self._append(tx, session_id, messages, now=now)
        await tx.execute(update(schema.sessions).where(_S.id == session_id).values(open_turn=""))

    async def _append(
        self, tx: Transaction, session_id: str, messages: Sequence[Any], *, now: datetime
    ) -> None:
        for message in messages:
            await _APPEND_MESSAGE.send(tx, {"which": session_id, "message": message, "now": now})

    async def set_context_size(self, tx: Transaction, session: ModelSession, tokens: int) -> None:
        """Update the context size, unless the session was used since it was read."""
        unused = (_S.id == session.id, _S.last_used_at == session.last_used_at)
        await tx.execute(update(schema.sessions).where(*unused).values(tokens=tokens))

    async def find_last_message(self, tx: Transaction, session_id: str) -> Any:
        """The session's last message; None if it has none."""
        query = select(_M.content).where(_M.session_id == session_id)
        return await self._db.fetch_value(query.order_by(_M.seq.desc()).limit(1), tx=tx)

    async def list_messages(self, session_id: str, *, after: int = 0) -> Sequence[Any]:
        """All messages, or those after the first `after`. Recent sessions are cached, since
        messages never change."""
        gone, known = self._cached_histories.pop(session_id, (after, ()))
        if not gone <= after <= gone + len(known):
            gone, known = after, ()
        async with self._db.read_once() as connection:
            there = gone + len(known)
            new = await connection.scalars(_MESSAGES_AFTER, {"which": session_id, "known": there})
            history = (*known[after - gone :], *new.all())
        self._cached_histories[session_id] = (after, history)
        if len(self._cached_histories) > _MAX_CACHED_HISTORIES:
            del self._cached_histories[next(iter(self._cached_histories))]
        return history


_MESSAGE_COUNT = select(func.count()).where(_M.session_id == _S.id).scalar_subquery()
_SESSION_INFOS = _SESSIONS.add_columns(_MESSAGE_COUNT.label("message_count"))


async def is_turn_open(tx: Transaction, turn: str) -> bool:
    """Return whether an open session holds a part of the turn with this key."""
    query = select(_S.id).where(_S.open_turn == turn, _S.closed_at.is_(None)).limit(1)
    return (await tx.execute(query)).first() is not None


class TranscriptRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def newest(self, limit: int) -> Sequence[SessionInfo]:
        """The sessions used last, newest first."""
        return await self._fetch(
            _SESSION_INFOS.order_by(_S.last_used_at.desc(), _S.id).limit(limit)
        )

    async def find(self, prefix: str) -> SessionInfo:
        """Find by id or prefix. Raises NotFound and AmbiguousId."""
        wanted = parse_id_prefix("session", prefix)
        query = _SESSION_INFOS.where(_S.id.startswith(wanted, autoescape=True))
        found = await self._fetch(query.order_by(_S.id).limit(MAX_CANDIDATES + 1))
        return single_match(found, wanted, "session", prefix)

    async def page(self, session_id: str, *, after: int, limit: int) -> Sequence[TranscriptRow]:
        """Rows with numbers above `after`, in order."""
        query = (
            select(schema.messages)
            .where(_M.session_id == session_id, _M.seq > after)
            .order_by(_M.seq)
            .limit(limit)
        )
        return records_from(TranscriptRow, await self._db.fetch_all(query))

    async def _fetch(self, query: Select[Any]) -> Sequence[SessionInfo]:
        return records_from(SessionInfo, await self._db.fetch_all(query))
