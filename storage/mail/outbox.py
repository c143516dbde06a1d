"""The durable outbox: one row for each logical message, its newest revision only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Row, bindparam, case, cast, func, insert, or_, select, update

from storage.db import Database, Transaction
from storage.dialect import insert_or_ignore, upsert
from storage.mail.chats import chat_columns, chat_of
from storage.records.messages import OutboxId, OutboxRow, OutboxState, Placed, Urgency
from storage.records.people import Channel, Chat, ChatId, ChatKind
from storage.schema import actions, chats, outbox, placements

# Urgency and row number in one number, so that the smallest is the letter to go first.
_STEP = 2**40
_ORDER = cast(outbox.c.urgency, BigInteger) * _STEP + outbox.c.id

_QUEUED = outbox.c.state == OutboxState.QUEUED.value

# What was written after now was written by a clock that has been set back since: its due time
# means nothing, and might be a year away.
_DUE = or_(outbox.c.due_at <= bindparam("now"), outbox.c.updated_at > bindparam("now"))

_BY_KEY = select(outbox).where(outbox.c.key == bindparam("key"))

_WITH_CHAT = (
    select(outbox, *chat_columns())
    .join(chats, chats.c.id == outbox.c.chat_id)
    .where(outbox.c.id == bindparam("id"))
)

_HEADS = (
    select(
        chats.c.external_id,
        func.min(chats.c.kind).label("kind"),
        func.min(_ORDER).label("first"),
    )
    .join(chats, chats.c.id == outbox.c.chat_id)
    .where(_QUEUED, chats.c.channel == bindparam("channel"), _DUE)
    .group_by(chats.c.external_id)
)

_NEXT_DUE = (
    select(func.min(outbox.c.due_at))
    .join(chats, chats.c.id == outbox.c.chat_id)
    .where(_QUEUED, chats.c.channel == bindparam("channel"), outbox.c.due_at > bindparam("now"))
)

_WAITING = select(func.count()).select_from(outbox).where(_QUEUED)

_BEGIN = (
    update(outbox)
    .where(outbox.c.id == bindparam("which"))
    .values(tried_revision=bindparam("tried"), attempts=outbox.c.attempts + 1)
)

_SHOWN = (
    update(outbox)
    .where(outbox.c.id == bindparam("which"))
    .values(
        shown_revision=bindparam("seen"),
        tried_revision=0,
        placed=bindparam("where"),
        state=case(
            (outbox.c.revision > bindparam("seen"), OutboxState.QUEUED.value),
            else_=OutboxState.SHOWN.value,
        ),
        attempts=0,
        error="",
        due_at=bindparam("at"),
    )
)

_PARTLY = update(outbox).where(outbox.c.id == bindparam("which")).values(placed=bindparam("where"))

_LATER = (
    update(outbox)
    .where(outbox.c.id == bindparam("which"))
    .values(
        due_at=bindparam("due"),
        tried_revision=bindparam("tried"),
        error=bindparam("why"),
        updated_at=bindparam("at"),
    )
)

_DEAD = (
    update(outbox)
    .where(outbox.c.id == bindparam("which"), outbox.c.revision == bindparam("tried"))
    .values(state=OutboxState.DEAD.value, tried_revision=0, error=bindparam("why"))
)

_AT = (
    select(outbox)
    .join(placements, placements.c.outbox_id == outbox.c.id)
    .join(chats, chats.c.id == placements.c.chat_id)
    .where(
        chats.c.channel == bindparam("channel"),
        chats.c.external_id == bindparam("external_id"),
        placements.c.message_id == bindparam("message_id"),
    )
    .order_by(outbox.c.id.desc())
    .limit(1)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A card to show. The same `key` is the same message for ever; `card` is JSON."""

    key: str
    chat_id: ChatId
    card: Mapping[str, Any]
    urgency: Urgency
    reply_to: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """`changed` False means that the very same card was there already."""

    id: OutboxId
    revision: int
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The letter that goes first in one chat of the platform, all threads together."""

    id: OutboxId
    external_id: str
    kind: ChatKind
    urgency: Urgency


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """A delivery about to be made. `unsure` is the revision an earlier try may have shown
    without our knowing, 0 if there is none; `begun` says that no revision was ever shown whole."""

    row: OutboxRow
    chat: Chat
    unsure: int
    begun: bool = False


class Outbox:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(self, tx: Transaction, new: Outgoing, *, now: datetime) -> Posted | None:
        """`put` for a key that is new; None, and nothing done, if it is not."""
        values = _values(new, now) | {"revision": 1, "state": OutboxState.QUEUED.value}
        added = await tx.execute(
            insert_or_ignore(tx.dialect.name, outbox).values(values).returning(outbox.c.id)
        )
        number = added.scalar_one_or_none()
        return None if number is None else Posted(id=OutboxId(number), revision=1, changed=True)

    async def put(self, tx: Transaction, new: Outgoing, *, now: datetime) -> Posted:
        """Make `new.card` the newest revision under its key; nothing happens if it is that
        already. A card once made stays in its chat, whatever `new` says."""
        added = await self.add(tx, new, now=now)
        if added is not None:
            return added
        row = (await tx.execute(_BY_KEY, {"key": new.key})).one()
        if row.revision and row.card == new.card:
            return Posted(id=OutboxId(row.id), revision=row.revision, changed=False)
        queued = row.state == OutboxState.QUEUED.value
        await tx.execute(
            update(outbox)
            .where(outbox.c.id == row.id)
            .values(
                card=dict(new.card),
                urgency=int(new.urgency),
                reply_to=new.reply_to or row.reply_to,
                revision=row.revision + 1,
                state=OutboxState.QUEUED.value,
                # What is being tried again keeps its turn: new words do not hurry a platform.
                attempts=row.attempts if queued else 0,
                due_at=row.due_at if queued else now,
                updated_at=now,
            )
        )
        return Posted(id=OutboxId(row.id), revision=row.revision + 1, changed=True)

    async def reserve(self, tx: Transaction, new: Outgoing, *, now: datetime) -> OutboxRow:
        """The row under a key; made with nothing to show if there is none: for an answer that is
        streamed before it is a card. `new.card` is not looked at."""
        row = (await tx.execute(_BY_KEY, {"key": new.key})).one_or_none()
        if row is None:
            values = _values(new, now) | {"revision": 0, "state": OutboxState.SHOWN.value}
            await tx.execute(insert(outbox).values(values))
            row = (await tx.execute(_BY_KEY, {"key": new.key})).one()
        return outbox_row(row)

    async def get(self, outbox_id: OutboxId) -> tuple[OutboxRow, Chat] | None:
        async with self._db.read() as view:
            row = (await view.execute(_WITH_CHAT, {"id": outbox_id})).one_or_none()
        return None if row is None else (outbox_row(row), chat_of(row))

    async def by_key(self, key: str, tx: Transaction | None = None) -> OutboxRow | None:
        async with self._db.read(tx) as view:
            row = (await view.execute(_BY_KEY, {"key": key})).one_or_none()
        return None if row is None else outbox_row(row)

    async def asking(self, approval_id: str) -> Sequence[tuple[str, ChatId]]:
        """Keys of the cards with a live button or form that decides about this request, each with
        the chat its card is in."""
        named = (actions.c.action[name].as_string() for name in ("approval_id", "question_id"))
        query = (
            select(actions.c.card_key, actions.c.chat_id)
            .where(~actions.c.retired, or_(*(each == approval_id for each in named)))
            .distinct()
        )
        async with self._db.read() as view:
            rows = (await view.execute(query)).all()
        return tuple((row.card_key, ChatId(row.chat_id)) for row in rows)

    async def by_prefix(self, prefix: str) -> Sequence[tuple[str, ChatId]]:
        """Keys that begin with `prefix`, oldest first, each with the chat its card is in."""
        query = (
            select(outbox.c.key, outbox.c.chat_id)
            .where(outbox.c.key.startswith(prefix, autoescape=True))
            .order_by(outbox.c.id)
        )
        async with self._db.read() as view:
            rows = (await view.execute(query)).all()
        # LIKE does not mind case on every engine; keys do.
        return tuple((row.key, ChatId(row.chat_id)) for row in rows if row.key.startswith(prefix))

    async def at(
        self, channel: Channel, external_id: str, message_id: str, tx: Transaction | None = None
    ) -> OutboxRow | None:
        """The card that a message of the platform shows."""
        facts = {
            "channel": channel.value,
            "external_id": external_id,
            "message_id": message_id,
        }
        async with self._db.read(tx) as view:
            row = (await view.execute(_AT, facts)).one_or_none()
        return None if row is None else outbox_row(row)

    async def under_way(self, chat_id: ChatId) -> bool:
        """Whether something of this chat is handed to the platform, and not known to be there."""
        c = outbox.c
        tried = select(c.id).where(c.chat_id == chat_id, _QUEUED, c.tried_revision > 0)
        async with self._db.read() as view:
            return await view.scalar(tried.limit(1)) is not None

    async def heads(self, channel: Channel, *, now: datetime) -> Sequence[Head]:
        """For each chat with something due its first letter; the most urgent, then the oldest,
        first of all."""
        async with self._db.read() as view:
            facts = {"channel": channel.value, "now": now}
            rows = (await view.execute(_HEADS, facts)).all()
        return tuple(
            Head(
                id=OutboxId(row.first % _STEP),
                external_id=row.external_id,
                kind=ChatKind(row.kind),
                urgency=Urgency(row.first // _STEP),
            )
            for row in sorted(rows, key=lambda row: int(row.first))
        )

    async def next_due(self, channel: Channel, *, now: datetime) -> datetime | None:
        """When the next letter that is not due yet will be."""
        async with self._db.read() as view:
            facts = {"channel": channel.value, "now": now}
            due: datetime | None = (await view.execute(_NEXT_DUE, facts)).scalar()
        return due

    async def queued(self) -> int:
        """How many messages wait to be shown."""
        async with self._db.read() as view:
            return (await view.execute(_WAITING)).scalar_one()

    async def begin_try(self, tx: Transaction, outbox_id: OutboxId) -> Try | None:
        """Note that the newest revision is about to be handed to the platform; None if there is
        nothing to show any more. Commit before calling the platform: a crash in between must
        leave the note."""
        row = (await tx.execute(_WITH_CHAT, {"id": outbox_id})).one_or_none()
        if row is None or row.state != OutboxState.QUEUED.value:
            return None
        # The oldest revision that may be on the screen is the one the platform would know again.
        unsure = row.tried_revision
        await tx.execute(_BEGIN, {"which": outbox_id, "tried": unsure or row.revision})
        letter = replace(outbox_row(row), attempts=row.attempts + 1)
        begun = row.placed is not None and not row.shown_revision
        return Try(row=letter, chat=chat_of(row), unsure=unsure, begun=begun)

    async def partly(self, tried: Try, placed: Placed) -> None:
        """So much of it is on the screen, and more is to come: after a crash it goes on there."""
        async with self._db.write() as tx:
            await tx.execute(_PARTLY, {"which": tried.row.id, "where": _where(placed)})
            await _place(tx, tried, placed)

    async def shown(self, tried: Try, placed: Placed, *, revision: int, now: datetime) -> None:
        """`revision` is on the screen, at `placed`."""
        where = _where(placed)
        async with self._db.write() as tx:
            await tx.execute(
                _SHOWN, {"which": tried.row.id, "seen": revision, "where": where, "at": now}
            )
            await _place(tx, tried, placed)

    async def retry_later(
        self, tried: Try, *, now: datetime, due: datetime, error: str, may_have_arrived: bool
    ) -> None:
        """It is not known to be shown; try again at `due`."""
        unsure = tried.unsure or (tried.row.revision if may_have_arrived else 0)
        async with self._db.write() as tx:
            facts = {"which": tried.row.id, "due": due, "tried": unsure, "why": error, "at": now}
            await tx.execute(_LATER, facts)

    async def dead(self, tried: Try, *, error: str) -> None:
        """Give this revision up. A newer one is tried anew."""
        async with self._db.write() as tx:
            facts = {"which": tried.row.id, "tried": tried.row.revision, "why": error}
            await tx.execute(_DEAD, facts)


def _where(placed: Placed) -> dict[str, Any]:
    return {"message_ids": list(placed.message_ids), "state": dict(placed.state)}


async def _place(tx: Transaction, tried: Try, placed: Placed) -> None:
    """Replies and presses find the letter by these messages from now on."""
    for message_id in placed.message_ids:
        values = {
            "chat_id": tried.row.chat_id,
            "message_id": message_id,
            "outbox_id": tried.row.id,
        }
        key = ("chat_id", "message_id")
        await tx.execute(upsert(tx.dialect.name, placements, values, key), values)


def _values(new: Outgoing, now: datetime) -> dict[str, Any]:
    return {
        "key": new.key,
        "chat_id": new.chat_id,
        "card": dict(new.card),
        "urgency": int(new.urgency),
        "reply_to": new.reply_to,
        "due_at": now,
        "created_at": now,
        "updated_at": now,
    }


def outbox_row(row: Row[Any]) -> OutboxRow:
    placed = row.placed
    return OutboxRow(
        id=OutboxId(row.id),
        key=row.key,
        chat_id=ChatId(row.chat_id),
        urgency=Urgency(row.urgency),
        card=row.card,
        reply_to=row.reply_to,
        revision=row.revision,
        placed=None
        if placed is None
        else Placed(message_ids=tuple(placed["message_ids"]), state=placed["state"]),
        tried=row.tried_revision > 0,
        attempts=row.attempts,
    )
