"""Stores incoming events before they are handled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Row, bindparam, delete, select, update

from storage.db import Database, Transaction
from storage.dialect import insert_or_ignore
from storage.records.messages import InboxId, InboxRow, InboxState, Incoming
from storage.records.people import ChatId
from storage.rows import record_from
from storage.schema import inbox


def dump_incoming(incoming: Incoming) -> dict[str, Any]:
    dumped: dict[str, Any] = _incoming_adapter().dump_python(incoming, mode="json")
    return dumped


def load_incoming(data: Mapping[str, Any]) -> Incoming:
    return _incoming_adapter().validate_python(data)


@cache
def _incoming_adapter() -> TypeAdapter[Incoming]:
    return TypeAdapter(Incoming)


INBOX_RETENTION = timedelta(days=7)
"""How long a settled row stays, and thus how long duplicates are recognized."""

_NEW_ROWS = select(inbox).where(inbox.c.state == InboxState.NEW.value).order_by(inbox.c.id)

_COUNT_ATTEMPT = (
    update(inbox)
    .where(inbox.c.id == bindparam("which"), inbox.c.state == InboxState.NEW.value)
    .values(attempts=inbox.c.attempts + 1)
    .returning(inbox.c.attempts)
)

_SETTLE = (
    update(inbox)
    .where(inbox.c.id == bindparam("which"))
    .values(state=bindparam("outcome"), error=bindparam("why"), handled_at=bindparam("at"))
)

_PRUNE = delete(inbox).where(
    inbox.c.state != InboxState.NEW.value, inbox.c.received_at < bindparam("before")
)


class InboxRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def accept(
        self,
        tx: Transaction,
        incoming: Incoming,
        *,
        dedupe: str,
        chat_id: ChatId,
        now: datetime,
        state: InboxState = InboxState.NEW,
        attempts: int = 0,
    ) -> InboxRow | None:
        """Store an event; None if (channel, `dedupe`) already exists. `attempts` of 1 saves a
        `count_attempt` if it is handled at once."""
        values = {
            "channel": incoming.place.channel.value,
            "dedupe": dedupe,
            "chat_id": chat_id,
            "incoming": dump_incoming(incoming),
            "state": state.value,
            "attempts": attempts,
            "received_at": now,
            "handled_at": None if state is InboxState.NEW else now,
        }
        stored = await tx.execute(
            insert_or_ignore(tx.dialect.name, inbox).values(values).returning(inbox.c.id)
        )
        number = stored.scalar_one_or_none()
        if number is None:
            return None
        return InboxRow(
            id=InboxId(number),
            incoming=incoming,
            chat_id=chat_id,
            state=state,
            attempts=attempts,
            received_at=now,
        )

    async def list_unfinished(self) -> Sequence[InboxRow]:
        """Unsettled events in the order they arrived."""
        return tuple(map(inbox_row_from, await self._db.fetch_all(_NEW_ROWS)))

    async def count_attempt(self, inbox_id: InboxId) -> int:
        """Count an attempt before making it and return the total; 0 if already settled."""
        async with self._db.write() as tx:
            return (await tx.execute(_COUNT_ATTEMPT, {"which": inbox_id})).scalar_one_or_none() or 0

    async def mark_handled(
        self, tx: Transaction, inbox_ids: Sequence[InboxId], *, now: datetime
    ) -> None:
        await _settle(tx, inbox_ids, InboxState.HANDLED, "", now)

    async def mark_failed(
        self, tx: Transaction, inbox_ids: Sequence[InboxId], *, error: str, now: datetime
    ) -> None:
        await _settle(tx, inbox_ids, InboxState.FAILED, error, now)

    async def prune(self, *, now: datetime) -> int:
        """Delete settled rows older than a week; returns how many."""
        async with self._db.write() as tx:
            return (await tx.execute(_PRUNE, {"before": now - INBOX_RETENTION})).rowcount


async def _settle(
    tx: Transaction, which: Sequence[InboxId], outcome: InboxState, why: str, at: datetime
) -> None:
    facts = [{"which": each, "outcome": outcome.value, "why": why, "at": at} for each in which]
    await tx.execute(_SETTLE, facts)


def inbox_row_from(row: Row[Any]) -> InboxRow:
    return record_from(InboxRow, row, incoming=load_incoming(row.incoming))
