"""Which memories somebody means who names them in a shell."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

from bot.app.store import Store
from bot.config.settings import Settings
from bot.engine.memory.scopes import Reader
from bot.transports.web.ports import PLACE, SENDER
from cards.words import words_for
from storage.records.memory.entries import Scope, ScopeKind
from storage.records.people import Chat, Language

ME, CHAT, PROJECT = "me", "chat", "project"
_SHOWN = 80


class UnknownName(Exception):
    """There can be no such memories. The text says why."""


async def scopes_named(
    settings: Settings, store: Store, name: str, now: datetime
) -> Sequence[Scope]:
    """Without a name, whatever the local owner may look into; `me` and `chat` are the owner's own.
    Raises UnknownName."""
    name = name.strip()
    if name in {"", ME, CHAT}:
        return _of(await _own_chat(settings, store, now), name)
    return (scope_of(name),)


def scope_of(name: str) -> Scope:
    """A name of no kind is a scope that only those see who name it. Raises UnknownName."""
    if name == PROJECT:
        raise UnknownName("say which project, as in project:/FOLDER")
    with suppress(ValueError):
        return Scope.of(name)
    kind = name.partition(":")[0]
    if not name or kind in set(ScopeKind):
        raise UnknownName(f"{name[:_SHOWN]!r} names nobody")
    return Scope(ScopeKind.CUSTOM, name)


def _of(chat: Chat, name: str) -> Sequence[Scope]:
    reader = Reader(chat=chat, person=chat.person_id, project=chat.settings.project)
    if not name:
        return reader.scopes
    kind = ScopeKind.CHAT if name == CHAT else ScopeKind.PERSON
    return [scope for scope in reader.scopes if scope.kind is kind]


async def _own_chat(settings: Settings, store: Store, now: datetime) -> Chat:
    """Made where nobody has begun here yet."""
    chat = await store.chats.find(PLACE)
    if chat is not None and chat.person_id is not None:
        return chat
    spoken = Language.ENGLISH if settings.language == "auto" else Language(settings.language)
    local = words_for(spoken)("welcome.local_owner")
    await store.people.ensure_owners(settings.owner_ids, now=now, local=local)
    async with store.db.write() as tx:
        return await store.chats.meet(tx, PLACE, SENDER, now)
