"""What tasks have come to is kept: each end once, whatever comes between."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import insert

from bot.engine.memory.writing.ended import TaskListener
from storage import schema
from storage.agents.tables import tool_calls
from storage.dialect import insert_or_ignore
from storage.marks import Marks
from storage.memory.ended import EndedTasks
from storage.records.memory.entries import MemoryKind, Scope, ScopeKind
from storage.records.people import Chat, ChatId, Person, PersonId
from storage.records.tasks import EventKind, Phase, Task, TaskId, TaskStatus
from tests.bot.engine.death import Death
from tests.bot.engine.memory.writing.world import (
    MINE,
    TEAM,
    Memory,
    drawn,
    notes_of,
    remembering,
)
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


async def test_what_was_not_looked_at_at_once_is_kept_with_its_own_time(tmp_path: Path) -> None:
    async with remembering(tmp_path) as memory:
        listening = await started(memory)
        task = await memory.world.add("Write a report about sales")
        await end(memory, task, TaskStatus.COMPLETED, "It is in report.md")
        at = memory.world.clock.time
        memory.world.clock.pass_by(hours=30)

        await listening.look()

        [cell] = await memory.all(MemoryKind.CELL)
        assert abs(cell.said_at - at).total_seconds() < 1


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


async def loads(memory: Memory, task: Task, skill: str, *, state: str = "done") -> None:
    """A worker of the task has loaded a skill."""
    world = memory.world
    async with world.db.write() as tx:
        session = {
            "id": f"s-{task.id}",
            "key": f"task:{task.id}",
            "backend": "b",
            "model": "m",
            "started_at": world.clock(),
            "last_used_at": world.clock(),
        }
        await tx.execute(insert_or_ignore(world.db.dialect, schema.sessions).values(session))
        call = {
            "session_id": session["id"],
            "call_id": f"{skill}:{state}",
            "task_id": task.id,
            "backend": "b",
            "tool": "skill_load",
            "kind": "read",
            "title": "",
            "arguments": {"name": skill},
            "command_hash": "",
            "verdict": "allow",
            "state": state,
            "asked_at": world.clock(),
        }
        await tx.execute(insert(tool_calls).values(call))


async def learned(memory: Memory, *texts: str) -> dict[str, Scope]:
    memory.notes.answers = [
        notes_of(
            *[
                drawn(text, category=kind, source="event")
                for kind, text in zip(WAYS, texts, strict=False)
            ]
        )
    ]
    await memory.draw()
    return {each.text: each.scope for each in await memory.all(MemoryKind.FACT)}


WAYS = ("patterns", "pitfalls", "lessons")


@pytest.mark.parametrize("again", ["", " Weekly-Report"])
async def test_a_task_feeds_the_skill_that_it_was_worked_on_with(
    tmp_path: Path, again: str
) -> None:
    async with remembering(tmp_path) as memory:
        listening = await started(memory)
        task = await memory.world.add("Write a report about sales", chat_id=GROUP.id)
        await loads(memory, task, "weekly-report")
        await loads(memory, task, "of-no-use", state="failed")
        if again:
            await loads(memory, task, again)
        await end(memory, task, TaskStatus.COMPLETED, "It is in report.md")
        await listening.look()

        assert await learned(memory, "A report begins with its figures") == {
            "A report begins with its figures": Scope(ScopeKind.SKILL, "weekly-report")
        }


async def test_of_several_skills_none_is_fed(tmp_path: Path) -> None:
    async with remembering(tmp_path) as memory:
        listening = await started(memory)
        task = await memory.world.add("Write a report about sales", chat_id=GROUP.id)
        await loads(memory, task, "weekly-report")
        await loads(memory, task, "charts")
        await end(memory, task, TaskStatus.COMPLETED, "It is in report.md")
        await listening.look()

        found = await learned(memory, "A report begins with its figures")
        assert list(found.values()) == [TEAM]


async def test_at_a_project_ways_are_the_skills_and_all_else_is_the_projects(
    tmp_path: Path,
) -> None:
    async with remembering(tmp_path) as memory:
        listening = await started(memory)
        task = await memory.world.add("Deploy", project_dir="/srv/bakery", chat_id=GROUP.id)
        await loads(memory, task, "deploy")
        await end(memory, task, TaskStatus.COMPLETED, "It is out, with node 22")
        await listening.look()

        skill, project = Scope(ScopeKind.SKILL, "deploy"), Scope(ScopeKind.PROJECT, "/srv/bakery")
        assert await learned(
            memory,
            "Before a deploy the tests run",
            "The build needs node 22",
            "The bakery is deployed at night",
        ) == {
            "Before a deploy the tests run": skill,
            "The build needs node 22": project,
            "The bakery is deployed at night": project,
        }
