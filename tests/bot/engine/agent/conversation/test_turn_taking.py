"""One answer at a time in a chat."""

from __future__ import annotations

import asyncio

from bot.engine.agent.conversation.turn_taking import TurnQueue
from storage.records.people import ChatId

HERE, THERE = ChatId("c1"), ChatId("c2")


async def forever() -> None:
    await asyncio.Event().wait()


async def test_a_newer_message_cuts_the_answer_once() -> None:
    turns, work = TurnQueue("cut"), asyncio.create_task(forever())

    async with turns.track(HERE, work) as turn:
        assert not turns.on_new_message(HERE, "")
        assert not turns.on_new_message(THERE, "")
        assert turn.interrupted
        assert not turns.interrupt(HERE)
        await asyncio.wait([work])

    assert work.cancelled()


async def test_where_it_waits_only_stop_ends_the_answer() -> None:
    turns, work = TurnQueue("wait"), asyncio.create_task(forever())

    async with turns.track(HERE, work) as turn:
        assert turns.on_new_message(HERE, "")
        assert not turn.interrupted
        assert turns.interrupt(HERE)

    assert not turns.on_new_message(HERE, "")


async def test_the_chats_own_choice_counts_before_the_default() -> None:
    turns, work = TurnQueue("cut"), asyncio.create_task(forever())

    async with turns.track(HERE, work) as turn:
        assert turns.on_new_message(HERE, "wait")
        assert not turn.interrupted
        assert not turns.on_new_message(HERE, "")
        assert turn.interrupted


async def test_two_answers_of_one_chat_are_never_made_at_once() -> None:
    turns, said, go = TurnQueue("cut"), list[str](), asyncio.Event()

    async def answer(name: str, chat: ChatId) -> None:
        async with turns.exclusive(chat):
            said.append(f"{name} begins")
            await go.wait()
            said.append(f"{name} ends")

    async with asyncio.TaskGroup() as group:
        for name, chat in (("a", HERE), ("b", HERE), ("x", THERE)):
            group.create_task(answer(name, chat))
        while len(said) < 2:
            await asyncio.sleep(0)
        assert said == ["a begins", "x begins"]
        go.set()

    assert said.index("a ends") < said.index("b begins")


async def test_who_comes_just_as_the_turn_passes_on_waits_as_well() -> None:
    turns, said, leave = TurnQueue("cut"), list[str](), asyncio.Event()

    async def answer(name: str) -> None:
        async with turns.exclusive(HERE):
            said.append(f"{name} begins")
            await leave.wait()
            said.append(f"{name} ends")

    async with asyncio.TaskGroup() as group:
        async with turns.exclusive(HERE):
            group.create_task(answer("b"))
            await asyncio.sleep(0)
        # The turn is given back, and b has not taken it yet.
        late = group.create_task(answer("c"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert said == ["b begins"]
        leave.set()
        await late

    assert said == ["b begins", "b ends", "c begins", "c ends"]
