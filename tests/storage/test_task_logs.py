"""Typed logs on disk: cut, kept once, and found by words among what may be seen."""

from __future__ import annotations

from pathlib import Path

from storage.records.people import ChatId
from storage.records.task_logs import MAX_LOG_TEXT, LogKind, NewLog
from storage.records.tasks import Task, TaskPriority, TaskStatus
from storage.tasks import TaskVisibility
from tests.engine_harness import BOSS, CHAT, GROUP, MATE, EngineHarness, run_engine

ALL = TaskVisibility(sees_all=True, person=BOSS.id, chat=CHAT.id)
TEAM = TaskVisibility(sees_all=False, person=None, chat=GROUP.id)
STRANGE = TaskVisibility(sees_all=False, person=MATE.id, chat=ChatId("elsewhere"))


async def kept(
    world: EngineHarness, task: Task, text: str, kind: LogKind = LogKind.FINDING
) -> bool:
    new = NewLog(task_id=task.id, source=f"{task.id}:{text}", kind=kind, text=text)
    async with world.db.write() as tx:
        return await world.store.logs.add(tx, new, now=world.clock())


async def test_a_source_writes_one_log_and_it_is_cut_to_size(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        task = await world.create_task()
        first, again = await kept(world, task, "x" * 600), await kept(world, task, "x" * 600)
        entry = await world.store.logs.find_by_source(f"{task.id}:{'x' * 600}")
        unknown = await world.store.logs.find_by_source("nobody")

    assert (first, again) == (True, False)
    assert entry is not None
    assert len(entry.text) == MAX_LOG_TEXT
    assert unknown is None


async def test_the_newest_logs_come_oldest_first_and_by_kind(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        task = await world.create_task()
        for n in range(4):
            await kept(world, task, f"f{n}")
        await kept(world, task, "e", LogKind.ERROR)
        newest = await world.store.logs.list_latest(task.id, 3)
        errors = await world.store.logs.list_latest(task.id, 3, kinds=(LogKind.ERROR,))
        counts = (
            await world.store.logs.count(task.id),
            await world.store.logs.count(task.id, LogKind.FINDING),
        )

    assert [e.text for e in newest] == ["f2", "f3", "e"]
    assert [e.text for e in errors] == ["e"]
    assert counts == (5, 4)


async def test_a_search_stays_within_what_may_be_seen(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        mine, ours = (
            await world.create_task("mine"),
            await world.create_task("ours", chat_id=GROUP.id),
        )
        await kept(world, mine, "the key is private")
        await kept(world, ours, "the key is shared")
        logs = world.store.logs
        seen = {
            name: [f.entry.text for f in await logs.search_all_words(sight, ["KEY"], 5)]
            for name, sight in (("all", ALL), ("team", TEAM), ("strange", STRANGE))
        }
        recalled = await logs.search_any_word(ALL, ["shared", "key"], 5, excluding=mine.id)

    assert seen == {
        "all": ["the key is shared", "the key is private"],
        "team": ["the key is shared"],
        "strange": [],
    }
    assert [f.task.title for f in recalled] == ["ours"]


async def test_logs_that_say_more_of_the_words_come_first(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        old, new, asking = [await world.create_task(name) for name in ("old", "new", "asking")]
        await kept(world, old, "red and green and blue")
        await kept(world, new, "only red")
        words = ["red", "green", "blue"]
        hits = await world.store.logs.search_any_word(ALL, words, 5, excluding=asking.id)
        none = await world.store.logs.search_any_word(ALL, [], 5, excluding=asking.id)

    assert [hit.task.title for hit in hits] == ["old", "new"]
    assert none == ()


async def test_tasks_are_found_by_title_instruction_and_logs_together(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        task = await world.create_task("Move the ledger")
        await world.create_task("Move the piano")
        await kept(world, task, "50% of it is in Paris")
        found = await world.store.logs.search_tasks(ALL, ["move", "PARIS", "50%"], 5)
        other = await world.store.logs.search_tasks(ALL, ["move", "5_%"], 5)

    assert [each.id for each in found] == [task.id]
    assert other == ()


async def test_what_is_to_do_is_ordered_by_priority_progress_and_age(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        first = await world.create_task("first")
        paused = await world.create_task("paused")
        await world.tasks.pause(paused, by=BOSS, source="p")
        begun = await world.create_task("begun", outside=True)
        urgent = await world.create_task("urgent", priority=TaskPriority.URGENT)
        wanted = (TaskStatus.RUNNING, TaskStatus.PAUSED, TaskStatus.PENDING)
        order = [t.id for t in await world.store.logs.list_tasks_to_do(ALL, wanted, 9)]
        own = await world.store.logs.list_tasks_to_do(ALL, wanted, 9, outside=True)

    assert order == [urgent.id, begun.id, paused.id, first.id]
    assert [task.id for task in own] == [begun.id]
