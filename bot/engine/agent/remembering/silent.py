"""Asks a model on behalf of memory. Nothing of it is shown, and it is remembered nowhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bot.engine.agent.account import Account
from bot.engine.agent.desk import Ask, Desk
from bot.engine.llm.base import BackendDenied, BackendError, Chosen, Limits, Mode, Purpose
from bot.engine.llm.offline import NAME as OFFLINE
from bot.engine.memory.writing.drawing.silent import Told, Wish
from storage.db import Transaction
from storage.records.people import Language
from storage.records.status import ModelChoice

_LIMITS = Limits(turns=2, output_tokens=3_000, seconds=60.0)


class SilentDesk:
    """Satisfies `memory.writing.drawing.silent.Silent`."""

    def __init__(self, desk: Desk, choice: Callable[[], ModelChoice]) -> None:
        """`choice` says which model takes notes now."""
        self._desk = desk
        self._choice = choice

    async def ready(self) -> bool:
        """Fixed rules take no notes, and coding CLIs none either: they bring tools of their own,
        and what they would read is anybody's."""
        try:
            return _takes_notes(self._chosen())
        except BackendError:
            return False

    async def ask(self, wish: Wish) -> Told:
        chosen = self._chosen()
        if not _takes_notes(chosen):
            raise BackendDenied(f"{chosen.backend.name} takes no notes")
        session = await self._desk.session(wish.key, chosen)
        try:
            reply = await self._desk.ask(_ask(wish), chosen, session)
        finally:
            await self._desk.close(wish.key)

        # What was asked is somebody's conversation: it is not kept a second time.
        bare = replace(reply, result=replace(reply.result, new_history=()))

        async def book(tx: Transaction) -> None:
            await self._desk.book(tx, bare)

        return Told(value=reply.result.value, book=book)

    def _chosen(self) -> Chosen:
        choice = self._choice()
        return self._desk.choose(choice.model, choice.backend)


def _takes_notes(chosen: Chosen) -> bool:
    return chosen.backend.name != OFFLINE and chosen.backend.caps.tools


def _ask(wish: Wish) -> Ask:
    return Ask(
        purpose=Purpose.MEMORY,
        prompt=wish.prompt,
        system=wish.system,
        language=Language.ENGLISH,
        # A task that is over costs nothing more.
        account=Account(person=wish.person, chat=wish.chat),
        facts={"text": wish.prompt},
        result=wish.form,
        limits=_LIMITS,
        mode=Mode.REVIEW,
    )
