"""Stores the actions behind card buttons; platforms see only opaque tokens."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import Row, bindparam, delete, insert, select, update

from storage.db import Database, Transaction, record_from, row_from
from storage.ids import IdGenerator
from storage.records.messages import CardActionRow, InboxId
from storage.records.people import ChatId, PersonId
from storage.schema import actions, chats

BUTTON_LIFETIME = timedelta(days=30)
"""How long a button works unless its card is sent again."""

_RENEW_AFTER = timedelta(days=1)

_BY_CARD = (
    select(actions)
    .where(actions.c.card_key == bindparam("key"), ~actions.c.retired)
    .order_by(actions.c.token)
)

_BY_TOKEN = (
    select(actions, chats.c.channel, chats.c.external_id)
    .join(chats, chats.c.id == actions.c.chat_id)
    .where(actions.c.token == bindparam("token"))
)

_CHAT_ADDRESS = select(chats.c.channel, chats.c.external_id).where(chats.c.id == bindparam("id"))

_UPDATE = update(actions).where(actions.c.token == bindparam("which"))

_RETIRE = _UPDATE.values(retired=True)

_EXTEND = _UPDATE.values(expires_at=bindparam("until"))

_MARK_USED = _UPDATE.values(
    used_by=bindparam("who"), used_at=bindparam("at"), used_for=bindparam("press")
)

_PRUNE = delete(actions).where(actions.c.expires_at < bindparam("before"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ButtonRequest:
    """A button shown on a card. `action` is JSON and identifies the button on its card."""

    action: Mapping[str, Any]
    single_use: bool
    allowed: tuple[PersonId, ...] = ()


class PressOutcome(StrEnum):
    """Result of a press. The values of refusals are those of `handlers.ports.PressRefusal`."""

    FRESH = "fresh"
    AGAIN = "again"
    UNKNOWN = "unknown"
    FOREIGN = "foreign"
    NOT_ALLOWED = "not_allowed"
    EXPIRED = "expired"
    RETIRED = "retired"
    USED = "used"

    @property
    def is_effective(self) -> bool:
        return self in {PressOutcome.FRESH, PressOutcome.AGAIN}


class CardActionRepo:
    def __init__(self, db: Database, ids: IdGenerator) -> None:
        self._db = db
        self._ids = ids

    async def issue_tokens(
        self,
        tx: Transaction,
        buttons: Sequence[ButtonRequest],
        *,
        card_key: str,
        chat_id: ChatId,
        now: datetime,
    ) -> tuple[str, ...]:
        """Return a token for each button of the card's new revision, in order.

        A button that was on the card before retains its token unless it was used up; buttons that
        are gone are retired.
        """
        rows = (await tx.execute(_BY_CARD, {"key": card_key})).all()
        room = Counter(_button_key(each) for each in buttons)
        spare = _reusable_tokens(rows, room)
        fresh: list[tuple[str, ButtonRequest]] = []
        for each in buttons:
            if len(spare[_button_key(each)]) < room[_button_key(each)]:
                token = self._ids.token()
                spare[_button_key(each)].append(token)
                fresh.append((token, each))
        await self._add(tx, fresh, card_key=card_key, chat_id=chat_id, now=now)
        # Identical buttons differ only in order, so it must be stable.
        for alike in spare.values():
            alike.sort(reverse=True)
        tokens = tuple(spare[_button_key(each)].pop() for each in buttons)
        await self._retire_and_extend(tx, rows, set(tokens), now)
        return tokens

    async def get_action(self, token: str) -> CardActionRow | None:
        """The token's action, without claiming it."""
        return record_from(CardActionRow, await self._db.fetch_one(_BY_TOKEN, {"token": token}))

    async def claim_press(
        self, token: str, *, person: PersonId, chat: ChatId, inbox_id: InboxId, now: datetime
    ) -> PressOutcome:
        """Claim a press.

        A single-use token is settled by the first claim; the press that settled it may claim it
        again, so that a repeat after a crash still acts. All threads of a chat count as one chat.
        """
        async with self._db.write() as tx:
            row = (await tx.execute(_BY_TOKEN, {"token": token})).one_or_none()
            if row is None:
                return PressOutcome.UNKNOWN
            here = (await tx.execute(_CHAT_ADDRESS, {"id": chat})).one_or_none()
            if here is None or (here.channel, here.external_id) != (row.channel, row.external_id):
                return PressOutcome.FOREIGN
            outcome = _press_outcome(row, person, inbox_id, now)
            if outcome is PressOutcome.FRESH:
                use = {"which": token, "who": person, "at": now, "press": inbox_id}
                await tx.execute(_MARK_USED, use)
        return outcome

    async def prune(self, *, now: datetime) -> int:
        """Delete buttons that expired long ago; returns how many."""
        async with self._db.write() as tx:
            return (await tx.execute(_PRUNE, {"before": now - BUTTON_LIFETIME})).rowcount

    async def _add(
        self,
        tx: Transaction,
        fresh: Sequence[tuple[str, ButtonRequest]],
        *,
        card_key: str,
        chat_id: ChatId,
        now: datetime,
    ) -> None:
        if not fresh:
            return
        shared = {"card_key": card_key, "chat_id": chat_id, "expires_at": now + BUTTON_LIFETIME}
        values = [row_from(each) | shared | {"token": token} for token, each in fresh]
        await tx.execute(insert(actions), values)

    async def _retire_and_extend(
        self, tx: Transaction, rows: Sequence[Row[Any]], shown_tokens: set[str], now: datetime
    ) -> None:
        """Retire buttons no longer shown and extend the others."""
        gone = [{"which": row.token} for row in rows if row.token not in shown_tokens]
        if gone:
            await tx.execute(_RETIRE, gone)
        until = now + BUTTON_LIFETIME
        ageing = [
            {"which": row.token, "until": until}
            for row in rows
            if row.token in shown_tokens and row.expires_at < until - _RENEW_AFTER
        ]
        if ageing:
            await tx.execute(_EXTEND, ageing)


def _reusable_tokens(
    rows: Sequence[Row[Any]], wanted_counts: Mapping[str, int]
) -> dict[str, list[str]]:
    """Reusable tokens of the card by button, at most the wanted count of each."""
    spare: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        used_up = row.single_use and row.used_for is not None
        name = _button_key(record_from(CardActionRow, row))
        if not used_up and len(spare[name]) < wanted_counts.get(name, 0):
            spare[name].append(row.token)
    return spare


def _press_outcome(
    row: Row[Any], person: PersonId, inbox_id: InboxId, now: datetime
) -> PressOutcome:
    if row.allowed and person not in row.allowed:
        return PressOutcome.NOT_ALLOWED
    if row.used_for == inbox_id and row.used_by == person:
        return PressOutcome.AGAIN
    # Report who used it rather than that it has gone since.
    if row.single_use and row.used_for is not None:
        return PressOutcome.USED
    if row.retired:
        return PressOutcome.RETIRED
    if row.expires_at <= now:
        return PressOutcome.EXPIRED
    return PressOutcome.FRESH


def _button_key(button: ButtonRequest | CardActionRow) -> str:
    facts = [button.action, sorted(button.allowed), button.single_use]
    return json.dumps(facts, sort_keys=True)
