"""The view of a running task with branches, loaded from a real store."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bot.engine.workflow.nodes.delay import DelayConfig
from bot.engine.workflow.nodes.human import HumanConfig
from bot.engine.workflow.nodes.registry import NodeType
from bot.engine.workflow.presentation.task_view import TaskViewLoader
from cards.catalog import catalog_for
from cards.render.text import render
from cards.views.task_card import task_card
from storage.records.people import Language
from storage.records.tasks import NodeStatus, Task, TaskStatus, TaskStep, TaskView
from storage.step_durations import StepDurationRepo
from storage.usage import UsageRepo
from tests.bot.engine.workflow.integration.workflow_world import (
    PacedBackend,
    WorkflowWorld,
    for_each,
    make_graph,
    make_node,
    task_node,
    workflow_world,
)

EN = catalog_for(Language.ENGLISH)


def views(here: WorkflowWorld) -> TaskViewLoader:
    """With a clock, as in production."""
    world = here.engine
    return TaskViewLoader(world.store, UsageRepo(world.db), now=world.clock)


def line(view: TaskView, title: str) -> TaskStep:
    return next(each for each in view.visible_steps if each.title == title)


def card(view: TaskView, here: WorkflowWorld) -> str:
    return render(task_card(view, EN, now=here.engine.clock(), zone=ZoneInfo("UTC"))).text


def about(seconds: float) -> Any:
    """The clock of these tests advances at each look."""
    return pytest.approx(seconds, abs=30)


async def waiting(here: WorkflowWorld, made: Task) -> TaskView:
    return await here.engine.until(made, TaskStatus.WAITING)


async def test_a_step_that_waits_for_a_person_says_so_while_another_runs(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.hold("build")
    both = make_graph(
        make_node("fork", NodeType.PARALLEL),
        task_node("build"),
        make_node("sign", NodeType.HUMAN, HumanConfig()),
        "fork>build",
        "fork>sign",
        parallel=2,
    )
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(both)
        await backend.wait_until_started("build")
        await here.wait_for_request(made, "sign")
        view = await views(here).view(made.id)
        backend.release("build")
        await waiting(here, made)

    assert line(view, "build").status is NodeStatus.RUNNING
    assert line(view, "sign").status is NodeStatus.WAITING
    assert line(view, "sign").awaited_names[0] == "Boss"
    assert line(view, "sign").depth == line(view, "build").depth == 1
    assert (view.done, view.total, view.percent) == (0, 2, 0)


async def test_a_rest_says_until_when_it_lasts(tmp_path: Path) -> None:
    rest = make_graph(
        make_node("rest", NodeType.DELAY, DelayConfig(seconds=7200)),
        task_node("after"),
        "rest>after",
    )
    async with workflow_world(tmp_path) as here:
        made = await here.engine.run_workflow(rest)
        await waiting(here, made)
        view = await views(here).view(made.id)
        told = card(view, here)
        ends = here.engine.clock().astimezone(ZoneInfo("UTC"))

    until = line(view, "rest").waits_until
    assert until is not None
    assert (until - ends).total_seconds() == about(7200)
    assert f"until {until:%Y-%m-%d %H:%M}" in told or f"until {until:%H:%M}" in told


async def test_rounds_that_run_now_stand_under_their_loop(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.hold("two")
    each = for_each(["one", "two", "three"], task_node("do", "{{item}}"))
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(each)
        await backend.wait_until_started("two")
        view = await views(here).view(made.id)
        told = card(view, here)
        backend.release("two")
        ended = await here.engine.until(made)

    assert "🔁 each · 1/3" in told
    assert line(view, "two").status is NodeStatus.RUNNING
    assert (view.done, view.total) == (1, 4)
    assert [step.title for step in ended.steps] == ["one", "two", "three", "last"]
    assert ended.percent == 100


async def test_how_long_it_takes_is_learned_from_tasks_that_are_done(tmp_path: Path) -> None:
    backend = PacedBackend()
    plan = make_graph(task_node("fetch"), task_node("sort"), task_node("file"), "fetch>sort>file")
    async with workflow_world(tmp_path, backend) as here:
        etas = []
        for _ in range(2):
            backend.hold("fetch")
            backend.hold("sort")
            made = await here.engine.run_workflow(plan)
            await here.wait_for_run(made, "fetch", "running")
            etas.append((await views(here).view(made.id)).eta)
            backend.release("fetch")
            await here.wait_for_run(made, "sort", "running")
            here.engine.clock.advance(minutes=30)
            backend.release("sort")
            await here.engine.until(made)
            backend.started_steps.clear()
        found = await StepDurationRepo(here.engine.db).list_recent()
        backend.hold("fetch")
        made = await here.engine.run_workflow(plan)
        await here.wait_for_run(made, "fetch", "running")
        view = await views(here).view(made.id)
        told = card(view, here)
        backend.release("fetch")
        await here.engine.until(made)

    assert etas[0] is None, "before anything was ever timed, any time would be invented"
    assert sorted(dict(found[0].step_seconds)) == ["fetch", "file", "sort"]
    assert [dict(each.step_seconds)["sort"] for each in found] == [about(1800), about(1800)]
    assert view.eta is not None
    assert view.eta.seconds == about(1810)
    assert "0/3 steps · ≈30 min left" in told


async def test_without_a_clock_nothing_is_said_of_how_long_it_takes(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.hold("a")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(make_graph(task_node("a"), task_node("b"), "a>b"))
        await backend.wait_until_started("a")
        view = await here.engine.views.view(made.id)
        backend.release("a")
        await here.engine.until(made)

    assert view.eta is None


async def test_after_a_restart_the_percentage_is_the_same(tmp_path: Path) -> None:
    """Although other tasks have taken other times meanwhile."""
    backend = PacedBackend()
    plan = make_graph(task_node("fetch"), task_node("sort"), "fetch>sort")
    asks = make_node("ask", NodeType.HUMAN, HumanConfig())
    halted = make_graph(task_node("fetch"), asks, task_node("sort"), "fetch>ask>sort")
    async with workflow_world(tmp_path, backend) as here:

        async def run(slow: str) -> None:
            backend.hold(slow)
            made = await here.engine.run_workflow(plan)
            await here.wait_for_run(made, slow, "running")
            here.engine.clock.advance(minutes=30)
            backend.release(slow)
            await here.engine.until(made)
            here.engine.clock.advance(minutes=10)

        for _ in range(2):
            await run("sort")
        made = await here.engine.run_workflow(halted)
        await waiting(here, made)
        before = (await views(here).view(made.id)).percent
        for _ in range(3):
            await run("fetch")
        after = (await views(here).view(made.id)).percent
        fresh = await here.engine.run_workflow(halted)
        await waiting(here, fresh)
        learned = (await views(here).view(fresh.id)).percent

    assert before == after < 5
    assert learned > 30
