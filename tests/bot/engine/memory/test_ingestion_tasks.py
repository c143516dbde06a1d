"""Tests that each end of a task is stored once, also after a crash."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import insert

from bot.engine.memory.ingestion import FinishedTaskRecorder
from storage import schema
from storage.dialect import insert_or_ignore
from storage.key_value import KeyValueStore
from storage.memory.cells import FinishedTaskRepo
from storage.memory.withheld_turns import WithheldTurnRepo
from storage.records.memory import MemoryKind, MemoryScope, MemoryScopeKind
from storage.records.people import Chat, ChatId, Person, PersonId
from storage.records.tasks import EventKind, Task, TaskId, TaskPhase, TaskStatus
from storage.schema import tool_calls
from tests.bot.engine.crash import CrashAfterCommit
from tests.bot.engine.memory.writing_builders import (
    MY_SCOPE,
    TEAM_SCOPE,
    WritingSetup,
    build_writing,
    extracted_fact,
    extraction_of,
)
from tests.engine_harness import BOSS, CHATS, GROUP, MATE


async def chat_of(chat: ChatId) -> Chat:
    return CHATS[chat]


async def person_of(person: PersonId) -> Person:
    return {each.id: each for each in (BOSS, MATE)}[person]


def listener(memory: WritingSetup) -> FinishedTaskRecorder:
    world = memory.world

    async def task_of(task_id: TaskId) -> Task:
        return await world.store.tasks.get(task_id)

    return FinishedTaskRecorder(
        db=world.db,
        ended_tasks=FinishedTaskRepo(world.db, KeyValueStore(world.db)),
        task_of=task_of,
        chat_of=chat_of,
        person_of=person_of,
        recorder=memory.recorder,
        withheld=WithheldTurnRepo(memory.world.db),
    )


async def started(memory: WritingSetup) -> FinishedTaskRecorder:
    made = listener(memory)
    await FinishedTaskRepo(memory.world.db, KeyValueStore(memory.world.db)).start_cursor()
    return made


async def end(memory: WritingSetup, task: Task, status: TaskStatus, summary: str) -> None:
    world = memory.world
    async with world.db.write() as tx:
        held = await world.store.tasks.lock(tx, task.id)
        await world.store.tasks.update(
            tx, held, status=status, phase=TaskPhase.ENDED, summary=summary, status_reason=""
        )
        await world.store.events.append_event(
            tx, task.id, EventKind(status.value), now=world.clock(), text=""
        )


async def test_an_end_is_kept_with_whom_it_was_for(tmp_path: Path) -> None:
    async with build_writing(tmp_path) as memory:
        listening = await started(memory)
        mine = await memory.world.create_task("Write a report about sales")
        ours = await memory.world.create_task("Mend the build", chat_id=GROUP.id)
        await end(memory, mine, TaskStatus.COMPLETED, "It is in report.md")
        await end(memory, ours, TaskStatus.FAILED, "node 22 is missing")
        follower = memory.feed.subscribe()

        await listening.record_finished()
        await listening.record_finished()

        cells = await memory.list_entries(MemoryKind.CELL)
        assert [(each.text, each.scope, each.task) for each in cells] == [
            ("Write a report about sales\n\nIt is in report.md", MY_SCOPE, mine.id),
            ("Mend the build\n\nnode 22 is missing", TEAM_SCOPE, ours.id),
        ]
        assert await follower.wait() == {MY_SCOPE, TEAM_SCOPE}
        await memory.run_jobs()
        assert len(memory.model.queries) == 2


async def test_of_a_task_without_memory_nothing_is_kept(tmp_path: Path) -> None:
    async with build_writing(tmp_path) as memory:
        listening = await started(memory)
        fresh = await memory.world.create_task("Write a report", use_memory=False)
        await end(memory, fresh, TaskStatus.COMPLETED, "It is in report.md")

        await listening.record_finished()

        assert await memory.list_entries(MemoryKind.CELL) == []


async def test_a_task_that_ends_again_is_kept_again(tmp_path: Path) -> None:
    async with build_writing(tmp_path) as memory:
        listening = await started(memory)
        task = await memory.world.create_task("Write a report about sales")
        await end(memory, task, TaskStatus.FAILED, "no figures")
        await listening.record_finished()
        await end(memory, task, TaskStatus.COMPLETED, "It is in report.md")
        await listening.record_finished()

        assert len(await memory.list_entries(MemoryKind.CELL)) == 2


async def test_what_was_not_looked_at_at_once_is_kept_with_its_own_time(tmp_path: Path) -> None:
    async with build_writing(tmp_path) as memory:
        listening = await started(memory)
        task = await memory.world.create_task("Write a report about sales")
        await end(memory, task, TaskStatus.COMPLETED, "It is in report.md")
        at = memory.world.clock.time
        memory.world.clock.advance(hours=30)

        await listening.record_finished()

        [cell] = await memory.list_entries(MemoryKind.CELL)
        assert abs(cell.said_at - at).total_seconds() < 1


async def test_what_ended_before_anybody_listened_is_left_alone(tmp_path: Path) -> None:
    async with build_writing(tmp_path) as memory:
        task = await memory.world.create_task("Write a report about sales")
        await end(memory, task, TaskStatus.COMPLETED, "done")
        listening = await started(memory)

        await listening.record_finished()

        assert await memory.list_entries() == []


@pytest.mark.parametrize("nth", range(1, 7))
async def test_a_death_at_any_commit_keeps_each_end_once(
    nth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def live() -> None:
        async with build_writing(tmp_path) as memory:
            listening = await started(memory)
            task = await memory.world.create_task("Write a report about sales", source="one")
            await end(memory, task, TaskStatus.COMPLETED, "It is in report.md")
            await listening.record_finished()

    async with build_writing(tmp_path) as memory:
        await started(memory)
    death = CrashAfterCommit(nth)
    with monkeypatch.context() as dying:
        death.install(dying)
        await death.run_until_crash(live())
    async with build_writing(tmp_path) as memory:
        listening = await started(memory)
        await listening.record_finished()
        await listening.record_finished()

        ended = [
            task
            for task in await memory.world.store.tasks.list_recent(5)
            if task.status is TaskStatus.COMPLETED
        ]
        assert len(await memory.list_entries(MemoryKind.CELL)) == len(ended)


async def loads(memory: WritingSetup, task: Task, skill: str, *, state: str = "done") -> None:
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


async def learned(memory: WritingSetup, *texts: str) -> dict[str, MemoryScope]:
    memory.model.answers = [
        extraction_of(
            *[
                extracted_fact(text, category=kind, source="event")
                for kind, text in zip(WAYS, texts, strict=False)
            ]
        )
    ]
    await memory.run_jobs()
    return {each.text: each.scope for each in await memory.list_entries(MemoryKind.FACT)}


WAYS = ("patterns", "pitfalls", "lessons")


@pytest.mark.parametrize("again", ["", " Weekly-Report"])
async def test_a_task_feeds_the_skill_that_it_was_worked_on_with(
    tmp_path: Path, again: str
) -> None:
    async with build_writing(tmp_path) as memory:
        listening = await started(memory)
        task = await memory.world.create_task("Write a report about sales", chat_id=GROUP.id)
        await loads(memory, task, "weekly-report")
        await loads(memory, task, "of-no-use", state="failed")
        if again:
            await loads(memory, task, again)
        await end(memory, task, TaskStatus.COMPLETED, "It is in report.md")
        await listening.record_finished()

        assert await learned(memory, "A report begins with its figures") == {
            "A report begins with its figures": MemoryScope(MemoryScopeKind.SKILL, "weekly-report")
        }


async def test_of_several_skills_none_is_fed(tmp_path: Path) -> None:
    async with build_writing(tmp_path) as memory:
        listening = await started(memory)
        task = await memory.world.create_task("Write a report about sales", chat_id=GROUP.id)
        await loads(memory, task, "weekly-report")
        await loads(memory, task, "charts")
        await end(memory, task, TaskStatus.COMPLETED, "It is in report.md")
        await listening.record_finished()

        found = await learned(memory, "A report begins with its figures")
        assert list(found.values()) == [TEAM_SCOPE]


async def test_at_a_project_ways_are_the_skills_and_all_else_is_the_projects(
    tmp_path: Path,
) -> None:
    async with build_writing(tmp_path) as memory:
        listening = await started(memory)
        task = await memory.world.create_task("Deploy", project_dir="/srv/bakery", chat_id=GROUP.id)
        await loads(memory, task, "deploy")
        await end(memory, task, TaskStatus.COMPLETED, "It is out, with node 22")
        await listening.record_finished()

        skill, project = (
            MemoryScope(MemoryScopeKind.SKILL, "deploy"),
            MemoryScope(MemoryScopeKind.PROJECT, "/srv/bakery"),
        )
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
