"""The queue on disk: claims, fences, leases."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from bot.engine.workflow.store import LEASE, PATIENCE
from storage.errors import AmbiguousId, LostLease, NotFound, Overtaken
from storage.records.people import ChatId
from storage.records.tasks import EventKind, Lease, Priority, Task, TaskStatus
from storage.work.tasks import Sight
from tests.engine_world import BOSS, CHAT, MATE, Engine, engine

ALL = Sight(everything=True, person=BOSS.id, chat=CHAT.id)


async def claimed(world: Engine) -> Task | None:
    async with world.db.write() as tx:
        return await world.store.queue.claim(
            tx, owner="w", now=world.clock(), lease=LEASE, patience=PATIENCE
        )


async def fenced(world: Engine, task: Task) -> Task:
    lease = Lease(task_id=task.id, epoch=task.epoch)
    async with world.db.write() as tx:
        return await world.store.queue.fence(tx, lease, until=world.clock() + LEASE)


async def test_two_claims_at_once_never_take_the_same_task(tmp_path: Path) -> None:
    async with engine(tmp_path, running=False) as world:
        for _ in range(5):
            await world.add()

        taken = await asyncio.gather(*(claimed(world) for _ in range(8)))

    ids = [task.id for task in taken if task]
    assert len(ids) == len(set(ids)) == 5


async def test_interrupted_work_goes_before_new_work_of_its_priority(tmp_path: Path) -> None:
    async with engine(tmp_path, running=False) as world:
        await world.add("new")
        paused = await world.add("paused")
        await world.foreman.pause(paused, by=BOSS, source="p")
        await world.foreman.resume(paused, by=BOSS, source="r")
        urgent = await world.add("urgent", priority=Priority.URGENT)

        first, second = await claimed(world), await claimed(world)

    assert [task.id for task in (first, second) if task] == [urgent.id, paused.id]


async def held_as_known(world: Engine, task: Task, ordered: int) -> None:
    lease = Lease(task_id=task.id, epoch=task.epoch)
    until = world.clock() + LEASE
    async with world.db.write() as tx:
        await world.store.queue.hold_known(tx, lease, task, ordered=ordered, until=until)
        await world.store.journal.append(tx, task.id, EventKind.NOTE, now=until)


async def last_order(world: Engine, task: Task) -> int:
    lease = Lease(task_id=task.id, epoch=task.epoch)
    async with world.db.write() as tx:
        _, ordered = await world.store.queue.hold(tx, lease, until=world.clock() + LEASE)
    assert ordered is not None
    return ordered


async def test_a_task_that_is_as_known_is_held_without_asking(tmp_path: Path) -> None:
    async with engine(tmp_path, running=False) as world:
        await world.add(files=("a.png",), project_dir=str(tmp_path))
        task = await claimed(world)
        assert task is not None
        told = await world.store.journal.count(task.id)

        await held_as_known(world, task, 0)
        await held_as_known(world, task, 0)

        assert await world.store.journal.count(task.id) == told + 2


@pytest.mark.parametrize("meanwhile", ["moved", "told", "lost"])
async def test_a_task_that_is_not_as_known_is_not_written(tmp_path: Path, meanwhile: str) -> None:
    async with engine(tmp_path, running=False) as world:
        await world.add()
        task = await claimed(world)
        assert task is not None
        if meanwhile == "told":
            await world.foreman.tell(task, "also this", by=BOSS, source="m")
        else:
            status = TaskStatus.RUNNING if meanwhile == "moved" else TaskStatus.PENDING
            async with world.db.write() as tx:
                await world.store.tasks.move(tx, task, status=status, stage="elsewhere")
        told = await world.store.journal.count(task.id)

        with pytest.raises(Overtaken):
            await held_as_known(world, task, 0)

        assert await world.store.journal.count(task.id) == told
        if meanwhile != "lost":
            now = await world.store.tasks.get(task.id)
            await held_as_known(world, now, await last_order(world, now))


async def test_a_lost_lease_writes_nothing(tmp_path: Path) -> None:
    async with engine(tmp_path, running=False) as world:
        await world.add()
        task = await claimed(world)
        assert task is not None
        await world.foreman.stop(task, by=BOSS, source="s")

        with pytest.raises(LostLease):
            await fenced(world, task)


async def test_a_claim_after_a_claim_fences_the_first(tmp_path: Path) -> None:
    async with engine(tmp_path, running=False) as world:
        await world.add()
        first = await claimed(world)
        assert first is not None
        async with world.db.write() as tx:
            await world.store.tasks.move(tx, first, status=TaskStatus.PENDING)
        second = await claimed(world)
        assert second is not None

        assert second.epoch > first.epoch
        with pytest.raises(LostLease):
            await fenced(world, first)


async def test_ids_resolve_by_their_beginning_with_and_without_prefix(tmp_path: Path) -> None:
    async with engine(tmp_path, running=False) as world:
        tasks = [await world.add() for _ in range(3)]
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
    async with engine(tmp_path, running=False) as world:
        task = await world.add()
        elsewhere = Sight(everything=False, person=MATE.id, chat=ChatId("elsewhere"))
        here = Sight(everything=False, person=MATE.id, chat=CHAT.id)

        assert (await world.store.tasks.page(here, None, 1, 5)).total == 1
        assert (await world.store.tasks.page(elsewhere, None, 1, 5)).total == 0
        with pytest.raises(NotFound):
            await world.store.tasks.find(task.id, elsewhere)


async def test_pages_hold_their_size_and_a_page_too_far_is_the_last(tmp_path: Path) -> None:
    async with engine(tmp_path, running=False) as world:
        for _ in range(7):
            await world.add()

        page = await world.store.tasks.page(ALL, None, 9, 5)

    assert (page.page, page.pages, page.total, len(page.tasks)) == (2, 2, 7, 2)


async def test_renewing_keeps_only_ones_own_leases(tmp_path: Path) -> None:
    async with engine(tmp_path, running=False) as world:
        await world.add()
        await claimed(world)
        later = world.clock() + timedelta(hours=1)
        async with world.db.write() as tx:
            await world.store.queue.renew(tx, "somebody else", until=later)
            ((_, before),) = await world.store.queue.orphans(tx)
            await world.store.queue.renew(tx, "w", until=later)
            ((_, after),) = await world.store.queue.orphans(tx)

    assert before is not None
    assert before < later
    assert after == later
