"""Who is paired, on which accounts, and where they speak."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row, bindparam, delete, insert, select, update

from storage.db import Database, Transaction
from storage.errors import NotFound
from storage.ids import Ids
from storage.mail.chats import Chats
from storage.records.people import (
    Channel,
    Chat,
    ChatId,
    ChatKind,
    ChatSettings,
    Language,
    Member,
    Person,
    PersonId,
    Role,
)
from storage.schema import chats, identities, people

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

_RANK = update(people).where(people.c.id == bindparam("who")).values(role=bindparam("rank"))

_FORGET = delete(identities).where(identities.c.person_id == bindparam("who"))

_ALL = (
    select(people, identities.c.channel, identities.c.external_id)
    .join(identities, identities.c.person_id == people.c.id)
    .order_by(people.c.role != Role.OWNER.value, people.c.created_at, people.c.id)
)

_ROOMS = select(chats.c.id).where(
    chats.c.person_id == bindparam("who"), chats.c.kind == ChatKind.PRIVATE.value
)

_KNOWN = select(identities.c.person_id).where(identities.c.person_id == bindparam("who")).limit(1)

_SPEAK = update(people).where(people.c.id == bindparam("who")).values(language=bindparam("spoken"))


class People:
    """Shaped as handlers.ports.People. `unnamed_owner` is the name of whoever stays an owner
    without being named in the settings, since nobody else would be one."""

    def __init__(self, db: Database, ids: Ids, chats: Chats) -> None:
        self._db = db
        self._ids = ids
        self._chats = chats
        self._named = frozenset[tuple[Channel, str]]()
        self.unnamed_owner = ""

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
        what it is: see `demote_unnamed`."""
        named = tuple(named)
        self._named = frozenset(named)
        async with self._db.write() as tx:
            for channel, external_id in dict.fromkeys((WEB_OWNER, *named)):
                name = local if (channel, external_id) == WEB_OWNER else external_id
                person = await self.admit(
                    tx, channel, external_id, name=name, role=Role.OWNER, now=now
                )
                if person.role is not Role.OWNER:
                    await tx.execute(_RANK, {"who": person.id, "rank": Role.OWNER.value})

    async def demote_unnamed(self) -> Sequence[Person]:
        """Owners whom the settings no longer name become members; but for the oldest, where only
        the local web chat's owner would be left. Who has become one."""
        async with self._db.write() as tx:
            owners = [each for each in await self._members(tx) if _is_owner(each)]
            away = [each for each in owners if not each.local]
            fallen = [each for each in away if not each.named]
            kept = fallen[:1] if len(fallen) == len(away) else []
            fallen = fallen[len(kept) :]
            for each in fallen:
                await tx.execute(_RANK, {"who": each.person.id, "rank": Role.MEMBER.value})
        self.unnamed_owner = kept[0].person.name if kept else ""
        return [each.person for each in fallen]

    async def members(self) -> Sequence[Member]:
        """Everybody who is let in: owners first, then by age."""
        async with self._db.read() as view:
            return await self._members(view)

    async def demote(self, person_id: PersonId) -> bool:
        """Make an owner a member. False: the last owner and the local web chat's stay."""
        async with self._db.write() as tx:
            if not await self._dispensable(tx, person_id):
                return False
            await tx.execute(_RANK, {"who": person_id, "rank": Role.MEMBER.value})
        return True

    async def remove(self, person_id: PersonId) -> Sequence[ChatId] | None:
        """Make somebody a stranger again; what they have started stays. Their private chats;
        None: the last owner and the local web chat's stay."""
        async with self._db.write() as tx:
            if not await self._dispensable(tx, person_id):
                return None
            await tx.execute(_RANK, {"who": person_id, "rank": Role.MEMBER.value})
            await tx.execute(_FORGET, {"who": person_id})
            return [ChatId(each) for each in await tx.scalars(_ROOMS, {"who": person_id})]

    async def is_let_in(self, person_id: PersonId) -> bool:
        """False for somebody who was removed."""
        async with self._db.read() as view:
            return await view.scalar(_KNOWN, {"who": person_id}) is not None

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

    async def _members(self, view: Transaction) -> Sequence[Member]:
        found: dict[str, tuple[Person, list[tuple[Channel, str]]]] = {}
        for row in (await view.execute(_ALL)).all():
            _, accounts = found.setdefault(row.id, (_person(row), []))
            accounts.append((Channel(row.channel), row.external_id))
        return [
            Member(
                person=person,
                accounts=tuple(accounts),
                named=not self._named.isdisjoint(accounts),
                local=WEB_OWNER in accounts,
            )
            for person, accounts in found.values()
        ]

    async def _dispensable(self, tx: Transaction, person_id: PersonId) -> bool:
        """NotFound where nobody is let in under that id."""
        members = {each.person.id: each for each in await self._members(tx)}
        if person_id not in members:
            raise NotFound("person", person_id)
        others = [each for each in members.values() if each.person.id != person_id]
        return not members[person_id].local and any(map(_is_owner, others))

    async def _identified(
        self, tx: Transaction, channel: Channel, external_id: str
    ) -> Person | None:
        facts = {"channel": channel.value, "external_id": external_id}
        row = (await tx.execute(_BY_IDENTITY, facts)).one_or_none()
        return None if row is None else _person(row)


def _is_owner(member: Member) -> bool:
    return member.person.role is Role.OWNER


def _person(row: Row[Any]) -> Person:
    return Person(
        id=PersonId(row.id),
        name=row.name,
        role=Role(row.role),
        language=Language(row.language) if row.language else None,
        created_at=row.created_at,
    )
