"""Reads a chat's history in both directions, without quiet requests by programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import TypeAlias

from sqlalchemy import ColumnElement, bindparam, func, or_, select, true

from storage.db import Database
from storage.messages.inbox import inbox_row_from
from storage.messages.outbox import outbox_row_from
from storage.records.messages import InboxRow, OutboxRow, OutboxState
from storage.records.people import ChatId
from storage.schema import inbox, outbox


def _is_before(at: ColumnElement[datetime]) -> ColumnElement[bool]:
    before = bindparam("before", type_=at.type)
    return or_(before.is_(None), at < before)


_RECEIVED = (
    select(inbox)
    .where(
        inbox.c.chat_id == bindparam("chat"),
        inbox.c.incoming["kind"].as_string() == "message",
        inbox.c.incoming["quiet"].as_boolean().is_not(true()),
        func.coalesce(inbox.c.incoming["told"].as_string(), "") == "",
        _is_before(inbox.c.received_at),
    )
    .order_by(inbox.c.id.desc())
    .limit(bindparam("most"))
)

_SENT = (
    select(outbox)
    .where(
        outbox.c.chat_id == bindparam("chat"),
        outbox.c.revision > 0,
        outbox.c.state != OutboxState.DEAD.value,
        _is_before(outbox.c.created_at),
    )
    .order_by(outbox.c.id.desc())
    .limit(bindparam("most"))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    """A message from a person."""

    row: InboxRow
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SentCard:
    """A card in its newest revision, shown or queued; `at` is when it was first created."""

    row: OutboxRow
    at: datetime


ChatTurn: TypeAlias = ReceivedMessage | SentCard


async def recent_turns(
    db: Database, chat_id: ChatId, limit: int, before: datetime | None = None
) -> Sequence[ChatTurn]:
    """The newest `limit` turns, oldest first; of those before a time, if it is given."""
    facts = {"chat": chat_id, "most": limit, "before": before}
    async with db.read() as view:
        heard = await db.fetch_all(_RECEIVED, facts, tx=view)
        said = await db.fetch_all(_SENT, facts, tx=view)
    turns: list[ChatTurn] = [
        *(ReceivedMessage(row=inbox_row_from(row), at=row.received_at) for row in heard),
        *(SentCard(row=outbox_row_from(row), at=row.created_at) for row in said),
    ]
    return tuple(sorted(turns, key=attrgetter("at"))[-limit:])
