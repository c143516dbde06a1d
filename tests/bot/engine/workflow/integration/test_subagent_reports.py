"""Helpers that a step of one branch has sent off: the other branch goes on meanwhile, and what they
bring is heard once, where the work goes on that wanted it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from bot.engine.llm.backend import RunPurpose, RunRequest, RunResult
from bot.engine.workflow.definition import Workflow
from bot.engine.workflow.nodes.registry import NodeType
from storage import schema
from storage.db import Database
from storage.records.tasks import (
    NodeStatus,
    SubagentStatus,
    Task,
    TaskControl,
    TaskPriority,
    TaskStatus,
)
from tests.bot.engine.agent.subagents.builders import (
    SubagentAnswersBackend,
    SubagentSetup,
    subagent_setup,
)
from tests.bot.engine.crash import CrashAfterCommit
from tests.bot.engine.workflow.integration.workflow_world import make_graph, make_node, task_node
from tests.engine_harness import BOSS, ManualClock
from tests.thoroughness import sampled
from tests.waiting import WAIT_SECONDS

MAX_COMMITS = 45


@dataclass
class SubagentBackend(SubagentAnswersBackend):
    """Steps named in `sends` first send off helpers for these; steps and helpers that are held
    wait until they are let go. What a step was told is kept with its session."""

    delegates: dict[str, Sequence[str]] = field(default_factory=dict)
    home: SubagentSetup | None = None
    made: Task | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.on_helper = lambda prompt: self.gates.get(prompt, f"found {prompt}")

    def attach(self, home: SubagentSetup, made: Task) -> None:
        self.home, self.made = home, made
        self.ready.set()

    def last_prompt(self, title: str) -> Sequence[str]:
        """Whose reports its last try was told."""
        steps = [each for each in self.requests if each.purpose is RunPurpose.STEP]
        told = next(each for each in reversed(steps) if each.facts["step"]["title"] == title)
        return [name for name in ("look", "more") if f"“label {name}” is done" in told.prompt]

    async def respond(self, request: RunRequest) -> RunResult:
        if request.purpose is not RunPurpose.STEP:
            return await super().respond(request)
        title = request.facts["step"]["title"]
        for each in self.delegates.get(title, ()):
            await self.ready.wait()
            assert self.home is not None
            await self.home.send(await self.home.job(self.made, path=title), each)
        result = await super().respond(request)
        return replace(result, new_history=({"said": request.prompt},))


def two_branch_plan() -> Workflow:
    """Three steps in a row beside two, and one behind both."""
    return make_graph(
        make_node("fork", NodeType.PARALLEL),
        *map(task_node, ("a1", "a2", "a3", "b1", "b2")),
        make_node("both", NodeType.JOIN),
        task_node("last"),
        "fork>a1>a2>a3>both>last",
        "fork>b1>b2>both",
        parallel=2,
    )


@asynccontextmanager
async def running_world(
    home: Path, team: SubagentBackend, **how: Any
) -> AsyncGenerator[tuple[SubagentSetup, Task]]:
    async with subagent_setup(home, team, **how) as here:
        made = await here.world.run_workflow(two_branch_plan(), source="test:once")
        team.attach(here, made)
        yield here, made


async def wait_for_reports(here: SubagentSetup, made: Task, n: int = 1) -> None:
    """So many helpers have told the task what they found."""
    async with asyncio.timeout(WAIT_SECONDS):
        while len(await here.said_to(made)) < n:
            await asyncio.sleep(0.005)


async def wait_for_control(here: SubagentSetup, made: Task, control: TaskControl) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while (await here.world.store.tasks.get(made.id)).control is not control:
            await asyncio.sleep(0.005)


async def count_deliveries(db: Database, name: str) -> int:
    """How often that report stands in what the task's workers know."""
    async with db.read() as view:
        rows = (await view.execute(select(schema.messages.c.content))).scalars().all()
    return sum(str(row).count(f"“label {name}” is done") for row in rows)


async def test_a_report_is_heard_by_the_branch_that_asked_for_it(tmp_path: Path) -> None:
    team = SubagentBackend(delegates={"a1": ["look"]})
    team.hold("look", "a2", "b1")
    async with running_world(tmp_path, team) as (here, made):
        await team.wait_until_started("a2", "b1")
        team.release("look")
        await wait_for_reports(here, made)
        team.release("b1")
        await team.wait_until_started("b2")
        assert team.last_prompt("b2") == []
        team.release("a2")
        view = await here.world.until(made)

        assert view.task.status is TaskStatus.COMPLETED
        assert sorted(team.started_steps) == ["a1", "a2", "a3", "b1", "b2", "last"]
        assert team.last_prompt("a3") == ["look"]
        assert await count_deliveries(here.world.db, "look") == 1


async def test_a_report_that_comes_after_its_branch_is_heard_where_they_meet(
    tmp_path: Path,
) -> None:
    team = SubagentBackend(delegates={"a1": ["look"], "b1": ["more"]})
    team.hold("look", "more", "b2")
    async with running_world(tmp_path, team) as (here, made):
        await team.wait_until_started("a3", "b2")
        team.release("look", "more")
        await wait_for_reports(here, made, 2)
        team.release("b2")
        view = await here.world.until(made)

        assert view.task.status is TaskStatus.COMPLETED
        assert team.last_prompt("last") == ["look", "more"]
        assert [await count_deliveries(here.world.db, each) for each in ("look", "more")] == [1, 1]


async def test_a_report_that_nobody_is_left_to_hear_closes_the_task(tmp_path: Path) -> None:
    team = SubagentBackend(delegates={"a1": ["look"], "last": ["more"]})
    team.hold("look", "more")
    async with running_world(tmp_path, team) as (here, made):
        await here.world.until(made, TaskStatus.WAITING)
        team.release("look", "more")
        view = await here.world.until(made)

        assert view.task.status is TaskStatus.COMPLETED
        assert [await count_deliveries(here.world.db, each) for each in ("look", "more")] == [1, 1]
        assert len(team.started_steps) == 7


async def test_of_two_steps_that_begin_at_once_one_hears_it(tmp_path: Path) -> None:
    team = SubagentBackend(delegates={"first": ["look"]})
    team.hold("first", "a", "b")
    parting = make_graph(
        *map(task_node, ("first", "a", "b")),
        "first>a",
        "first>b",
        parallel=2,
    )
    async with subagent_setup(tmp_path, team) as here:
        made = await here.world.run_workflow(parting)
        team.attach(here, made)
        await wait_for_reports(here, made)
        team.release("first")
        await team.wait_until_started("a", "b")
        team.release("a", "b")
        view = await here.world.until(made)

        assert view.task.status is TaskStatus.COMPLETED
        assert len(team.started_steps) == 3
        assert sorted([*team.last_prompt("a"), *team.last_prompt("b")]) == ["look"]


async def test_while_it_is_paused_reports_wait_for_their_branch(tmp_path: Path) -> None:
    team = SubagentBackend(delegates={"a1": ["look"]})
    team.hold("look", "a2", "b1")
    async with running_world(tmp_path, team) as (here, made):
        await team.wait_until_started("a2", "b1")
        await here.world.tasks.pause(made, by=BOSS, source="p:1")
        team.release("a2", "b1")
        view = await here.world.until(made, TaskStatus.PAUSED)
        team.release("look")
        await wait_for_reports(here, made)
        await here.world.tasks.resume(view.task, by=BOSS, source="r:1")
        view = await here.world.until(made)

        assert view.task.status is TaskStatus.COMPLETED
        assert (team.last_prompt("a3"), team.last_prompt("b2")) == (["look"], [])


async def test_urgent_work_cuts_in_and_reports_wait_for_their_branch(tmp_path: Path) -> None:
    team = SubagentBackend(steps=("now",), delegates={"a1": ["look"]})
    team.hold("look", "a2", "b1", "now")
    async with running_world(tmp_path, team, clock=ManualClock()) as (here, made):
        await team.wait_until_started("a2", "b1")
        urgent = await here.world.create_task("Now", priority=TaskPriority.URGENT)
        await wait_for_control(here, made, TaskControl.YIELD)
        await wait_for_control(here, made, TaskControl.YIELD)
        team.release("a2", "b1")
        await team.wait_until_started("now")
        team.release("look")
        await wait_for_reports(here, made)
        assert set(team.started_steps) == {"a1", "a2", "b1", "now"}
        team.release("now")
        await here.world.until(urgent)
        view = await here.world.until(made)

        assert view.task.status is TaskStatus.COMPLETED
        assert (team.last_prompt("a3"), team.last_prompt("b2")) == (["look"], [])


async def test_a_stop_ends_the_helpers_of_every_branch(tmp_path: Path) -> None:
    team = SubagentBackend(delegates={"a1": ["look"], "b1": ["more"]})
    team.hold("look", "more", "a2", "b2")
    async with running_world(tmp_path, team) as (here, made):
        await team.wait_until_started("a2", "b2")
        await here.world.tasks.stop(made, by=BOSS, source="s:1")
        here.service.check_needed()
        helpers = await here.kit.repo.list_unfinished()
        ended = [await here.ended(each) for each in helpers]

        assert [each.status for each in ended] == [SubagentStatus.FAILED] * 2


@pytest.mark.parametrize("nth", range(1, MAX_COMMITS + 1, sampled(1, 6)))
async def test_whenever_death_comes_each_report_is_heard_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    clock, death = ManualClock(), CrashAfterCommit(nth)
    sends: dict[str, Sequence[str]] = {"a1": ["look"], "b1": ["more"]}
    first, second = SubagentBackend(delegates=sends), SubagentBackend(delegates=sends)

    async with running_world(tmp_path, first, clock=clock) as (here, made):
        with monkeypatch.context() as patched:
            death.install(patched)
            await death.run_until_crash(here.world.until(made))
    async with running_world(tmp_path, second, clock=clock) as (here, made):
        view = await here.world.until(made)
        runs = await here.world.store.graphs.list_runs(made.id)
        helpers = await here.kit.repo.list_lines(made.id)

        assert view.task.status is TaskStatus.COMPLETED
        assert not [run for run in runs.values() if run.status is NodeStatus.RUNNING]
        assert sorted(each.label for each in helpers) == ["label look", "label more"]
        assert [await count_deliveries(here.world.db, each) for each in ("look", "more")] == [1, 1]
