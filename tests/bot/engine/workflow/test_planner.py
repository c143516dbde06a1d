"""An invalid plan goes back to the model once, and a task never runs one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sqlalchemy import text

from bot.engine.llm.answer_schemas import PlanAnswer, PlanStep, StepAnswer
from bot.engine.llm.backend import InvalidAnswer, RunPurpose
from storage.records.tasks import TaskStatus
from tests.engine_harness import FakeBackend, make_plan, run_engine

BROKEN = json.dumps({"nodes": [{"id": "a"}], "edges": [{"from": "a", "to": "gone"}]})
BRANCHES = json.dumps(
    {
        "nodes": [
            {"id": "look", "name": "Look"},
            {"id": "good", "name": "Good"},
            {"id": "bad", "name": "Bad"},
        ],
        "edges": [
            {"from": "look", "to": "good", "condition": "outputs.look.score > 5"},
            {"from": "look", "to": "bad"},
        ],
    }
)
STEPS = [PlanStep(title="simple")]


def answers(*plans: PlanAnswer, **more: Any) -> FakeBackend:
    left = iter(plans)
    return FakeBackend(on_plan=lambda: next(left), **more)


def plan_prompts(backend: FakeBackend) -> list[str]:
    return [request.prompt for request in backend.requests if request.purpose is RunPurpose.PLAN]


async def test_a_planner_may_answer_a_workflow_with_branches(tmp_path: Path) -> None:
    backend = answers(
        PlanAnswer(workflow=BRANCHES),
        on_step=lambda _: StepAnswer(status="done", summary="score: 8"),
    )
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.create_task())

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["Look", "Good"]


async def test_a_broken_workflow_goes_back_with_its_faults(tmp_path: Path) -> None:
    backend = answers(
        PlanAnswer(workflow=BROKEN),
        PlanAnswer(workflow=BRANCHES),
        on_step=lambda _: StepAnswer(status="done", summary="score: 3"),
    )
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.create_task("Look at it"))

    first, again = plan_prompts(backend)
    assert view.task.status is TaskStatus.COMPLETED
    assert "gone" not in first
    assert "a→gone.target: no node “gone”." in again
    assert "Look at it" in again


async def test_what_both_answers_cost_is_counted(tmp_path: Path) -> None:
    backend = answers(PlanAnswer(workflow=BROKEN), make_plan("one"))
    async with run_engine(tmp_path, backend) as world:
        await world.until(await world.create_task())
        async with world.db.read() as view:
            rows = await view.execute(text("SELECT count(*) FROM usage"))
            calls = rows.scalar_one()

    assert calls == 3


async def test_steps_in_order_do_where_the_workflow_stays_broken(tmp_path: Path) -> None:
    backend = answers(
        PlanAnswer(workflow=BROKEN, steps=STEPS), PlanAnswer(workflow=BROKEN, steps=STEPS)
    )
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.create_task())

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["simple"]


async def test_without_a_plan_that_can_be_run_the_task_is_one_step_and_says_why(
    tmp_path: Path,
) -> None:
    backend = answers(PlanAnswer(workflow=BROKEN), PlanAnswer(workflow=BROKEN))
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.create_task("Look at ${it}"))

    assert view.task.status is TaskStatus.COMPLETED
    assert "no node “gone”" in view.plan
    assert "one step" in view.plan
    assert backend.started_steps == ["Look at ${it}"]
    assert len(plan_prompts(backend)) == 2


async def test_a_model_that_cannot_plan_is_asked_once_and_does_the_task_in_one_step(
    tmp_path: Path,
) -> None:
    backend = FakeBackend(on_plan=lambda: InvalidAnswer("no form"))
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.create_task("Count the cats"))

    assert view.task.status is TaskStatus.COMPLETED
    assert "the model's answer was not a plan" in view.plan
    assert backend.started_steps == ["Count the cats"]
    assert len(plan_prompts(backend)) == 1


async def test_a_new_plan_that_cannot_be_run_leaves_the_old_one(tmp_path: Path) -> None:
    broken = PlanAnswer(workflow=BROKEN)
    backend = answers(
        make_plan("one", "two"),
        broken,
        broken,
        on_step=lambda title: StepAnswer(status="done", summary="hm", needs_replan=title == "one"),
    )
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.create_task())

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["one", "two"]


async def test_the_planner_is_told_when_a_workflow_is_worth_it(tmp_path: Path) -> None:
    backend = FakeBackend()
    async with run_engine(tmp_path, backend) as world:
        await world.until(await world.create_task())

    system = backend.requests[0].system
    assert "leave `workflow` empty" in system
    assert "{language}" not in system


async def test_a_new_plan_with_branches_takes_the_place_of_what_is_left(tmp_path: Path) -> None:
    plan = PlanAnswer(workflow=BRANCHES)
    looks = iter((8, 3))

    def work(title: str) -> StepAnswer:
        score = next(looks) if title == "Look" else 0
        return StepAnswer(status="done", summary=f"score: {score}", needs_replan=score == 8)

    backend = answers(plan, plan, on_step=work)
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.create_task())

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["Look", "Look", "Bad"]
