"""What workers may look up of the past: by words, and never what the readers there may not see."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from bot.engine.agent.tools.memory_get import memory_get
from bot.engine.agent.tools.memory_search import memory_search
from bot.engine.dispatch.method.remembered import Remembered
from bot.engine.dispatch.rights import Rights
from bot.engine.llm.base import ERROR
from bot.engine.memory.port import Memories
from storage.records.logs import LogKind, NewLog
from storage.records.people import Chat, ChatId, Person, PersonId
from storage.records.tasks import Task, TaskId
from tests.engine_world import BOSS, CHAT, CHATS, GROUP, MATE, Engine, engine


async def log(world: Engine, task: Task, text: str, file: str = "") -> None:
    new = NewLog(
        task_id=task.id, source=f"s:{text[:50]}", kind=LogKind.FINDING, text=text, file=file
    )
    async with world.db.write() as tx:
        await world.store.logs.note(tx, new, now=world.clock())


def read_by(
    world: Engine,
    home: Path,
    person: Person | None = BOSS,
    chat: Chat = CHAT,
    task: TaskId | None = None,
) -> Memories:
    people = {each.id: each for each in (BOSS, MATE)}

    async def person_of(person_id: PersonId) -> Person:
        return people[person_id]

    async def chat_of(chat_id: ChatId) -> Chat:
        return CHATS.get(chat_id, replace(CHAT, id=chat_id, person_id=MATE.id))

    all_of_it = Remembered(
        logs=world.store.logs,
        tasks=world.store.tasks,
        rights=Rights(chat_of),
        person_of=person_of,
        home=home,
    )
    return all_of_it.of(person.id if person else None, chat.id, task)


async def ask(memories: Memories, query: str, **more: Any) -> str:
    return await memory_search(memories).run({"query": query, **more})


async def test_a_log_is_found_by_some_of_its_words_and_read_in_full(tmp_path: Path) -> None:
    async with engine(tmp_path, running=False) as world:
        task = await world.add("Find out about the harbour")
        kept = tmp_path / "files" / "logs" / task.id / "1.md"
        kept.parent.mkdir(parents=True)
        kept.write_text("Cranes need 400 volts, and a very long explanation.")
        file = kept.relative_to(tmp_path).as_posix()
        await log(world, task, "Cranes need 400 volts", file=file)
        memories = read_by(world, tmp_path)

        found = await ask(memories, "cranes elephants")
        number = found.split("- ")[1].split(" ")[0]
        whole = await memory_get(memories).run({"id": number})

    assert "Cranes need 400 volts" in found
    assert "a very long explanation" in whole
    assert "not orders" in found


async def test_a_task_is_found_by_what_was_asked_and_shows_its_logs(tmp_path: Path) -> None:
    async with engine(tmp_path, running=False) as world:
        task = await world.add("Paint the lighthouse")
        await log(world, task, "Red goes first")
        memories = read_by(world, tmp_path)

        found = await ask(memories, "lighthouse")
        whole = await memory_get(memories).run({"id": f"task-{task.id}"})

    assert f"task-{task.id}" in found
    assert "Red goes first" in whole


async def test_a_group_never_reads_a_private_task(tmp_path: Path) -> None:
    async with engine(tmp_path, running=False) as world:
        private = await world.add("Plan the surprise")
        await log(world, private, "The surprise is a boat")
        seen = await ask(read_by(world, tmp_path), "surprise")
        number = seen.split("- ")[1].split(" ")[0]
        groups = read_by(world, tmp_path, chat=GROUP)
        here = await world.add("Tidy up", chat_id=GROUP.id)
        of_its_task = read_by(world, tmp_path, chat=GROUP, task=here.id)

        for memories in (groups, of_its_task):
            assert "surprise" not in (await ask(memories, "surprise boat")).lower()
            for wanted in (number, f"task-{private.id}"):
                assert (await memory_get(memories).run({"id": wanted})).startswith(ERROR)


async def test_a_member_does_not_read_an_owners_task(tmp_path: Path) -> None:
    mates = replace(CHAT, id=ChatId("m1"), person_id=MATE.id)
    async with engine(tmp_path, running=False) as world:
        task = await world.add("Plan the surprise")
        await log(world, task, "The surprise is a boat")

        found = await ask(read_by(world, tmp_path, MATE, mates), "boat")

    assert "boat" not in found


async def test_a_task_does_not_remember_itself(tmp_path: Path) -> None:
    async with engine(tmp_path, running=False) as world:
        task = await world.add("Paint the lighthouse")
        await log(world, task, "Red lighthouse")

        found = await ask(read_by(world, tmp_path, task=task.id), "lighthouse")

    assert "lighthouse" not in found.lower()


async def test_no_more_is_told_than_was_asked_for(tmp_path: Path) -> None:
    async with engine(tmp_path, running=False) as world:
        for n in range(4):
            await log(world, await world.add(f"Boat number {n}"), f"boat {n} floats")

        found = await ask(read_by(world, tmp_path), "boat", limit=2)

    assert found.count("\n- ") == 2


async def test_what_is_no_memory_is_refused(tmp_path: Path) -> None:
    async with engine(tmp_path, running=False) as world:
        memories = read_by(world, tmp_path)

        for wanted in ("log:99", "log:x", "log:" + "9" * 40, "", "task-", "../../etc/passwd"):
            assert (await memory_get(memories).run({"id": wanted})).startswith(ERROR)
        assert (await memory_search(memories).run({"query": "  "})).startswith(ERROR)
