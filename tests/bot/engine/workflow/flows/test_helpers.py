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

from bot.engine.llm.base import Purpose, RunRequest, RunResult
from bot.engine.workflow.graph import Workflow
from bot.engine.workflow.model.nodes import NodeType
from storage import schema
from storage.db import Database
from storage.records.helping import HelperStatus
from storage.records.tasks import Control, NodeStatus, Priority, Task, TaskStatus
from tests.bot.engine.agent.helpers.world import House, Talkative, house
from tests.bot.engine.death import Death
from tests.bot.engine.workflow.flows.world import graph, node, task
from tests.engine_world import BOSS, Clock
from tests.thorough import sampled

MOST_COMMITS = 45


@dataclass
class Team(Talkative):
    """Steps named in `sends` first send off helpers for these; steps and helpers that are held
    wait until they are let go. What a step was told is kept with its session."""

    sends: dict[str, Sequence[str]] = field(default_factory=dict)
    gates: dict[str, asyncio.Event] = field(default_factory=dict)
    home: House | None = None
    made: Task | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.on_step = self.gates.get
        self.on_helper = lambda prompt: self.gates.get(prompt, f"found {prompt}")

    def hold(self, *names: str) -> None:
        self.gates |= {name: asyncio.Event() for name in names}

    def let_go(self, *names: str) -> None:
        for name in names:
            self.gates.pop(name).set()

    def works_for(self, home: House, made: Task) -> None:
        self.home, self.made = home, made
        self.ready.set()

    async def until_begun(self, *titles: str) -> None:
        async with asyncio.timeout(60):
            while not set(titles) <= set(self.done):
                await asyncio.sleep(0.005)

    def heard(self, title: str) -> Sequence[str]:
        """Whose reports its last try was told."""
        steps = [each for each in self.asked if each.purpose is Purpose.STEP]
        told = next(each for each in reversed(steps) if each.facts["step"]["title"] == title)
        return [name for name in ("look", "more") if f"“label {name}” is done" in told.prompt]

    async def settle(self, request: RunRequest) -> RunResult:
        if request.purpose is not Purpose.STEP:
            return await super().settle(request)
        title = request.facts["step"]["title"]
        for each in self.sends.get(title, ()):
            await self.ready.wait()
            assert self.home is not None
            await self.home.send(await self.home.job(self.made, path=title), each)
        result = await super().settle(request)
        return replace(result, new_history=({"said": request.prompt},))


def branches() -> Workflow:
    """Three steps in a row beside two, and one behind both."""
    return graph(
        node("fork", NodeType.PARALLEL),
        *map(task, ("a1", "a2", "a3", "b1", "b2")),
        node("both", NodeType.JOIN),
        task("last"),
        "fork>a1>a2>a3>both>last",
        "fork>b1>b2>both",
        parallel=2,
    )


@asynccontextmanager
async def at_work(home: Path, team: Team, **how: Any) -> AsyncGenerator[tuple[House, Task]]:
    async with house(home, team, **how) as here:
        made = await here.world.run_workflow(branches(), source="test:once")
        team.works_for(here, made)
        yield here, made


async def reported(here: House, made: Task, n: int = 1) -> None:
    """So many helpers have told the task what they found."""
    async with asyncio.timeout(60):
        while len(await here.said_to(made)) < n:
            await asyncio.sleep(0.005)


async def until_control(here: House, made: Task, control: Control) -> None:
    async with asyncio.timeout(60):
        while (await here.world.store.tasks.get(made.id)).control is not control:
            await asyncio.sleep(0.005)


async def tellings(db: Database, name: str) -> int:
    """How often that report stands in what the task's workers know."""
    async with db.read() as view:
        rows = (await view.execute(select(schema.messages.c.content))).scalars().all()
    return sum(str(row).count(f"“label {name}” is done") for row in rows)


async def test_a_report_is_heard_by_the_branch_that_asked_for_it(tmp_path: Path) -> None:
    team = Team(sends={"a1": ["look"]})
    team.hold("look", "a2", "b1")
    async with at_work(tmp_path, team) as (here, made):
        await team.until_begun("a2", "b1")
        team.let_go("look")
        await reported(here, made)
        team.let_go("b1")
        await team.until_begun("b2")
        assert team.heard("b2") == []
        team.let_go("a2")
        view = await here.world.until(made)

        assert view.task.status is TaskStatus.COMPLETED
        assert sorted(team.done) == ["a1", "a2", "a3", "b1", "b2", "last"]
        assert team.heard("a3") == ["look"]
        assert await tellings(here.world.db, "look") == 1


async def test_a_report_that_comes_after_its_branch_is_heard_where_they_meet(
    tmp_path: Path,
) -> None:
    team = Team(sends={"a1": ["look"], "b1": ["more"]})
    team.hold("look", "more", "b2")
    async with at_work(tmp_path, team) as (here, made):
        await team.until_begun("a3", "b2")
        team.let_go("look", "more")
        await reported(here, made, 2)
        team.let_go("b2")
        view = await here.world.until(made)

        assert view.task.status is TaskStatus.COMPLETED
        assert team.heard("last") == ["look", "more"]
        assert [await tellings(here.world.db, each) for each in ("look", "more")] == [1, 1]


async def test_a_report_that_nobody_is_left_to_hear_closes_the_task(tmp_path: Path) -> None:
    team = Team(sends={"a1": ["look"], "last": ["more"]})
    team.hold("look", "more")
    async with at_work(tmp_path, team) as (here, made):
        await here.world.until(made, TaskStatus.WAITING)
        team.let_go("look", "more")
        view = await here.world.until(made)

        assert view.task.status is TaskStatus.COMPLETED
        assert [await tellings(here.world.db, each) for each in ("look", "more")] == [1, 1]
        assert len(team.done) == 7


async def test_of_two_steps_that_begin_at_once_one_hears_it(tmp_path: Path) -> None:
    team = Team(sends={"first": ["look"]})
    team.hold("first", "a", "b")
    parting = graph(
        *map(task, ("first", "a", "b")),
        "first>a",
        "first>b",
        parallel=2,
    )
    async with house(tmp_path, team) as here:
        made = await here.world.run_workflow(parting)
        team.works_for(here, made)
        await reported(here, made)
        team.let_go("first")
        await team.until_begun("a", "b")
        team.let_go("a", "b")
        view = await here.world.until(made)

        assert view.task.status is TaskStatus.COMPLETED
        assert len(team.done) == 3
        assert sorted([*team.heard("a"), *team.heard("b")]) == ["look"]


async def test_while_it_is_paused_reports_wait_for_their_branch(tmp_path: Path) -> None:
    team = Team(sends={"a1": ["look"]})
    team.hold("look", "a2", "b1")
    async with at_work(tmp_path, team) as (here, made):
        await team.until_begun("a2", "b1")
        await here.world.foreman.pause(made, by=BOSS, source="p:1")
        team.let_go("a2", "b1")
        view = await here.world.until(made, TaskStatus.PAUSED)
        team.let_go("look")
        await reported(here, made)
        await here.world.foreman.resume(view.task, by=BOSS, source="r:1")
        view = await here.world.until(made)

        assert view.task.status is TaskStatus.COMPLETED
        assert (team.heard("a3"), team.heard("b2")) == (["look"], [])


async def test_urgent_work_cuts_in_and_reports_wait_for_their_branch(tmp_path: Path) -> None:
    team = Team(steps=("now",), sends={"a1": ["look"]})
    team.hold("look", "a2", "b1", "now")
    async with at_work(tmp_path, team, clock=Clock()) as (here, made):
        await team.until_begun("a2", "b1")
        urgent = await here.world.add("Now", priority=Priority.URGENT)
        await until_control(here, made, Control.YIELD)
        await until_control(here, made, Control.YIELD)
        team.let_go("a2", "b1")
        await team.until_begun("now")
        team.let_go("look")
        await reported(here, made)
        assert set(team.done) == {"a1", "a2", "b1", "now"}
        team.let_go("now")
        await here.world.until(urgent)
        view = await here.world.until(made)

        assert view.task.status is TaskStatus.COMPLETED
        assert (team.heard("a3"), team.heard("b2")) == (["look"], [])


async def test_a_stop_ends_the_helpers_of_every_branch(tmp_path: Path) -> None:
    team = Team(sends={"a1": ["look"], "b1": ["more"]})
    team.hold("look", "more", "a2", "b2")
    async with at_work(tmp_path, team) as (here, made):
        await team.until_begun("a2", "b2")
        await here.world.foreman.stop(made, by=BOSS, source="s:1")
        here.service.look()
        helpers = await here.kit.repo.open_ones()
        ended = [await here.ended(each) for each in helpers]

        assert [each.status for each in ended] == [HelperStatus.FAILED] * 2


@pytest.mark.parametrize("nth", range(1, MOST_COMMITS + 1, sampled(1, 6)))
async def test_whenever_death_comes_each_report_is_heard_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    clock, death = Clock(), Death(nth)
    sends: dict[str, Sequence[str]] = {"a1": ["look"], "b1": ["more"]}
    first, second = Team(sends=sends), Team(sends=sends)

    async with at_work(tmp_path, first, clock=clock) as (here, made):
        with monkeypatch.context() as patched:
            death.on(patched)
            await death.or_end_of(here.world.until(made))
    async with at_work(tmp_path, second, clock=clock) as (here, made):
        view = await here.world.until(made)
        runs = await here.world.store.graphs.runs(made.id)
        helpers = await here.kit.repo.lines(made.id)

        assert view.task.status is TaskStatus.COMPLETED
        assert not [run for run in runs.values() if run.status is NodeStatus.RUNNING]
        assert sorted(each.label for each in helpers) == ["label look", "label more"]
        assert [await tellings(here.world.db, each) for each in ("look", "more")] == [1, 1]
