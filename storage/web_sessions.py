"""Stores signed-in browsers of the web chat."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, bindparam, delete, insert, or_, select, update

from storage.db import Database
from storage.people import LOCAL_WEB_OWNER
from storage.records.people import WebSession
from storage.rows import record_from, records_from, row_from
from storage.schema import identities, web_sessions

MAX_SESSIONS = 50
"""The one that was seen longest ago makes room for a new one."""

_S = web_sessions.c

_LOCAL_OWNER = (
    select(identities.c.person_id)
    .where(
        identities.c.channel == LOCAL_WEB_OWNER[0].value,
        identities.c.external_id == LOCAL_WEB_OWNER[1],
    )
    .scalar_subquery()
)

_LIVE = select(web_sessions).where(_S.expires_at > bindparam("now"))

_IS_SAME = or_(_S.cookie_hash == bindparam("which"), _S.id == bindparam("which"))

_DROP_USELESS = delete(web_sessions).where(
    or_(_S.expires_at <= bindparam("now"), _S.cookie_hash == bindparam("replaced"))
)

_NEWEST = select(_S.id).order_by(_S.seen_at.desc(), _S.id).limit(MAX_SESSIONS - 1)


class WebSessionRepo:
    """`cookie_hash` identifies a cookie without containing it."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(
        self, session: WebSession, *, cookie_hash: str, token_mark: str, replaced: str
    ) -> Sequence[str]:
        """Add a session in place of the one with the cookie hash `replaced`, if there is one. The
        ids of all that had to make room are returned."""
        secret = {"cookie_hash": cookie_hash, "token_mark": token_mark}
        async with self._db.write() as tx:
            ended = [
                *await tx.scalars(
                    _DROP_USELESS.returning(_S.id),
                    {"now": session.created_at, "replaced": replaced},
                ),
                *await tx.scalars(
                    delete(web_sessions).where(_S.id.not_in(_NEWEST)).returning(_S.id)
                ),
            ]
            values = {**row_from(session), **secret, "person_id": _LOCAL_OWNER}
            await tx.execute(insert(web_sessions).values(values))
        return ended

    async def find(self, which: str, *, now: datetime) -> WebSession | None:
        """The session with this id or cookie hash, None if it has ended."""
        row = await self._db.fetch_one(_LIVE.where(_IS_SAME), {"which": which, "now": now})
        return record_from(WebSession, row)

    async def list(self, *, now: datetime) -> Sequence[WebSession]:
        """All that have not ended, the one used last first."""
        rows = await self._db.fetch_all(_LIVE.order_by(_S.seen_at.desc(), _S.id), {"now": now})
        return records_from(WebSession, rows)

    async def touch(self, session_id: str, *, now: datetime) -> None:
        async with self._db.write() as tx:
            await tx.execute(update(web_sessions).where(_S.id == session_id).values(seen_at=now))

    async def end(self, session_id: str) -> Sequence[str]:
        """The ids of the sessions that this call has ended: one or none."""
        return await self._delete(_S.id == session_id)

    async def end_others(self, session_id: str) -> Sequence[str]:
        """End all but this one."""
        return await self._delete(_S.id != session_id)

    async def end_of_other_tokens(self, token_mark: str) -> Sequence[str]:
        return await self._delete(_S.token_mark != token_mark)

    async def _delete(self, which: ColumnElement[bool]) -> Sequence[str]:
        async with self._db.write() as tx:
            return [*await tx.scalars(delete(web_sessions).where(which).returning(_S.id))]
