"""Owners are told of a file that needs them, once for each thing that is the matter."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from cards.courier import Courier
from cards.model import Card, Text, Tone
from cards.words import words_for
from handlers.language import read_in
from handlers.ports import People
from storage.records.messages import Urgency
from storage.records.people import Chat, Language


class Tells(Protocol):
    async def __call__(self, path: str, what: str, state: str, **facts: object) -> None:
        """`what` is a text of `mirror.notice`; the same of the same `state` is told once."""
        ...


class Notices:
    """Satisfies `Tells`. Nothing that a file says is repeated: owners are told which one it is."""

    def __init__(
        self,
        *,
        owners: Callable[[], Awaitable[Sequence[Chat]]],
        people: People,
        courier: Courier,
        language: Language | None,
    ) -> None:
        self._owners = owners
        self._people = people
        self._courier = courier
        self._language = language

    async def __call__(self, path: str, what: str, state: str, **facts: object) -> None:
        digest = hashlib.sha256(f"{path}\n{what}\n{state}".encode("utf-8", "replace")).hexdigest()
        for chat in await self._owners():
            spoken = self._language or await read_in(self._people, chat)
            words = words_for(spoken or Language.ENGLISH)
            card = Card(
                title=words("mirror.notice.title", path=path),
                tone=Tone.INFO if what == "brought" else Tone.WARN,
                blocks=(Text(markdown=words(f"mirror.notice.{what}", **facts)),),
            )
            key = f"mirror:{digest[:32]}:{chat.id}"
            await self._courier.send(chat.id, card, key=key, urgency=Urgency.NOTICE)
