"""Stores outgoing cards: one row per logical message, its newest revision only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    Integer,
    Row,
    and_,
    bindparam,
    case,
    cast,
    func,
    insert,
    or_,
    select,
    update,
)

from storage.db import Database, Transaction, record_from, row_from
from storage.dialect import insert_or_ignore, upsert
from storage.messages.chats import JOINED_CHAT, JOINED_PREFIX, chat_from_row
from storage.records.messages import (
    DeliveryUrgency,
    MessagePlacement,
    OutboxId,
    OutboxRow,
    OutboxState,
)
from storage.records.people import Channel, Chat, ChatId, ChatKind
from storage.schema import actions, chats, marks, outbox, placements

_QUEUED = outbox.c.state == OutboxState.QUEUED.value

# A row updated in the future was written before the clock was set back; its due time is meaningless
# and might be a year away.
_DUE = or_(outbox.c.due_at <= bindparam("now"), outbox.c.updated_at > bindparam("now"))

# A time to edit that is further away is from before the clock was set back.
_MAX_EDIT_WAIT = timedelta(minutes=1)

_BY_KEY = select(outbox).where(outbox.c.key == bindparam("key"))

_WITH_CHAT = (
    select(outbox, *JOINED_CHAT)
    .join(chats, chats.c.id == outbox.c.chat_id)
    .where(outbox.c.id == bindparam("id"))
)

# A message that is due for longer than this goes with the answers, so that a flood of answers
# starves nothing but progress.
_MAX_OVERDUE = timedelta(minutes=5)
_EFFECTIVE_URGENCY = case(
    (
        and_(
            outbox.c.urgency < DeliveryUrgency.PROGRESS.value,
            outbox.c.due_at <= bindparam("overdue_since", type_=outbox.c.due_at.type),
        ),
        DeliveryUrgency.ANSWER.value,
    ),
    else_=outbox.c.urgency,
)

# Among equals the longest due goes first, so that the edits of one card do not starve another's.
_DUE_OUTBOX = (
    select(
        outbox.c.id,
        outbox.c.urgency,
        _EFFECTIVE_URGENCY.label("effective_urgency"),
        outbox.c.due_at,
        chats.c.external_id,
        chats.c.kind,
        func.row_number()
        .over(
            partition_by=chats.c.external_id,
            order_by=(_EFFECTIVE_URGENCY, outbox.c.due_at, outbox.c.id),
        )
        .label("place"),
    )
    .join(chats, chats.c.id == outbox.c.chat_id)
    .where(_QUEUED, chats.c.channel == bindparam("channel"), _DUE)
    .subquery()
)
_NEXT_DUE = (
    select(func.min(outbox.c.due_at))
    .join(chats, chats.c.id == outbox.c.chat_id)
    .where(_QUEUED, chats.c.channel == bindparam("channel"), outbox.c.due_at > bindparam("now"))
)
_NEXT = select(_NEXT_DUE.scalar_subquery().label("next_due")).subquery()
# One row at least. Each change of the outbox asks this, so it is one statement.
_NEXT_BY_CHAT = (
    select(_NEXT.c.next_due, _DUE_OUTBOX)
    .select_from(_NEXT.outerjoin(_DUE_OUTBOX, _DUE_OUTBOX.c.place == 1))
    .order_by(_DUE_OUTBOX.c.effective_urgency, _DUE_OUTBOX.c.due_at, _DUE_OUTBOX.c.id)
)

_COUNT_QUEUED = select(func.count()).select_from(outbox).where(_QUEUED)

_UPDATE = update(outbox).where(outbox.c.id == bindparam("which"))

_PLACED = select(outbox.c.placed).where(outbox.c.id == bindparam("id"))

# The revision counts up, so that a delivery in progress is followed by another.
_ADOPT = _UPDATE.values(placed=bindparam("where"), revision=outbox.c.revision + 1)

_BEGIN_ATTEMPT = _UPDATE.values(tried_revision=bindparam("tried"), attempts=outbox.c.attempts + 1)

_MARK_SHOWN = _UPDATE.values(
    shown_revision=bindparam("seen"),
    tried_revision=0,
    placed=bindparam("where"),
    state=case(
        (outbox.c.revision > bindparam("seen"), OutboxState.QUEUED.value),
        else_=OutboxState.SHOWN.value,
    ),
    attempts=0,
    error="",
    due_at=case(
        (
            or_(
                outbox.c.urgency == DeliveryUrgency.PROGRESS.value,
                outbox.c.revision == bindparam("seen"),
            ),
            bindparam("edit_at", type_=outbox.c.due_at.type),
        ),
        else_=bindparam("at", type_=outbox.c.due_at.type),
    ),
)

_MARK_SHOWN_BUT_FILES = _UPDATE.values(
    shown_revision=bindparam("seen"),
    tried_revision=0,
    placed=bindparam("where"),
    urgency=case(
        (outbox.c.revision > bindparam("seen"), outbox.c.urgency),
        else_=DeliveryUrgency.FILES.value,
    ),
    attempts=0,
    error="",
    due_at=bindparam("at"),
)

_MARK_PARTLY_SHOWN = _UPDATE.values(placed=bindparam("where"))

_RETRY_LATER = _UPDATE.values(
    due_at=bindparam("due"),
    tried_revision=bindparam("tried"),
    error=bindparam("why"),
    updated_at=bindparam("at"),
)

_OF_CHANNEL = select(chats.c.id).where(chats.c.channel == bindparam("channel"))
_RETRY_NOW = (
    update(outbox)
    .where(
        _QUEUED,
        outbox.c.attempts > 0,
        outbox.c.due_at > bindparam("now"),
        outbox.c.chat_id.in_(_OF_CHANNEL),
    )
    .values(due_at=bindparam("now", type_=outbox.c.due_at.type))
)

# A person who opened the chat while it refused the message has had its attempts begin anew.
_MARK_DEAD = _UPDATE.where(outbox.c.revision == bindparam("tried")).values(
    state=case(
        (outbox.c.attempts == bindparam("attempted"), OutboxState.DEAD.value),
        else_=OutboxState.QUEUED.value,
    ),
    tried_revision=0,
    error=bindparam("why"),
)

_BY_PLATFORM_MESSAGE = (
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
class OutgoingCard:
    """A card to show, as JSON. The same `key` always means the same message."""

    key: str
    chat_id: ChatId
    card: Mapping[str, Any]
    urgency: DeliveryUrgency
    reply_to: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxReceipt:
    """`changed` is False if the identical card was already stored."""

    id: OutboxId
    revision: int
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NextDelivery:
    """The next delivery of one platform chat, all its threads together."""

    id: OutboxId
    external_id: str
    kind: ChatKind
    urgency: DeliveryUrgency


@dataclass(frozen=True, slots=True, kw_only=True)
class DueDeliveries:
    """The next due delivery of each chat, most urgent first, then longest due; and when more
    becomes due."""

    deliveries: tuple[NextDelivery, ...]
    next_due: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryAttempt:
    """A delivery about to be made. `possibly_shown_revision` may have arrived in an earlier
    attempt, 0 if none; `is_partly_shown` says that no revision was ever shown completely;
    `files_only` says that the newest revision is shown and only files are missing."""

    row: OutboxRow
    chat: Chat
    possibly_shown_revision: int
    is_partly_shown: bool = False
    files_only: bool = False


NEWEST_ERASED = "outbox.newest_erased"
"""The mark with the greatest id of a card that was erased."""
# Pages know cards by their ids, and SQLite gives the id of an erased newest row again.
_UNUSED_ID = select(
    func.max(
        func.coalesce(select(func.max(outbox.c.id)).scalar_subquery(), 0),
        func.coalesce(
            select(cast(marks.c.value, Integer))
            .where(marks.c.name == NEWEST_ERASED)
            .scalar_subquery(),
            0,
        ),
    )
    + 1
).scalar_subquery()


class OutboxRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(
        self, tx: Transaction, new: OutgoingCard, *, now: datetime
    ) -> OutboxReceipt | None:
        """Like `put`, but only for a new key; otherwise does nothing and returns None."""
        values = _values(tx, new, now) | {"revision": 1, "state": OutboxState.QUEUED.value}
        added = await tx.execute(
            insert_or_ignore(tx.dialect.name, outbox).values(values).returning(outbox.c.id)
        )
        number = added.scalar_one_or_none()
        return (
            None if number is None else OutboxReceipt(id=OutboxId(number), revision=1, changed=True)
        )

    async def put(self, tx: Transaction, new: OutgoingCard, *, now: datetime) -> OutboxReceipt:
        """Make `new.card` the newest revision under its key; does nothing if it already is. A card
        stays in its first chat, whatever `new` says, and keeps the urgency that it waits with if
        that is greater. Progress waits until the card may be edited again."""
        added = await self.add(tx, new, now=now)
        if added is not None:
            return added
        row = (await tx.execute(_BY_KEY, {"key": new.key})).one()
        if row.revision and row.card == new.card:
            return OutboxReceipt(id=OutboxId(row.id), revision=row.revision, changed=False)
        queued = row.state == OutboxState.QUEUED.value
        urgency = min(new.urgency, row.urgency) if queued else new.urgency
        due = row.due_at if queued else now
        # A retry keeps its backoff: new content must not bypass a platform's limits.
        if not (queued and row.attempts):
            progress = urgency == DeliveryUrgency.PROGRESS
            due = min(max(due, row.due_at), now + _MAX_EDIT_WAIT) if progress else min(due, now)
        await tx.execute(
            update(outbox)
            .where(outbox.c.id == row.id)
            .values(
                card=dict(new.card),
                urgency=int(urgency),
                reply_to=new.reply_to or row.reply_to,
                revision=row.revision + 1,
                state=OutboxState.QUEUED.value,
                attempts=row.attempts if queued else 0,
                due_at=due,
                updated_at=now,
            )
        )
        return OutboxReceipt(id=OutboxId(row.id), revision=row.revision + 1, changed=True)

    async def reserve(self, tx: Transaction, new: OutgoingCard, *, now: datetime) -> OutboxRow:
        """The row under a key, created without content if missing, for an answer that is streamed
        before it becomes a card. `new.card` is ignored."""
        row = (await tx.execute(_BY_KEY, {"key": new.key})).one_or_none()
        if row is None:
            values = _values(tx, new, now) | {"revision": 0, "state": OutboxState.SHOWN.value}
            await tx.execute(insert(outbox).values(values))
            row = (await tx.execute(_BY_KEY, {"key": new.key})).one()
        return outbox_row_from(row)

    async def get(self, outbox_id: OutboxId) -> tuple[OutboxRow, Chat] | None:
        row = await self._db.fetch_one(_WITH_CHAT, {"id": outbox_id})
        return None if row is None else (outbox_row_from(row), chat_from_row(row, JOINED_PREFIX))

    async def find_by_key(self, key: str, tx: Transaction | None = None) -> OutboxRow | None:
        row = await self._db.fetch_one(_BY_KEY, {"key": key}, tx=tx)
        return None if row is None else outbox_row_from(row)

    async def list_approval_cards(self, approval_id: str) -> Sequence[tuple[str, ChatId]]:
        """Keys and chats of the cards with a live button or form for this request."""
        named = (actions.c.action[name].as_string() for name in ("approval_id", "question_id"))
        query = (
            select(actions.c.card_key, actions.c.chat_id)
            .where(~actions.c.retired, or_(*(each == approval_id for each in named)))
            .distinct()
        )
        rows = await self._db.fetch_all(query)
        return tuple((row.card_key, ChatId(row.chat_id)) for row in rows)

    async def list_by_prefix(self, prefix: str) -> Sequence[tuple[str, ChatId]]:
        """Keys that start with `prefix` and their chats, oldest first."""
        query = (
            select(outbox.c.key, outbox.c.chat_id)
            .where(outbox.c.key.startswith(prefix, autoescape=True))
            .order_by(outbox.c.id)
        )
        rows = await self._db.fetch_all(query)
        # LIKE ignores case on some engines.
        return tuple((row.key, ChatId(row.chat_id)) for row in rows if row.key.startswith(prefix))

    async def find_by_platform_message(
        self, channel: Channel, external_id: str, message_id: str, tx: Transaction | None = None
    ) -> OutboxRow | None:
        """The card shown by a platform message."""
        facts = {"channel": channel, "external_id": external_id, "message_id": message_id}
        row = await self._db.fetch_one(_BY_PLATFORM_MESSAGE, facts, tx=tx)
        return None if row is None else outbox_row_from(row)

    async def is_delivering(self, chat_id: ChatId) -> bool:
        """True if a delivery to this chat is in progress or unconfirmed."""
        c = outbox.c
        tried = select(c.id).where(c.chat_id == chat_id, _QUEUED, c.tried_revision > 0)
        return await self._db.fetch_value(tried.limit(1)) is not None

    async def list_due(self, channel: Channel, *, now: datetime) -> DueDeliveries:
        facts = {"channel": channel.value, "now": now, "overdue_since": now - _MAX_OVERDUE}
        rows = await self._db.fetch_all(_NEXT_BY_CHAT, facts)
        return DueDeliveries(
            deliveries=tuple(
                NextDelivery(
                    id=OutboxId(row.id),
                    external_id=row.external_id,
                    kind=ChatKind(row.kind),
                    urgency=DeliveryUrgency(row.urgency),
                )
                for row in rows
                if row.id is not None
            ),
            next_due=rows[0].next_due,
        )

    async def count_queued(self) -> int:
        """How many cards wait to be shown."""
        return int(await self._db.fetch_value(_COUNT_QUEUED))

    async def begin_attempt(self, tx: Transaction, outbox_id: OutboxId) -> DeliveryAttempt | None:
        """Record that the newest revision is about to be delivered; None if there is nothing to
        show. Commit before calling the platform, so that a crash in between leaves a record."""
        row = (await tx.execute(_WITH_CHAT, {"id": outbox_id})).one_or_none()
        if row is None or row.state != OutboxState.QUEUED.value:
            return None
        # The platform recognizes the oldest revision that may be visible.
        unsure = row.tried_revision
        await tx.execute(_BEGIN_ATTEMPT, {"which": outbox_id, "tried": unsure or row.revision})
        tried = replace(outbox_row_from(row), attempts=row.attempts + 1)
        begun = row.placed is not None and not row.shown_revision
        files_only = row.placed is not None and row.shown_revision == row.revision
        return DeliveryAttempt(
            row=tried,
            chat=chat_from_row(row, JOINED_PREFIX),
            possibly_shown_revision=unsure,
            is_partly_shown=begun,
            files_only=files_only,
        )

    async def adopt_copy(self, tx: Transaction, outbox_id: OutboxId, message_id: str) -> bool:
        """Take a message for a copy of a card that an unconfirmed delivery left, so that the next
        delivery edits it, or removes it if there is another. False if every delivery of the card is
        confirmed by now."""
        row = (await tx.execute(_WITH_CHAT, {"id": outbox_id})).one()
        if row.state != OutboxState.QUEUED.value or not row.tried_revision:
            return False
        placed = _with_copies(outbox_row_from(row).placement, (message_id,))
        await tx.execute(_ADOPT, {"which": outbox_id, "where": row_from(placed)})
        await _record_placement(tx, ChatId(row.chat_id), outbox_id, placed)
        return True

    async def mark_partly_shown(
        self, attempt: DeliveryAttempt, placement: MessagePlacement
    ) -> None:
        """Record a partial delivery; after a crash it continues there."""
        async with self._db.write() as tx:
            placement = await _keep_adopted(tx, attempt, placement)
            facts = {"which": attempt.row.id, "where": row_from(placement)}
            await tx.execute(_MARK_PARTLY_SHOWN, facts)
            await _record_placement(tx, attempt.row.chat_id, attempt.row.id, placement)

    async def mark_shown(
        self,
        attempt: DeliveryAttempt,
        placement: MessagePlacement,
        *,
        revision: int,
        now: datetime,
        edit_at: datetime | None = None,
        files_left: bool = False,
    ) -> None:
        """Record that `revision` is visible at `placement`. Progress may edit it from `edit_at` on,
        at once without. With `files_left` it stays queued for its files."""
        async with self._db.write() as tx:
            placement = await _keep_adopted(tx, attempt, placement)
            where = row_from(placement)
            facts = {"which": attempt.row.id, "seen": revision, "where": where, "at": now}
            if files_left:
                await tx.execute(_MARK_SHOWN_BUT_FILES, facts)
            else:
                await tx.execute(_MARK_SHOWN, {**facts, "edit_at": edit_at or now})
            await _record_placement(tx, attempt.row.chat_id, attempt.row.id, placement)

    async def retry_later(
        self,
        attempt: DeliveryAttempt,
        *,
        now: datetime,
        due: datetime,
        error: str,
        may_have_arrived: bool,
    ) -> None:
        """Schedule a retry at `due` for a delivery that is not known to have succeeded."""
        unsure = attempt.possibly_shown_revision or (
            attempt.row.revision if may_have_arrived else 0
        )
        async with self._db.write() as tx:
            facts = {"which": attempt.row.id, "due": due, "tried": unsure, "why": error, "at": now}
            await tx.execute(_RETRY_LATER, facts)

    async def retry_now(self, channel: Channel, *, now: datetime) -> None:
        """Make all deliveries of this channel due that wait for another attempt."""
        async with self._db.write() as tx:
            await tx.execute(_RETRY_NOW, {"channel": channel.value, "now": now})

    async def mark_dead(self, attempt: DeliveryAttempt, *, error: str) -> None:
        """Give up on this revision, unless its person opened the chat meanwhile. A newer one is
        tried again."""
        row = attempt.row
        facts = {"which": row.id, "tried": row.revision, "attempted": row.attempts, "why": error}
        async with self._db.write() as tx:
            await tx.execute(_MARK_DEAD, facts)


async def _keep_adopted(
    tx: Transaction, attempt: DeliveryAttempt, placement: MessagePlacement
) -> MessagePlacement:
    """Merge copies that were adopted during the attempt into the placement."""
    stored = (await tx.execute(_PLACED, {"id": attempt.row.id})).scalar_one()
    known = () if attempt.row.placement is None else attempt.row.placement.message_ids
    now = () if stored is None else stored["message_ids"]
    return _with_copies(placement, [each for each in now if each not in known])


def _with_copies(placed: MessagePlacement | None, message_ids: Sequence[str]) -> MessagePlacement:
    """Add copies to a placement. The platform's state describes the first messages only; those
    after it are text."""
    placed = placed or MessagePlacement(message_ids=())
    new = [each for each in message_ids if each not in placed.message_ids]
    return replace(placed, message_ids=(*placed.message_ids, *new))


async def _record_placement(
    tx: Transaction, chat_id: ChatId, outbox_id: OutboxId, placement: MessagePlacement
) -> None:
    """Map these platform messages to the card, for replies and presses."""
    for message_id in placement.message_ids:
        values = {"chat_id": chat_id, "message_id": message_id, "outbox_id": outbox_id}
        key = ("chat_id", "message_id")
        await tx.execute(upsert(tx.dialect.name, placements, values, key), values)


def _values(tx: Transaction, new: OutgoingCard, now: datetime) -> dict[str, Any]:
    values = row_from(new) | {"due_at": now, "created_at": now, "updated_at": now}
    return values | ({"id": _UNUSED_ID} if tx.dialect.name == "sqlite" else {})


def outbox_row_from(row: Row[Any]) -> OutboxRow:
    placed = row.placed
    placement = None
    if placed is not None:
        placement = MessagePlacement(
            message_ids=tuple(placed["message_ids"]), state=placed["state"]
        )
    return record_from(OutboxRow, row, placement=placement, maybe_delivered=row.tried_revision > 0)
