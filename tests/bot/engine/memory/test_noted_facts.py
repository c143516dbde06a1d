"""Tests that what a model noted is told once, and not after it was forgotten."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import cast
from zoneinfo import ZoneInfo

import pytest

from bot.engine.agent.conversation.service import ConversationService
from bot.engine.agent.memory_hooks import RecordedConversation
from bot.engine.memory.ingestion import TURNS_PER_EXTRACTION
from bot.engine.memory.noted_facts import NotedFactNotifier, NoticeMode
from cards.memory_actions import ForgetMemory
from cards.model import ButtonsBlock
from storage.records.memory import EntryId, MemoryKind
from storage.records.people import ChatId, Language
from tests.bot.engine.agent.memory_hooks.test_turn_recorder_resume import StoppingConversations
from tests.bot.engine.memory.writing_builders import (
    BY_BOSS,
    WritingSetup,
    build_writing,
    extracted_fact,
    extraction_of,
    ignore_text,
    question,
)
from tests.engine_harness import CHAT, RecordingCourier


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncGenerator[WritingSetup, None]:
    async with build_writing(tmp_path) as made:
        yield made


async def extract(memory: WritingSetup, *texts: str) -> None:
    for number in range(TURNS_PER_EXTRACTION):
        await memory.record_turn(f"We spoke of {' and '.join(texts)}, {number}", "Ok.")
    memory.model.answers = [extraction_of(*(extracted_fact(each, topic=each) for each in texts))]
    await memory.run_jobs()


async def answer(memory: WritingSetup, source: str) -> tuple[str, ...]:
    db = memory.world.db
    talk = RecordedConversation(
        cast("ConversationService", StoppingConversations(db)),
        db=db,
        recorder=memory.recorder,
        now=memory.world.clock,
    )
    return (await talk.answer(question("And now?", source), ignore_text)).notes


async def test_it_is_told_once_below_the_next_answer(memory: WritingSetup) -> None:
    await extract(memory, "Likes green tea", "Lives in Ulm")
    tea, ulm = await memory.list_entries(MemoryKind.FACT, MemoryKind.PROFILE)
    if tea.text != "Likes green tea":
        tea, ulm = ulm, tea
    await memory.writer.forget(ulm, BY_BOSS)

    first = await answer(memory, "inbox:1")
    again = await answer(memory, "inbox:1")
    second = await answer(memory, "inbox:2")

    assert len(first) == 1
    assert f"Likes green tea (`{tea.id}`)" in first[0]
    assert "Ulm" not in first[0], "it was forgotten meanwhile"
    assert again == first, "the same message, handled again after a crash, gets the same answer"
    assert second == ()


async def test_by_setting_it_is_told_on_one_card_a_day(memory: WritingSetup) -> None:
    daily = replace(memory.recorder.noted, mode=NoticeMode.DAILY)
    memory.recorder.noted = memory.extraction_worker.noted = daily
    cards = RecordingCourier()

    async def language_of(_chat: ChatId) -> Language:
        return Language.ENGLISH

    notifier = NotedFactNotifier(
        db=memory.world.db,
        noted=daily,
        courier=cards,
        language_of=language_of,
        zone=ZoneInfo("UTC"),
        now=memory.world.clock,
    )

    await extract(memory, "Likes green tea")
    await notifier.send_due()
    await extract(memory, "Plays the oboe")
    await notifier.send_due()
    same_day = len(cards.sent)
    memory.world.clock.advance(days=1)
    await notifier.send_due()
    await notifier.send_due()

    assert same_day == 1
    assert [key.split(":")[1] for key, _ in cards.sent] == [CHAT.id, CHAT.id]
    [undo] = [each for each in cards.sent[1][1].blocks if isinstance(each, ButtonsBlock)]
    action = undo.items[0].action
    assert isinstance(action, ForgetMemory)
    assert (await memory.entries.get(EntryId(action.entry_id), None)).text == "Plays the oboe"
    assert await answer(memory, "inbox:1") == (), "it was told already"
