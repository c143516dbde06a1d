"""Strangers who ask to be let in, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, bindparam, insert, select, update

from storage.approvals import NewApproval, add_approval, approval_about
from storage.db import Database, Transaction
from storage.errors import NotFound, TooManyTries
from storage.ids import Ids
from storage.mail.chats import Chats
from storage.marks import Marks
from storage.people import People
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.people import Channel, ChatId, Pairing, PairingState, Role
from storage.schema import chats as chat_table
from storage.schema import pairings

LIFETIME = timedelta(hours=1)
WRONG_CODES = 5
WRONG_CODES_WITHIN = timedelta(hours=1)

_MISSES = "pairing.wrong_codes"

_OPEN = (
    select(pairings)
    .where(
        pairings.c.channel == bindparam("channel"),
        pairings.c.external_id == bindparam("external_id"),
        pairings.c.state != PairingState.APPROVED.value,
        pairings.c.expires_at > bindparam("now"),
    )
    .order_by(pairings.c.created_at.desc())
    .limit(1)
)

_BY_CODE = (
    select(pairings, chat_table.c.external_id.label("chat_external_id"))
    .join(chat_table, chat_table.c.id == pairings.c.chat_id)
    .where(pairings.c.code == bindparam("code"))
)

_DECIDED = (
    update(pairings)
    .where(pairings.c.code == bindparam("which"))
    .values(state=bindparam("verdict"), decided_by=bindparam("who"))
)


class Pairings:
    """Shaped as handlers.ports.Pairings; `settle` is what approvals of kind PAIRING lead to."""

    def __init__(
        self,
        db: Database,
        ids: Ids,
        *,
        people: People,
        chats: Chats,
        marks: Marks,
        now: Callable[[], datetime],
    ) -> None:
        self._db = db
        self._now = now
        self._ids = ids
        self._people = people
        self._chats = chats
        self._marks = marks

    async def ask(
        self, channel: Channel, external_id: str, name: str, chat_id: ChatId, *, now: datetime
    ) -> tuple[Pairing, bool]:
        """The stranger's pending request, made if there is none; True if it is new. One who was
        refused gets the refused request, and may ask again when its hour is over."""
        async with self._db.write() as tx:
            facts = {"channel": channel.value, "external_id": external_id, "now": now}
            row = (await tx.execute(_OPEN, facts)).one_or_none()
            if row is not None:
                return _pairing(row), False
            pairing = Pairing(
                code=self._ids.code(),
                channel=channel,
                external_id=external_id,
                name=name,
                chat_id=chat_id,
                state=PairingState.PENDING,
                created_at=now,
                expires_at=now + LIFETIME,
            )
            await self._store(tx, pairing)
        return pairing, True

    async def find(self, code: str, *, now: datetime) -> Pairing:
        """Case, blanks and dashes do not matter. NotFound if unknown, decided or expired;
        TooManyTries, a NotFound, after five wrong codes within an hour, whoever typed them."""
        wanted = "".join(char for char in code.upper() if char.isalnum())
        async with self._db.read() as view:
            misses = _recent(await self._marks.read(view, _MISSES), now)
            row = (await view.execute(_BY_CODE, {"code": wanted})).one_or_none()
        if len(misses) >= WRONG_CODES:
            raise TooManyTries("pairing", code)
        if row is None:
            await self._missed(now)
        if row is None or row.state != PairingState.PENDING.value or row.expires_at <= now:
            raise NotFound("pairing", code)
        return _pairing(row)

    async def approval(self, pairing: Pairing) -> Approval:
        """The decision that was asked for with this request."""
        async with self._db.read() as view:
            return await approval_about(view, ApprovalKind.PAIRING, pairing.code, now=self._now())

    async def settle(self, tx: Transaction, approval: Approval) -> None:
        """Let the stranger in, or not, as `approval` says."""
        row = (await tx.execute(_BY_CODE, {"code": approval.subject})).one_or_none()
        if row is None or approval.state is ApprovalState.EXPIRED:
            return
        approved = approval.state is ApprovalState.APPROVED
        verdict = PairingState.APPROVED if approved else PairingState.REFUSED
        facts = {"which": row.code, "verdict": verdict.value, "who": approval.decided_by}
        await tx.execute(_DECIDED, facts)
        if approved:
            await self._admit(tx, row, approval.decided_at or row.created_at)

    async def _admit(self, tx: Transaction, row: Row[Any], now: datetime) -> None:
        channel = Channel(row.channel)
        person = await self._people.admit(
            tx, channel, row.external_id, name=row.name, role=Role.MEMBER, now=now
        )
        await self._chats.link(tx, channel, row.chat_external_id, person.id)

    async def _store(self, tx: Transaction, pairing: Pairing) -> None:
        await tx.execute(
            insert(pairings).values(
                code=pairing.code,
                channel=pairing.channel.value,
                external_id=pairing.external_id,
                name=pairing.name,
                chat_id=pairing.chat_id,
                state=pairing.state.value,
                created_at=pairing.created_at,
                expires_at=pairing.expires_at,
            )
        )
        new = NewApproval(
            kind=ApprovalKind.PAIRING,
            chat_id=pairing.chat_id,
            title=pairing.name or pairing.external_id,
            subject=pairing.code,
            expires_at=pairing.expires_at,
        )
        await add_approval(tx, new, ids=self._ids, now=pairing.created_at)

    async def _missed(self, now: datetime) -> None:
        async with self._db.write() as tx:
            misses = _recent(await self._marks.read(tx, _MISSES), now)
            await self._marks.write(tx, _MISSES, [*misses, now.isoformat()][-WRONG_CODES:])


def _recent(misses: Any, now: datetime) -> list[str]:
    since = now - WRONG_CODES_WITHIN
    return [at for at in misses or () if datetime.fromisoformat(at) > since]


def _pairing(row: Row[Any]) -> Pairing:
    return Pairing(
        code=row.code,
        channel=Channel(row.channel),
        external_id=row.external_id,
        name=row.name,
        chat_id=ChatId(row.chat_id),
        state=PairingState(row.state),
        created_at=row.created_at,
        expires_at=row.expires_at,
    )
