"""What the tests of the mail room share: a room with all its repositories, and the facts in it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from storage.approvals import Approvals
from storage.db import Database
from storage.ids import Ids
from storage.mail.actions import Actions
from storage.mail.chats import Chats
from storage.mail.inbox import Inbox
from storage.mail.outbox import Outbox, Outgoing, Posted
from storage.marks import Marks
from storage.pairings import Pairings
from storage.people import People
from storage.records.approvals import ApprovalKind
from storage.records.messages import MessageIn, Place, Sender, Urgency
from storage.records.people import Channel, Chat, ChatKind, Person, Role

START = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)


@dataclass
class Room:
    """All repositories on one database; `now` is what their clock says."""

    db: Database
    now: datetime = START
    ids: Ids = field(default_factory=lambda: Ids(random.Random(7).randrange))

    def __post_init__(self) -> None:
        self.chats = Chats(self.db, self.ids)
        self.people = People(self.db, self.ids, self.chats)
        self.marks = Marks(self.db)
        self.pairings = Pairings(
            self.db,
            self.ids,
            people=self.people,
            chats=self.chats,
            marks=self.marks,
            now=lambda: self.now,
        )
        self.approvals = Approvals(
            self.db,
            now=lambda: self.now,
            consequences={ApprovalKind.PAIRING: self.pairings.settle},
        )
        self.inbox = Inbox(self.db)
        self.outbox = Outbox(self.db)
        self.actions = Actions(self.db, self.ids)

    def later(self, **delta: float) -> datetime:
        self.now += timedelta(**delta)
        return self.now

    async def chat(self, at: Place | None = None, by: Sender | None = None) -> Chat:
        async with self.db.write() as tx:
            return await self.chats.meet(tx, at or place(), by or sender(), self.now)

    async def person(
        self, external_id: str = "42", *, role: Role = Role.MEMBER, channel: Channel | None = None
    ) -> Person:
        async with self.db.write() as tx:
            return await self.people.admit(
                tx,
                channel or Channel.TELEGRAM,
                external_id,
                name=f"Person {external_id}",
                role=role,
                now=self.now,
            )

    async def put(self, chat: Chat, card: Any = "hello", *, key: str = "k", **rest: Any) -> Posted:
        new = Outgoing(
            key=key,
            chat_id=chat.id,
            card={"title": card},
            urgency=rest.pop("urgency", Urgency.ANSWER),
            **rest,
        )
        async with self.db.write() as tx:
            return await self.outbox.put(tx, new, now=self.now)


def place(chat: str = "42", **rest: Any) -> Place:
    facts: dict[str, Any] = {"channel": Channel.TELEGRAM, "kind": ChatKind.PRIVATE} | rest
    return Place(chat=chat, **facts)


def group(chat: str = "-100", **rest: Any) -> Place:
    return place(chat, kind=ChatKind.GROUP, **rest)


def sender(external_id: str = "42", **rest: Any) -> Sender:
    return Sender(external_id=external_id, **rest)


def message(text: str = "hi", **rest: Any) -> MessageIn:
    facts: dict[str, Any] = {
        "place": place(),
        "sender": sender(),
        "message_id": "m1",
        "addressed": True,
        "sent_at": START,
    }
    return MessageIn(text=text, **(facts | rest))
