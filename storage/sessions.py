"""Model sessions and their transcripts: append-only, one row a message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, bindparam, func, insert, select, update

from storage import schema
from storage.db import Database, Transaction
from storage.dialect import FixedWrite

_S = schema.sessions.c
_M = schema.messages.c
_MOST_READ = 4

_AT_THE_END = select(
    bindparam("which", type_=_M.session_id.type),
    func.coalesce(func.max(_M.seq), 0) + 1,
    bindparam("message", type_=_M.content.type),
    bindparam("now", type_=_M.at.type),
).where(_M.session_id == bindparam("which"))
_SAY = FixedWrite(
    lambda _: insert(schema.messages).from_select(
        ["session_id", "seq", "content", "at"], _AT_THE_END
    )
)
_TURN = FixedWrite(
    lambda _: (
        update(schema.sessions)
        .where(_S.id == bindparam("which"))
        .values(turns=_S.turns + 1, tokens=bindparam("size"), last_used_at=bindparam("now"))
    )
)
_SAID = (
    select(_M.content)
    .where(_M.session_id == bindparam("which"), _M.seq > bindparam("known"))
    .order_by(_M.seq)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One conversation with a backend. `key` says whose it is (`chat:…`, `task:…`, `helper:…`);
    `tokens` is the size of the context at its last turn. `external_id` is what a coding CLI calls
    it, in the home of that `persona`."""

    id: str
    key: str
    backend: str
    model: str
    turns: int
    tokens: int
    started_at: datetime
    last_used_at: datetime
    external_id: str = ""
    persona: str = ""
    is_open: bool = True


class SessionRepo:
    def __init__(self, db: Database) -> None:
        self._db = db
        # Of each, how many messages come before those that are known.
        self._read: dict[str, tuple[int, tuple[Any, ...]]] = {}

    async def get(self, session_id: str) -> Session | None:
        query = select(schema.sessions).where(_S.id == session_id)
        async with self._db.read() as connection:
            row = (await connection.execute(query)).one_or_none()
        return None if row is None else _session(row)

    async def open(self, key: str, *, tx: Transaction | None = None) -> Session | None:
        """The session under way for this key, if any."""
        query = (
            select(schema.sessions)
            .where(_S.key == key, _S.closed_at.is_(None))
            .order_by(_S.started_at.desc(), _S.id.desc())
            .limit(1)
        )
        async with self._db.read(tx) as connection:
            row = (await connection.execute(query)).one_or_none()
        return None if row is None else _session(row)

    async def begin(
        self,
        tx: Transaction,
        *,
        id: str,
        key: str,
        backend: str,
        model: str,
        now: datetime,
        persona: str = "",
    ) -> Session:
        """Start a session for this key and close the one before."""
        await self.close(tx, key, now=now)
        session = Session(
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
        await tx.execute(
            insert(schema.sessions).values(
                id=id,
                key=key,
                backend=backend,
                model=model,
                started_at=now,
                last_used_at=now,
                persona=persona,
            )
        )
        return session

    async def name_outside(self, tx: Transaction, session_id: str, external_id: str) -> None:
        """Keep what a coding CLI calls this session, so that a later process goes on with it."""
        await tx.execute(
            update(schema.sessions).where(_S.id == session_id).values(external_id=external_id)
        )

    async def name_of(self, session_id: str) -> str:
        """What a coding CLI calls it by now; empty if none has begun it."""
        query = select(_S.external_id).where(_S.id == session_id)
        async with self._db.read() as connection:
            return await connection.scalar(query) or ""

    async def close(self, tx: Transaction, key: str, *, now: datetime) -> bool:
        """False if there was none."""
        open_ones = (_S.key == key, _S.closed_at.is_(None))
        closed = await tx.execute(update(schema.sessions).where(*open_ones).values(closed_at=now))
        return closed.rowcount > 0

    async def extend(
        self,
        tx: Transaction,
        session_id: str,
        messages: Sequence[Any],
        *,
        tokens: int,
        now: datetime,
    ) -> None:
        """Add one turn's messages at the end."""
        for message in messages:
            await _SAY.send(tx, {"which": session_id, "message": message, "now": now})
        await _TURN.send(tx, {"which": session_id, "size": tokens, "now": now})

    async def shorten(self, tx: Transaction, session: Session, tokens: int) -> None:
        """Its context is that long now, unless it was used since it was read."""
        unused = (_S.id == session.id, _S.last_used_at == session.last_used_at)
        await tx.execute(update(schema.sessions).where(*unused).values(tokens=tokens))

    async def history(self, session_id: str, *, after: int = 0) -> Sequence[Any]:
        """All its messages, or those after that many. Those of the sessions used last are read
        once: none ever changes."""
        gone, known = self._read.pop(session_id, (after, ()))
        if not gone <= after <= gone + len(known):
            gone, known = after, ()
        async with self._db.read() as connection:
            there = gone + len(known)
            new = await connection.scalars(_SAID, {"which": session_id, "known": there})
            history = (*known[after - gone :], *new.all())
        self._read[session_id] = (after, history)
        if len(self._read) > _MOST_READ:
            del self._read[next(iter(self._read))]
        return history


def _session(row: Row[Any]) -> Session:
    return Session(
        id=row.id,
        key=row.key,
        backend=row.backend,
        model=row.model,
        turns=row.turns,
        tokens=row.tokens,
        started_at=row.started_at,
        last_used_at=row.last_used_at,
        external_id=row.external_id,
        persona=row.persona,
        is_open=row.closed_at is None,
    )
