"""Stores incoming events before they are handled."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Row, and_, bindparam, delete, func, insert, select, update

from storage.db import Database, Transaction, record_from
from storage.dialect import insert_or_ignore
from storage.process_schema import inbox_replies
from storage.records.messages import (
    WAITS_OUTCOME,
    InboxId,
    InboxRow,
    InboxState,
    Incoming,
    OutboxState,
    ReceivedEvent,
)
from storage.records.people import Channel, ChatId
from storage.schema import inbox, outbox


def dump_incoming(incoming: Incoming) -> dict[str, Any]:
    dumped: dict[str, Any] = incoming_adapter().dump_python(incoming, mode="json")
    return dumped


def load_incoming(data: Mapping[str, Any]) -> Incoming:
    return incoming_adapter().validate_python(data)


@cache
def incoming_adapter() -> TypeAdapter[Incoming]:
    """Built once, with the first message if not before."""
    return TypeAdapter(Incoming)


INBOX_RETENTION = timedelta(days=7)
"""How long a settled row stays by default, and thus how long duplicates are recognized."""

_NEW_ROWS = select(inbox).where(inbox.c.state == InboxState.NEW.value).order_by(inbox.c.id)

_NEW_AFTER = _NEW_ROWS.where(inbox.c.id > bindparam("after"))

_UNTRIED = update(inbox).where(
    inbox.c.id == bindparam("which"),
    inbox.c.state == InboxState.NEW.value,
    inbox.c.attempts == 0,
)

_HOLD = _UNTRIED.values(state=InboxState.HELD.value)

_DROP_UNTRIED = _UNTRIED.values(
    state=InboxState.HANDLED.value, outcome="dropped", handled_at=bindparam("at")
)

_PUT_REPLY = (
    update(inbox_replies)
    .where(inbox_replies.c.inbox_id == bindparam("which"))
    .values(reply=bindparam("given", type_=inbox_replies.c.reply.type))
)

_UNTAKEN = (
    select(inbox)
    .join(inbox_replies, inbox_replies.c.inbox_id == inbox.c.id)
    .where(inbox_replies.c.reply.is_not(None))
    .order_by(inbox.c.id)
)

_COUNT_ATTEMPT = (
    update(inbox)
    .where(inbox.c.id == bindparam("which"), inbox.c.state == InboxState.NEW.value)
    .values(attempts=inbox.c.attempts + 1)
    .returning(inbox.c.attempts)
)

_FORGET_ATTEMPT = (
    update(inbox)
    .where(inbox.c.id == bindparam("which"), inbox.c.attempts > 0)
    .values(attempts=inbox.c.attempts - 1)
)

_MARK_WAITING = (
    update(inbox)
    .where(
        inbox.c.id == bindparam("which"),
        inbox.c.state == InboxState.NEW.value,
        inbox.c.outcome == "",
    )
    .values(outcome=WAITS_OUTCOME)
)

_WAITING = select(inbox.c.id).where(
    inbox.c.id.in_(bindparam("which", expanding=True)), inbox.c.outcome == WAITS_OUTCOME
)

_SETTLE = (
    update(inbox)
    .where(inbox.c.id == bindparam("which"))
    .values(
        state=bindparam("new_state"),
        error=bindparam("why"),
        outcome=bindparam("ended"),
        handled_at=bindparam("at"),
    )
)

_CARD = "card "
_RECENT = (
    select(inbox, outbox.c.state.label("answer"))
    .outerjoin(
        outbox,
        and_(
            inbox.c.outcome.startswith(_CARD),
            outbox.c.key == func.substr(inbox.c.outcome, len(_CARD) + 1),
        ),
    )
    .where(inbox.c.outcome != "shell")
    .order_by(inbox.c.id.desc())
    .limit(bindparam("most"))
)

_HELD = inbox.c.state == InboxState.HELD.value

_HELD_ROWS = (
    select(inbox)
    .where(inbox.c.chat_id == bindparam("chat"), _HELD)
    .order_by(inbox.c.id)
    .limit(bindparam("most"))
)

_COUNT_HELD = (
    select(func.count()).select_from(inbox).where(inbox.c.chat_id == bindparam("chat"), _HELD)
)

_RELEASE_HELD = (
    update(inbox)
    .where(inbox.c.chat_id == bindparam("chat"), _HELD)
    .values(state=InboxState.NEW.value, handled_at=None)
    .returning(inbox)
)

_DROP_HELD = (
    update(inbox)
    .where(inbox.c.chat_id == bindparam("chat"), _HELD)
    .values(state=InboxState.HANDLED.value, outcome="dropped", handled_at=bindparam("at"))
)

_PRUNE = delete(inbox).where(
    inbox.c.state.in_([InboxState.HANDLED.value, InboxState.FAILED.value]),
    inbox.c.received_at < bindparam("before"),
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
        outcome: str = "",
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
            "outcome": outcome,
            "received_at": now,
            "handled_at": now if state is InboxState.HANDLED else None,
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
            outcome=outcome,
        )

    async def list_unfinished(self, after: InboxId | None = None) -> Sequence[InboxRow]:
        """Unsettled events in the order they arrived; those after this one, if it is given."""
        query, facts = (_NEW_ROWS, None) if after is None else (_NEW_AFTER, {"after": after})
        return tuple(map(inbox_row_from, await self._db.fetch_all(query, facts)))

    async def get(self, inbox_id: InboxId) -> InboxRow | None:
        row = await self._db.fetch_one(select(inbox).where(inbox.c.id == inbox_id))
        return None if row is None else inbox_row_from(row)

    async def drop_untried(self, tx: Transaction, inbox_id: InboxId, *, now: datetime) -> bool:
        """End an event unanswered, unless its handling has started."""
        done = await tx.execute(_DROP_UNTRIED, {"which": inbox_id, "at": now})
        return bool(done.rowcount)

    async def hold(self, tx: Transaction, inbox_id: InboxId) -> bool:
        """Let an event wait for somebody's decision, unless somebody has begun to handle it."""
        return bool((await tx.execute(_HOLD, {"which": inbox_id})).rowcount)

    async def expect_reply(self, tx: Transaction, inbox_id: InboxId) -> None:
        """Keep the event's reply for whoever takes it with `take_reply`."""
        await tx.execute(insert(inbox_replies).values(inbox_id=inbox_id))

    async def put_reply(self, tx: Transaction, inbox_id: InboxId, reply: Mapping[str, Any]) -> None:
        """Store the reply if it is expected. Call it before the event is settled."""
        await tx.execute(_PUT_REPLY, {"which": inbox_id, "given": dict(reply)})

    async def take_reply(self, inbox_id: InboxId) -> Mapping[str, Any] | None:
        """The reply to a settled event, once: it is forgotten then."""
        taken = (
            delete(inbox_replies)
            .where(inbox_replies.c.inbox_id == inbox_id)
            .returning(inbox_replies.c.reply)
        )
        async with self._db.write() as tx:
            found: Mapping[str, Any] | None = (await tx.execute(taken)).scalar_one_or_none()
            return found

    async def find_reply(self, inbox_id: InboxId) -> Mapping[str, Any] | None:
        """The reply to a settled event, if nobody has taken it."""
        query = select(inbox_replies.c.reply).where(inbox_replies.c.inbox_id == inbox_id)
        found: Mapping[str, Any] | None = await self._db.fetch_value(query)
        return found

    async def list_untaken(self) -> Sequence[InboxRow]:
        """Settled events whose reply nobody has taken."""
        return tuple(map(inbox_row_from, await self._db.fetch_all(_UNTAKEN)))

    async def count_attempt(self, inbox_id: InboxId) -> int:
        """Count an attempt before making it and return the total; 0 if already settled."""
        async with self._db.write() as tx:
            return (await tx.execute(_COUNT_ATTEMPT, {"which": inbox_id})).scalar_one_or_none() or 0

    async def forget_attempt(self, inbox_id: InboxId) -> None:
        """Take back an attempt that was interrupted on purpose."""
        async with self._db.write() as tx:
            await tx.execute(_FORGET_ATTEMPT, {"which": inbox_id})

    async def mark_waiting(self, tx: Transaction, inbox_id: InboxId) -> bool:
        """Note that the event's chat shows that it waits; False if it is settled already."""
        return bool((await tx.execute(_MARK_WAITING, {"which": inbox_id})).rowcount)

    async def find_waiting(
        self, tx: Transaction, inbox_ids: Collection[InboxId]
    ) -> Sequence[InboxId]:
        """Those of these events that are shown as waiting in their chat."""
        found = await tx.scalars(_WAITING, {"which": list(inbox_ids)})
        return [InboxId(each) for each in found]

    async def settle(
        self,
        tx: Transaction,
        outcomes: Mapping[InboxId, str],
        *,
        now: datetime,
        error: str = "",
    ) -> None:
        """End these events, each with its outcome (`InboxRow.outcome`); with `error` they count as
        failed."""
        state = InboxState.FAILED if error else InboxState.HANDLED
        facts = {"new_state": state.value, "why": error, "at": now}
        rows = [{"which": which, "ended": ended, **facts} for which, ended in outcomes.items()]
        await tx.execute(_SETTLE, rows)

    async def find(self, tx: Transaction, channel: Channel, dedupe: str) -> InboxRow | None:
        """The event with this key."""
        query = select(inbox).where(inbox.c.channel == channel.value, inbox.c.dedupe == dedupe)
        row = (await tx.execute(query)).one_or_none()
        return None if row is None else inbox_row_from(row)

    async def list_recent(self, limit: int) -> Sequence[ReceivedEvent]:
        """The newest events, newest first, without shell commands that have been answered."""
        rows = await self._db.fetch_all(_RECENT, {"most": limit})
        return tuple(
            ReceivedEvent(
                row=inbox_row_from(row), answer=OutboxState(row.answer) if row.answer else None
            )
            for row in rows
        )

    async def list_held(
        self, tx: Transaction, chat_id: ChatId, *, limit: int
    ) -> tuple[Sequence[InboxRow], int]:
        """The first held events of a chat in the order they arrived, and the number of all."""
        shown = await tx.execute(_HELD_ROWS, {"chat": chat_id, "most": limit})
        total = await tx.execute(_COUNT_HELD, {"chat": chat_id})
        return tuple(map(inbox_row_from, shown)), total.scalar_one()

    async def release_held(self, tx: Transaction, chat_id: ChatId) -> Sequence[InboxRow]:
        """Make the held events of a chat new; returns them in the order they arrived."""
        rows = map(inbox_row_from, await tx.execute(_RELEASE_HELD, {"chat": chat_id}))
        return sorted(rows, key=lambda row: row.id)

    async def drop_held(self, tx: Transaction, chat_id: ChatId, *, now: datetime) -> int:
        """End the held events of a chat unanswered; returns how many."""
        return (await tx.execute(_DROP_HELD, {"chat": chat_id, "at": now})).rowcount

    async def prune(self, *, now: datetime, keep: timedelta = INBOX_RETENTION) -> int:
        """Delete settled rows older than `keep`; returns how many."""
        async with self._db.write() as tx:
            return (await tx.execute(_PRUNE, {"before": now - keep})).rowcount


def inbox_row_from(row: Row[Any]) -> InboxRow:
    return record_from(InboxRow, row, incoming=load_incoming(row.incoming))
