"""The short tasks of small models, whose plans have steps that no worker can do by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from bot.engine.llm.answer_schemas import PlanAnswer, PlanStep, StepAnswer
from bot.engine.llm.backend import BackendUnavailable, RunPurpose
from bot.engine.workflow.planner import is_joinable, plan_from_answer
from storage.records.tasks import TaskStatus
from tests.engine_harness import FakeBackend, run_engine

TASK = "Tell three facts about queues"
EDITOR = ("Open a text editor", "Write three facts", "Save the file")
"""A plan of Qwen2.5-Coder-1.5B, shortened."""


def is_joined(task: str, *steps: str, kind: Literal["work", "ask"] = "work") -> bool:
    plan = [PlanStep(title=title, kind=kind) for title in steps]
    return is_joinable(plan_from_answer(PlanAnswer(plan="As asked.", steps=plan)), task)


def test_only_the_working_steps_of_a_short_task_are_joined() -> None:
    assert is_joined(TASK, *EDITOR)
    assert not is_joined(TASK * 20, *EDITOR)
    assert not is_joined(TASK, *EDITOR, kind="ask")
    assert not is_joined(TASK, "Tell them")


@pytest.mark.parametrize("writes_calls", [True, False])
async def test_a_short_task_of_a_model_that_writes_its_calls_runs_as_one_step(
    tmp_path: Path, writes_calls: bool
) -> None:
    steps = [PlanStep(title=each) for each in EDITOR]
    backend = FakeBackend(
        on_plan=lambda: PlanAnswer(plan="As asked.", steps=steps), writes_calls=writes_calls
    )
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.create_task(TASK), TaskStatus.COMPLETED)

    assert backend.started_steps == ([TASK] if writes_calls else list(EDITOR))
    assert ("its steps were too small" in view.plan) is writes_calls
    planning, first = backend.requests[0], backend.requests[1]
    assert planning.purpose is RunPurpose.PLAN
    if writes_calls:
        assert not first.history, "a plan that is not followed is not read either"
        assert first.prompt.count(TASK) == 1
    else:
        assert first.history


async def test_no_step_of_a_model_that_writes_its_calls_reads_what_the_plan_promised(
    tmp_path: Path,
) -> None:
    steps = [PlanStep(title="Count them")]
    promise = PlanAnswer(plan="As asked.", steps=steps, answer="There are ten.")
    backend = FakeBackend(on_plan=lambda: promise, writes_calls=True)
    async with run_engine(tmp_path, backend) as world:
        await world.until(await world.create_task(TASK), TaskStatus.COMPLETED)

    assert backend.started_steps == ["Count them"]
    assert not backend.requests[1].history


async def test_a_worker_is_not_told_of_an_outage_of_its_model(tmp_path: Path) -> None:
    """A small model takes it for its own error, and reports that it cannot go on."""
    answers = iter(
        [StepAnswer(status="error", summary="the ink is dry"), BackendUnavailable("away"), None]
    )
    backend = FakeBackend(steps=("Write it",), on_step=lambda _title: next(answers))
    async with run_engine(tmp_path, backend) as world:
        await world.until(await world.create_task("Write a poem"), TaskStatus.COMPLETED)

    first, second, third = (each.prompt for each in backend.requests if each.facts.get("step"))
    assert "Your last attempt" not in first
    assert "Your last attempt at this step failed: the ink is dry" in second
    assert "Your last attempt at this step failed: the ink is dry" in third
