"""Several steps are under way when somebody else takes the task: none of them can be kept by who
has lost it, and who has it now takes up each by its rule."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bot.engine.llm.answer_schemas import StepAnswer
from bot.engine.workflow.definition import Workflow
from storage.records.tasks import NodeStatus, Task, TaskStatus
from tests.bot.engine.workflow.integration.workflow_world import (
    PacedBackend,
    WorkflowWorld,
    two_branches,
    workflow_world,
)
from tests.engine_harness import BOSS, ManualClock
from tests.waiting import WAIT_SECONDS

LATE_ANSWER = StepAnswer(status="done", summary="too late")


def two_writers(*unsafe: str) -> Workflow:
    plan = two_branches()
    nodes = tuple(replace(each, repeatable=each.id not in unsafe) for each in plan.nodes)
    return replace(plan, nodes=nodes)


class TakenOverTask:
    """`old` has begun a1 and b1 when `new`, another program on the same store, takes the task."""

    def __init__(
        self, old: WorkflowWorld, new: WorkflowWorld, made: Task, end: AsyncExitStack
    ) -> None:
        self.old, self.new, self.made, self._end = old, new, made, end

    async def end_late(self) -> None:
        """Both steps of the old one end; it finds out that the task is not its own any more, has
        written nothing, and dies."""
        before = await self._stored()
        self.old.backend.answers |= {"a1": LATE_ANSWER, "b1": LATE_ANSWER}
        self.old.backend.release("a1", "b1")
        async with asyncio.timeout(WAIT_SECONDS):
            while self.old.engine.runner._task_runs:
                await asyncio.sleep(0.005)
        assert await self._stored() == before
        assert sorted(self.old.backend.started_steps) == ["a1", "b1"]
        await self._end.aclose()

    async def _stored(self) -> object:
        store, made = self.new.engine.store, self.made
        return (
            await store.graphs.list_runs(made.id),
            await self.new.engine.tasks.events(made.id, 200),
            await store.tasks.get(made.id),
        )


@asynccontextmanager
async def taken_over_task(home: Path, *unsafe: str) -> AsyncGenerator[TakenOverTask, None]:
    first, second, clock = PacedBackend(), PacedBackend(), ManualClock()
    first.hold("a1", "b1")
    second.hold("a1", "b1")
    async with AsyncExitStack() as end:
        old = await end.enter_async_context(workflow_world(home, first, clock=clock))
        made = await old.engine.run_workflow(two_writers(*unsafe))
        await first.wait_until_started("a1", "b1")
        async with workflow_world(home, second, clock=clock) as new:
            yield TakenOverTask(old, new, made, end)


async def test_no_step_of_who_lost_the_task_is_kept_and_each_is_done_once_by_who_has_it(
    tmp_path: Path,
) -> None:
    async with taken_over_task(tmp_path) as here:
        await here.new.backend.wait_until_started("a1", "b1")
        await here.end_late()
        here.new.backend.release("a1", "b1")
        view = await here.new.engine.until(here.made)
        runs = await here.new.runs(here.made)

    assert view.task.status is TaskStatus.COMPLETED
    assert sorted(here.new.backend.started_steps) == ["a1", "a2", "b1", "b2", "last"]
    assert [runs[each].output["summary"] for each in ("a1", "b1")] == ["did a1", "did b1"]
    assert [runs[each].attempt for each in ("a1", "b1", "a2", "b2")] == [2, 2, 1, 1]


async def test_they_are_refused_one_by_one_however_late(tmp_path: Path) -> None:
    async with taken_over_task(tmp_path) as here:
        await here.new.backend.wait_until_started("a1", "b1")
        here.new.backend.release("a1", "b1")
        view = await here.new.engine.until(here.made)
        assert view.task.status is TaskStatus.COMPLETED
        await here.end_late()


@pytest.mark.parametrize("unsafe", [("a1",), ("b1",), ("a1", "b1")], ids=" ".join)
async def test_what_must_not_be_repeated_is_asked_about_by_name_and_then_done_once(
    tmp_path: Path, unsafe: tuple[str, ...]
) -> None:
    async with taken_over_task(tmp_path, *unsafe) as here:
        view = await here.new.engine.until(here.made, TaskStatus.BLOCKED)
        named = [each for each in ("a1", "b1") if f"“{each}”" in view.task.status_reason]
        assert named == list(unsafe)
        await here.end_late()
        assert here.new.backend.started_steps == []
        await here.new.engine.tasks.resume(view.task, by=BOSS, source="r:1")
        await here.new.backend.wait_until_started("a1", "b1")
        here.new.backend.release("a1", "b1")
        view = await here.new.engine.until(here.made, TaskStatus.COMPLETED)
        runs = await here.new.runs(here.made)

    assert sorted(here.new.backend.started_steps) == ["a1", "a2", "b1", "b2", "last"]
    assert all(run.status is NodeStatus.DONE for run in runs.values())
