"""Conversations: where messages come from and go to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Row, bindparam, exists, insert, literal, select, update

from storage.db import Database, Transaction
from storage.errors import NotFound
from storage.ids import Ids
from storage.records.messages import Place, Sender
from storage.records.people import (
    Channel,
    Chat,
    ChatId,
    ChatKind,
    ChatSettings,
    Language,
    PersonId,
    Role,
)
from storage.schema import chats, identities, metadata, people

_BY_ID = select(chats).where(chats.c.id == bindparam("id"))

_AT_PLACE = select(chats).where(
    chats.c.channel == bindparam("channel"),
    chats.c.external_id == bindparam("external_id"),
    chats.c.thread == bindparam("thread"),
)

_PARTNERS = identities.join(people, people.c.id == identities.c.person_id)

# The chat and, in the same look, who the sender is.
_MET = (
    select(chats, identities.c.person_id.label("partner"), people.c.name.label("partner_name"))
    .select_from(
        chats.outerjoin(
            _PARTNERS,
            (identities.c.channel == bindparam("channel"))
            & (identities.c.external_id == bindparam("who")),
        )
    )
    .where(
        chats.c.channel == bindparam("channel"),
        chats.c.external_id == bindparam("external_id"),
        chats.c.thread == bindparam("thread"),
    )
)

_OF_ONE_PLACE = select(chats).where(
    chats.c.channel == bindparam("channel"), chats.c.external_id == bindparam("external_id")
)

_PRIVATE = (
    select(chats)
    .join(people, people.c.id == chats.c.person_id)
    .where(
        people.c.role == bindparam("role"),
        chats.c.kind == ChatKind.PRIVATE.value,
        # Whoever was removed has no account any more.
        exists().where(identities.c.person_id == people.c.id),
    )
    # The main conversation before its threads, the newest before older ones.
    .order_by(chats.c.thread != literal(""), chats.c.created_at.desc(), chats.c.id)
)

_LINK = (
    update(chats)
    .where(
        chats.c.channel == bindparam("at_channel"),
        chats.c.external_id == bindparam("at_chat"),
        chats.c.kind == ChatKind.PRIVATE.value,
    )
    .values(person_id=bindparam("partner"))
)


def chat_columns() -> tuple[Any, ...]:
    """The columns `chat_of` reads, for queries that join chats to something else."""
    return tuple(column.label(f"its_{column.name}") for column in chats.c)


def chat_of(row: Any) -> Chat:
    """The chat in a row that holds `chat_columns()`."""
    return Chat(
        id=ChatId(row.its_id),
        channel=Channel(row.its_channel),
        external_id=row.its_external_id,
        thread=row.its_thread,
        kind=ChatKind(row.its_kind),
        title=row.its_title,
        settings=_settings(row.its_settings),
        person_id=row.its_person_id,
    )


class Chats:
    def __init__(self, db: Database, ids: Ids) -> None:
        self._db = db
        self._ids = ids

    async def get(self, chat_id: ChatId) -> Chat:
        """NotFound if there is none."""
        async with self._db.read() as view:
            row = (await view.execute(_BY_ID, {"id": chat_id})).one_or_none()
        if row is None:
            raise NotFound("chat", chat_id)
        return _chat(row)

    async def find(self, place: Place) -> Chat | None:
        async with self._db.read() as view:
            row = (await view.execute(_AT_PLACE, _key(place))).one_or_none()
        return None if row is None else _chat(row)

    async def meet(self, tx: Transaction, place: Place, sender: Sender, now: datetime) -> Chat:
        """The chat at `place`, made at the first sight of it and kept up to date: title, kind,
        and who the partner of a private chat is."""
        facts = _key(place) | {"who": sender.external_id}
        row = (await tx.execute(_MET, facts)).one_or_none()
        if row is None:
            chat = await self._make(tx, place, now)
            row = (await tx.execute(_MET, facts)).one()
        else:
            chat = _chat(row)
        partner = None
        if place.kind is ChatKind.PRIVATE:
            partner = await _partner(tx, row, sender)
        seen = replace(
            chat,
            kind=place.kind,
            title=place.title or chat.title,
            person_id=partner or chat.person_id,
        )
        if seen != chat:
            await tx.execute(
                update(chats)
                .where(chats.c.id == chat.id)
                .values(kind=seen.kind.value, title=seen.title, person_id=seen.person_id)
            )
        return seen

    async def adjust(self, chat_id: ChatId, settings: ChatSettings) -> Chat:
        async with self._db.write() as tx:
            await tx.execute(
                update(chats).where(chats.c.id == chat_id).values(settings=_dump(settings))
            )
        return await self.get(chat_id)

    async def private(self, role: Role) -> Sequence[Chat]:
        """One chat for each channel on which a person of exactly this role can be told something
        in private."""
        async with self._db.read() as view:
            rows = (await view.execute(_PRIVATE, {"role": role.value})).all()
        first: dict[tuple[str, str], Chat] = {}
        for row in rows:
            first.setdefault((row.person_id, row.channel), _chat(row))
        return tuple(first.values())

    async def link(
        self, tx: Transaction, channel: Channel, external_id: str, person_id: str
    ) -> None:
        """Make a person the partner of a private chat, in all its threads."""
        facts = {"at_channel": channel.value, "at_chat": external_id, "partner": person_id}
        await tx.execute(_LINK, facts)

    async def move(self, channel: Channel, old: str, new: str) -> None:
        """The platform gave a chat another id. What was said under the new one before we heard
        of it is joined to the old."""
        async with self._db.write() as tx:
            places = {"channel": channel.value, "external_id": new}
            strays = {row.thread: row.id for row in await tx.execute(_OF_ONE_PLACE, places)}
            places = {"channel": channel.value, "external_id": old}
            for row in (await tx.execute(_OF_ONE_PLACE, places)).all():
                if row.thread in strays:
                    await _absorb(tx, strays[row.thread], row.id)
                await tx.execute(update(chats).where(chats.c.id == row.id).values(external_id=new))

    async def _make(self, tx: Transaction, place: Place, now: datetime) -> Chat:
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
        await tx.execute(
            insert(chats).values(
                **_key(place),
                id=chat.id,
                kind=chat.kind.value,
                title=chat.title,
                settings={},
                created_at=now,
            )
        )
        return chat


async def _partner(tx: Transaction, row: Row[Any], sender: Sender) -> PersonId | None:
    # Owners named in the settings are called by their account until they first speak.
    if row.partner and sender.name and row.partner_name == sender.external_id:
        await tx.execute(update(people).where(people.c.id == row.partner).values(name=sender.name))
    return PersonId(row.partner) if row.partner else None


async def _absorb(tx: Transaction, stray: str, into: str) -> None:
    """Give everything that refers to one chat to another, and forget the first."""
    for table in metadata.sorted_tables:
        for column in table.columns:
            if any(key.column is chats.c.id for key in column.foreign_keys):
                await tx.execute(update(table).where(column == stray).values({column.name: into}))
    await tx.execute(chats.delete().where(chats.c.id == stray))


def _key(place: Place) -> dict[str, str]:
    return {
        "channel": place.channel.value,
        "external_id": place.chat,
        "thread": place.thread,
    }


def _chat(row: Row[Any]) -> Chat:
    return Chat(
        id=ChatId(row.id),
        channel=Channel(row.channel),
        external_id=row.external_id,
        thread=row.thread,
        kind=ChatKind(row.kind),
        title=row.title,
        settings=_settings(row.settings),
        person_id=row.person_id,
    )


def _settings(value: dict[str, Any]) -> ChatSettings:
    language = value.get("language")
    return ChatSettings(
        model=value.get("model", ""),
        backend=value.get("backend", ""),
        language=Language(language) if language else None,
        project=value.get("project", ""),
        persona=value.get("persona", ""),
        queue=value.get("queue", ""),
    )


def _dump(settings: ChatSettings) -> dict[str, Any]:
    return {
        "model": settings.model,
        "backend": settings.backend,
        "language": settings.language.value if settings.language else None,
        "project": settings.project,
        "persona": settings.persona,
        "queue": settings.queue,
    }
