"""Stores chats and their partners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, bindparam, exists, insert, literal, or_, select, update

from storage.db import Database, Transaction, record_from, row_from
from storage.errors import NotFound
from storage.ids import IdGenerator
from storage.records.messages import (
    UNREACHABLE_ERROR,
    ChatAddress,
    MessageSender,
    OutboxState,
)
from storage.records.people import (
    Channel,
    Chat,
    ChatId,
    ChatKind,
    ChatSettings,
    Language,
    PersonId,
    PersonRole,
)
from storage.schema import chats, identities, outbox, people

JOINED_PREFIX = "its_"
JOINED_CHAT = tuple(column.label(f"{JOINED_PREFIX}{column.name}") for column in chats.c)
"""The columns of a chat in a query of another table."""

_SETTINGS = frozenset(each.name for each in fields(ChatSettings))

_BY_ID = select(chats).where(chats.c.id == bindparam("id"))

_AT_ADDRESS = (
    chats.c.channel == bindparam("channel"),
    chats.c.external_id == bindparam("external_id"),
    chats.c.thread == bindparam("thread"),
)

_BY_ADDRESS = select(chats).where(*_AT_ADDRESS)

_KNOWN_SENDERS = identities.join(people, people.c.id == identities.c.person_id)

# The chat and its sender's account in one query.
_WITH_SENDER = (
    select(
        chats,
        identities.c.person_id.label("partner"),
        identities.c.brought_by.label("partner_brought_by"),
        people.c.name.label("partner_name"),
    )
    .select_from(
        chats.outerjoin(
            _KNOWN_SENDERS,
            (identities.c.channel == bindparam("channel"))
            & (identities.c.external_id == bindparam("who")),
        )
    )
    .where(*_AT_ADDRESS)
)

_PRIVATE = (
    select(chats)
    .join(people, people.c.id == chats.c.person_id)
    .where(
        people.c.role == bindparam("role"),
        chats.c.kind == ChatKind.PRIVATE.value,
        # A removed person has no account.
        exists().where(identities.c.person_id == people.c.id),
    )
    # The main chat before its threads, then newest first.
    .order_by(chats.c.thread != literal(""), chats.c.created_at.desc(), chats.c.id)
)

_PRIVATE_OF = (
    select(chats)
    .where(chats.c.person_id == bindparam("who"), chats.c.kind == ChatKind.PRIVATE.value)
    .order_by(chats.c.thread != literal(""), chats.c.created_at.desc(), chats.c.id)
)

_GROUPS = (
    select(chats)
    .where(chats.c.channel == bindparam("channel"), chats.c.kind == ChatKind.GROUP.value)
    .order_by(chats.c.created_at.desc(), chats.c.id)
)

_GIVE_ADDRESS = (
    update(chats)
    .where(
        chats.c.channel == bindparam("at_channel"),
        chats.c.external_id == bindparam("who"),
        chats.c.thread == bindparam("in_thread"),
        chats.c.kind == ChatKind.PRIVATE.value,
    )
    .values(external_id=bindparam("address"))
)

# What was given up as the chat was closed is sent when its person opens it, unless it is older.
_MAX_UNREAD_AGE = timedelta(days=30)
# A delivery in progress is told by its `attempts` that the chat was opened meanwhile.
_SEND_AGAIN = (
    update(outbox)
    .where(
        outbox.c.state.in_([OutboxState.DEAD.value, OutboxState.QUEUED.value]),
        outbox.c.due_at >= bindparam("since"),
        outbox.c.attempts > 0,
        or_(
            outbox.c.state == OutboxState.QUEUED.value,
            outbox.c.error.startswith(UNREACHABLE_ERROR),
        ),
        outbox.c.chat_id.in_(
            select(chats.c.id).where(
                chats.c.channel == bindparam("at_channel"),
                chats.c.external_id == bindparam("at_chat"),
                chats.c.kind == ChatKind.PRIVATE.value,
            )
        ),
    )
    .values(state=OutboxState.QUEUED.value, attempts=0, due_at=bindparam("at"))
)

_SET_PARTNER = (
    update(chats)
    .where(
        chats.c.channel == bindparam("at_channel"),
        chats.c.external_id == bindparam("at_chat"),
        chats.c.kind == ChatKind.PRIVATE.value,
    )
    .values(person_id=bindparam("partner"))
)


class ChatRepo:
    def __init__(self, db: Database, ids: IdGenerator) -> None:
        self._db = db
        self._ids = ids

    async def get_private(self, person_id: PersonId) -> Chat:
        """The person's main private chat. Raises NotFound."""
        row = await self._db.fetch_one(_PRIVATE_OF.limit(1), {"who": person_id})
        if row is None:
            raise NotFound("private_chat", person_id)
        return chat_from_row(row)

    async def get(self, chat_id: ChatId) -> Chat:
        """Raises NotFound."""
        row = await self._db.fetch_one(_BY_ID, {"id": chat_id})
        if row is None:
            raise NotFound("chat", chat_id)
        return chat_from_row(row)

    async def find(self, address: ChatAddress) -> Chat | None:
        row = await self._db.fetch_one(_BY_ADDRESS, _address_values(address))
        return None if row is None else chat_from_row(row)

    async def get_or_create(
        self, tx: Transaction, address: ChatAddress, sender: MessageSender, now: datetime
    ) -> Chat:
        """The chat at this address, created if missing; updates its title, kind and private
        partner. A private chat that was opened under its partner's account gets its address. What
        was given up because a private chat was closed to us is sent again if its partner has
        access: wake the outbox after the commit."""
        facts = _address_values(address) | {"who": sender.external_id}
        row = (await tx.execute(_WITH_SENDER, facts)).one_or_none()
        if row is None and address.kind is ChatKind.PRIVATE:
            row = await self._give_address(tx, address, sender)
        if row is None:
            chat = await self._create(tx, address, now)
            row = (await tx.execute(_WITH_SENDER, facts)).one()
        else:
            chat = chat_from_row(row)
        partner = None
        if address.kind is ChatKind.PRIVATE:
            partner = await _sender_person(tx, row, sender)
        if partner is not None:
            await _send_again(tx, address, now)
        seen = replace(
            chat,
            kind=address.kind,
            title=address.title or chat.title,
            person_id=partner or chat.person_id,
            settings=_with_client_language(chat, sender) if partner else chat.settings,
        )
        if seen != chat:
            values: dict[str, Any] = {"kind": seen.kind.value, "title": seen.title}
            values["person_id"] = seen.person_id
            if seen.settings != chat.settings:
                values["settings"] = row_from(seen.settings)
            if partner:
                values["brought_by"] = row.partner_brought_by
            await tx.execute(update(chats).where(chats.c.id == chat.id).values(values))
        return seen

    async def update_settings(self, chat_id: ChatId, **changes: Any) -> Chat:
        """Change the named settings and keep the others as they are by now."""
        async with self._db.write() as tx:
            row = (await tx.execute(_BY_ID, {"id": chat_id})).one()
            settings = replace(chat_from_row(row).settings, **changes)
            await tx.execute(
                update(chats).where(chats.c.id == chat_id).values(settings=row_from(settings))
            )
        return await self.get(chat_id)

    async def set_client_language(self, address: ChatAddress, language: Language) -> None:
        """Set the language of the reader's app on an existing chat."""
        chat = await self.find(address)
        if chat is not None and chat.settings.client_language is not language:
            await self.update_settings(chat.id, client_language=language)

    async def list_private(self, role: PersonRole) -> Sequence[Chat]:
        """One private chat per channel for each person with exactly this role."""
        first: dict[tuple[str, str], Chat] = {}
        for row in await self._db.fetch_all(_PRIVATE, {"role": role.value}):
            first.setdefault((row.person_id, row.channel), chat_from_row(row))
        return tuple(first.values())

    async def list_groups(self, channel: Channel) -> Sequence[Chat]:
        """Groups of the channel, each once without its threads, the newest first."""
        rows = await self._db.fetch_all(_GROUPS, {"channel": channel.value})
        return tuple({row.external_id: chat_from_row(row) for row in reversed(rows)}.values())[::-1]

    async def set_partner(
        self, tx: Transaction, channel: Channel, external_id: str, person_id: str
    ) -> None:
        """Set the partner of a private chat, in all its threads."""
        facts = {"at_channel": channel.value, "at_chat": external_id, "partner": person_id}
        await tx.execute(_SET_PARTNER, facts)

    async def _give_address(
        self, tx: Transaction, address: ChatAddress, sender: MessageSender
    ) -> Row[Any] | None:
        who = {"who": sender.external_id}
        at = {"at_channel": address.channel.value, "in_thread": address.thread}
        await tx.execute(_GIVE_ADDRESS, at | who | {"address": address.chat})
        return (await tx.execute(_WITH_SENDER, _address_values(address) | who)).one_or_none()

    async def _create(self, tx: Transaction, place: ChatAddress, now: datetime) -> Chat:
        chat = Chat(
            id=ChatId(self._ids.token()),
            channel=place.channel,
            external_id=place.chat,
            thread=place.thread,
            kind=place.kind,
            title=place.title,
            settings=ChatSettings(),
            person_id=None,
        )
        await tx.execute(insert(chats).values(row_from(chat) | {"settings": {}, "created_at": now}))
        return chat


async def _sender_person(tx: Transaction, row: Row[Any], sender: MessageSender) -> PersonId | None:
    # Configured owners are named by their account until they first write.
    if row.partner and sender.name and row.partner_name == sender.external_id:
        await tx.execute(update(people).where(people.c.id == row.partner).values(name=sender.name))
    return PersonId(row.partner) if row.partner else None


def _with_client_language(chat: Chat, sender: MessageSender) -> ChatSettings:
    found = Language.from_tag(sender.language)
    return replace(chat.settings, client_language=found) if found else chat.settings


async def _send_again(tx: Transaction, address: ChatAddress, now: datetime) -> None:
    facts = {"at_channel": address.channel.value, "at_chat": address.chat}
    await tx.execute(_SEND_AGAIN, facts | {"at": now, "since": now - _MAX_UNREAD_AGE})


def _address_values(address: ChatAddress) -> dict[str, str]:
    return {
        "channel": address.channel.value,
        "external_id": address.chat,
        "thread": address.thread,
    }


def chat_from_row(row: Row[Any], prefix: str = "") -> Chat:
    """The chat in a row of its table, or of a query with JOINED_CHAT."""
    stored = getattr(row, f"{prefix}settings")
    known = {name: value for name, value in stored.items() if name in _SETTINGS}
    for name in ("language", "client_language"):
        if known.get(name):
            known[name] = Language(known[name])
    return record_from(Chat, row, prefix, settings=ChatSettings(**known))
