"""Stores signed-in browsers, links that sign in once, and API tokens of people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, bindparam, delete, insert, or_, select, update

from storage.db import Database, Transaction, record_from, records_from, row_from
from storage.errors import NotFound
from storage.people import LOCAL_WEB_OWNER
from storage.records.people import (
    ApiToken,
    Person,
    PersonRole,
    WebKeyKind,
    WebLink,
    WebSession,
    WebVisitor,
)
from storage.schema import identities, people
from storage.web_schema import web_keys, web_sessions

MAX_SESSIONS = 50
"""The one that was seen longest ago makes room for a new one."""

_S, _K = web_sessions.c, web_keys.c

_LOCAL_OWNER = (
    select(identities.c.person_id)
    .where(
        identities.c.channel == LOCAL_WEB_OWNER[0].value,
        identities.c.external_id == LOCAL_WEB_OWNER[1],
    )
    .scalar_subquery()
)

# Whoever was removed has no account any more; this holds at once, whatever rows there still are.
_HAS_ACCESS = people.c.id.in_(select(identities.c.person_id))
_IS_OWNER = and_(_HAS_ACCESS, people.c.role == PersonRole.OWNER.value)

_PERSON = (
    *(column.label(f"by_{column.name}") for column in people.c),
    (people.c.id == _LOCAL_OWNER).label("is_local"),
)

_LIVE = (
    select(web_sessions, *_PERSON)
    .join(people, people.c.id == _S.person_id)
    .where(_S.expires_at > bindparam("now"), _IS_OWNER)
)

_IS_SAME = or_(_S.cookie_hash == bindparam("which"), _S.id == bindparam("which"))

_DROP_USELESS = delete(web_sessions).where(
    or_(_S.expires_at <= bindparam("now"), _S.cookie_hash == bindparam("replaced"))
)

_NEWEST = select(_S.id).order_by(_S.seen_at.desc(), _S.id).limit(MAX_SESSIONS - 1)

_TOKENS = (
    select(web_keys, *_PERSON)
    .join(people, people.c.id == _K.person_id)
    .where(_K.kind == WebKeyKind.TOKEN.value, _HAS_ACCESS)
)

# Members may have tokens, but no pages.
_LINKS = (
    select(web_keys)
    .join(people, people.c.id == _K.person_id)
    .where(
        _K.kind != WebKeyKind.TOKEN.value,
        _K.expires_at > bindparam("now"),
        or_(_IS_OWNER, and_(_HAS_ACCESS, _K.kind == WebKeyKind.NEW_TOKEN.value)),
    )
)

_DROP_LINKS = delete(web_keys).where(
    _K.kind != WebKeyKind.TOKEN.value,
    or_(
        _K.expires_at <= bindparam("now"),
        and_(_K.person_id == bindparam("who"), _K.kind == bindparam("same")),
    ),
)


class WebSessionRepo:
    """`cookie_hash` and `secret_hash` identify a secret without containing it."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(
        self,
        session: WebSession,
        *,
        cookie_hash: str,
        token_mark: str,
        replaced: str,
        link: str = "",
    ) -> Sequence[str]:
        """Add a session in place of the one with the cookie hash `replaced`, if there is one. The
        ids of all that had to make room are returned. An empty `person_id` is the local owner.
        `link` is used up; NotFound if it was already."""
        secret = {"cookie_hash": cookie_hash, "token_mark": token_mark}
        async with self._db.write() as tx:
            await _use_up(tx, link)
            ended = [
                *await tx.scalars(
                    _DROP_USELESS.returning(_S.id),
                    {"now": session.created_at, "replaced": replaced},
                ),
                *await tx.scalars(
                    delete(web_sessions).where(_S.id.not_in(_NEWEST)).returning(_S.id)
                ),
            ]
            values = {**row_from(session), **secret}
            values["person_id"] = session.person_id or _LOCAL_OWNER
            await tx.execute(insert(web_sessions).values(values))
        return ended

    async def find(
        self, which: str, *, now: datetime
    ) -> tuple[WebSession, WebVisitor] | tuple[None, None]:
        """The session with this id or cookie hash and whose it is. None if it has ended, or the
        person is not an owner any more."""
        row = await self._db.fetch_one(_LIVE.where(_IS_SAME), {"which": which, "now": now})
        if row is None:
            return None, None
        return record_from(WebSession, row), _visitor(row, session_id=row.id)

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

    async def get_local_visitor(self) -> WebVisitor:
        """The local owner, who always exists."""
        row = await self._db.fetch_one(select(*_PERSON).where(people.c.id == _LOCAL_OWNER))
        if row is None:
            raise RuntimeError("there is no local owner")
        return _visitor(row)

    async def add_link(self, link: WebLink, *, secret_hash: str) -> None:
        """Add a link in place of the person's earlier ones of this kind."""
        facts = {"now": link.created_at, "who": link.person_id, "same": link.kind.value}
        async with self._db.write() as tx:
            await tx.execute(_DROP_LINKS, facts)
            values = {**row_from(link), "kind": link.kind.value, "secret_hash": secret_hash}
            await tx.execute(insert(web_keys).values(values))

    async def find_link(self, secret_hash: str, *, now: datetime) -> WebLink | None:
        """None if it was used or has expired, or if the person may not use it any more."""
        facts = {"which": secret_hash, "now": now}
        which = _K.secret_hash == bindparam("which")
        return record_from(WebLink, await self._db.fetch_one(_LINKS.where(which), facts))

    async def add_token(self, token: ApiToken, *, secret_hash: str, link: str = "") -> None:
        """`link` is used up; NotFound if it was already."""
        async with self._db.write() as tx:
            await _use_up(tx, link)
            kind = {"kind": WebKeyKind.TOKEN.value, "secret_hash": secret_hash}
            await tx.execute(insert(web_keys).values({**row_from(token), **kind}))

    async def find_token(self, secret_hash: str) -> tuple[ApiToken, WebVisitor] | tuple[None, None]:
        """The token and whose it is; None if it was revoked, or its person was removed."""
        which = _K.secret_hash == bindparam("which")
        row = await self._db.fetch_one(_TOKENS.where(which), {"which": secret_hash})
        return (None, None) if row is None else (record_from(ApiToken, row), _visitor(row))

    async def touch_token(self, token_id: str, *, now: datetime) -> None:
        async with self._db.write() as tx:
            await tx.execute(update(web_keys).where(_K.id == token_id).values(seen_at=now))

    async def list_tokens(self) -> Sequence[ApiToken]:
        """Of all people, the newest first."""
        rows = await self._db.fetch_all(_TOKENS.order_by(_K.created_at.desc(), _K.id))
        return records_from(ApiToken, rows)

    async def revoke_token(self, token_id: str) -> bool:
        which = and_(_K.id == token_id, _K.kind == WebKeyKind.TOKEN.value)
        async with self._db.write() as tx:
            return bool([*await tx.scalars(delete(web_keys).where(which).returning(_K.id))])

    async def _delete(self, which: ColumnElement[bool]) -> Sequence[str]:
        async with self._db.write() as tx:
            return [*await tx.scalars(delete(web_sessions).where(which).returning(_S.id))]


async def _use_up(tx: Transaction, link: str) -> None:
    if link and not [*await tx.scalars(delete(web_keys).where(_K.id == link).returning(_K.id))]:
        raise NotFound("web_link", link)


def _visitor(row: Row[Any], *, session_id: str = "") -> WebVisitor:
    return WebVisitor(
        person=record_from(Person, row, "by_"), is_local=bool(row.is_local), session_id=session_id
    )
