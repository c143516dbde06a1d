"""The embedded dispatcher with a real store: order, slots, boundaries, crashes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bot.engine.llm.answer_schemas import PlanAnswer, StepAnswer
from bot.engine.llm.backend import BackendDenied, BackendUnavailable, InvalidAnswer
from bot.engine.llm.offline.backend import OfflineBackend
from storage.errors import NotFound
from storage.records.tasks import NodeStatus, TaskPriority, TaskStatus
from tests.engine_harness import (
    BOSS,
    CHAT,
    GROUP,
    MATE,
    THREAD,
    FakeBackend,
    ManualClock,
    make_plan,
    run_engine,
)
from tests.waiting import WAIT_SECONDS


async def test_a_task_is_planned_and_its_steps_run_in_order(tmp_path: Path) -> None:
    async with run_engine(tmp_path) as world:
        view = await world.until(await world.create_task())

        assert world.backend.started_steps == ["one", "two", "three"]
        assert [step.status for step in view.steps] == [NodeStatus.DONE] * 3
        assert (view.task.status, view.task.summary) == (TaskStatus.COMPLETED, "did three")
        assert view.percent == 100
        assert view.spent.calls == 4


async def test_what_happens_in_a_task_is_news_while_it_still_runs(tmp_path: Path) -> None:
    news: list[bool] = []
    backend = FakeBackend()
    async with run_engine(tmp_path, backend) as world:

        def begun(_step: str) -> None:
            news.append(world.changed.is_set())
            world.changed.clear()

        backend.on_plan = world.changed.clear
        backend.on_step = begun
        await world.until(await world.create_task())

    assert news == [True, True, True]


async def test_steps_share_one_session(tmp_path: Path) -> None:
    async with run_engine(tmp_path) as world:
        await world.until(await world.create_task())

        assert [len(request.history) for request in world.backend.requests] == [0, 1, 2, 3]


async def test_the_same_source_makes_one_task(tmp_path: Path) -> None:
    async with run_engine(tmp_path) as world:
        first = await world.create_task(source="inbox:7")
        second = await world.create_task(source="inbox:7")

        assert first.id == second.id
        await world.until(first)
        assert world.backend.started_steps == ["one", "two", "three"]


async def test_urgent_before_important_before_normal_and_older_first(tmp_path: Path) -> None:
    backend = FakeBackend(steps=("go",))
    async with run_engine(tmp_path, backend, start_dispatcher=False) as world:
        for priority in (
            TaskPriority.NORMAL,
            TaskPriority.IMPORTANT,
            TaskPriority.URGENT,
            TaskPriority.URGENT,
        ):
            await world.create_task(f"{priority}", priority=priority)
    order = []
    backend.on_plan = lambda: order.append(backend.requests[-1].facts["text"])
    async with run_engine(tmp_path, backend) as world:
        page = await world.tasks.page(by=BOSS, chat=None, status=None, page=1, size=9)  # type: ignore[arg-type] # an owner sees all
        for task in page.tasks:
            await world.until(task)
    assert order == ["urgent", "urgent", "important", "normal"]


async def test_no_more_tasks_run_at_once_than_there_are_slots(tmp_path: Path) -> None:
    gate = asyncio.Event()
    backend = FakeBackend(steps=("go",), on_step=lambda _: gate)
    async with run_engine(tmp_path, backend, slots=2) as world:
        tasks = [await world.create_task() for _ in range(4)]
        await world.until(tasks[1], TaskStatus.RUNNING)
        counts = await world.store.tasks.count_by_status()
        assert (counts[TaskStatus.RUNNING], counts[TaskStatus.PENDING]) == (2, 2)
        gate.set()
        for task in tasks:
            assert (await world.until(task)).task.status is TaskStatus.COMPLETED


async def test_tasks_of_one_project_run_one_after_the_other(tmp_path: Path) -> None:
    gate = asyncio.Event()
    project = str(tmp_path / "project")
    backend = FakeBackend(steps=("go",), on_step=lambda _: gate)
    async with run_engine(tmp_path, backend, slots=3) as world:
        first = await world.create_task(project_dir=project)
        second = await world.create_task(project_dir=project)
        other = await world.create_task(project_dir=str(tmp_path / "other"))
        await world.until(other, TaskStatus.RUNNING)
        assert (await world.views.view(second.id)).task.status is TaskStatus.PENDING
        gate.set()
        for task in (first, second, other):
            await world.until(task)


async def test_a_pause_takes_effect_at_the_next_boundary_and_keeps_what_is_done(
    tmp_path: Path,
) -> None:
    gate = asyncio.Event()
    backend = FakeBackend(on_step=lambda title: gate if title == "two" else None)
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task()
        await _begun(world.backend, "two")
        await world.tasks.pause(task, by=BOSS, source="p", reason="lunch")
        gate.set()
        paused = await world.until(task, TaskStatus.PAUSED)
        assert paused.done == 2

        await world.tasks.resume(task, by=BOSS, source="r")
        view = await world.until(task)

        assert view.task.status is TaskStatus.COMPLETED
        assert world.backend.started_steps == ["one", "two", "three"]


async def test_a_stop_ends_a_step_in_progress(tmp_path: Path) -> None:
    never = asyncio.Event()
    backend = FakeBackend(on_step=lambda title: never if title == "two" else None)
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task()
        await _begun(world.backend, "two")

        await world.tasks.stop(task, by=BOSS, source="s")

        view = await world.until(task)
        assert view.task.status is TaskStatus.CANCELLED
        assert [step.status for step in view.steps] == [
            NodeStatus.DONE,
            NodeStatus.PENDING,
            NodeStatus.PENDING,
        ]
        other = await world.until(
            await world.create_task("next", source="next"), TaskStatus.RUNNING
        )
        assert other.task.status is TaskStatus.RUNNING


async def test_retry_goes_on_at_the_step_that_failed(tmp_path: Path) -> None:
    answers = iter([InvalidAnswer("no luck")] * 3)
    backend = FakeBackend(on_step=lambda t: next(answers, None) if t == "two" else None)
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task()
        failed = await world.until(task)
        assert failed.task.status is TaskStatus.FAILED
        assert backend.started_steps == ["one", "two", "two", "two"]

        await world.tasks.retry(task, by=BOSS, source="again")
        view = await world.until(task, TaskStatus.COMPLETED)

        assert backend.started_steps == ["one", "two", "two", "two", "two", "three"]
        assert view.percent == 100


async def test_a_second_try_is_told_what_went_wrong(tmp_path: Path) -> None:
    answers = iter([StepAnswer(status="error", summary="the disk was cold")])
    backend = FakeBackend(steps=("one",), on_step=lambda _: next(answers, None))
    async with run_engine(tmp_path, backend) as world:
        await world.until(await world.create_task())

        assert "the disk was cold" not in backend.requests[1].prompt
        assert "the disk was cold" in backend.requests[2].prompt


async def test_a_backend_that_is_down_for_a_moment_is_asked_again(tmp_path: Path) -> None:
    answers = iter([BackendUnavailable("busy"), None])
    backend = FakeBackend(steps=("one",), on_step=lambda _: next(answers))
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.create_task())

        assert view.task.status is TaskStatus.COMPLETED


async def test_a_wrong_key_blocks_the_task_at_once_and_says_what_to_do(tmp_path: Path) -> None:
    backend = FakeBackend(on_step=lambda _: BackendDenied("401"))
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.create_task(), TaskStatus.BLOCKED)

        assert backend.started_steps == ["one"]
        assert view.task.status_reason


async def test_a_blocked_step_runs_again_on_resume(tmp_path: Path) -> None:
    answers = iter([StepAnswer(status="blocked", summary="which city?")])
    backend = FakeBackend(steps=("one",), on_step=lambda _: next(answers, None))
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task()
        blocked = await world.until(task, TaskStatus.BLOCKED)
        assert blocked.task.status_reason == "which city?"

        await world.tasks.resume(task, by=BOSS, source="r")

        assert (await world.until(task)).task.status is TaskStatus.COMPLETED


async def test_what_the_boss_answers_reaches_the_stuck_step_and_those_after_it(
    tmp_path: Path,
) -> None:
    answers = iter([StepAnswer(status="blocked", summary="which city?")])
    backend = FakeBackend(steps=("one", "two"), on_step=lambda _: next(answers, None))
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task()
        await world.until(task, TaskStatus.BLOCKED)
        assert "Paris" not in backend.requests[-1].prompt

        await world.tasks.resume(task, by=BOSS, source="r", answer="Paris, please")

        await world.until(task)
        assert ["Paris" in request.prompt for request in backend.requests[-2:]] == [True, True]


async def test_a_long_dictated_text_is_written_whole(tmp_path: Path) -> None:
    text = "word " * 5_000 + "END"
    offline: Any = OfflineBackend()
    async with run_engine(tmp_path, offline) as world:
        task = await world.create_task(f"write to long.txt:\n{text}")
        view = await world.until(task)

    assert view.task.status is TaskStatus.COMPLETED
    assert (tmp_path / "work" / task.id / "long.txt").read_text().strip() == text


async def test_a_claim_of_files_that_are_not_there_is_not_believed(tmp_path: Path) -> None:
    liar = StepAnswer(status="done", summary="wrote it", files=["report.md"])
    backend = FakeBackend(steps=("one",), on_step=lambda _: liar)
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.create_task(), TaskStatus.BLOCKED)

        assert view.task.replans == 0, "another plan would not make it honest"
        assert backend.started_steps == ["one", "one"], "told once"
        assert "report.md" in view.task.status_reason


async def test_an_answer_without_steps_completes_the_task(tmp_path: Path) -> None:
    plan = PlanAnswer(plan="", steps=[], answer="It is 42.")
    backend = FakeBackend(on_plan=lambda: plan)
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.create_task())

        assert (view.task.status, view.task.summary) == (TaskStatus.COMPLETED, "It is 42.")


async def test_a_replan_keeps_what_is_finished(tmp_path: Path) -> None:
    plans = iter([make_plan("one", "two", "three"), make_plan("other", "last")])
    backend = FakeBackend(
        on_plan=lambda: next(plans),
        on_step=lambda t: StepAnswer(status="done", summary="hm", needs_replan=t == "one"),
    )
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.create_task())

        assert [step.title for step in view.steps] == ["one", "other", "last"]
        assert backend.started_steps == ["one", "other", "last"]
        assert view.task.replans == 1


async def test_a_replan_that_only_answers_ends_the_task_with_that_answer(tmp_path: Path) -> None:
    only = PlanAnswer(plan="", steps=[], answer="The shop is closed for good.")
    plans = iter([make_plan("one", "two"), only])
    backend = FakeBackend(
        on_plan=lambda: next(plans),
        on_step=lambda _: StepAnswer(status="done", summary="looked", needs_replan=True),
    )
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.create_task())

    assert backend.started_steps == ["one"]
    assert view.task.summary == "The shop is closed for good."


async def test_a_stopped_step_does_not_read_as_done_in_its_attempts(tmp_path: Path) -> None:
    backend = FakeBackend(on_step=lambda _: asyncio.Event())
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task()
        await _begun(backend, "one")
        await world.tasks.stop(task, by=BOSS, source="s")
        async with world.db.read() as view:
            rows = await view.exec_driver_sql(
                "SELECT path, error FROM node_attempts WHERE ended_at IS NOT NULL ORDER BY path"
            )
            attempts = [tuple(row) for row in rows]

    assert attempts == [("@plan", ""), ("s1", "stop")]


async def test_finished_steps_do_not_run_again_after_a_crash(tmp_path: Path) -> None:
    never = asyncio.Event()
    backend = FakeBackend(on_step=lambda title: never if title == "two" else None)
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task()
        await _begun(backend, "two")
    backend.on_step = lambda _title: None

    async with run_engine(tmp_path, backend) as world:
        view = await world.until(task)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["one", "two", "two", "three"]


async def test_a_step_that_must_not_be_repeated_is_asked_about_after_a_crash(
    tmp_path: Path,
) -> None:
    never = asyncio.Event()
    backend = FakeBackend(repeatable=False, on_step=lambda title: never if title == "two" else None)
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task()
        await _begun(backend, "two")

    async with run_engine(tmp_path, backend) as world:
        view = await world.until(task, TaskStatus.BLOCKED)
        assert "two" in view.task.status_reason
        assert backend.started_steps == ["one", "two"]


async def test_work_interrupted_long_ago_is_offered_not_run(tmp_path: Path) -> None:
    never = asyncio.Event()
    backend = FakeBackend(on_step=lambda _: never)
    clock = ManualClock()
    async with run_engine(tmp_path, backend, clock=clock) as world:
        task = await world.create_task()
        await _begun(backend, "one")
    clock.advance(hours=13)

    async with run_engine(tmp_path, backend, clock=clock) as world:
        view = await world.until(task, TaskStatus.PAUSED)

    assert view.task.status_reason


async def test_a_pause_ordered_before_a_crash_holds_after_it(tmp_path: Path) -> None:
    never = asyncio.Event()
    backend = FakeBackend(on_step=lambda _: never)
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task()
        await _begun(backend, "one")
        await world.tasks.pause(task, by=BOSS, source="x", reason="lunch")

    async with run_engine(tmp_path, backend) as world:
        view = await world.until(task, TaskStatus.PAUSED)

    assert view.task.status_reason == "lunch"
    assert backend.started_steps == ["one"]


async def test_a_fault_nobody_foresaw_fails_one_task_and_leaves_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    answers = iter([RuntimeError("surprise"), None])
    backend = FakeBackend(steps=("one",), on_step=lambda _: next(answers))
    async with run_engine(tmp_path, backend) as world:
        broken = await world.until(await world.create_task())
        fine = await world.until(await world.create_task())

    assert (broken.task.status, fine.task.status) == (TaskStatus.FAILED, TaskStatus.COMPLETED)
    assert "incident=" in caplog.text
    assert "surprise" not in broken.task.status_reason


async def test_an_order_given_twice_by_the_same_message_acts_once(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        task = await world.create_task()
        await world.tasks.pause(task, by=BOSS, source="inbox:1")
        await world.tasks.resume(task, by=BOSS, source="inbox:2")
        again = await world.tasks.pause(task, by=BOSS, source="inbox:1")

        assert again.status is TaskStatus.PENDING


async def test_a_stranger_to_the_chat_cannot_move_a_task(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        task = await world.create_task()
        with pytest.raises(NotFound):
            await world.tasks.stop(task, by=MATE, source="x")


async def test_a_group_is_shown_its_own_tasks_only_whoever_asks(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        private, group = await world.create_task(), await world.create_task(chat_id=GROUP.id)
        here = await world.tasks.page(by=BOSS, chat=GROUP.id, status=None, page=1, size=5)
        other = await world.tasks.page(by=BOSS, chat=THREAD.id, status=None, page=1, size=5)
        home = await world.tasks.page(by=BOSS, chat=CHAT.id, status=None, page=1, size=5)

        assert [task.id for task in here.tasks] == [group.id]
        assert [task.id for task in other.tasks] == [group.id], "threads are of one group"
        assert {task.id for task in home.tasks} == {private.id, group.id}
        with pytest.raises(NotFound):
            await world.tasks.find(private.id, by=BOSS, chat=GROUP.id)


async def _begun(backend: FakeBackend, title: str) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while title not in backend.started_steps:
            await asyncio.sleep(0.005)
