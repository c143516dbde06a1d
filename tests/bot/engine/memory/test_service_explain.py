"""Tests that readers see which memories an answer or a task used, on a real store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from storage.memory.access_stats import MemoryUse, MemoryUseRepo
from storage.records.memory import GLOBAL_SCOPE, EntryId, MemoryScope, MemoryScopeKind
from storage.records.people import Chat
from storage.records.tasks import TaskId
from storage.sessions import SessionRepo
from tests.bot.engine.memory.test_service import add_entry, build_service
from tests.bot.engine.memory.writing_builders import MATE_CHAT, MY_SCOPE, TEAM_SCOPE, WritingSetup
from tests.engine_harness import BOSS, CHAT, GROUP, MATE

PROJECT = MemoryScope(MemoryScopeKind.PROJECT, "kiosk")


async def answered(
    memory: WritingSetup,
    *entries: str,
    chat: Chat = CHAT,
    task: TaskId | None = None,
    backend: str = "openai",
) -> tuple[str, int]:
    """As if these had been looked for before an answer; its session and turn."""
    sessions, now = SessionRepo(memory.world.db), memory.world.clock()
    key = f"task:{task}" if task else f"chat:{chat.id}"
    async with memory.world.db.write() as tx:
        session = await sessions.find_open(key, tx=tx)
        if session is None:
            name = f"s-{key}"
            session = await sessions.start(
                tx, id=name, key=key, backend=backend, model="m", now=now
            )
        await sessions.append_messages(tx, session.id, [], tokens=1, now=now)
        uses = [
            MemoryUse(
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
        await MemoryUseRepo(memory.world.db).add(tx, uses)
    return session.id, session.turns + 1


async def used(memory: WritingSetup, entries: Sequence[str]) -> list[int]:
    known = await memory.entries.list_by_ids([EntryId(each) for each in entries], None)
    return [next(one.used for one in known if one.id == each) for each in entries]


async def test_a_word_for_an_answer_counts_once_for_that_answer_and_for_what_is_seen_here(
    tmp_path: Path,
) -> None:
    async with build_service(tmp_path) as (book, memory):
        ours = await add_entry(memory, "Deploys happen on Fridays", TEAM_SCOPE)
        mine = await add_entry(memory, "My PIN is on the fridge", MY_SCOPE)
        later = await add_entry(memory, "The kiosk opens at nine", TEAM_SCOPE)
        session, turn = await answered(memory, ours, mine, chat=GROUP)
        await answered(memory, later, chat=GROUP)

        elsewhere = await book.mark_helpful(MATE, MATE_CHAT, session=session, turn=turn)
        first = await book.mark_helpful(MATE, GROUP, session=session, turn=turn)
        await book.mark_helpful(MATE, GROUP, session=session, turn=turn)

        assert not elsewhere.used
        assert ([each.id for each in first.used], first.hidden_count) == ([ours], 1)
        assert first.used[0].confirmed
        assert await used(memory, [ours, mine, later]) == [1, 0, 0]


async def test_of_a_task_each_sees_what_they_may_see_where_they_ask(tmp_path: Path) -> None:
    async with build_service(tmp_path) as (book, memory):
        task = await memory.world.create_task("Count the stock of the kiosk")
        mine = await add_entry(memory, "My PIN is on the fridge", MY_SCOPE)
        everybodys = await add_entry(memory, "Deploys happen on Fridays", GLOBAL_SCOPE)
        project = await add_entry(memory, "The kiosk sells ice cream", PROJECT)
        for _ in range(2):
            await answered(memory, mine, everybodys, project, task=task.id)

        private = await book.explain_task(BOSS, CHAT, task)
        group = await book.explain_task(BOSS, GROUP, task)
        mate = await book.explain_task(MATE, MATE_CHAT, task)
        talk = await book.explain_answer(BOSS, CHAT)

        assert [each.id for each in private.used] == [mine, everybodys, project]
        for told in (group, mate):
            assert ([each.id for each in told.used], told.hidden_count) == ([everybodys], 2)
        assert talk.at is None, "it was no talk"


async def test_figures_that_are_of_everybody_are_told_to_owners_in_private(
    tmp_path: Path,
) -> None:
    async with build_service(tmp_path) as (book, memory):
        await memory.record_turn("remember that my cat is called Findus", source="1")
        await memory.record_turn("My cat is called Findus and he is grey")
        owner = await book.stats(BOSS, CHAT)
        group = await book.stats(BOSS, GROUP)
        member = await book.stats(MATE, MATE_CHAT)

        assert owner.jobs_waiting == 1
        assert (group.jobs_waiting, member.jobs_waiting) == (0, 0)
