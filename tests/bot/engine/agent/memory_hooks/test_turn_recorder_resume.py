"""A turn is recorded, and its wishes told of, once: over an approval and over a crash."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

from bot.engine.agent.conversation.service import ConversationService
from bot.engine.agent.conversation.turn_taking import CommitStep, PrepareCommit
from bot.engine.agent.memory_hooks import RecordedConversation
from handlers.ports import AnswerStream, ChatAnswer, ChatQuestion
from storage.db import Database, Transaction
from storage.records.memory import MemoryKind
from tests.bot.engine.memory.writing_builders import build_writing, ignore_text, question


class StoppingConversations:
    """Talk that stops at a call before it says anything, and answers once that is decided."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def answer(
        self, _question: ChatQuestion, _show: AnswerStream, keep: PrepareCommit
    ) -> ChatAnswer:
        return await self._kept(ChatAnswer(text="", model="m"), keep)

    async def resume_answer(self, _question: ChatQuestion, keep: PrepareCommit) -> ChatAnswer:
        return await self._kept(ChatAnswer(text="The door is open now. " * 20, model="m"), keep)

    async def _kept(self, answered: ChatAnswer, keep: PrepareCommit) -> ChatAnswer:
        kept = await keep(answered)
        async with self._db.write() as tx:
            await kept(tx)
        return answered


async def nothing(_answered: ChatAnswer) -> CommitStep:
    async def kept(_tx: Transaction) -> None:
        """It is shown elsewhere."""

    return kept


async def test_a_wish_is_told_of_before_the_approval_and_noted_once(tmp_path: Path) -> None:
    async with build_writing(tmp_path) as memory:
        db = memory.world.db
        talk = RecordedConversation(
            cast("ConversationService", StoppingConversations(db)),
            db=db,
            recorder=memory.recorder,
            now=memory.world.clock,
        )
        wish = "Remember that my cat is called Findus, and open the door"

        stopped = await talk.answer(question(wish), ignore_text)
        went_on = await talk.resume_answer(question("", "talk:1", is_continuation=True), nothing)

        assert "Findus" in stopped.notes[0]
        assert went_on.notes == ()
        assert len(await memory.texts(MemoryKind.CELL)) == 1
        assert len(await memory.texts(MemoryKind.FACT)) == 1


async def test_a_message_that_is_handled_again_gets_the_answer_that_was_stored(
    tmp_path: Path,
) -> None:
    async with build_writing(tmp_path) as memory:
        db = memory.world.db

        def next_life() -> RecordedConversation:
            return RecordedConversation(
                cast("ConversationService", StoppingConversations(db)),
                db=db,
                recorder=memory.recorder,
                now=memory.world.clock,
            )

        wish = question("Remember that my cat is called Findus", "inbox:1")
        other = question("Remember that my dog is called Rex", "inbox:2")
        first = await next_life().answer(wish, ignore_text)
        again = await next_life().answer(wish, ignore_text)
        cells = await memory.texts(MemoryKind.CELL)
        changed = await next_life().answer(replace(wish, text="What is its name?"), ignore_text)
        await next_life().answer(other, ignore_text)

        assert again == first
        assert "Findus" in again.notes[0]
        assert len(cells) == 1
        assert changed.notes == ()
        assert len(await memory.texts(MemoryKind.CELL)) == 2
