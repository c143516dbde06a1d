"""The working method on a real store: logs, plans, subtasks, what to do now, and an end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from bot.engine.tasks.access import TaskAccess
from bot.engine.tasks.journal_updates import JournalAttachments
from bot.engine.tasks.task_journal import TaskJournal
from bot.engine.workflow.task_store import LEASE_DURATION
from handlers.ports_workers import (
    EditableTaskField,
    InvalidFieldValue,
    JournalDraft,
    JournalFileMissing,
)
from storage.errors import AmbiguousId, NotFound, WrongState
from storage.home_files import HomeFileRepo
from storage.records.people import Chat, ChatId, Language, Person
from storage.records.task_logs import LogKind, LogResult
from storage.records.tasks import EventKind, NodeStatus, Task, TaskPhase, TaskPriority, TaskStatus
from storage.usage import UsageRepo
from tests.builders import STARVATION_LIMIT
from tests.engine_harness import (
    BOSS,
    CHAT,
    CHATS,
    GROUP,
    MATE,
    EngineHarness,
    FakeBackend,
    run_engine,
)
from tests.waiting import WAIT_SECONDS

MATES_CHAT = replace(CHAT, id=ChatId("m1"), external_id="mate", person_id=MATE.id)


async def keep_workspace(_task: Task) -> None:
    pass


@dataclass
class JournalWorld:
    """One engine and the notebook on it; `task` is work done outside."""

    engine: EngineHarness
    journal: TaskJournal
    task: Task
    usage: UsageRepo
    _sources: Any = field(default_factory=count)

    def source(self) -> str:
        return f"inbox:{next(self._sources)}"

    async def log(
        self, kind: LogKind, text: str, task: Task | None = None, **more: Any
    ) -> LogResult:
        jotting = JournalDraft(kind=kind, text=text, **more)
        return await self.journal.add_log(task or self.task, jotting, by=BOSS, source=self.source())

    async def reload(self, task: Task | None = None) -> Task:
        return await self.engine.store.tasks.get((task or self.task).id)

    async def add_subtasks(self, *titles: str) -> None:
        await self.journal.add_subtasks(self.task, titles, by=BOSS, source=self.source())

    async def finish_subtask(self, name: str, task: Task | None = None) -> Task:
        marked = await self.journal.finish_subtask(
            task or self.task, name, "", by=BOSS, source=self.source()
        )
        return marked.task

    async def kinds(self) -> list[EventKind]:
        return [e.kind for e in await self.engine.store.events.list_latest(self.task.id, 50)]


@asynccontextmanager
async def journal_world(
    home: Path, backend: FakeBackend | None = None
) -> AsyncIterator[JournalWorld]:
    """Nobody works unless there is a backend to work with."""
    async with run_engine(home, backend, start_dispatcher=backend is not None) as world:
        usage = UsageRepo(world.db)

        async def chat_of(chat: ChatId) -> Chat:
            return MATES_CHAT if chat == MATES_CHAT.id else CHATS[chat]

        async def english(_task: Task) -> Language:
            return Language.ENGLISH

        book = TaskJournal(
            store=world.store,
            usage=usage,
            views=world.views,
            access=TaskAccess(chat_of),
            dispatcher=world.dispatcher,
            attachments=JournalAttachments(home),
            language_of=english,
            remove_worktree=keep_workspace,
            now=world.clock,
        )
        task = await world.create_task("Migrate the billing database", outside=True)
        yield JournalWorld(engine=world, journal=book, task=task, usage=usage)


async def test_outside_work_is_in_progress_at_once_and_nobody_here_takes_it(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:
        async with it.engine.db.write() as tx:
            claimed = await it.engine.store.queue.claim(
                tx,
                owner="w",
                now=it.engine.clock(),
                lease=LEASE_DURATION,
                aging_after=STARVATION_LIMIT,
            )

        assert (it.task.status, it.task.phase) == (TaskStatus.RUNNING, TaskPhase.DOING)
        assert it.task.started_at is not None
        assert claimed is None
        assert await it.kinds() == [EventKind.CREATED, EventKind.STARTED]


async def test_outside_work_pauses_at_once_and_goes_on_without_queueing(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:
        foreman = it.engine.tasks
        paused = await foreman.pause(it.task, by=BOSS, source="p")
        resumed = await foreman.resume(paused, by=BOSS, source="r")
        stopped = await foreman.stop(resumed, by=BOSS, source="s")
        again = await foreman.retry(stopped, by=BOSS, source="a")

    statuses = [task.status for task in (paused, resumed, stopped, again)]
    assert statuses == [
        TaskStatus.PAUSED,
        TaskStatus.RUNNING,
        TaskStatus.CANCELLED,
        TaskStatus.RUNNING,
    ]


async def test_a_long_log_is_cut_and_kept_whole_in_a_file(tmp_path: Path) -> None:
    text = "字" * 700 + "END"
    async with journal_world(tmp_path) as it:
        noted = await it.log(LogKind.FINDING, text)
        page = await it.journal.logs(it.task, None, 20)

    assert noted.is_truncated
    assert noted.entry.text == "字" * 500
    assert noted.entry.file == f"files/logs/{it.task.id}/1.md"
    assert (tmp_path / noted.entry.file).read_text(encoding="utf-8") == text + "\n"
    assert page.sizes == {noted.entry.file: (tmp_path / noted.entry.file).stat().st_size}
    assert [p.name for p in (tmp_path / noted.entry.file).parent.iterdir()] == ["1.md"]


async def test_what_comes_along_with_a_long_log_is_named_in_its_file(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:
        one = await it.log(LogKind.RESOURCE, "the chart", attachments=("files/in/a.png",))
        both = await it.log(LogKind.RESOURCE, "x" * 501, attachments=("files/in/a.png",))

    assert one.entry.file == "files/in/a.png"
    assert "files/in/a.png" in (tmp_path / both.entry.file).read_text(encoding="utf-8")


async def test_a_named_file_is_copied_and_secrets_of_the_home_are_not(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "report.txt"
    home.mkdir()
    elsewhere.write_text("42", encoding="utf-8")
    async with journal_world(home) as it:
        kept = await it.log(LogKind.RESOURCE, "report", file=str(elsewhere))
        for secret in (str(home / "shiftboss.db"), "../../shiftboss.db", "nothing.txt"):
            with pytest.raises(JournalFileMissing):
                await it.log(LogKind.RESOURCE, "x", file=secret)
        jotting = JournalDraft(kind=LogKind.RESOURCE, text="x", file=str(elsewhere))
        with pytest.raises(JournalFileMissing):
            await it.journal.add_log(it.task, jotting, by=MATE_HERE, source="mate")
        assert await it.engine.store.logs.count(it.task.id) == 1

    assert (home / kept.entry.file).read_text(encoding="utf-8") == "42"


MATE_HERE = replace(MATE, id=BOSS.id)
"""A member who made the task: may move it, and is trusted with nothing else."""


async def test_a_log_delivered_twice_is_kept_once_and_answered_alike(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:
        jotting = JournalDraft(kind=LogKind.ERROR, text="it broke")
        first = await it.journal.add_log(it.task, jotting, by=BOSS, source="inbox:7")
        again = await it.journal.add_log(it.task, jotting, by=BOSS, source="inbox:7")

        assert again.entry == first.entry
        assert (await it.reload()).errors == 1
        assert await it.engine.store.logs.count(it.task.id) == 1


async def test_a_log_before_the_plan_is_warned_of_and_a_plan_ends_that(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:
        early = await it.log(LogKind.FINDING, "a thing")
        await it.journal.write_plan(it.task, "First this, then that.", by=BOSS, source="plan")
        late = await it.log(LogKind.FINDING, "another")
        view = await it.engine.views.view(it.task.id)

    assert (early.has_no_plan, late.has_no_plan) == (True, False)
    assert view.plan == "First this, then that."


async def test_the_fifth_error_blocks_and_tells_and_resuming_counts_anew(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:
        noted = [await it.log(LogKind.ERROR, f"broken {n}") for n in range(1, 6)]
        blocked = await it.reload()
        resumed = await it.engine.tasks.resume(blocked, by=BOSS, source="r")

        assert [each.blocked for each in noted] == [False] * 4 + [True]
        assert [each.task.errors for each in noted] == [1, 2, 3, 4, 5]
        assert blocked.status is TaskStatus.BLOCKED
        assert "broken 5" in blocked.status_reason
        assert (await it.kinds()).count(EventKind.BLOCKED) == 1
        assert (resumed.status, resumed.errors) == (TaskStatus.RUNNING, 0)


async def test_a_new_plan_is_another_approach(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:
        for _ in range(4):
            await it.log(LogKind.ERROR, "broken")
        await it.log(LogKind.PLAN, "quite differently")
        noted = await it.log(LogKind.ERROR, "broken")

    assert (noted.task.errors, noted.blocked) == (1, False)


async def test_errors_logged_while_shiftboss_runs_a_task_do_not_take_it_away(
    tmp_path: Path,
) -> None:
    async with journal_world(tmp_path) as it:
        await it.engine.create_task("theirs")
        async with it.engine.db.write() as tx:
            task = await it.engine.store.queue.claim(
                tx,
                owner="w",
                now=it.engine.clock(),
                lease=LEASE_DURATION,
                aging_after=STARVATION_LIMIT,
            )
        assert task is not None
        for _ in range(6):
            await it.log(LogKind.ERROR, "hm", task)
        now = await it.reload(task)

    assert (now.status, now.errors, now.epoch) == (TaskStatus.RUNNING, 6, task.epoch)


async def test_an_error_of_a_finished_task_is_refused_and_a_finding_is_not(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:
        await it.journal.finish(it.task, by=BOSS, source="d")
        with pytest.raises(WrongState):
            await it.log(LogKind.ERROR, "too late")
        noted = await it.log(LogKind.FINDING, "afterwards")

    assert noted.log_count == 1


async def test_every_tenth_log_asks_to_read_the_goal_again(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:
        noted = [await it.log(LogKind.PROGRESS, str(n)) for n in range(20)]

    assert [n.log_count for n in noted if n.is_reminder_due] == [10, 20]


async def test_subtasks_are_added_at_the_end_and_the_last_one_ends_the_task(
    tmp_path: Path,
) -> None:
    async with journal_world(tmp_path) as it:
        await it.add_subtasks("build", "test")
        await it.finish_subtask("build")
        await it.add_subtasks("ship")
        await it.finish_subtask("2")
        view = await it.engine.views.view(it.task.id)
        ended = await it.finish_subtask("ship")

    assert [(s.title, s.status) for s in view.steps] == [
        ("build", NodeStatus.DONE),
        ("test", NodeStatus.DONE),
        ("ship", NodeStatus.PENDING),
    ]
    assert ended.status is TaskStatus.COMPLETED
    assert ended.ended_at is not None


async def test_names_with_marks_and_names_that_begin_each_other_are_told_apart(
    tmp_path: Path,
) -> None:
    async with journal_world(tmp_path) as it:
        await it.add_subtasks("配置：网络", "配置：网络和代理", "配置", "测试")
        await it.finish_subtask("配置")
        await it.finish_subtask("配置：网络")
        await it.add_subtasks("测定")
        with pytest.raises(AmbiguousId) as several:
            await it.finish_subtask("测")
        with pytest.raises(NotFound, match="部署"):
            await it.finish_subtask("部署")
        view = await it.engine.views.view(it.task.id)

    done = [step.title for step in view.steps if step.status is NodeStatus.DONE]
    assert done == ["配置：网络", "配置"]
    assert several.value.candidates == ("测试", "测定")


async def test_a_subtask_done_before_stays_as_it_was(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:
        await it.add_subtasks("build", "test")
        await it.finish_subtask("build")
        events = await it.kinds()
        marked = await it.journal.finish_subtask(it.task, "build", "", by=BOSS, source="again")

        assert marked.was_already_done
        assert marked.remaining == 1
        assert await it.kinds() == events


async def test_a_subtask_of_a_running_plan_can_be_appended_but_not_ended(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:
        mine = await it.engine.create_task("ours")
        await it.journal.add_subtasks(mine, ("a", "b"), by=BOSS, source="s1")
        async with it.engine.db.write() as tx:
            task = await it.engine.store.queue.claim(
                tx,
                owner="w",
                now=it.engine.clock(),
                lease=LEASE_DURATION,
                aging_after=STARVATION_LIMIT,
            )
        assert task is not None
        await it.journal.add_subtasks(task, ("c",), by=BOSS, source="s2")
        with pytest.raises(WrongState):
            await it.finish_subtask("a", task)
        view = await it.engine.views.view(task.id)

    assert [step.title for step in view.steps] == ["a", "b", "c"]


async def test_a_subtask_marked_done_on_idle_work_is_not_done_again(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:
        mine = await it.engine.create_task("ours")
        await it.journal.add_subtasks(mine, ("a", "b"), by=BOSS, source="s1")
        await it.finish_subtask("a", mine)

    async with run_engine(tmp_path) as world:
        view = await world.until(mine)

    assert view.task.status is TaskStatus.COMPLETED
    assert world.backend.started_steps == ["b"]


async def test_a_subtasks_phase_is_the_tasks_stage_and_one_is_worked_on_at_a_time(
    tmp_path: Path,
) -> None:
    async with journal_world(tmp_path) as it:
        await it.add_subtasks("build it", "test")
        await it.journal.set_subtask_phase(it.task, "build it linking now", by=BOSS, source="a")
        marked = await it.journal.set_subtask_phase(it.task, "2 half way", by=BOSS, source="b")
        view = await it.engine.views.view(it.task.id)

    assert marked.task.stage == "test：half way"
    assert [s.status for s in view.steps] == [NodeStatus.PENDING, NodeStatus.RUNNING]


async def test_finishing_books_the_tokens_that_were_used_meanwhile(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:
        await it.journal.record_token_count(it.task, 10_000, by=BOSS, source="t")
        closed = await it.journal.finish(
            it.task, by=BOSS, source="d", summary="All moved.", tokens_now=12_500
        )
        again = await it.journal.finish(
            it.task, by=BOSS, source="d", summary="All moved.", tokens_now=12_500
        )
        spent = await it.usage.sum_by_task(it.task.id)

    assert (closed.tokens, spent.input_tokens, spent.calls) == (2500, 2500, 1)
    assert (closed.has_plan, closed.has_milestone) == (False, False)
    assert closed.task.summary == "All moved."
    assert not again.was_already_done


async def test_what_is_finished_twice_says_so(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:
        await it.journal.finish(it.task, by=BOSS, source="1")
        closed = await it.journal.finish(it.task, by=BOSS, source="2", tokens_now=1)

    assert closed.was_already_done


async def test_work_not_begun_is_finished_only_by_force(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:
        mine = await it.engine.create_task("ours")
        with pytest.raises(WrongState):
            await it.journal.finish(mine, by=BOSS, source="1")
        closed = await it.journal.finish(mine, by=BOSS, source="2", force=True)

    assert closed.task.status is TaskStatus.COMPLETED


async def test_force_takes_a_running_task_from_its_worker(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:
        await it.engine.create_task("ours")
        async with it.engine.db.write() as tx:
            task = await it.engine.store.queue.claim(
                tx,
                owner="w",
                now=it.engine.clock(),
                lease=LEASE_DURATION,
                aging_after=STARVATION_LIMIT,
            )
        assert task is not None
        with pytest.raises(WrongState):
            await it.journal.finish(task, by=BOSS, source="1")
        closed = await it.journal.finish(task, by=BOSS, source="2", force=True)

    assert closed.task.status is TaskStatus.COMPLETED
    assert closed.task.epoch > task.epoch


async def test_force_cancels_the_step_under_way_and_frees_the_slot(tmp_path: Path) -> None:
    stuck = asyncio.Event()
    backend = FakeBackend(
        steps=("only",), on_step=lambda _title: stuck if len(backend.started_steps) == 1 else None
    )
    async with journal_world(tmp_path, backend) as it:
        ours = await it.engine.create_task("ours")
        async with asyncio.timeout(WAIT_SECONDS):
            while not backend.started_steps:
                await asyncio.sleep(0.005)
        running = await it.reload(ours)
        await it.journal.finish(running, by=BOSS, source="d", summary="by hand", force=True)
        after = await it.engine.until(await it.engine.create_task("next"))
        view = await it.engine.views.view(ours.id)

    assert (view.task.status, view.task.summary) == (TaskStatus.COMPLETED, "by hand")
    assert [step.status for step in view.steps] == [NodeStatus.PENDING]
    assert after.task.status is TaskStatus.COMPLETED


async def test_interrupting_keeps_a_checkpoint_and_pauses(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:
        paused = await it.journal.interrupt(it.task, "tables copied", by=BOSS, source="i")
        (entry,) = await it.engine.store.logs.list_latest(it.task.id, 5)

    assert paused.status is TaskStatus.PAUSED
    assert (entry.kind, entry.text) == (LogKind.CHECKPOINT, "tables copied")


@pytest.mark.parametrize("way", ["/priority", "/update"])
async def test_another_priority_begins_the_wait_anew_whichever_way_it_is_given(
    tmp_path: Path, way: str
) -> None:
    async with journal_world(tmp_path) as it:
        waits = await it.engine.create_task("waits", priority=TaskPriority.NORMAL)
        it.engine.clock.advance(hours=13)
        if way == "/update":
            await it.journal.update_field(
                waits, EditableTaskField.PRIORITY, "important", by=BOSS, source="u"
            )
        else:
            await it.engine.tasks.set_priority(waits, TaskPriority.IMPORTANT, by=BOSS, source="u")
        urgent = await it.engine.create_task("urgent", priority=TaskPriority.URGENT)

        async with it.engine.db.write() as tx:
            claimed = await it.engine.store.queue.claim(
                tx,
                owner="w",
                now=it.engine.clock(),
                lease=LEASE_DURATION,
                aging_after=STARVATION_LIMIT,
            )

        assert claimed is not None
        assert claimed.id == urgent.id
        assert (await it.reload(waits)).rank == TaskPriority.IMPORTANT.rank, (
            "nobody waits that long"
        )


async def test_blocking_tells_why_once(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:
        blocked = await it.journal.block_task(it.task, "no password", by=BOSS, source="b")
        await it.journal.block_task(it.task, "no password", by=BOSS, source="b2")

        assert (blocked.status, blocked.status_reason) == (TaskStatus.BLOCKED, "no password")
        assert (await it.kinds()).count(EventKind.BLOCKED) == 1


async def test_fields_are_put_right_and_nonsense_is_refused(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:

        async def amend(which: EditableTaskField, value: str) -> Task:
            return await it.journal.update_field(it.task, which, value, by=BOSS, source=it.source())

        await amend(EditableTaskField.TITLE, "Billing")
        await amend(EditableTaskField.INSTRUCTION, "Only the invoices")
        await amend(EditableTaskField.PRIORITY, "紧急")
        changed = await amend(EditableTaskField.STAGE, "testing")
        for which, value in ((EditableTaskField.PRIORITY, "soon"), (EditableTaskField.TITLE, "  ")):
            with pytest.raises(InvalidFieldValue):
                await amend(which, value)

    assert (changed.title, changed.instruction) == ("Billing", "Only the invoices")
    assert (changed.priority, changed.rank) == (TaskPriority.URGENT, 1)
    assert changed.stage == "testing"


async def test_what_is_deleted_is_never_run_nor_found(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:
        mine = await it.engine.create_task("ours")
        with pytest.raises(WrongState):
            await it.journal.delete(it.task, by=BOSS, source="1")
        late = HomeFileRepo(it.engine.db, "w")
        await late.add_late("files/tasks/late", mine.id, now=it.engine.clock())
        await it.journal.delete(mine, by=BOSS, source="2")
        assert await late.find_late("files/tasks/late") is None
        async with it.engine.db.write() as tx:
            claimed = await it.engine.store.queue.claim(
                tx,
                owner="w",
                now=it.engine.clock(),
                lease=LEASE_DURATION,
                aging_after=STARVATION_LIMIT,
            )
        with pytest.raises(NotFound):
            await it.engine.tasks.find(mine.id, by=BOSS, chat=CHAT.id)
        found = await it.journal.search_tasks(["ours"], by=BOSS, chat=CHAT.id, limit=5)
        again, other = await it.journal.find_changed_by("2"), await it.journal.find_changed_by("3")

    assert claimed is None
    assert list(found) == []
    assert (again and again.id, other) == (mine.id, None)


async def test_what_to_do_comes_by_priority_then_progress_then_age(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:
        pending = await it.engine.create_task("pending")
        paused = await it.engine.create_task("paused")
        await it.engine.tasks.pause(paused, by=BOSS, source="p")
        keep = await it.journal.agenda(by=BOSS, chat=CHAT.id)
        urgent = await it.engine.create_task("urgent", priority=TaskPriority.URGENT)
        switch = await it.journal.agenda(by=BOSS, chat=CHAT.id)
        staged = await it.journal.set_phase(it.task, "half way", by=BOSS, source="s")
        own = await it.journal.agenda(by=BOSS, chat=CHAT.id, outside=True)

    assert keep.first is not None
    assert [t.id for t in (keep.first, *keep.queue)] == [it.task.id, paused.id, pending.id]
    assert keep.current is None
    assert (switch.first and switch.first.id) == urgent.id
    assert (switch.current and switch.current.id) == it.task.id
    assert (staged.more_urgent and staged.more_urgent.id) == urgent.id
    assert (own.first and own.first.id, own.queue) == (it.task.id, ())


async def test_the_five_questions_are_answered_for_what_was_put_aside(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:
        await it.engine.create_task("another")
        await it.add_subtasks("copy", "check")
        await it.journal.write_plan(it.task, "Copy, then check.", by=BOSS, source="p")
        await it.log(LogKind.FINDING, "the old one is UTF-16")
        await it.log(LogKind.MILESTONE, "tables copied")
        await it.finish_subtask("copy")
        await it.journal.interrupt(it.task, "lunch", by=BOSS, source="i")
        recap = await it.journal.recap(by=BOSS, chat=CHAT.id)

    assert recap is not None
    assert recap.task.id == it.task.id
    assert recap.plan == "Copy, then check."
    assert [e.text for e in recap.learned] == ["the old one is UTF-16"]
    assert [e.text for e in recap.done] == ["tables copied"]
    assert [s.title for s in recap.steps_left] == ["check"]


async def test_earlier_logs_are_recalled_by_words_and_never_from_others_private_chats(
    tmp_path: Path,
) -> None:
    async with journal_world(tmp_path) as it:
        await it.log(LogKind.FINDING, "The billing database runs on port 5433")
        await it.log(LogKind.FINDING, "飞书接口限制每秒五次")
        shared = await it.engine.create_task("Look at the team's wiki", chat_id=GROUP.id)
        await it.log(LogKind.FINDING, "billing is in the wiki", shared)
        again = await it.engine.create_task("Back up the billing database")
        chinese = await it.engine.create_task("查一下飞书的接口文档")
        of_mate = replace(again, created_by=MATE.id, chat_id=MATES_CHAT.id)
        in_group = replace(again, chat_id=GROUP.id)

        hits = await it.journal.recall(again)
        zh = await it.journal.recall(chinese)

        assert [h.entry.text for h in hits] == [
            "The billing database runs on port 5433",
            "billing is in the wiki",
        ]
        assert [h.entry.text for h in zh] == ["飞书接口限制每秒五次"]
        assert await it.journal.recall(of_mate) == ()
        assert [h.entry.text for h in await it.journal.recall(in_group)] == [
            "billing is in the wiki"
        ]


async def test_a_search_wants_every_word_and_takes_signs_as_they_are(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:
        await it.log(LogKind.FINDING, "100% of rows copied")

        async def found(*words: str, by: Person = BOSS, chat: ChatId = CHAT.id) -> int:
            return len(await it.journal.search_logs(words, by=by, chat=chat, limit=15))

        assert await found("ROWS", "copied") == 1
        assert await found("rows", "lost") == 0
        assert await found("100%") == 1
        assert await found("1_0") == 0
        assert await found("rows", by=MATE, chat=MATES_CHAT.id) == 0
        assert len(await it.journal.search_tasks(["copied"], by=BOSS, chat=CHAT.id, limit=5)) == 1


async def test_who_may_not_move_a_task_may_not_write_in_it(tmp_path: Path) -> None:
    async with journal_world(tmp_path) as it:
        with pytest.raises(NotFound):
            await it.journal.write_plan(it.task, "mine", by=MATE, source="x")
        with pytest.raises(NotFound):
            await it.journal.finish(it.task, by=MATE, source="y")
