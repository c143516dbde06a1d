"""The preview shows a task's next prompt exactly, and has no effects."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from bot.engine.tasks.next_prompt import CallPreview, preview_next_prompt
from bot.engine.workflow.step_approvals import StepApprovalRequester
from storage.approvals import ApprovalRepo
from storage.ids import IdGenerator
from storage.records.people import Language
from storage.records.tasks import Task, TaskStatus
from tests.bot.engine.workflow.test_runner_commands import held_backend
from tests.engine_harness import BOSS, EngineHarness, FakeBackend, run_engine


async def preview_next(world: EngineHarness) -> CallPreview | None:
    async def language_of(_task: Task) -> Language:
        return Language.ENGLISH

    async def recall(_task: Task) -> tuple[str, ...]:
        return ()

    return await preview_next_prompt(
        world.store,
        language_of=language_of,
        recall=recall,
        now=world.clock(),
        patience=timedelta(hours=12),
        without_dispatcher=True,
        step_approvals=StepApprovalRequester(
            words=("deploy",), lifetime=timedelta(days=7), ids=IdGenerator(), now=world.clock
        ),
        team={},
    )


async def paused_task(world: EngineHarness, backend: FakeBackend) -> Task:
    """A task whose first step is done, and whose second is not begun."""
    task = await world.create_task()
    await backend.wait_until_started("one")
    await world.tasks.pause(task, by=BOSS, source="m1")
    backend.release()
    return (await world.until(task, TaskStatus.PAUSED)).task


@pytest.mark.parametrize(("step", "kind"), [("deploy it", "ask"), ("look at it", "step")])
async def test_a_risky_step_shows_the_question_that_comes_first(
    tmp_path: Path, step: str, kind: str
) -> None:
    backend = held_backend(steps=("one", step))
    async with run_engine(tmp_path, backend) as world:
        task = await paused_task(world, backend)
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        await world.tasks.resume(task, by=BOSS, source="m2")

        found = await preview_next(world)

        assert found is not None
        assert (found.task.id, found.kind, found.step) == (task.id, kind, step)
        assert found.word == ("deploy" if kind == "ask" else "")
        assert step in found.prompt
        assert bool(found.system) == (kind == "step")
        assert await _approvals(world, task) == ()
        assert (await world.tasks.view(task.id)).task.status is TaskStatus.PENDING


async def _approvals(world: EngineHarness, task: Task) -> tuple[object, ...]:
    approvals = ApprovalRepo(world.db, now=world.clock, decision_handlers={})
    return tuple(await approvals.list_by_task(task.id))
