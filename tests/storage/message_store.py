"""Shared by the tests of message storage: a store with all its repositories, and sample facts."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from storage.account_links import AccountLinkRepo
from storage.approvals import ApprovalRepo
from storage.db import Database
from storage.ids import IdGenerator
from storage.key_value import KeyValueStore
from storage.memory.entries import MemoryEntryRepo
from storage.memory.linked_memories import LinkedMemoryRepo
from storage.messages.card_actions import CardActionRepo
from storage.messages.chats import ChatRepo
from storage.messages.inbox import InboxRepo
from storage.messages.outbox import OutboxReceipt, OutboxRepo, OutgoingCard
from storage.people import PairingRepo, PeopleRepo
from storage.records.approvals import ApprovalKind
from storage.records.messages import ChatAddress, DeliveryUrgency, IncomingMessage, MessageSender
from storage.records.people import Channel, Chat, ChatKind, Person, PersonRole
from storage.search.inverted_index import InvertedIndex

START = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)


@dataclass
class MessageStore:
    """All repositories on one database; `now` is what their clock says."""

    db: Database
    now: datetime = START
    ids: IdGenerator = field(default_factory=lambda: IdGenerator(random.Random(7).randrange))

    def __post_init__(self) -> None:
        self.chats = ChatRepo(self.db, self.ids)
        self.people = PeopleRepo(self.db, self.ids, self.chats)
        self.key_values = KeyValueStore(self.db)
        self.pairings = PairingRepo(
            self.db,
            self.ids,
            people=self.people,
            chats=self.chats,
            key_values=self.key_values,
            now=lambda: self.now,
        )
        self.entries = entries = MemoryEntryRepo(self.db, self.ids, InvertedIndex(self.db))
        self.account_links = AccountLinkRepo(
            self.db,
            self.ids,
            people=self.people,
            key_values=self.key_values,
            memories=LinkedMemoryRepo(self.db, entries),
            now=lambda: self.now,
            publish=lambda _: None,
        )
        self.approvals = ApprovalRepo(
            self.db,
            now=lambda: self.now,
            decision_handlers={
                ApprovalKind.PAIRING: self.pairings.apply_decision,
                ApprovalKind.LINK: self.account_links.apply_decision,
            },
        )
        self.inbox = InboxRepo(self.db)
        self.outbox = OutboxRepo(self.db)
        self.actions = CardActionRepo(self.db, self.ids)

    def advance(self, **delta: float) -> datetime:
        self.now += timedelta(**delta)
        return self.now

    async def chat(self, at: ChatAddress | None = None, by: MessageSender | None = None) -> Chat:
        async with self.db.write() as tx:
            return await self.chats.get_or_create(tx, at or place(), by or sender(), self.now)

    async def person(
        self,
        external_id: str = "42",
        *,
        role: PersonRole = PersonRole.MEMBER,
        channel: Channel | None = None,
    ) -> Person:
        async with self.db.write() as tx:
            return await self.people.get_or_create(
                tx,
                channel or Channel.TELEGRAM,
                external_id,
                name=f"Person {external_id}",
                role=role,
                now=self.now,
            )

    async def put(
        self, chat: Chat, card: Any = "hello", *, key: str = "k", **rest: Any
    ) -> OutboxReceipt:
        new = OutgoingCard(
            key=key,
            chat_id=chat.id,
            card={"title": card},
            urgency=rest.pop("urgency", DeliveryUrgency.ANSWER),
            **rest,
        )
        async with self.db.write() as tx:
            return await self.outbox.put(tx, new, now=self.now)


def place(chat: str = "42", **rest: Any) -> ChatAddress:
    facts: dict[str, Any] = {"channel": Channel.TELEGRAM, "kind": ChatKind.PRIVATE} | rest
    return ChatAddress(chat=chat, **facts)


def group(chat: str = "-100", **rest: Any) -> ChatAddress:
    return place(chat, kind=ChatKind.GROUP, **rest)


def sender(external_id: str = "42", **rest: Any) -> MessageSender:
    return MessageSender(external_id=external_id, **rest)


def message(text: str = "hi", **rest: Any) -> IncomingMessage:
    facts: dict[str, Any] = {
        "place": place(),
        "sender": sender(),
        "message_id": "m1",
        "addressed": True,
        "sent_at": START,
    }
    return IncomingMessage(text=text, **(facts | rest))
