"""Notifies owners of memory files that need attention, once per problem."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

from cards.catalog import TextCatalog
from cards.courier import OwnerCardSender
from cards.model import Card, CardTone, TextBlock


class OwnerNotifier(Protocol):
    async def __call__(self, path: str, what: str, state: str, **facts: object) -> None:
        """`what` is a text key below `mirror.notice`; repeats with the same `state` are dropped."""
        ...


@dataclass(slots=True, kw_only=True)
class OwnerNoticeSender:
    """Implements `OwnerNotifier`. Notices name the file and never quote its content."""

    owners: OwnerCardSender

    async def __call__(self, path: str, what: str, state: str, **facts: object) -> None:
        def draw(words: TextCatalog) -> Card:
            return Card(
                title=words("mirror.notice.title", path=path),
                tone=CardTone.INFO if what == "brought" else CardTone.WARN,
                blocks=(TextBlock(words(f"mirror.notice.{what}", **facts)),),
            )

        digest = hashlib.sha256(f"{path}\n{what}\n{state}".encode("utf-8", "replace")).hexdigest()
        await self.owners.notify(f"mirror:{digest[:32]}", draw)
