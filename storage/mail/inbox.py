"""The durable inbox: what arrives is a row before anything happens."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, bindparam, delete, select, update

from storage.db import Database, Transaction
from storage.dialect import insert_or_ignore
from storage.mail.incoming import dump_incoming, load_incoming
from storage.records.messages import InboxId, InboxRow, InboxState, Incoming
from storage.records.people import ChatId
from storage.schema import inbox

KEPT = timedelta(days=7)
"""How long a settled row stays, and so for how long a repeated message is known."""

_UNFINISHED = select(inbox).where(inbox.c.state == InboxState.NEW.value).order_by(inbox.c.id)

_BEGIN = (
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


class Inbox:
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
        """Store it; None if the same (channel, `dedupe`) is there already. `attempts` 1 saves a
        `begin` where it is handled at once."""
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

    async def unfinished(self) -> Sequence[InboxRow]:
        """What was stored and not settled, in the order it came."""
        async with self._db.read() as view:
            return tuple(inbox_row(row) for row in (await view.execute(_UNFINISHED)).all())

    async def begin(self, inbox_id: InboxId) -> int:
        """Count one more attempt, before it is made; 0 if the row is settled already."""
        async with self._db.write() as tx:
            return (await tx.execute(_BEGIN, {"which": inbox_id})).scalar_one_or_none() or 0

    async def handled(
        self, tx: Transaction, inbox_ids: Sequence[InboxId], *, now: datetime
    ) -> None:
        await _settle(tx, inbox_ids, InboxState.HANDLED, "", now)

    async def failed(
        self, tx: Transaction, inbox_ids: Sequence[InboxId], *, error: str, now: datetime
    ) -> None:
        await _settle(tx, inbox_ids, InboxState.FAILED, error, now)

    async def prune(self, *, now: datetime) -> int:
        """Forget what was settled and is older than a week; returns how many rows."""
        async with self._db.write() as tx:
            return (await tx.execute(_PRUNE, {"before": now - KEPT})).rowcount


async def _settle(
    tx: Transaction, which: Sequence[InboxId], outcome: InboxState, why: str, at: datetime
) -> None:
    facts = [{"which": each, "outcome": outcome.value, "why": why, "at": at} for each in which]
    await tx.execute(_SETTLE, facts)


def inbox_row(row: Row[Any]) -> InboxRow:
    return InboxRow(
        id=InboxId(row.id),
        incoming=load_incoming(row.incoming),
        chat_id=ChatId(row.chat_id),
        state=InboxState(row.state),
        attempts=row.attempts,
        received_at=row.received_at,
    )
