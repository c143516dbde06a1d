"""How memory asks a model, without anybody noticing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from pydantic import BaseModel

from storage.db import Transaction
from storage.records.people import ChatId, PersonId


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One bounded call. `key` names it; it is charged to these."""

    key: str
    system: str
    prompt: str
    form: type[BaseModel]
    person: PersonId | None
    chat: ChatId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """`book` counts what it cost."""

    value: BaseModel | None
    book: Callable[[Transaction], Awaitable[None]]


class Silent(Protocol):
    async def ready(self) -> bool:
        """Whether there is a model that can be asked; fixed rules are none."""
        ...

    async def ask(self, wish: Wish) -> Told:
        """Raises BackendError. A cap that is reached is nobody's business: nobody is asked for
        more."""
        ...
