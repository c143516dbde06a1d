"""Notifies owners of memory files that need attention, once per problem."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from cards.catalog import catalog_for
from cards.courier import Courier
from cards.model import Card, CardTone, TextBlock
from handlers.language import language_of_chat
from handlers.ports import PeoplePort
from storage.records.messages import DeliveryUrgency
from storage.records.people import Chat, Language


class OwnerNotifier(Protocol):
    async def __call__(self, path: str, what: str, state: str, **facts: object) -> None:
        """`what` is a text key below `mirror.notice`; repeats with the same `state` are dropped."""
        ...


@dataclass(slots=True, kw_only=True)
class OwnerNoticeSender:
    """Implements `OwnerNotifier`. Notices name the file and never quote its content."""

    owners: Callable[[], Awaitable[Sequence[Chat]]]
    people: PeoplePort
    courier: Courier
    language: Language | None

    async def __call__(self, path: str, what: str, state: str, **facts: object) -> None:
        digest = hashlib.sha256(f"{path}\n{what}\n{state}".encode("utf-8", "replace")).hexdigest()
        for chat in await self.owners():
            spoken = self.language or await language_of_chat(self.people, chat)
            words = catalog_for(spoken or Language.ENGLISH)
            card = Card(
                title=words("mirror.notice.title", path=path),
                tone=CardTone.INFO if what == "brought" else CardTone.WARN,
                blocks=(TextBlock(words(f"mirror.notice.{what}", **facts)),),
            )
            key = f"mirror:{digest[:32]}:{chat.id}"
            await self.courier.send(chat.id, card, key=key, urgency=DeliveryUrgency.NOTICE)
