"""What stood behind an answer or a task, as its reader may see it, on a real store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from storage.memory.living.uses import Use, UseRepo
from storage.records.memory.entries import GLOBAL, EntryId, Scope, ScopeKind
from storage.records.people import Chat
from storage.records.tasks import TaskId
from storage.sessions import SessionRepo
from tests.bot.app.test_memory_book import booked, keep
from tests.bot.engine.memory.writing.world import MATES_CHAT, MINE, TEAM, Memory
from tests.engine_world import BOSS, CHAT, GROUP, MATE

PROJECT = Scope(ScopeKind.PROJECT, "kiosk")


async def answered(
    memory: Memory,
    *entries: str,
    chat: Chat = CHAT,
    task: TaskId | None = None,
    backend: str = "openai",
) -> tuple[str, int]:
    """As if these had been looked for before an answer; its session and turn."""
    sessions, now = SessionRepo(memory.world.db), memory.world.clock()
    key = f"task:{task}" if task else f"chat:{chat.id}"
    async with memory.world.db.write() as tx:
        session = await sessions.open(key, tx=tx)
        if session is None:
            name = f"s-{key}"
            session = await sessions.begin(
                tx, id=name, key=key, backend=backend, model="m", now=now
            )
        await sessions.extend(tx, session.id, [], tokens=1, now=now)
        uses = [
            Use(
                session=session.id,
                turn=session.turns + 1,
                chat=chat.id,
                task=task,
                entry=EntryId(each),
                block="similar",
                score=0.5,
                parts={},
                at=now,
            )
            for each in entries
        ]
        await UseRepo(memory.world.db).add(tx, uses)
    return session.id, session.turns + 1


async def used(memory: Memory, entries: Sequence[str]) -> list[int]:
    known = await memory.entries.with_ids([EntryId(each) for each in entries], None)
    return [next(one.used for one in known if one.id == each) for each in entries]


async def test_a_word_for_an_answer_counts_once_for_that_answer_and_for_what_is_seen_here(
    tmp_path: Path,
) -> None:
    async with booked(tmp_path) as (book, memory):
        ours = await keep(memory, "Deploys happen on Fridays", TEAM)
        mine = await keep(memory, "My PIN is on the fridge", MINE)
        later = await keep(memory, "The kiosk opens at nine", TEAM)
        session, turn = await answered(memory, ours, mine, chat=GROUP)
        await answered(memory, later, chat=GROUP)

        elsewhere = await book.helped(MATE, MATES_CHAT, session=session, turn=turn)
        first = await book.helped(MATE, GROUP, session=session, turn=turn)
        await book.helped(MATE, GROUP, session=session, turn=turn)

        assert not elsewhere.used
        assert ([each.id for each in first.used], first.hidden) == ([ours], 1)
        assert first.used[0].confirmed
        assert await used(memory, [ours, mine, later]) == [1, 0, 0]


async def test_of_a_task_each_sees_what_they_may_see_where_they_ask(tmp_path: Path) -> None:
    async with booked(tmp_path) as (book, memory):
        task = await memory.world.add("Count the stock of the kiosk")
        mine = await keep(memory, "My PIN is on the fridge", MINE)
        everybodys = await keep(memory, "Deploys happen on Fridays", GLOBAL)
        project = await keep(memory, "The kiosk sells ice cream", PROJECT)
        for _ in range(2):
            await answered(memory, mine, everybodys, project, task=task.id)

        private = await book.why_task(BOSS, CHAT, task)
        group = await book.why_task(BOSS, GROUP, task)
        mate = await book.why_task(MATE, MATES_CHAT, task)
        talk = await book.why(BOSS, CHAT)

        assert [each.id for each in private.used] == [mine, everybodys, project]
        for told in (group, mate):
            assert ([each.id for each in told.used], told.hidden) == ([everybodys], 2)
        assert talk.at is None, "it was no talk"


async def test_figures_that_are_of_everybody_are_told_to_owners_in_private(
    tmp_path: Path,
) -> None:
    async with booked(tmp_path) as (book, memory):
        await memory.say("remember that my cat is called Findus", source="1")
        await memory.say("My cat is called Findus and he is grey")
        owner = await book.stats(BOSS, CHAT)
        group = await book.stats(BOSS, GROUP)
        member = await book.stats(MATE, MATES_CHAT)

        assert owner.jobs_waiting == 1
        assert (group.jobs_waiting, member.jobs_waiting) == (0, 0)
