"""The queue on disk: claims, fences, leases."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from bot.engine.workflow.nodes.human import HumanConfig
from bot.engine.workflow.nodes.registry import NodeType
from bot.engine.workflow.task_store import LEASE_DURATION
from storage.approvals import steps_awaiting_approval
from storage.errors import AmbiguousId, ConcurrentUpdate, LostLease, NotFound
from storage.records.people import ChatId
from storage.records.tasks import EventKind, Task, TaskLease, TaskPriority, TaskStatus
from storage.step_durations import StepDurationRepo
from storage.tasks import TaskVisibility
from tests.bot.engine.workflow.integration.workflow_world import (
    make_graph,
    make_node,
    task_node,
    workflow_world,
)
from tests.builders import STARVATION_LIMIT
from tests.engine_harness import BOSS, CHAT, MATE, EngineHarness, run_engine

ALL = TaskVisibility(sees_all=True, person=BOSS.id, chat=CHAT.id)


async def claimed(world: EngineHarness) -> Task | None:
    async with world.db.write() as tx:
        return await world.store.queue.claim(
            tx, owner="w", now=world.clock(), lease=LEASE_DURATION, aging_after=STARVATION_LIMIT
        )


async def fenced(world: EngineHarness, task: Task) -> Task:
    lease = TaskLease(task_id=task.id, epoch=task.epoch)
    async with world.db.write() as tx:
        return await world.store.queue.fence(tx, lease, until=world.clock() + LEASE_DURATION)


async def test_two_claims_at_once_never_take_the_same_task(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        for _ in range(5):
            await world.create_task()

        taken = await asyncio.gather(*(claimed(world) for _ in range(8)))

    ids = [task.id for task in taken if task]
    assert len(ids) == len(set(ids)) == 5


async def test_interrupted_work_goes_before_new_work_of_its_priority(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        await world.create_task("new")
        paused = await world.create_task("paused")
        await world.tasks.pause(paused, by=BOSS, source="p")
        await world.tasks.resume(paused, by=BOSS, source="r")
        urgent = await world.create_task("urgent", priority=TaskPriority.URGENT)

        first, second = await claimed(world), await claimed(world)

    assert [task.id for task in (first, second) if task] == [urgent.id, paused.id]


async def held_as_known(world: EngineHarness, task: Task, ordered: int) -> None:
    lease = TaskLease(task_id=task.id, epoch=task.epoch)
    until = world.clock() + LEASE_DURATION
    async with world.db.write() as tx:
        await world.store.queue.fence_unchanged(
            tx, lease, task, last_command_id=ordered, until=until
        )
        await world.store.events.append_event(tx, task.id, EventKind.NOTE, now=until)


async def last_order(world: EngineHarness, task: Task) -> int:
    lease = TaskLease(task_id=task.id, epoch=task.epoch)
    async with world.db.write() as tx:
        _, ordered = await world.store.queue.fence_with_last_command(
            tx, lease, until=world.clock() + LEASE_DURATION
        )
    assert ordered is not None
    return ordered


async def test_a_task_that_is_as_known_is_held_without_asking(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        await world.create_task(files=("a.png",), project_dir=str(tmp_path))
        task = await claimed(world)
        assert task is not None
        told = len(await world.store.events.list_latest(task.id, 100))

        await held_as_known(world, task, 0)
        await held_as_known(world, task, 0)

        assert len(await world.store.events.list_latest(task.id, 100)) == told + 2


@pytest.mark.parametrize("meanwhile", ["moved", "told", "lost"])
async def test_a_task_that_is_not_as_known_is_not_written(tmp_path: Path, meanwhile: str) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        await world.create_task()
        task = await claimed(world)
        assert task is not None
        if meanwhile == "told":
            await world.tasks.send_message(task, "also this", by=BOSS, source="m")
        else:
            status = TaskStatus.RUNNING if meanwhile == "moved" else TaskStatus.PENDING
            async with world.db.write() as tx:
                await world.store.tasks.update(tx, task, status=status, stage="elsewhere")
        told = len(await world.store.events.list_latest(task.id, 100))

        with pytest.raises(ConcurrentUpdate):
            await held_as_known(world, task, 0)

        assert len(await world.store.events.list_latest(task.id, 100)) == told
        if meanwhile != "lost":
            now = await world.store.tasks.get(task.id)
            await held_as_known(world, now, await last_order(world, now))


async def test_a_lost_lease_writes_nothing(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        await world.create_task()
        task = await claimed(world)
        assert task is not None
        await world.tasks.stop(task, by=BOSS, source="s")

        with pytest.raises(LostLease):
            await fenced(world, task)


async def test_a_claim_after_a_claim_fences_the_first(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        await world.create_task()
        first = await claimed(world)
        assert first is not None
        async with world.db.write() as tx:
            await world.store.tasks.update(tx, first, status=TaskStatus.PENDING)
        second = await claimed(world)
        assert second is not None

        assert second.epoch > first.epoch
        with pytest.raises(LostLease):
            await fenced(world, first)


async def test_ids_resolve_by_their_beginning_with_and_without_prefix(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        tasks = [await world.create_task() for _ in range(3)]
        shared = tasks[0].id[:3]

        assert (await world.store.tasks.find(tasks[1].id, ALL)).id == tasks[1].id
        assert (await world.store.tasks.find(f"task-{tasks[1].id}", ALL)).id == tasks[1].id
        with pytest.raises(AmbiguousId) as several:
            await world.store.tasks.find(shared, ALL)
        assert len(several.value.candidates) == 3
        for nothing in ("zzz", "", "%", "_"):
            with pytest.raises(NotFound):
                await world.store.tasks.find(nothing, ALL)


async def test_people_see_their_own_tasks_and_those_of_their_chat(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        task = await world.create_task()
        elsewhere = TaskVisibility(sees_all=False, person=MATE.id, chat=ChatId("elsewhere"))
        here = TaskVisibility(sees_all=False, person=MATE.id, chat=CHAT.id)

        assert (await world.store.tasks.list_page(here, None, 1, 5)).total == 1
        assert (await world.store.tasks.list_page(elsewhere, None, 1, 5)).total == 0
        with pytest.raises(NotFound):
            await world.store.tasks.find(task.id, elsewhere)


async def test_pages_hold_their_size_and_a_page_too_far_is_the_last(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        for _ in range(7):
            await world.create_task()

        page = await world.store.tasks.list_page(ALL, None, 9, 5)

    assert (page.page, page.pages, page.total, len(page.tasks)) == (2, 2, 7, 2)


async def test_renewing_keeps_only_ones_own_leases(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        await world.create_task()
        await claimed(world)
        later = world.clock() + timedelta(hours=1)
        async with world.db.write() as tx:
            await world.store.queue.renew_leases(tx, "somebody else", until=later)
            (before,) = await world.store.queue.list_orphans(tx)
            await world.store.queue.renew_leases(tx, "w", until=later)
            (after,) = await world.store.queue.list_orphans(tx)

    assert before.lease_until is not None
    assert before.lease_until < later
    assert after.lease_until == later


async def test_every_open_question_stands_at_its_step_with_the_names(tmp_path: Path) -> None:
    two = make_graph(
        make_node("fork", NodeType.PARALLEL),
        make_node("sign", NodeType.HUMAN, HumanConfig()),
        make_node("choose", NodeType.HUMAN, HumanConfig()),
        "fork>sign",
        "fork>choose",
        parallel=2,
    )
    async with workflow_world(tmp_path) as here:
        made = await here.engine.run_workflow(two)
        await here.open_requests(made, 2)
        async with here.engine.db.read() as view:
            before = await steps_awaiting_approval(view, made.id)
        await here.decide(await here.wait_for_request(made, "sign"))
        async with here.engine.db.read() as view:
            after = await steps_awaiting_approval(view, made.id)

    assert {path: names[0] for path, names in before.items()} == {"sign": "Boss", "choose": "Boss"}
    assert set(after) == {"choose"}


async def test_only_what_was_completed_tells_how_long_steps_take(tmp_path: Path) -> None:
    async with workflow_world(tmp_path) as here:
        nothing = await StepDurationRepo(here.engine.db).list_recent()
        good = await here.engine.run_workflow(make_graph(task_node("a"), task_node("b"), "a>b"))
        await here.engine.until(good)
        waits = make_graph(
            task_node("c"), make_node("sign", NodeType.HUMAN, HumanConfig()), "c>sign"
        )
        await here.engine.until(await here.engine.run_workflow(waits), TaskStatus.WAITING)
        (found,) = await StepDurationRepo(here.engine.db).list_recent()

    assert nothing == ()
    assert sorted(name for name, _ in found.step_seconds) == ["a", "b"]
    assert all(
        0 <= seconds < timedelta(minutes=1).total_seconds() for _, seconds in found.step_seconds
    )
    assert found.graph_body["nodes"]
