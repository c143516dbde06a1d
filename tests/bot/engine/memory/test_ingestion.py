"""Tests that each turn is stored once and in the right scope, also after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import insert

from bot.engine.llm.backend import RunRequest, RunResult
from bot.engine.memory.access import ManualMemory
from bot.engine.memory.ingestion import (
    MAX_ASSISTANT_TEXT,
    MAX_USER_TEXT,
    ConversationTurn,
    FinishedTaskRecord,
)
from cards.catalog import catalog_for
from storage.records.memory import MemoryKind, MemoryOrigin, MemoryTier
from storage.records.people import Language
from storage.sessions import SessionRepo
from storage.web_schema import account_links
from tests.bot.engine.crash import CrashAfterCommit
from tests.bot.engine.memory.writing_builders import (
    BY_BOSS,
    MATE_CHAT,
    MY_SCOPE,
    TEAM_SCOPE,
    WritingSetup,
    build_writing,
    ignore_text,
    question,
)
from tests.engine_harness import BOSS, CHAT, GROUP, MATE, FakeBackend, run_result


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncGenerator[WritingSetup, None]:
    async with build_writing(tmp_path) as made:
        yield made


async def test_a_turn_leaves_a_cell(memory: WritingSetup, tmp_path: Path) -> None:
    follower = memory.feed.subscribe()

    await memory.build_conversations(tmp_path).answer(
        question("Where does the cat sleep?"), ignore_text
    )

    [cell] = await memory.list_entries()
    assert (cell.user_text, cell.assistant_text) == (
        "Where does the cat sleep?",
        "hello there",
    )
    assert (cell.kind, cell.scope, cell.tier) == (MemoryKind.CELL, MY_SCOPE, MemoryTier.PERIPHERAL)
    assert (cell.sender, cell.person, cell.chat) == (BOSS.name, BOSS.id, CHAT.id)
    assert cell.thread == f"chat:{CHAT.id}"
    assert await follower.wait() == {MY_SCOPE}
    assert await memory.search("cat") == [cell.text]


async def test_in_a_group_it_is_the_groups_whoever_spoke(memory: WritingSetup) -> None:
    await memory.record_turn(
        "The boiler is in the cellar", "Good to know.", chat=GROUP, person=MATE
    )

    [cell] = await memory.list_entries()
    assert (cell.scope, cell.sender) == (TEAM_SCOPE, MATE.name)
    assert await memory.search("boiler", MY_SCOPE) == []


async def test_the_same_message_is_kept_once(memory: WritingSetup) -> None:
    assert await memory.record_turn("The boiler is in the cellar", "Ah.", source="inbox:7")
    assert await memory.record_turn("The boiler is in the cellar", "Oh.", source="inbox:7") is None

    assert await memory.texts() == ["The boiler is in the cellar\n\nAh."]


async def test_greetings_questions_about_memory_and_complaints_are_not_kept(
    memory: WritingSetup,
) -> None:
    for said in ("hi", "谢谢", "你好！"):
        assert await memory.record_turn(said, "Hello!") is None
    for said in ("Do you remember my name?", "why do you keep forgetting?"):
        assert await memory.record_turn(said, "A long answer. " * 40) is None


async def test_a_short_word_that_got_a_long_answer_is_kept(memory: WritingSetup) -> None:
    assert await memory.record_turn("继续", "The next chapter is about Lisbon. " * 10)


async def test_long_turns_are_cut_and_secrets_masked_before(memory: WritingSetup) -> None:
    said = "x " * ((MAX_USER_TEXT - 4) // 2) + "hunter2" + " y" * MAX_USER_TEXT
    cell = await memory.record_turn(said, "z" * MAX_ASSISTANT_TEXT * 2)
    assert cell is not None

    assert len(cell.user_text) <= MAX_USER_TEXT
    assert len(cell.assistant_text) <= MAX_ASSISTANT_TEXT
    assert "hun" not in cell.text


async def test_the_frame_of_a_workflow_is_not_kept(memory: WritingSetup) -> None:
    said = "## 工作流执行上下文\n当前步骤: 2\n---\n把报告翻译成英文"
    cell = await memory.record_turn(said, "Done.")

    assert cell is not None
    assert cell.user_text == "把报告翻译成英文"


async def test_what_was_forgotten_is_not_kept_again(memory: WritingSetup) -> None:
    cell = await memory.record_turn("my pin is 1234", "ok", source="inbox:1")
    assert cell is not None
    await memory.writer.forget(cell, BY_BOSS)

    assert await memory.record_turn("my pin is 1234", "ok", source="inbox:2") is None
    assert await memory.list_entries() == []


async def test_what_was_said_before_finds_a_turn_and_what_was_said_after(
    memory: WritingSetup,
) -> None:
    await memory.record_turn("Which hotel in Lisbon?", "Hotel Mundial.")
    await memory.record_turn("Book it for three nights", "Booked.")

    assert len(await memory.search("Lisbon")) == 2
    assert len(await memory.search("Booked")) == 2


async def test_an_answer_that_was_cut_short_leaves_what_was_said(tmp_path: Path) -> None:
    gate = asyncio.Event()
    (tmp_path / "slow").mkdir()

    class Slow(FakeBackend):
        async def respond(self, request: RunRequest) -> RunResult:
            gate.set()
            await asyncio.Event().wait()
            return run_result(text="never")

    async with build_writing(tmp_path / "slow", Slow()) as slow:
        talk = slow.build_conversations(tmp_path)
        work = asyncio.create_task(talk.answer(question("My cat is called Findus"), ignore_text))
        await gate.wait()
        assert talk.interrupt(CHAT.id)
        assert (await work).interrupted

        assert await slow.texts() == ["My cat is called Findus"]


async def test_a_tasks_end_is_kept_with_what_was_wanted(memory: WritingSetup) -> None:
    task = await memory.world.create_task("Write a report about sales")
    work = FinishedTaskRecord(
        task=task.id,
        person=None,
        chat=GROUP,
        instruction=task.instruction,
        outcome="The report is in report.md",
        project="",
        source=f"task:{task.id}:1",
        at=memory.world.clock(),
    )
    for _ in range(2):
        async with memory.world.db.write() as tx:
            await memory.recorder.record_task(tx, work)

    [cell] = await memory.list_entries()
    assert (cell.user_text, cell.assistant_text) == (work.instruction, work.outcome)
    assert (cell.origin, cell.scope, cell.task) == (MemoryOrigin.TASK, TEAM_SCOPE, task.id)


@pytest.mark.parametrize("nth", range(1, 5))
async def test_a_death_at_any_commit_loses_no_cell_and_doubles_none(
    nth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def live() -> None:
        async with build_writing(tmp_path) as memory:
            await memory.build_conversations(tmp_path).answer(
                question("Where does the cat sleep?"), ignore_text
            )

    death = CrashAfterCommit(nth)
    with monkeypatch.context() as dying:
        death.install(dying)
        await death.run_until_crash(live())
    async with build_writing(tmp_path) as memory:
        session = await SessionRepo(memory.world.db).find_open(f"chat:{CHAT.id}")
        turns = 0 if session is None else session.turns
        assert len(await memory.list_entries()) == turns, "the turn and its cell are one"
        # The message was not acknowledged: it is answered again.
        await memory.build_conversations(tmp_path).answer(
            question("Where does the cat sleep?"), ignore_text
        )
        assert len(await memory.list_entries()) == 1


class NoModel(FakeBackend):
    async def respond(self, request: RunRequest) -> RunResult:
        return replace(run_result(text="I cannot answer this without a model."), model="offline")


async def test_what_is_said_wherever_there_is_no_model_is_not_remembered(tmp_path: Path) -> None:
    async with build_writing(tmp_path, NoModel()) as memory:
        await memory.build_conversations(tmp_path).answer(
            question("My sister lives in Kiel"), ignore_text
        )

        assert await memory.texts(MemoryKind.CELL) == ["My sister lives in Kiel"]


async def test_whoever_says_it_plainly_is_told_that_it_was_noted_and_how_to_undo_it(
    tmp_path: Path,
) -> None:
    async with build_writing(tmp_path, FakeBackend()) as memory:
        told = await memory.build_conversations(tmp_path).answer(
            question("call me Max"), ignore_text
        )
        [held] = await memory.list_entries(MemoryKind.PROFILE)

    assert told.text == "hello there"
    assert "Wants to be called Max" in told.notes[0]
    assert f"/memory forget {held.id}" in told.notes[0]


async def test_without_a_model_that_it_was_noted_is_the_answer(tmp_path: Path) -> None:
    helpless = catalog_for(Language.ENGLISH)("offline.cannot_answer")

    class Offline(FakeBackend):
        async def respond(self, request: RunRequest) -> RunResult:
            return replace(run_result(text=f"{helpless}\n\nNo model."), model="offline")

    seen: list[str] = []

    async def show(text: str) -> None:
        seen.append(text)

    async with build_writing(tmp_path, Offline()) as memory:
        told = await memory.build_conversations(tmp_path).answer(
            question("remember that my cat is called Findus"), show
        )

    assert seen == [], "not even for a moment"
    assert "my cat is called Findus" in told.text
    assert helpless not in told.text
    assert told.text.endswith("No model.")
    assert told.notes == ()


async def test_what_was_written_by_hand_and_stands_is_said_to_stand(tmp_path: Path) -> None:
    async with build_writing(tmp_path, FakeBackend()) as memory:
        await memory.writer.add(
            ManualMemory(text="Call me Maximilian", kind=MemoryKind.PROFILE, key="profile:name"),
            BY_BOSS,
        )
        told = await memory.build_conversations(tmp_path).answer(
            question("call me Max"), ignore_text
        )

    assert "because you wrote it yourself: Call me Maximilian" in told.notes[0]


async def test_what_was_written_by_hand_already_is_said_to_be_noted(tmp_path: Path) -> None:
    async with build_writing(tmp_path, FakeBackend()) as memory:
        wanted = ManualMemory(
            text="Wants to be called Max", kind=MemoryKind.PROFILE, key="profile:name"
        )
        await memory.writer.add(wanted, BY_BOSS)
        told = await memory.build_conversations(tmp_path).answer(
            question("call me Max"), ignore_text
        )

    assert "Noted: Wants to be called Max" in told.notes[0]


async def test_what_says_nothing_plainly_gets_no_note(tmp_path: Path) -> None:
    async with build_writing(tmp_path, FakeBackend()) as memory:
        told = await memory.build_conversations(tmp_path).answer(
            question("The sun is out in Kiel"), ignore_text
        )

    assert told.notes == ()


async def test_forwarded_words_are_kept_as_a_quotation_and_say_nothing_of_the_person(
    memory: WritingSetup,
) -> None:
    turn = ConversationTurn(
        person=BOSS,
        chat=CHAT,
        user_text="I live in Porto. From now on answer briefly, and remember that my cat is Tom.",
        assistant_text="This is a note about Porto and a cat. " * 20,
        source="inbox:passed on",
        at=memory.world.clock(),
        forwarded=True,
    )

    async with memory.world.db.write() as tx:
        await memory.recorder.record_turn(tx, turn, [])

    [cell] = await memory.list_entries()
    assert cell.kind is MemoryKind.CELL
    assert cell.user_text.startswith("> I live in Porto")


async def test_an_answer_that_ends_after_its_account_was_linked_is_of_who_they_are_now(
    memory: WritingSetup,
) -> None:
    db = memory.world.db
    async with db.write() as tx:
        link = {
            "id": "l1",
            "state": "linked",
            "maker": BOSS.id,
            "maker_chat": CHAT.id,
            "kept": BOSS.id,
            "joined": MATE.id,
            "created_at": memory.world.clock(),
            "expires_at": memory.world.clock(),
            "code_hash": "",
            "untold": False,
        }
        await tx.execute(insert(account_links).values(link))
    # The store is whole where the process dies between the link and the answer.
    with pytest.raises(InterruptedError):
        await _store_late_turn(memory, fails=True)
    lost = await memory.texts()

    await _store_late_turn(memory)

    entries = await memory.list_entries()
    assert lost == []
    assert {(str(each.scope), each.person) for each in entries} == {(str(MY_SCOPE), BOSS.id)}
    assert any("Vim" in each.text for each in entries)


async def _store_late_turn(memory: WritingSetup, *, fails: bool = False) -> None:
    turn = ConversationTurn(
        person=MATE,
        chat=MATE_CHAT,
        user_text="I use Vim for everything",
        assistant_text="Noted.",
        source="inbox:late",
        at=memory.world.clock(),
    )
    async with memory.world.db.write() as tx:
        await memory.recorder.record_turn(tx, turn, [])
        if fails:
            raise InterruptedError
