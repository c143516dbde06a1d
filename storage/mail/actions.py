"""What buttons lead to: opaque tokens on the platform, actions in the store."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import Row, bindparam, delete, insert, select, update

from storage.db import Database, Transaction
from storage.ids import Ids
from storage.records.messages import ActionRow, InboxId
from storage.records.people import ChatId, PersonId
from storage.schema import actions, chats

LIFETIME = timedelta(days=30)
"""How long a button acts, unless its card is sent again."""

_FRESHNESS = timedelta(days=1)

_OF_CARD = (
    select(actions)
    .where(actions.c.card_key == bindparam("key"), ~actions.c.retired)
    .order_by(actions.c.token)
)

_BY_TOKEN = (
    select(actions, chats.c.channel, chats.c.external_id)
    .join(chats, chats.c.id == actions.c.chat_id)
    .where(actions.c.token == bindparam("token"))
)

_CHAT = select(chats.c.channel, chats.c.external_id).where(chats.c.id == bindparam("id"))

_RETIRE = update(actions).where(actions.c.token == bindparam("which")).values(retired=True)

_EXTEND = (
    update(actions)
    .where(actions.c.token == bindparam("which"))
    .values(expires_at=bindparam("until"))
)

_USE = (
    update(actions)
    .where(actions.c.token == bindparam("which"))
    .values(used_by=bindparam("who"), used_at=bindparam("at"), used_for=bindparam("press"))
)

_PRUNE = delete(actions).where(actions.c.expires_at < bindparam("before"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A button that a card shows. `action` is JSON and tells it from the card's others."""

    action: Mapping[str, Any]
    single_use: bool
    allowed: tuple[PersonId, ...] = ()


class Claim(StrEnum):
    """What became of a press. Only the first two may be acted on."""

    FRESH = "fresh"
    AGAIN = "again"
    UNKNOWN = "unknown"
    FOREIGN = "foreign"
    NOT_ALLOWED = "not_allowed"
    EXPIRED = "expired"
    RETIRED = "retired"
    USED = "used"


class Actions:
    def __init__(self, db: Database, ids: Ids) -> None:
        self._db = db
        self._ids = ids

    async def seal(
        self,
        tx: Transaction,
        wanted: Sequence[Wanted],
        *,
        card_key: str,
        chat_id: ChatId,
        now: datetime,
    ) -> tuple[str, ...]:
        """A token for each button of the card's new revision, in order.

        A button that was there before keeps its token, unless that was used up; buttons that
        are gone are retired.
        """
        rows = (await tx.execute(_OF_CARD, {"key": card_key})).all()
        room = Counter(_name(each) for each in wanted)
        spare = _spare(rows, room)
        fresh: list[tuple[str, Wanted]] = []
        for each in wanted:
            if len(spare[_name(each)]) < room[_name(each)]:
                token = self._ids.token()
                spare[_name(each)].append(token)
                fresh.append((token, each))
        await self._add(tx, fresh, card_key=card_key, chat_id=chat_id, now=now)
        # Buttons alike in all are told apart by order alone, so that has to be a lasting one.
        for alike in spare.values():
            alike.sort(reverse=True)
        tokens = tuple(spare[_name(each)].pop() for each in wanted)
        await self._keep(tx, rows, set(tokens), now)
        return tokens

    async def look(self, token: str) -> ActionRow | None:
        """What the token leads to, without touching it."""
        async with self._db.read() as view:
            row = (await view.execute(_BY_TOKEN, {"token": token})).one_or_none()
        return None if row is None else _action_row(row)

    async def claim(
        self, token: str, *, person: PersonId, chat: ChatId, inbox_id: InboxId, now: datetime
    ) -> Claim:
        """Take the right to act on a press. A single-use token settles at the first claim; the
        press that settled it may claim it again, so that one handled twice after a crash acts.
        Threads of one chat are one chat here."""
        async with self._db.write() as tx:
            row = (await tx.execute(_BY_TOKEN, {"token": token})).one_or_none()
            if row is None:
                return Claim.UNKNOWN
            here = (await tx.execute(_CHAT, {"id": chat})).one_or_none()
            if here is None or (here.channel, here.external_id) != (row.channel, row.external_id):
                return Claim.FOREIGN
            outcome = _outcome(row, person, inbox_id, now)
            if outcome is Claim.FRESH:
                use = {"which": token, "who": person, "at": now, "press": inbox_id}
                await tx.execute(_USE, use)
        return outcome

    async def prune(self, *, now: datetime) -> int:
        """Forget buttons that expired long ago; returns how many."""
        async with self._db.write() as tx:
            return (await tx.execute(_PRUNE, {"before": now - LIFETIME})).rowcount

    async def _add(
        self,
        tx: Transaction,
        fresh: Sequence[tuple[str, Wanted]],
        *,
        card_key: str,
        chat_id: ChatId,
        now: datetime,
    ) -> None:
        if not fresh:
            return
        values = [
            {
                "token": token,
                "card_key": card_key,
                "chat_id": chat_id,
                "action": dict(each.action),
                "allowed": list(each.allowed),
                "single_use": each.single_use,
                "expires_at": now + LIFETIME,
            }
            for token, each in fresh
        ]
        await tx.execute(insert(actions), values)

    async def _keep(
        self, tx: Transaction, rows: Sequence[Row[Any]], shown: set[str], now: datetime
    ) -> None:
        """Retire what the card no longer shows; let what it shows live on."""
        gone = [{"which": row.token} for row in rows if row.token not in shown]
        if gone:
            await tx.execute(_RETIRE, gone)
        until = now + LIFETIME
        ageing = [
            {"which": row.token, "until": until}
            for row in rows
            if row.token in shown and row.expires_at < until - _FRESHNESS
        ]
        if ageing:
            await tx.execute(_EXTEND, ageing)


def _spare(rows: Sequence[Row[Any]], room: Mapping[str, int]) -> dict[str, list[str]]:
    """The card's tokens that can be shown on, by button, no more than there is room for."""
    spare: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        used_up = row.single_use and row.used_for is not None
        name = _name(_action_row(row))
        if not used_up and len(spare[name]) < room.get(name, 0):
            spare[name].append(row.token)
    return spare


def _outcome(row: Row[Any], person: PersonId, inbox_id: InboxId, now: datetime) -> Claim:
    if row.allowed and person not in row.allowed:
        return Claim.NOT_ALLOWED
    if row.used_for == inbox_id and row.used_by == person:
        return Claim.AGAIN
    # Who did it is better news than that the button has gone since.
    if row.single_use and row.used_for is not None:
        return Claim.USED
    if row.retired:
        return Claim.RETIRED
    if row.expires_at <= now:
        return Claim.EXPIRED
    return Claim.FRESH


def _name(button: Wanted | ActionRow) -> str:
    facts = [button.action, sorted(button.allowed), button.single_use]
    return json.dumps(facts, sort_keys=True)


def _action_row(row: Row[Any]) -> ActionRow:
    return ActionRow(
        token=row.token,
        card_key=row.card_key,
        chat_id=ChatId(row.chat_id),
        action=row.action,
        allowed=tuple(PersonId(each) for each in row.allowed),
        single_use=row.single_use,
        expires_at=row.expires_at,
        used_by=PersonId(row.used_by) if row.used_by else None,
        used_at=row.used_at,
        retired=row.retired,
    )
