"""Asks a model for summaries of a session: in silence, on the account of whose session it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from bot.engine.agent.account import Account
from bot.engine.agent.desk import Ask, Desk
from bot.engine.llm.base import BackendError, Limits, Purpose
from storage.db import Database
from storage.records.people import Language
from storage.sessions import Session

_KEY = "compact"
_OFFLINE = "offline"
_SHARE = 2
"""A model's tokens for one of ours: what it may write is counted by its own tokenizer."""
_THOUGHTS = 4_000
"""Tokens for what it thinks before."""


class Summariser:
    """Satisfies `archive.compactor.Writer`. `account_of` says by a session's key whom it is
    charged to; `model` is who writes, empty for whoever works in that session."""

    def __init__(
        self,
        *,
        desk: Desk,
        db: Database,
        account_of: Callable[[str], Awaitable[Account]],
        model: str = "",
        seconds: float = 60.0,
    ) -> None:
        self._desk = desk
        self._db = db
        self._account_of = account_of
        self._model = model
        self._seconds = seconds

    def can(self, session: Session) -> bool:
        try:
            return self._desk.choose(*self._choice(session)).backend.name != _OFFLINE
        except BackendError:
            return False

    async def write(self, session: Session, system: str, prompt: str, most: int) -> str:
        chosen = self._desk.choose(*self._choice(session))
        own = await self._desk.session(_KEY, chosen)
        ask = Ask(
            purpose=Purpose.COMPACT,
            prompt=prompt,
            system=system,
            language=Language.ENGLISH,
            account=await self._account_of(session.key),
            facts={"text": prompt},
            limits=Limits(turns=1, output_tokens=_THOUGHTS + most * _SHARE, seconds=self._seconds),
        )
        reply = await self._desk.ask(ask, chosen, own)
        # What it cost is kept, and nothing else: the session stays empty.
        result = replace(reply.result, new_history=())
        async with self._db.write() as tx:
            await self._desk.book(tx, replace(reply, result=result))
        return reply.result.text

    def _choice(self, session: Session) -> tuple[str, str]:
        return (self._model, "") if self._model else (session.model, session.backend)
