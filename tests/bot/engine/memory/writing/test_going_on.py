"""A wish is told of with the answer that stops for an approval, and not again when it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from bot.engine.agent.leave.talks import Keep, Kept
from bot.engine.agent.remembering.hearing import RememberedTalk
from bot.engine.agent.talk import Conversations
from handlers.ports import Answered, Question, Show
from storage.db import Database, Transaction
from storage.records.memory.entries import MemoryKind
from tests.bot.engine.memory.writing.world import question, remembering, unseen


class Stopping:
    """Talk that stops at a call before it says anything, and answers once that is decided."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def answer(self, _question: Question, _show: Show, keep: Keep) -> Answered:
        return await self._kept(Answered(text="", model="m"), keep)

    async def go_on(self, _question: Question, keep: Keep) -> Answered:
        return await self._kept(Answered(text="The door is open now. " * 20, model="m"), keep)

    async def _kept(self, answered: Answered, keep: Keep) -> Answered:
        kept = await keep(answered)
        async with self._db.write() as tx:
            await kept(tx)
        return answered


async def nothing(_answered: Answered) -> Kept:
    async def kept(_tx: Transaction) -> None:
        """It is shown elsewhere."""

    return kept


async def test_a_wish_is_told_of_before_the_approval_and_noted_once(tmp_path: Path) -> None:
    async with remembering(tmp_path) as memory:
        db = memory.world.db
        talk = RememberedTalk(
            cast("Conversations", Stopping(db)),
            db=db,
            recorder=memory.recorder,
            now=memory.world.clock,
        )
        wish = "Remember that my cat is called Findus, and open the door"

        stopped = await talk.answer(question(wish), unseen)
        went_on = await talk.go_on(question("", "talk:1", resumes=True), nothing)

        assert "Findus" in stopped.notes[0]
        assert went_on.notes == ()
        assert len(await memory.texts(MemoryKind.CELL)) == 1
        assert len(await memory.texts(MemoryKind.FACT)) == 1
