"""What a card is told of a task's place in the queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bot.engine.workflow.shown.view import TaskViews
from cards.views.work.tasks import MOST_AHEAD
from storage.records.tasks import Task
from storage.usage import UsageRepo
from storage.work.queue import TaskQueue
from tests.engine_world import Engine, engine


class _TakenMeanwhile(TaskQueue):
    """Somebody starts the first task after it was read and before the queue is."""

    async def first(self, limit: int) -> Sequence[Task]:
        return (await super().first(limit + 1))[1:]


def _late(world: Engine) -> TaskViews:
    store = replace(world.store, queue=_TakenMeanwhile(world.db))
    return TaskViews(store, UsageRepo(world.db))


async def test_nothing_goes_before_a_task_that_was_just_taken_from_a_short_queue(
    tmp_path: Path,
) -> None:
    async with engine(tmp_path, running=False) as world:
        task = await world.add()

        assert (await _late(world).view(task.id)).ahead == 0


async def test_a_task_beyond_the_counted_ones_is_far(tmp_path: Path) -> None:
    async with engine(tmp_path, running=False) as world:
        tasks = [await world.add() for _ in range(MOST_AHEAD + 2)]

        places = [(await world.views.view(each.id)).ahead for each in (tasks[0], tasks[-1])]
        assert places == [0, MOST_AHEAD + 1]
