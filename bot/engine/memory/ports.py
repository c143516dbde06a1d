"""Ports of memory: background model calls, embeddings, search for workers, and the summaries at the
beginning of a history."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from pydantic import BaseModel

from bot.engine.memory.token_budget import estimate_tokens
from storage.db import Transaction
from storage.records.people import ChatId, PersonId


@dataclass(frozen=True, slots=True, kw_only=True)
class RecalledMemory:
    """`id` identifies the memory for `get`; `title` names what it belongs to."""

    id: str
    title: str
    text: str
    at: datetime


class MemorySource(Protocol):
    """Memories visible to one reader. Implementations must never return what another reader of the
    same conversation may not see."""

    async def search(self, query: str, limit: int) -> Sequence[RecalledMemory]:
        """Best matches first, with shortened texts."""
        ...

    async def get(self, memory_id: str) -> RecalledMemory | None:
        """The full memory; None if it does not exist or is not visible."""
        ...


class NoMemories:
    """The source of a worker that uses no memory."""

    async def search(self, query: str, limit: int) -> Sequence[RecalledMemory]:
        return ()

    async def get(self, memory_id: str) -> RecalledMemory | None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundQuery:
    """One bounded model call, identified by `key` and charged to `person` and `chat`."""

    key: str
    system: str
    prompt: str
    answer_type: type[BaseModel]
    person: PersonId | None
    chat: ChatId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundAnswer:
    """`record_usage` charges the call in the caller's transaction."""

    value: BaseModel | None
    record_usage: Callable[[Transaction], Awaitable[None]]


class BackgroundModel(Protocol):
    async def ready(self) -> bool:
        """Whether a real model is available; the offline rules do not count."""
        ...

    async def ask(self, query: BackgroundQuery) -> BackgroundAnswer:
        """Raises BackendError, also if a spending cap is reached; must not request an extension."""
        ...


class EmbeddingFailed(Exception):
    """The service is unreachable, refuses or returns no vectors. The message never contains the
    request. `refused` means that this particular request was rejected."""

    def __init__(self, reason: str, *, refused: bool = False) -> None:
        self.refused = refused
        super().__init__(reason)


class TextEmbedder(Protocol):
    """`model` is stored with every vector: those of different models are not comparable."""

    @property
    def model(self) -> str: ...

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """One vector of length 1 per text, in order. Raises EmbeddingFailed."""
        ...

    async def embed_query(self, query: str) -> Sequence[float]:
        """Raises EmbeddingFailed."""
        ...

    async def aclose(self) -> None: ...


def embedding_text(said_at: datetime, sender: str, text: str) -> str:
    """Text with day and sender, since queries mention both."""
    head = " ".join(filter(None, (f"[{said_at:%Y-%m-%d}]", sender)))
    return f"{head}: {text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePrefix:
    """Texts that replace the first `through_message` messages. `last_at` is the time of the last of
    these, as ISO 8601."""

    texts: Sequence[str] = ()
    through_message: int = 0
    last_at: str = ""

    @property
    def tokens(self) -> int:
        return sum(map(estimate_tokens, self.texts))
