"""What a model is told of its session: summaries of the beginning, then the messages themselves."""

from __future__ import annotations

from typing import Any, Protocol

from bot.engine.agent.context.pruning import CONTEXT_TOKENS, SHARE, pruned
from bot.engine.llm.loop import turns
from bot.engine.memory.archive.context import Prefix
from storage.sessions import SessionRepo

_LEAST = 2_000
"""Tokens that are always left for messages."""


class Summarised(Protocol):
    async def context(self, session_id: str) -> Prefix: ...


class History:
    """`tokens` is how much of a session a model is told at most. Without an `archive` nothing is
    ever summarised."""

    def __init__(
        self,
        sessions: SessionRepo,
        archive: Summarised | None = None,
        *,
        tokens: int = int(CONTEXT_TOKENS * SHARE),
    ) -> None:
        self._sessions = sessions
        self._archive = archive
        self._tokens = tokens

    async def told(self, session_id: str, *, open_calls: bool = False) -> tuple[Any, ...]:
        """See `pruning.pruned`. The beginning changes only where a summary was made."""
        prefix = Prefix() if self._archive is None else await self._archive.context(session_id)
        rows = await self._sessions.history(session_id, after=prefix.through)
        room = max(_LEAST, self._tokens - prefix.tokens)
        told = pruned(rows, open_calls=open_calls, context=int(room / SHARE))
        if not prefix.texts:
            return told
        at = {"timestamp": prefix.at, "parts": []} if prefix.at else {"parts": []}
        return (turns.request_of([turns.prompt(text, at) for text in prefix.texts]), *told)
