"""Several steps are under way when somebody else takes the task: none of them can be kept by who
has lost it, and who has it now takes up each by its rule."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bot.engine.llm.answers import StepAnswer
from bot.engine.workflow.graph import Workflow
from storage.records.tasks import NodeStatus, Task, TaskStatus
from tests.bot.engine.workflow.flows.world import Flows, Paced, flows, two_branches
from tests.engine_world import BOSS, Clock

LATE = StepAnswer(status="done", summary="too late")


def branches(*unsafe: str) -> Workflow:
    plan = two_branches()
    nodes = tuple(replace(each, repeatable=each.id not in unsafe) for each in plan.nodes)
    return replace(plan, nodes=nodes)


class Taken:
    """`old` has begun a1 and b1 when `new`, another program on the same store, takes the task."""

    def __init__(self, old: Flows, new: Flows, made: Task, end: AsyncExitStack) -> None:
        self.old, self.new, self.made, self._end = old, new, made, end

    async def come_late(self) -> None:
        """Both steps of the old one end; it finds out that the task is not its own any more, has
        written nothing, and dies."""
        before = await self._kept()
        self.old.backend.ends |= {"a1": LATE, "b1": LATE}
        self.old.backend.let_go("a1", "b1")
        async with asyncio.timeout(60):
            while self.old.world.runner._errands:
                await asyncio.sleep(0.005)
        assert await self._kept() == before
        assert sorted(self.old.backend.done) == ["a1", "b1"]
        await self._end.aclose()

    async def _kept(self) -> object:
        store, made = self.new.world.store, self.made
        return (
            await store.graphs.runs(made.id),
            await self.new.world.foreman.events(made.id, 200),
            await store.tasks.get(made.id),
        )


@asynccontextmanager
async def taken(home: Path, *unsafe: str) -> AsyncGenerator[Taken, None]:
    first, second, clock = Paced(), Paced(), Clock()
    first.hold("a1", "b1")
    second.hold("a1", "b1")
    async with AsyncExitStack() as end:
        old = await end.enter_async_context(flows(home, first, clock=clock))
        made = await old.world.run_workflow(branches(*unsafe))
        await first.begun("a1", "b1")
        async with flows(home, second, clock=clock) as new:
            yield Taken(old, new, made, end)


async def test_no_step_of_who_lost_the_task_is_kept_and_each_is_done_once_by_who_has_it(
    tmp_path: Path,
) -> None:
    async with taken(tmp_path) as here:
        await here.new.backend.begun("a1", "b1")
        await here.come_late()
        here.new.backend.let_go("a1", "b1")
        view = await here.new.world.until(here.made)
        runs = await here.new.runs(here.made)

    assert view.task.status is TaskStatus.COMPLETED
    assert sorted(here.new.backend.done) == ["a1", "a2", "b1", "b2", "last"]
    assert [runs[each].output["summary"] for each in ("a1", "b1")] == ["did a1", "did b1"]
    assert [runs[each].attempt for each in ("a1", "b1", "a2", "b2")] == [2, 2, 1, 1]


async def test_they_are_refused_one_by_one_however_late(tmp_path: Path) -> None:
    async with taken(tmp_path) as here:
        await here.new.backend.begun("a1", "b1")
        here.new.backend.let_go("a1", "b1")
        view = await here.new.world.until(here.made)
        assert view.task.status is TaskStatus.COMPLETED
        await here.come_late()


@pytest.mark.parametrize("unsafe", [("a1",), ("b1",), ("a1", "b1")], ids=" ".join)
async def test_what_must_not_be_repeated_is_asked_about_by_name_and_then_done_once(
    tmp_path: Path, unsafe: tuple[str, ...]
) -> None:
    async with taken(tmp_path, *unsafe) as here:
        view = await here.new.world.until(here.made, TaskStatus.BLOCKED)
        named = [each for each in ("a1", "b1") if f"“{each}”" in view.task.status_reason]
        assert named == list(unsafe)
        await here.come_late()
        assert here.new.backend.done == []
        await here.new.world.foreman.resume(view.task, by=BOSS, source="r:1")
        await here.new.backend.begun("a1", "b1")
        here.new.backend.let_go("a1", "b1")
        view = await here.new.world.until(here.made, TaskStatus.COMPLETED)
        runs = await here.new.runs(here.made)

    assert sorted(here.new.backend.done) == ["a1", "a2", "b1", "b2", "last"]
    assert all(run.status is NodeStatus.DONE for run in runs.values())
