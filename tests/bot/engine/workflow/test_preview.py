"""What comes next for a task is shown as it would be, and nothing of it happens."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from bot.engine.dispatch.dry_run import next_prompt
from bot.engine.workflow.asking import Asker
from bot.engine.workflow.shown.preview import Preview
from storage.approvals import Approvals
from storage.ids import Ids
from storage.records.people import Language
from storage.records.tasks import Task, TaskStatus
from tests.bot.engine.workflow.test_on_the_way import Held
from tests.engine_world import BOSS, Engine, engine


async def look(world: Engine) -> Preview | None:
    async def language_of(_task: Task) -> Language:
        return Language.ENGLISH

    async def recall(_task: Task) -> tuple[str, ...]:
        return ()

    return await next_prompt(
        world.store,
        language_of=language_of,
        recall=recall,
        now=world.clock(),
        patience=timedelta(hours=12),
        alone=True,
        leaves=Asker(words=("deploy",), lifetime=timedelta(days=7), ids=Ids(), now=world.clock),
    )


async def paused(world: Engine, backend: Held) -> Task:
    """A task whose first step is done, and whose second is not begun."""
    task = await world.add()
    await backend.begun("one")
    await world.foreman.pause(task, by=BOSS, source="m1")
    backend.gate.set()
    return (await world.until(task, TaskStatus.PAUSED)).task


@pytest.mark.parametrize(("step", "kind"), [("deploy it", "ask"), ("look at it", "step")])
async def test_a_risky_step_shows_the_question_that_comes_first(
    tmp_path: Path, step: str, kind: str
) -> None:
    backend = Held(steps=("one", step))
    async with engine(tmp_path, backend) as world:
        task = await paused(world, backend)
    async with engine(tmp_path, running=False) as world:
        await world.foreman.resume(task, by=BOSS, source="m2")

        found = await look(world)

        assert found is not None
        assert (found.task.id, found.kind, found.step) == (task.id, kind, step)
        assert found.word == ("deploy" if kind == "ask" else "")
        assert step in found.prompt
        assert bool(found.system) == (kind == "step")
        assert await _approvals(world, task) == ()
        assert (await world.foreman.view(task.id)).task.status is TaskStatus.PENDING


async def _approvals(world: Engine, task: Task) -> tuple[object, ...]:
    approvals = Approvals(world.db, now=world.clock, consequences={})
    return tuple(await approvals.of_task(task.id))
