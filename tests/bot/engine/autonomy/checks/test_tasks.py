"""The check of tasks: those without a runner are queued again, once."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from bot.engine.autonomy.checks.tasks import TaskHealthCheck
from bot.engine.tasks.dispatch import requeue_interrupted
from storage.errors import LostLease
from storage.records.people import Language
from storage.records.tasks import Task, TaskStatus
from storage.self_checks import HealthFigures
from tests.bot.engine.autonomy.checks.health_world import (
    NOW,
    HealthWorld,
    found_by,
    health_world,
    micros,
)
from tests.engine_harness import START, run_engine

AGO = micros(NOW - timedelta(hours=1))


class Requeue:
    def __init__(self, world: HealthWorld, *, lost: bool = False) -> None:
        self.world, self.lost, self.wakes = world, lost, 0

    async def __call__(self, task: Task) -> None:
        if self.lost:
            raise LostLease(task.id)
        self.world.run_sql(f"UPDATE tasks SET status = 'pending' WHERE id = '{task.id}'")

    def wake(self) -> None:
        self.wakes += 1


def check_of(world: HealthWorld, requeue: Requeue) -> TaskHealthCheck:
    return TaskHealthCheck(figures=world.figures, requeue=requeue, wake=requeue.wake, now=world.now)


async def test_a_task_whose_runner_is_gone_is_queued_again(tmp_path: Path) -> None:
    async with health_world(tmp_path) as world:
        requeue = Requeue(world)
        check = check_of(world, requeue)
        world.add_task("ab12cd", "running", lease_until=AGO)
        world.add_task("cd34ef", "running", lease_until=micros(NOW))

        found = await check.find()
        repaired = await check.repair("requeue_task", found)
        again = await check.repair("requeue_task", found)

        assert [(each.text, each.subject) for each in found] == [("task_no_lease", "ab12cd")]
        assert (repaired, again) == (1, 0)
        assert requeue.wakes == 1
        assert await check.find() == []


async def test_a_task_that_has_a_runner_again_is_left_alone(tmp_path: Path) -> None:
    async with health_world(tmp_path) as world:
        check = check_of(world, Requeue(world, lost=True))
        world.add_task("ab12cd", "running", lease_until=AGO)

        assert await check.repair("requeue_task", await check.find()) == 0


async def test_a_task_that_overslept_and_a_queue_that_stands_wake_the_queue(
    tmp_path: Path,
) -> None:
    async with health_world(tmp_path) as world:
        requeue = Requeue(world)
        check = check_of(world, requeue)
        world.add_task("ab12cd", "waiting", wake_at=AGO)
        world.add_task("cd34ef", "pending", waiting_since=AGO)
        world.add_task("ef56ab", "pending", waiting_since=AGO, outside=True)

        found = await found_by(check)
        await check.repair("wake_tasks", [*found.values()])

        assert {name: each.facts for name, each in found.items()} == {
            "task_overslept": {"n": 1},
            "queue_stands": {"n": 1},
        }
        assert requeue.wakes == 1


async def test_a_queue_behind_a_running_task_is_normal(tmp_path: Path) -> None:
    async with health_world(tmp_path) as world:
        world.add_task("ab12cd", "running", lease_until=micros(NOW))
        world.add_task("cd34ef", "pending", waiting_since=AGO)

        assert await found_by(check_of(world, Requeue(world))) == {}


async def test_a_step_that_runs_in_a_finished_task_is_listed(tmp_path: Path) -> None:
    async with health_world(tmp_path) as world:
        world.add_task("ab12cd", "completed")
        world.run_sql(
            "INSERT INTO node_runs (task_id, path, status, attempt, output)"
            " VALUES ('ab12cd', 'a', 'running', 1, '{}')"
        )

        found = await found_by(check_of(world, Requeue(world)))

        assert [*found] == ["orphaned_steps"]


async def test_recovery_queues_such_a_task_again_once(
    tmp_path: Path,
) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as engine:
        task = await engine.create_task("Water the plants")
        store, now = engine.store, START + timedelta(hours=1)
        async with engine.db.write() as tx:
            running = await store.tasks.update(tx, task, status=TaskStatus.RUNNING)

        async def requeue(lost: Task) -> None:
            await requeue_interrupted(store, lost, Language.ENGLISH, now)

        check = TaskHealthCheck(
            figures=HealthFigures(engine.db),
            requeue=requeue,
            wake=lambda: None,
            now=lambda: now,
        )
        found = await check.find()

        assert await check.repair("requeue_task", found) == 1
        assert (await store.tasks.get(running.id)).status is TaskStatus.PENDING
        assert await check.repair("requeue_task", found) == 0
