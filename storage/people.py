"""Who is paired, on which accounts, and where they speak."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row, bindparam, insert, select, update

from storage.db import Database, Transaction
from storage.errors import NotFound
from storage.ids import Ids
from storage.mail.chats import Chats
from storage.records.people import (
    Channel,
    Chat,
    ChatId,
    ChatSettings,
    Language,
    Person,
    PersonId,
    Role,
)
from storage.schema import identities, people

WEB_OWNER = (Channel.WEB, "local")
"""Whoever opens the local web chat: its token is the proof."""

_BY_ID = select(people).where(people.c.id == bindparam("id"))

_BY_IDENTITY = (
    select(people)
    .join(identities, identities.c.person_id == people.c.id)
    .where(
        identities.c.channel == bindparam("channel"),
        identities.c.external_id == bindparam("external_id"),
    )
)

_ACCOUNT = (
    select(identities.c.external_id)
    .where(identities.c.person_id == bindparam("who"), identities.c.channel == bindparam("channel"))
    .order_by(identities.c.external_id)
    .limit(1)
)

_PROMOTE = update(people).where(people.c.id == bindparam("who")).values(role=Role.OWNER.value)

_SPEAK = update(people).where(people.c.id == bindparam("who")).values(language=bindparam("spoken"))


class People:
    """Shaped as handlers.ports.People."""

    def __init__(self, db: Database, ids: Ids, chats: Chats) -> None:
        self._db = db
        self._ids = ids
        self._chats = chats

    async def who(self, channel: Channel, external_id: str) -> Person | None:
        async with self._db.read() as view:
            return await self._identified(view, channel, external_id)

    async def get(self, person_id: PersonId) -> Person:
        async with self._db.read() as view:
            row = (await view.execute(_BY_ID, {"id": person_id})).one_or_none()
        if row is None:
            raise NotFound("person", person_id)
        return _person(row)

    async def account(self, view: Transaction, person_id: PersonId, channel: Channel) -> str:
        """What the person is called on a channel; empty if they have no account there."""
        return await view.scalar(_ACCOUNT, {"who": person_id, "channel": channel.value}) or ""

    async def chat(self, chat_id: ChatId) -> Chat:
        return await self._chats.get(chat_id)

    async def private_chats(self, role: Role) -> Sequence[Chat]:
        return await self._chats.private(role)

    async def adjust(self, chat: Chat, settings: ChatSettings) -> Chat:
        return await self._chats.adjust(chat.id, settings)

    async def speak(self, person: Person, language: Language) -> None:
        async with self._db.write() as tx:
            await tx.execute(_SPEAK, {"who": person.id, "spoken": language.value})

    async def ensure_owners(
        self, named: Iterable[tuple[Channel, str]], *, now: datetime, local: str = "Owner"
    ) -> None:
        """Make the accounts named in the settings, and the local web chat's, owners; `local` is
        the name of the latter. Doing it again changes nothing. An account no longer named stays
        what it is."""
        async with self._db.write() as tx:
            for channel, external_id in dict.fromkeys((WEB_OWNER, *named)):
                name = local if (channel, external_id) == WEB_OWNER else external_id
                person = await self.admit(
                    tx, channel, external_id, name=name, role=Role.OWNER, now=now
                )
                if person.role is not Role.OWNER:
                    await tx.execute(_PROMOTE, {"who": person.id})

    async def admit(
        self,
        tx: Transaction,
        channel: Channel,
        external_id: str,
        *,
        name: str,
        role: Role,
        now: datetime,
    ) -> Person:
        """The person behind an account, made with this name and role if there is none yet."""
        known = await self._identified(tx, channel, external_id)
        if known is not None:
            return known
        person = Person(
            id=PersonId(self._ids.token()), name=name, role=role, language=None, created_at=now
        )
        await tx.execute(
            insert(people).values(id=person.id, name=name, role=role.value, created_at=now)
        )
        await tx.execute(
            insert(identities).values(
                channel=channel.value, external_id=external_id, person_id=person.id
            )
        )
        return person

    async def _identified(
        self, tx: Transaction, channel: Channel, external_id: str
    ) -> Person | None:
        facts = {"channel": channel.value, "external_id": external_id}
        row = (await tx.execute(_BY_IDENTITY, facts)).one_or_none()
        return None if row is None else _person(row)


def _person(row: Row[Any]) -> Person:
    return Person(
        id=PersonId(row.id),
        name=row.name,
        role=Role(row.role),
        language=Language(row.language) if row.language else None,
        created_at=row.created_at,
    )
