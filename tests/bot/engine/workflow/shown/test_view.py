"""What a card knows of a task with branches, read from a real store while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bot.engine.workflow.model.nodes import Delay, Human, NodeType
from bot.engine.workflow.shown.view import TaskViews
from cards.render.text import render
from cards.views.work.tasks import task_card
from cards.words import words_for
from storage.records.people import Language
from storage.records.tasks import NodeStatus, Step, Task, TaskStatus, TaskView
from storage.usage import UsageRepo
from storage.work.durations import DurationRepo
from tests.bot.engine.workflow.flows.world import Flows, Paced, flows, for_each, graph, node, task

EN = words_for(Language.ENGLISH)


def views(here: Flows) -> TaskViews:
    """With a clock, as in the program."""
    world = here.world
    return TaskViews(world.store, UsageRepo(world.db), now=world.clock)


def line(view: TaskView, title: str) -> Step:
    return next(each for each in view.lines if each.title == title)


def card(view: TaskView, here: Flows) -> str:
    return render(task_card(view, EN, now=here.world.clock(), zone=ZoneInfo("UTC"))).text


def about(seconds: float) -> Any:
    """The clock of these tests goes on a little whenever somebody looks at it."""
    return pytest.approx(seconds, abs=30)


async def waiting(here: Flows, made: Task) -> TaskView:
    return await here.world.until(made, TaskStatus.WAITING)


async def test_a_step_that_waits_for_a_person_says_so_while_another_runs(tmp_path: Path) -> None:
    backend = Paced()
    backend.hold("build")
    both = graph(
        node("fork", NodeType.PARALLEL),
        task("build"),
        node("sign", NodeType.HUMAN, Human()),
        "fork>build",
        "fork>sign",
        parallel=2,
    )
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(both)
        await backend.begun("build")
        await here.asked(made, "sign")
        view = await views(here).view(made.id)
        backend.let_go("build")
        await waiting(here, made)

    assert line(view, "build").status is NodeStatus.RUNNING
    assert line(view, "sign").status is NodeStatus.WAITING
    assert line(view, "sign").waits_for[0] == "Boss"
    assert line(view, "sign").depth == line(view, "build").depth == 1
    assert (view.done, view.total, view.percent) == (0, 2, 0)


async def test_a_rest_says_until_when_it_lasts(tmp_path: Path) -> None:
    rest = graph(node("rest", NodeType.DELAY, Delay(seconds=7200)), task("after"), "rest>after")
    async with flows(tmp_path) as here:
        made = await here.world.run_workflow(rest)
        await waiting(here, made)
        view = await views(here).view(made.id)
        told = card(view, here)
        ends = here.world.clock().astimezone(ZoneInfo("UTC"))

    until = line(view, "rest").until
    assert until is not None
    assert (until - ends).total_seconds() == about(7200)
    assert f"until {until:%Y-%m-%d %H:%M}" in told or f"until {until:%H:%M}" in told


async def test_rounds_that_run_now_stand_under_their_loop(tmp_path: Path) -> None:
    backend = Paced()
    backend.hold("two")
    each = for_each(["one", "two", "three"], task("do", "{{item}}"))
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(each)
        await backend.begun("two")
        view = await views(here).view(made.id)
        told = card(view, here)
        backend.let_go("two")
        ended = await here.world.until(made)

    assert "🔁 each · 1/3" in told
    assert line(view, "two").status is NodeStatus.RUNNING
    assert (view.done, view.total) == (1, 4)
    assert [step.title for step in ended.steps] == ["one", "two", "three", "last"]
    assert ended.percent == 100


async def test_how_long_it_takes_is_learned_from_tasks_that_are_done(tmp_path: Path) -> None:
    backend = Paced()
    plan = graph(task("fetch"), task("sort"), task("file"), "fetch>sort>file")
    async with flows(tmp_path, backend) as here:
        for _ in range(2):
            backend.hold("sort")
            made = await here.world.run_workflow(plan)
            await here.until_run(made, "sort", "running")
            here.world.clock.pass_by(minutes=30)
            backend.let_go("sort")
            await here.world.until(made)
            backend.done.clear()
        found = await DurationRepo(here.world.db).recent()
        backend.hold("fetch")
        made = await here.world.run_workflow(plan)
        await here.until_run(made, "fetch", "running")
        view = await views(here).view(made.id)
        told = card(view, here)
        backend.let_go("fetch")
        await here.world.until(made)

    assert sorted(dict(found[0].took)) == ["fetch", "file", "sort"]
    assert [dict(each.took)["sort"] for each in found] == [about(1800), about(1800)]
    assert view.eta is not None
    assert view.eta.seconds == about(1810)
    assert "0/3 steps · ≈30 min left" in told


async def test_without_a_clock_nothing_is_said_of_how_long_it_takes(tmp_path: Path) -> None:
    backend = Paced()
    backend.hold("a")
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(graph(task("a"), task("b"), "a>b"))
        await backend.begun("a")
        view = await here.world.views.view(made.id)
        backend.let_go("a")
        await here.world.until(made)

    assert view.eta is None
