"""What a model is told of its session: summaries of the beginning, then the messages themselves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from bot.engine.agent.context.pruning import BYTES_PER_TOKEN, CONTEXT_TOKENS, SHARE, pruned
from bot.engine.agent.context.windows import Room, Windows
from bot.engine.llm.base import Tool, TooLong
from bot.engine.llm.loop import turns
from bot.engine.memory.archive.context import Prefix
from bot.engine.memory.archive.tokens import tokens
from storage.sessions import Session, SessionRepo

_LEAST = 2_000
"""Tokens that are always left for messages, where the model's window is not known to be small."""
_PREFIX_SHARE = 0.75
"""Of what is told, which summaries may fill."""
_PER_TOOL = 20

SHORTENED = (
    "[This had become too long for you, and its beginning is left out or shortened. What you have"
    " done already is above: do not do it again, go on from there.]\n"
)


class Summarised(Protocol):
    async def context(self, session_id: str) -> Prefix: ...


class History:
    """`tokens` is how much of a session a model is told at most, and less where `windows` know
    that it takes less. Without an `archive` nothing is ever summarised; `grown` hears of sessions
    that have become too long for who works in them."""

    def __init__(
        self,
        sessions: SessionRepo,
        archive: Summarised | None = None,
        *,
        tokens: int = int(CONTEXT_TOKENS * SHARE),
        windows: Windows | None = None,
        grown: Callable[[str], None] = lambda _session_id: None,
    ) -> None:
        self._sessions = sessions
        self._archive = archive
        self._tokens = tokens
        self._windows = windows or Windows()
        self._grown = grown

    async def room(self, session: Session, backend: str, model: str, beside: int) -> Room:
        """How much of it this model is to be told now, with so many tokens beside it."""
        return await self._windows.room(session.id, backend, model, beside)

    async def told(
        self, session_id: str, *, open_calls: bool = False, most: int | None = None
    ) -> tuple[Any, ...]:
        """See `pruning.pruned`. The beginning changes only where a summary was made. Never more
        than `most` tokens, if some of the last turns must be shortened for it."""
        prefix = Prefix() if self._archive is None else await self._archive.context(session_id)
        rows = await self._sessions.history(session_id, after=prefix.through)
        whole = self._tokens if most is None else min(most, self._tokens)
        texts = _newest(prefix.texts, int(whole * _PREFIX_SHARE))
        left = whole - sum(map(tokens, texts))
        room = max(_LEAST, left) if most is None else left
        told = pruned(
            rows, open_calls=open_calls, context=int(room / SHARE), strict=most is not None
        )
        if not texts:
            return told
        at = {"timestamp": prefix.at, "parts": []} if prefix.at else {"parts": []}
        return (turns.request_of([turns.prompt(text, at) for text in texts]), *told)

    async def too_long(
        self, error: TooLong, session: Session, seat: tuple[str, str], *, sent: int
    ) -> None:
        """The model could not take `sent` tokens: it is told less from now on, and the session
        made shorter."""
        added = length(error.new_history)
        await self._windows.learn(
            *seat, said=error.window, sent=sent + added, began=bool(error.new_history)
        )
        self._grown(session.id)


def length(rows: Iterable[Any]) -> int:
    """How many tokens these messages are, about."""
    weights = (turns.weight(row) for row in rows if turns.is_message(row))
    return sum(weights) // BYTES_PER_TOKEN


def beside(texts: Iterable[str], tools: Sequence[Tool]) -> int:
    """How many tokens a model reads besides its session, about."""
    schemas = (json.dumps(each.schema, ensure_ascii=False, default=str) for each in tools)
    said = (f"{each.name} {each.description}" for each in tools)
    return sum(map(tokens, (*texts, *said, *schemas))) + _PER_TOOL * len(tools)


def _newest(texts: Sequence[str], most: int) -> Sequence[str]:
    """The first, which says what the others are, and as many of the last as fit."""
    if sum(map(tokens, texts)) <= most:
        return texts
    kept: list[str] = []
    left = most - tokens(texts[0])
    for text in reversed(texts[1:]):
        left -= tokens(text)
        if left < 0:
            break
        kept.append(text)
    return (texts[0], *reversed(kept)) if kept else ()
