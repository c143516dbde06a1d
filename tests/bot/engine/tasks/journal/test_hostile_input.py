"""Hostile and careless input to the working method."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.engine.workspaces.task_workspaces import TaskArtifacts
from handlers.ports_workers import JournalDraft, JournalFileMissing
from storage.errors import NotFound
from storage.records.people import Person, PersonRole
from storage.records.task_logs import LogKind
from storage.records.tasks import Task, TaskStatus
from tests.bot.engine.tasks.journal.test_task_journal import JournalWorld, journal_world
from tests.bot.engine.workspaces.git_project import always_adopted
from tests.engine_harness import BOSS, CHAT, EngineHarness, run_engine

ENDLESS = "a" * 60_000


async def test_a_word_without_end_is_looked_for_by_its_beginning(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:
        await it.log(LogKind.FINDING, ENDLESS)
        asked: dict[str, Any] = {"by": BOSS, "chat": CHAT.id, "limit": 5}

        assert len(await it.journal.search_logs([ENDLESS], **asked)) == 1
        assert await it.journal.search_tasks(["b" * 60_000], **asked) == ()


async def test_an_instruction_of_one_endless_word_recalls_and_is_taken_up(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:
        await it.log(LogKind.FINDING, ENDLESS)
        task = await it.engine.create_task(ENDLESS)

        assert len(await it.journal.recall(task)) == 1
        assert await it.journal.recap(by=BOSS, chat=CHAT.id) is not None


async def test_an_id_without_end_is_no_tasks(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:
        with pytest.raises(NotFound):
            await it.engine.tasks.find(ENDLESS, by=BOSS, chat=CHAT.id)


@pytest.mark.parametrize(
    "named", ["a\0b", "~nobody-here/x", "x" * 300, "/" + "x" * 300, "/proc/self/environ", "loop"]
)
@pytest.mark.parametrize("role", list(PersonRole))
async def test_a_name_that_no_file_can_have_is_refused_as_one(
    tmp_path: Path, named: str, role: PersonRole
) -> None:
    async with journal_world(tmp_path) as it:
        work = tmp_path / "work" / it.task.id
        work.mkdir(parents=True)
        (work / "loop").symlink_to("loop")
        by = replace(BOSS, role=role)

        with pytest.raises(JournalFileMissing):
            await _attach(it, named, by)


async def test_a_file_with_the_longest_name_is_kept_with_its_ending(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:
        work = tmp_path / "work" / it.task.id
        work.mkdir(parents=True)
        name = "长" * 83 + ".txt"
        (work / name).write_text("long", encoding="utf-8")

        kept = await _attach(it, name)

        assert kept.endswith(".txt")
        assert (tmp_path / kept).read_text(encoding="utf-8") == "long"


async def test_what_a_worker_makes_never_takes_the_place_of_a_logs_file(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:
        kept = (await it.log(LogKind.FINDING, "whole " * 200)).entry.file
        work = (tmp_path / "work" / it.task.id).resolve()
        (work / "logs").mkdir(parents=True)
        (work / "logs" / "1.md").write_text("made", encoding="utf-8")

        sent = await TaskArtifacts(tmp_path, always_adopted).collect(
            it.task.id, work, ("logs/1.md",)
        )

        assert sent.copies != (kept,)
        assert (tmp_path / kept).read_text(encoding="utf-8").startswith("whole whole")


async def test_who_waited_and_was_paused_waits_for_no_time_any_more(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        task = await _waiting(world)

        held = await world.tasks.pause(task, by=BOSS, source="s1")
        again = await world.tasks.resume(held, by=BOSS, source="s2")

        assert (again.status, again.wake_at) == (TaskStatus.PENDING, None)


async def test_who_waited_and_is_stuck_now_waits_for_no_time_any_more(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:
        task = await _waiting(it.engine)

        stuck = await it.journal.block_task(task, "no key", by=BOSS, source="s1")

        assert (stuck.status, stuck.wake_at) == (TaskStatus.BLOCKED, None)


async def test_a_stop_handled_again_leaves_alone_what_was_retried_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        aborted: list[str] = []
        monkeypatch.setattr(world.dispatcher, "abort", lambda held: aborted.append(held.id))
        task = await world.create_task()
        await world.tasks.stop(task, by=BOSS, source="stop")
        await world.tasks.retry(task, by=BOSS, source="retry")

        again = await world.tasks.stop(task, by=BOSS, source="stop")

        assert again.status is TaskStatus.PENDING
        assert aborted == [task.id]


async def _attach(it: JournalWorld, named: str, by: Person = BOSS) -> str:
    jotting = JournalDraft(kind=LogKind.RESOURCE, text="see the file", file=named)
    return (await it.journal.add_log(it.task, jotting, by=by, source=it.source())).entry.file


async def _waiting(world: EngineHarness) -> Task:
    task = await world.create_task()
    async with world.db.write() as tx:
        return await world.store.tasks.update(
            tx,
            task,
            status=TaskStatus.WAITING,
            wake_at=world.clock() + timedelta(hours=1),
        )
