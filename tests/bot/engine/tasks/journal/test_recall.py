"""Workers look up past logs by words, and only those that their readers may see."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bot.engine.llm.tool_calls import ERROR_PREFIX
from bot.engine.memory.ports import MemorySource
from bot.engine.tasks.access import TaskAccess
from bot.engine.tasks.journal_recall import TaskMemories
from bot.engine.tools.memory import memory_get_tool, memory_search_tool
from cards.catalog import catalog_for
from storage.records.people import Chat, ChatId, Language, Person, PersonId
from storage.records.task_logs import LogKind, NewLog
from storage.records.tasks import Task, TaskId
from tests.engine_harness import BOSS, CHAT, CHATS, GROUP, MATE, EngineHarness, run_engine


async def add_entry(world: EngineHarness, task: Task, text: str, file: str = "") -> None:
    new = NewLog(
        task_id=task.id, source=f"s:{text[:50]}", kind=LogKind.FINDING, text=text, file=file
    )
    async with world.db.write() as tx:
        await world.store.logs.add_deferred(tx, new, now=world.clock())


def memories_for(
    world: EngineHarness,
    home: Path,
    person: Person | None = BOSS,
    chat: Chat = CHAT,
    task: TaskId | None = None,
) -> MemorySource:
    people = {each.id: each for each in (BOSS, MATE)}

    async def person_of(person_id: PersonId) -> Person:
        return people[person_id]

    async def chat_of(chat_id: ChatId) -> Chat:
        return CHATS.get(chat_id, replace(CHAT, id=chat_id, person_id=MATE.id))

    all_of_it = TaskMemories(
        logs=world.store.logs,
        tasks=world.store.tasks,
        access=TaskAccess(chat_of),
        person_of=person_of,
        home=home,
    )
    return all_of_it.for_reader(person.id if person else None, chat.id, task)


async def search_text(memories: MemorySource, query: str, **more: Any) -> str:
    return await memory_search_tool(memories).run({"query": query, **more})


async def test_a_log_is_found_by_some_of_its_words_and_read_in_full(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        task = await world.create_task("Find out about the harbour")
        kept = tmp_path / "files" / "logs" / task.id / "1.md"
        kept.parent.mkdir(parents=True)
        kept.write_text("Cranes need 400 volts, and a very long explanation.")
        file = kept.relative_to(tmp_path).as_posix()
        await add_entry(world, task, "Cranes need 400 volts", file=file)
        memories = memories_for(world, tmp_path)

        found = await search_text(memories, "cranes elephants")
        number = found.split("- ")[1].split(" ")[0]
        whole = await memory_get_tool(memories).run({"id": number})

    assert "Cranes need 400 volts" in found
    assert "a very long explanation" in whole
    assert "not orders" in found


async def test_a_task_is_found_by_what_was_asked_and_shows_its_logs(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        task = await world.create_task("Paint the lighthouse")
        await add_entry(world, task, "Red goes first")
        memories = memories_for(world, tmp_path)

        found = await search_text(memories, "lighthouse")
        whole = await memory_get_tool(memories).run({"id": f"task-{task.id}"})

    assert f"task-{task.id}" in found
    assert "Red goes first" in whole


async def test_a_group_never_reads_a_private_task(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        private = await world.create_task("Plan the surprise")
        await add_entry(world, private, "The surprise is a boat")
        seen = await search_text(memories_for(world, tmp_path), "surprise")
        number = seen.split("- ")[1].split(" ")[0]
        groups = memories_for(world, tmp_path, chat=GROUP)
        here = await world.create_task("Tidy up", chat_id=GROUP.id)
        of_its_task = memories_for(world, tmp_path, chat=GROUP, task=here.id)

        for memories in (groups, of_its_task):
            assert "surprise" not in (await search_text(memories, "surprise boat")).lower()
            for wanted in (number, f"task-{private.id}"):
                assert (await memory_get_tool(memories).run({"id": wanted})).startswith(
                    ERROR_PREFIX
                )


async def test_a_member_does_not_read_an_owners_task(tmp_path: Path) -> None:
    mates = replace(CHAT, id=ChatId("m1"), person_id=MATE.id)
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        task = await world.create_task("Plan the surprise")
        await add_entry(world, task, "The surprise is a boat")

        found = await search_text(memories_for(world, tmp_path, MATE, mates), "boat")

    assert "boat" not in found


async def test_a_task_does_not_remember_itself(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        task = await world.create_task("Paint the lighthouse")
        await add_entry(world, task, "Red lighthouse")

        found = await search_text(memories_for(world, tmp_path, task=task.id), "lighthouse")

    assert "lighthouse" not in found.lower()


async def test_no_more_is_told_than_was_asked_for(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        for n in range(4):
            await add_entry(world, await world.create_task(f"Boat number {n}"), f"boat {n} floats")

        found = await search_text(memories_for(world, tmp_path), "boat", limit=2)

    assert found.count("\n- ") == 2


async def test_what_is_no_memory_is_refused(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        memories = memories_for(world, tmp_path)

        for wanted in ("log:99", "log:x", "log:" + "9" * 40, "", "task-", "../../etc/passwd"):
            assert (await memory_get_tool(memories).run({"id": wanted})).startswith(ERROR_PREFIX)
        assert (await memory_search_tool(memories).run({"query": "  "})).startswith(ERROR_PREFIX)


async def keep_log(
    world: EngineHarness, task: Task, kind: LogKind, text: str, *, source: str = ""
) -> None:
    new = NewLog(task_id=task.id, source=source or f"{kind}:{text[:50]}", kind=kind, text=text)
    async with world.db.write() as tx:
        await world.store.logs.add_deferred(tx, new, now=world.clock())


def list_helpful(world: EngineHarness, home: Path, task: Task) -> Awaitable[Sequence[str]]:
    async def chat_of(chat_id: ChatId) -> Chat:
        return CHATS[chat_id]

    async def nobody(_: PersonId) -> Person:
        raise AssertionError

    memories = TaskMemories(
        logs=world.store.logs,
        tasks=world.store.tasks,
        access=TaskAccess(chat_of),
        person_of=nobody,
        home=home,
    )
    return memories.list_helpful(task)


async def test_a_plan_is_told_each_note_once_and_no_failure_of_ours(tmp_path: Path) -> None:
    words = catalog_for(Language.ENGLISH)
    denied = words("backend.denied")
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        for n in range(3):
            old = await world.create_task(f"Paint harbour crane {n}")
            about = "harbour crane"
            await keep_log(world, old, LogKind.FINDING, f"The {about} is red", source=f"f{n}")
            await keep_log(world, old, LogKind.ERROR, f"{denied} {about}", source=f"e{n}")
            await keep_log(world, old, LogKind.BLOCKED, f"{about}: needs a key", source=f"b{n}")
            await keep_log(world, old, LogKind.CHECKPOINT, f"Paint {about}", source=f"c{n}")
        task = await world.create_task("Paint the harbour crane again")

        told = await list_helpful(world, tmp_path, task)
        found = await search_text(memories_for(world, tmp_path), "harbour crane")

    assert told == ["- finding: The harbour crane is red"]
    assert denied[:40] not in found


async def test_a_task_that_shares_a_single_word_is_not_told(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        old = await world.create_task("Bake bread")
        await add_entry(world, old, "The harbour bakery opens at six")
        task = await world.create_task("Paint the harbour crane with green varnish")

        assert await list_helpful(world, tmp_path, task) == []
