"""What tasks have come to is kept: each end once, whatever comes between."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.engine.memory.writing.ended import TaskListener
from storage.marks import Marks
from storage.memory.ended import EndedTasks
from storage.records.memory.entries import MemoryKind
from storage.records.people import Chat, ChatId, Person, PersonId
from storage.records.tasks import EventKind, Phase, Task, TaskId, TaskStatus
from tests.bot.engine.death import Death
from tests.bot.engine.memory.writing.world import MINE, TEAM, Memory, remembering
from tests.engine_world import BOSS, CHATS, GROUP, MATE


async def chat_of(chat: ChatId) -> Chat:
    return CHATS[chat]


async def person_of(person: PersonId) -> Person:
    return {each.id: each for each in (BOSS, MATE)}[person]


def listener(memory: Memory) -> TaskListener:
    world = memory.world

    async def task_of(task_id: TaskId) -> Task:
        return await world.store.tasks.get(task_id)

    return TaskListener(
        db=world.db,
        ended=EndedTasks(world.db, Marks(world.db)),
        task_of=task_of,
        chat_of=chat_of,
        person_of=person_of,
        recorder=memory.recorder,
        now=world.clock,
    )


async def started(memory: Memory) -> TaskListener:
    made = listener(memory)
    await EndedTasks(memory.world.db, Marks(memory.world.db)).begin()
    return made


async def end(memory: Memory, task: Task, status: TaskStatus, summary: str) -> None:
    world = memory.world
    async with world.db.write() as tx:
        held = await world.store.tasks.lock(tx, task.id)
        await world.store.tasks.move(
            tx, held, status=status, phase=Phase.ENDED, summary=summary, status_reason=""
        )
        await world.store.journal.append(
            tx, task.id, EventKind(status.value), now=world.clock(), text=""
        )


async def test_an_end_is_kept_with_whom_it_was_for(tmp_path: Path) -> None:
    async with remembering(tmp_path) as memory:
        listening = await started(memory)
        mine = await memory.world.add("Write a report about sales")
        ours = await memory.world.add("Mend the build", chat_id=GROUP.id)
        await end(memory, mine, TaskStatus.COMPLETED, "It is in report.md")
        await end(memory, ours, TaskStatus.FAILED, "node 22 is missing")
        follower = memory.changed.listen()

        await listening.look()
        await listening.look()

        cells = await memory.all(MemoryKind.CELL)
        assert [(each.text, each.scope, each.task) for each in cells] == [
            ("Write a report about sales\n\nIt is in report.md", MINE, mine.id),
            ("Mend the build\n\nnode 22 is missing", TEAM, ours.id),
        ]
        assert await follower.wait() == {MINE, TEAM}
        await memory.draw()
        assert len(memory.notes.asked) == 2


async def test_a_task_that_ends_again_is_kept_again(tmp_path: Path) -> None:
    async with remembering(tmp_path) as memory:
        listening = await started(memory)
        task = await memory.world.add("Write a report about sales")
        await end(memory, task, TaskStatus.FAILED, "no figures")
        await listening.look()
        await end(memory, task, TaskStatus.COMPLETED, "It is in report.md")
        await listening.look()

        assert len(await memory.all(MemoryKind.CELL)) == 2


async def test_what_ended_before_anybody_listened_is_left_alone(tmp_path: Path) -> None:
    async with remembering(tmp_path) as memory:
        task = await memory.world.add("Write a report about sales")
        await end(memory, task, TaskStatus.COMPLETED, "done")
        listening = await started(memory)

        await listening.look()

        assert await memory.all() == []


@pytest.mark.parametrize("nth", range(1, 7))
async def test_a_death_at_any_commit_keeps_each_end_once(
    nth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def live() -> None:
        async with remembering(tmp_path) as memory:
            listening = await started(memory)
            task = await memory.world.add("Write a report about sales", source="one")
            await end(memory, task, TaskStatus.COMPLETED, "It is in report.md")
            await listening.look()

    async with remembering(tmp_path) as memory:
        await started(memory)
    death = Death(nth)
    with monkeypatch.context() as dying:
        death.on(dying)
        await death.or_end_of(live())
    async with remembering(tmp_path) as memory:
        listening = await started(memory)
        await listening.look()
        await listening.look()

        ended = [
            task
            for task in await memory.world.store.tasks.recent(5)
            if task.status is TaskStatus.COMPLETED
        ]
        assert len(await memory.all(MemoryKind.CELL)) == len(ended)
