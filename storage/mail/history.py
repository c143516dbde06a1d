"""What was said in a chat, both ways, in order; what programs asked quietly is no part of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import TypeAlias

from sqlalchemy import bindparam, func, select, true

from storage.db import Database
from storage.mail.inbox import inbox_row
from storage.mail.outbox import outbox_row
from storage.records.messages import InboxRow, OutboxRow, OutboxState
from storage.records.people import ChatId
from storage.schema import inbox, outbox

_HEARD = (
    select(inbox)
    .where(
        inbox.c.chat_id == bindparam("chat"),
        inbox.c.incoming["kind"].as_string() == "message",
        inbox.c.incoming["quiet"].as_boolean().is_not(true()),
        func.coalesce(inbox.c.incoming["told"].as_string(), "") == "",
    )
    .order_by(inbox.c.id.desc())
    .limit(bindparam("most"))
)

_SAID = (
    select(outbox)
    .where(
        outbox.c.chat_id == bindparam("chat"),
        outbox.c.revision > 0,
        outbox.c.state != OutboxState.DEAD.value,
    )
    .order_by(outbox.c.id.desc())
    .limit(bindparam("most"))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """A person wrote."""

    row: InboxRow
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A card, in its newest revision, shown or still queued; `at` is when it was first made."""

    row: OutboxRow
    at: datetime


Turn: TypeAlias = Heard | Said


async def recent_turns(db: Database, chat_id: ChatId, limit: int) -> Sequence[Turn]:
    """The newest `limit`, oldest of them first."""
    facts = {"chat": chat_id, "most": limit}
    async with db.read() as view:
        heard = (await view.execute(_HEARD, facts)).all()
        said = (await view.execute(_SAID, facts)).all()
    turns: list[Turn] = [
        *(Heard(row=inbox_row(row), at=row.received_at) for row in heard),
        *(Said(row=outbox_row(row), at=row.created_at) for row in said),
    ]
    return tuple(sorted(turns, key=attrgetter("at"))[-limit:])
