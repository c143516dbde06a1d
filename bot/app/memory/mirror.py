"""Memories as files in the data folder."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial
from pathlib import Path

from bot.app.memory.writing import Writing
from bot.app.store import Store
from bot.config.settings import Settings
from bot.engine.memory.mirror.first import First
from bot.engine.memory.mirror.mirror import Mirror
from bot.engine.memory.mirror.notices import Notices
from bot.engine.memory.mirror.others import Others
from bot.engine.memory.mirror.pages import Pages
from bot.engine.memory.mirror.reconcile import Reconciler
from bot.engine.memory.mirror.taking import Taking
from bot.transports.clock import Clock
from bot.transports.courier import OutboxCourier
from cards.words import words_for
from storage.errors import NotFound
from storage.ids import Ids
from storage.memory.files.bases import Bases
from storage.memory.files.folder import Folder
from storage.memory.files.lines import Lines
from storage.memory.files.shelf import Shelf
from storage.records.memory.entries import Scope, ScopeKind
from storage.records.people import ChatId, Language, PersonId, Role


class Names:
    """What scopes are called, and whose they are."""

    def __init__(self, store: Store, fixed: Language | None) -> None:
        self._store = store
        self._fixed = fixed

    async def owners(self) -> Collection[Scope]:
        return [
            Scope(ScopeKind.PERSON, each.person.id)
            for each in await self._store.people.members()
            if each.person.role is Role.OWNER
        ]

    async def language(self) -> Language:
        """The one that is set, or the first that an owner has shown to read."""
        if self._fixed is not None:
            return self._fixed
        members = await self._store.people.members()
        spoken = [each.person.language for each in members if each.person.language]
        return spoken[0] if spoken else Language.ENGLISH

    async def of(self, scope: Scope) -> str:
        try:
            match scope.kind:
                case ScopeKind.PERSON:
                    return (await self._store.people.get(PersonId(scope.name))).name
                case ScopeKind.CHAT:
                    chat = await self._store.people.chat(ChatId(scope.name))
                    return chat.title or str(chat.channel)
                case ScopeKind.PROJECT:
                    return Path(scope.name).name
                case _:
                    return scope.name
        except NotFound:
            return scope.name


def build_mirror(
    settings: Settings,
    store: Store,
    clock: Clock,
    language: Language | None,
    *,
    writing: Writing,
    courier: OutboxCourier,
) -> Mirror:
    """`language` is the one that is set for everybody, if any is."""
    names = Names(store, language)
    folder, bases, shelf = Folder(settings.home), Bases(store.db), Shelf(store.db)
    pages = Pages(words=words_for(Language.ENGLISH), zone=settings.zone)
    tell = Notices(
        owners=partial(store.chats.private, Role.OWNER),
        people=store.people,
        courier=courier,
        language=language,
    )
    first = First(
        home=settings.home,
        folder=folder,
        entries=writing.entries,
        writer=writing.writer,
        marks=store.marks,
        pages=pages,
        language=names.language,
        tell=tell,
        owners=names.owners,
    )
    lines = Lines(store.db, Ids(), writing.entries)
    taking = Taking(
        shelf=shelf, lines=lines, writer=writing.writer, pages=pages, tell=tell, now=clock.now
    )
    return Mirror(
        folder=folder,
        bases=bases,
        shelf=shelf,
        pages=pages,
        reconciler=Reconciler(
            folder=folder,
            bases=bases,
            shelf=shelf,
            pages=pages,
            taking=taking,
            tell=tell,
            now=clock.now,
        ),
        changed=writing.changed,
        always=names.owners,
        name_of=names.of,
        prepare=first,
        others=Others(version=store.db.version, shelf=shelf, changed=writing.changed),
        now=clock.now,
        sleep=asyncio.sleep,
    )
