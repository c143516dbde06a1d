"""What was said is kept: once, with whom it belongs, also over a death."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest

from bot.engine.llm.base import RunRequest, RunResult
from bot.engine.memory.writing.recorder import (
    MOST_ANSWERED,
    MOST_SAID,
    Work,
    answered_in,
    said_in,
)
from bot.engine.memory.writing.service import ByHand
from cards.words import words_for
from storage.records.memory.entries import MemoryKind, Origin, Tier
from storage.records.people import Language
from storage.sessions import SessionRepo
from tests.bot.engine.death import Death
from tests.bot.engine.memory.writing.world import (
    BY_BOSS,
    MINE,
    TEAM,
    Memory,
    question,
    remembering,
    unseen,
)
from tests.engine_world import BOSS, CHAT, GROUP, MATE, FakeBackend, answered


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncGenerator[Memory, None]:
    async with remembering(tmp_path) as made:
        yield made


async def test_a_turn_leaves_a_cell(memory: Memory, tmp_path: Path) -> None:
    follower = memory.changed.listen()

    await memory.talk(tmp_path).answer(question("Where does the cat sleep?"), unseen)

    [cell] = await memory.all()
    assert (said_in(cell), answered_in(cell)) == ("Where does the cat sleep?", "hello there")
    assert (cell.kind, cell.scope, cell.tier) == (MemoryKind.CELL, MINE, Tier.PERIPHERAL)
    assert (cell.sender, cell.person, cell.chat) == (BOSS.name, BOSS.id, CHAT.id)
    assert cell.thread == f"chat:{CHAT.id}"
    assert await follower.wait() == {MINE}
    assert await memory.found("cat") == [cell.text]


async def test_in_a_group_it_is_the_groups_whoever_spoke(memory: Memory) -> None:
    await memory.say("The boiler is in the cellar", "Good to know.", chat=GROUP, person=MATE)

    [cell] = await memory.all()
    assert (cell.scope, cell.sender) == (TEAM, MATE.name)
    assert await memory.found("boiler", MINE) == []


async def test_the_same_message_is_kept_once(memory: Memory) -> None:
    assert await memory.say("The boiler is in the cellar", "Ah.", source="inbox:7")
    assert await memory.say("The boiler is in the cellar", "Oh.", source="inbox:7") is None

    assert await memory.texts() == ["The boiler is in the cellar\n\nAh."]


async def test_greetings_questions_about_memory_and_complaints_are_not_kept(
    memory: Memory,
) -> None:
    for said in ("hi", "谢谢", "你好！"):
        assert await memory.say(said, "Hello!") is None
    for said in ("Do you remember my name?", "why do you keep forgetting?"):
        assert await memory.say(said, "A long answer. " * 40) is None


async def test_a_short_word_that_got_a_long_answer_is_kept(memory: Memory) -> None:
    assert await memory.say("继续", "The next chapter is about Lisbon. " * 10)


async def test_long_turns_are_cut_and_secrets_masked_before(memory: Memory) -> None:
    said = "x " * ((MOST_SAID - 4) // 2) + "hunter2" + " y" * MOST_SAID
    cell = await memory.say(said, "z" * MOST_ANSWERED * 2)
    assert cell is not None

    assert len(said_in(cell)) <= MOST_SAID
    assert len(answered_in(cell)) <= MOST_ANSWERED
    assert "hun" not in cell.text


async def test_the_frame_of_a_workflow_is_not_kept(memory: Memory) -> None:
    said = "## 工作流执行上下文\n当前步骤: 2\n---\n把报告翻译成英文"
    cell = await memory.say(said, "Done.")

    assert cell is not None
    assert said_in(cell) == "把报告翻译成英文"


async def test_what_was_forgotten_is_not_kept_again(memory: Memory) -> None:
    cell = await memory.say("my pin is 1234", "ok", source="inbox:1")
    assert cell is not None
    await memory.writer.forget(cell, BY_BOSS)

    assert await memory.say("my pin is 1234", "ok", source="inbox:2") is None
    assert await memory.all() == []


async def test_what_was_said_before_finds_a_turn_and_what_was_said_after(memory: Memory) -> None:
    await memory.say("Which hotel in Lisbon?", "Hotel Mundial.")
    await memory.say("Book it for three nights", "Booked.")

    assert len(await memory.found("Lisbon")) == 2
    assert len(await memory.found("Booked")) == 2


async def test_an_answer_that_was_cut_short_leaves_what_was_said(tmp_path: Path) -> None:
    gate = asyncio.Event()
    (tmp_path / "slow").mkdir()

    class Slow(FakeBackend):
        async def settle(self, request: RunRequest) -> RunResult:
            gate.set()
            await asyncio.Event().wait()
            return answered(text="never")

    async with remembering(tmp_path / "slow", Slow()) as slow:
        talk = slow.talk(tmp_path)
        work = asyncio.create_task(talk.answer(question("My cat is called Findus"), unseen))
        await gate.wait()
        assert talk.interrupt(CHAT.id)
        assert (await work).interrupted

        assert await slow.texts() == ["My cat is called Findus"]


async def test_a_tasks_end_is_kept_with_what_was_wanted(memory: Memory) -> None:
    task = await memory.world.add("Write a report about sales")
    work = Work(
        task=task.id,
        person=None,
        chat=GROUP,
        asked=task.instruction,
        done="The report is in report.md",
        project="",
        source=f"task:{task.id}:1",
        at=memory.world.clock(),
    )
    for _ in range(2):
        async with memory.world.db.write() as tx:
            await memory.recorder.task_done(tx, work)

    [cell] = await memory.all()
    assert (said_in(cell), answered_in(cell)) == (work.asked, work.done)
    assert (cell.origin, cell.scope, cell.task) == (Origin.TASK, TEAM, task.id)


@pytest.mark.parametrize("nth", range(1, 5))
async def test_a_death_at_any_commit_loses_no_cell_and_doubles_none(
    nth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def live() -> None:
        async with remembering(tmp_path) as memory:
            await memory.talk(tmp_path).answer(question("Where does the cat sleep?"), unseen)

    death = Death(nth)
    with monkeypatch.context() as dying:
        death.on(dying)
        await death.or_end_of(live())
    async with remembering(tmp_path) as memory:
        session = await SessionRepo(memory.world.db).open(f"chat:{CHAT.id}")
        turns = 0 if session is None else session.turns
        assert len(await memory.all()) == turns, "the turn and its cell are one"
        # The message was not acknowledged: it is answered again.
        await memory.talk(tmp_path).answer(question("Where does the cat sleep?"), unseen)
        assert len(await memory.all()) == 1


class NoModel(FakeBackend):
    async def settle(self, request: RunRequest) -> RunResult:
        return replace(answered(text="I cannot answer this without a model."), model="offline")


async def test_what_is_said_wherever_there_is_no_model_is_not_remembered(tmp_path: Path) -> None:
    async with remembering(tmp_path, NoModel()) as memory:
        await memory.talk(tmp_path).answer(question("My sister lives in Kiel"), unseen)

        assert await memory.texts(MemoryKind.CELL) == ["My sister lives in Kiel"]


async def test_whoever_says_it_plainly_is_told_that_it_was_noted_and_how_to_undo_it(
    tmp_path: Path,
) -> None:
    async with remembering(tmp_path, FakeBackend()) as memory:
        told = await memory.talk(tmp_path).answer(question("call me Max"), unseen)
        [held] = await memory.all(MemoryKind.PROFILE)

    assert told.text == "hello there"
    assert "Wants to be called Max" in told.notes[0]
    assert f"/memory forget {held.id}" in told.notes[0]


async def test_without_a_model_that_it_was_noted_is_the_answer(tmp_path: Path) -> None:
    helpless = words_for(Language.ENGLISH)("offline.cannot_answer")

    class Offline(FakeBackend):
        async def settle(self, request: RunRequest) -> RunResult:
            return replace(answered(text=f"{helpless}\n\nNo model."), model="offline")

    seen: list[str] = []

    async def show(text: str) -> None:
        seen.append(text)

    async with remembering(tmp_path, Offline()) as memory:
        told = await memory.talk(tmp_path).answer(
            question("remember that my cat is called Findus"), show
        )

    assert seen == [], "not even for a moment"
    assert "my cat is called Findus" in told.text
    assert helpless not in told.text
    assert told.text.endswith("No model.")
    assert told.notes == ()


async def test_what_was_written_by_hand_and_stands_is_said_to_stand(tmp_path: Path) -> None:
    async with remembering(tmp_path, FakeBackend()) as memory:
        await memory.writer.add(
            ByHand(text="Call me Maximilian", kind=MemoryKind.PROFILE, key="profile:name"), BY_BOSS
        )
        told = await memory.talk(tmp_path).answer(question("call me Max"), unseen)

    assert "it stays: Call me Maximilian" in told.notes[0]


async def test_what_was_written_by_hand_already_is_said_to_be_noted(tmp_path: Path) -> None:
    async with remembering(tmp_path, FakeBackend()) as memory:
        wanted = ByHand(text="Wants to be called Max", kind=MemoryKind.PROFILE, key="profile:name")
        await memory.writer.add(wanted, BY_BOSS)
        told = await memory.talk(tmp_path).answer(question("call me Max"), unseen)

    assert "Noted: Wants to be called Max" in told.notes[0]


async def test_what_says_nothing_plainly_gets_no_note(tmp_path: Path) -> None:
    async with remembering(tmp_path, FakeBackend()) as memory:
        told = await memory.talk(tmp_path).answer(question("The sun is out in Kiel"), unseen)

    assert told.notes == ()
