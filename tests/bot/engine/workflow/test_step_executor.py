"""A step is done by who it names, else by who does the task: with their words, mode and model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.engine.agent.model_calls import ModelRequest
from bot.engine.llm.answer_schemas import PlanAnswer, PlanStep, StepAnswer
from bot.engine.llm.backend import (
    ImageInput,
    RunLimits,
    RunPurpose,
    RunRequest,
    SelectedBackend,
    WorkerMode,
)
from bot.engine.llm.limit_overrides import LimitOverrides
from bot.engine.workers.personas import BUILT_IN_PERSONAS, Persona
from bot.engine.workflow.definition import dump_workflow, load_workflow
from bot.engine.workflow.planner import plan_from_steps
from storage.records.tasks import TaskStatus
from storage.sessions import SessionRepo
from tests.agent_builders import make_context_builder
from tests.bot.engine.workflow.test_runner_commands import held_backend
from tests.engine_harness import BOSS, FakeBackend, run_engine

DONE_ANSWER = StepAnswer(status="done", summary="It is written.")


def plan_with_deliverables(*deliverables: str) -> PlanAnswer:
    steps = [PlanStep(title="write the report", deliverables=list(deliverables))]
    return PlanAnswer(plan="As asked.", steps=steps)


class DeliverableWriter(FakeBackend):
    """Says at every try that it is done, and has written from its try number `at` on."""

    def __init__(
        self, at: int, path: str = "out/report.md", answer: StepAnswer = DONE_ANSWER
    ) -> None:
        super().__init__(on_plan=lambda: plan_with_deliverables("out/report.md"))
        self._at = at
        self._path = path
        self.on_step = lambda _title: self._wrote(answer)

    @property
    def tries(self) -> list[RunRequest]:
        return [each for each in self.requests if each.purpose is RunPurpose.STEP]

    def _wrote(self, answer: StepAnswer) -> Any:
        workspace = self.tries[-1].workspace
        assert workspace is not None
        if len(self.tries) >= self._at:
            target = workspace / self._path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("All is well.")
        return answer


async def status_with(home: Path, backend: FakeBackend) -> tuple[TaskStatus, str]:
    async with run_engine(home, backend) as world:
        view = await world.until(
            await world.create_task("Write a report"),
            TaskStatus.COMPLETED,
            TaskStatus.BLOCKED,
            TaskStatus.FAILED,
        )
    return view.task.status, view.task.status_reason


async def test_its_worker_is_told_of_them_and_done_with_them_is_done(tmp_path: Path) -> None:
    backend = DeliverableWriter(at=1)

    assert (await status_with(tmp_path, backend))[0] is TaskStatus.COMPLETED

    (only,) = backend.tries
    assert "out/report.md" in only.prompt
    (kept,) = (tmp_path / "files" / "tasks").glob("*/out/report.md")
    assert kept.read_text() == "All is well."


async def test_done_without_them_is_a_failed_try_and_the_next_is_told_what_is_missing(
    tmp_path: Path,
) -> None:
    backend = DeliverableWriter(at=2)

    assert (await status_with(tmp_path, backend))[0] is TaskStatus.COMPLETED

    _, second = backend.tries
    assert "missing: out/report.md" in second.prompt


async def test_one_that_never_makes_them_is_never_done(tmp_path: Path) -> None:
    status, why = await status_with(tmp_path, DeliverableWriter(at=1, path="somewhere-else.md"))

    assert status in {TaskStatus.BLOCKED, TaskStatus.FAILED}
    assert "out/report.md" in why


async def test_an_answer_that_says_error_is_not_asked_for_them(tmp_path: Path) -> None:
    answer = StepAnswer(status="blocked", summary="I need the numbers.")

    status, why = await status_with(tmp_path, DeliverableWriter(at=9, answer=answer))

    assert (status, why) == (TaskStatus.BLOCKED, "I need the numbers.")


def test_only_what_can_be_a_file_of_the_workspace_is_looked_for() -> None:
    names = ("a.md", "a.md", "docs/b c.md", "/etc/x", "~/x", "../x", "out/", "*.md", "{name}.md")

    made = plan_from_steps(plan_with_deliverables(*names, "https://a.example/x"))

    assert made is not None
    assert made.nodes[0].deliverables == ("a.md", "docs/b c.md")


@pytest.mark.parametrize("names", [(), ("a.md",)])
def test_they_are_kept_with_the_plan_and_older_plans_have_none(names: tuple[str, ...]) -> None:
    made = plan_from_steps(plan_with_deliverables(*names))
    assert made is not None
    body = dump_workflow(made)

    assert load_workflow(body) == made
    for node in body["nodes"]:
        del node["deliverables"]
    assert load_workflow(body).nodes[0].deliverables == ()


async def attach_images(
    ask: ModelRequest, _chosen: SelectedBackend, names: Sequence[str]
) -> ModelRequest:
    pictures = tuple(ImageInput(path=Path(name), mime="image/png") for name in names)
    return replace(ask, pictures=pictures)


async def test_a_restart_does_not_show_a_tasks_pictures_again(tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(b"a cat")
    first = held_backend(steps=("one", "two"))
    async with run_engine(tmp_path, first, show_pictures=attach_images) as world:
        task = await world.create_task("Draw a dog like this cat", files=("cat.png",))
        await first.wait_until_started("one")
        await world.tasks.pause(task, by=BOSS, source="m1")
        first.release()
        task = (await world.until(task, TaskStatus.PAUSED)).task
    second = FakeBackend(steps=("one", "two"))
    async with run_engine(tmp_path, second, show_pictures=attach_images) as world:
        await world.tasks.resume(task, by=BOSS, source="m2")
        await world.until(task, TaskStatus.COMPLETED)

    shown = [(each.purpose, len(each.pictures)) for each in (*first.requests, *second.requests)]
    assert shown == [(RunPurpose.PLAN, 1), (RunPurpose.STEP, 0), (RunPurpose.STEP, 0)]


class FakePersonas:
    """The nine, and whoever else is named."""

    def __init__(self, *more: Persona) -> None:
        self._all = {**BUILT_IN_PERSONAS, **{each.name: each for each in more}}

    async def get(self, name: str) -> Persona:
        return self._all.get(name, BUILT_IN_PERSONAS["pragmatist"])

    async def get_all(self) -> Mapping[str, Persona]:
        return self._all


def planned_by(*names: str) -> FakeBackend:
    steps = [PlanStep(title=f"step {n}", persona=name) for n, name in enumerate(names)]
    return FakeBackend(on_plan=lambda: PlanAnswer(plan="As asked.", steps=steps))


async def steps_of(
    home: Path, backend: FakeBackend, *, persona: str = "", people: FakePersonas | None = None
) -> list[RunRequest]:
    bench = make_context_builder(personas=people or FakePersonas())
    async with run_engine(home, backend, context_builder=bench) as made:
        await made.until(await made.create_task(persona=persona))
    return [request for request in backend.requests if request.purpose is RunPurpose.STEP]


def told_text(request: RunRequest) -> str:
    return next(
        (
            name
            for name, p in BUILT_IN_PERSONAS.items()
            if p.system_text and p.system_text in request.system
        ),
        "",
    )


async def test_a_step_goes_before_its_task_and_that_before_the_default(tmp_path: Path) -> None:
    asked = await steps_of(tmp_path, planned_by("", "reviewer", ""), persona="architect")

    assert [told_text(each) for each in asked] == ["architect", "reviewer", "architect"]
    assert [each.mode for each in asked] == [
        WorkerMode.EXECUTE,
        WorkerMode.REVIEW,
        WorkerMode.EXECUTE,
    ]


async def test_where_nobody_is_named_the_pragmatist_works(tmp_path: Path) -> None:
    assert [told_text(each) for each in await steps_of(tmp_path, planned_by(""))] == ["pragmatist"]


async def test_a_name_that_nobody_has_means_the_tasks_own_worker(tmp_path: Path) -> None:
    asked = await steps_of(tmp_path, planned_by("Wizard", "auto"), persona="tester")

    assert [told_text(each) for each in asked] == ["tester", "tester"]


async def test_who_works_without_a_way_is_told_none(tmp_path: Path) -> None:
    (asked,) = await steps_of(tmp_path, planned_by(""), persona="none")

    assert told_text(asked) == ""


async def test_limits_of_a_node_beat_its_personas_and_those_the_settings(tmp_path: Path) -> None:
    nodes = (
        "nodes: [{id: a, name: a}, {id: b, name: b, persona: tireless},"
        " {id: c, name: c, persona: tireless, limits: {turns: 3, seconds: 20m}}]"
    )
    tireless = Persona(
        name="tireless", title={}, limits=LimitOverrides(turns=90, tokens=9_000, seconds=50.0)
    )
    backend = FakeBackend(on_plan=lambda: PlanAnswer(plan="As asked.", workflow=nodes))
    bench = make_context_builder(personas=FakePersonas(tireless))
    limits = RunLimits(turns=7, output_tokens=7_000, default_seconds=70.0)

    async with run_engine(tmp_path, backend, context_builder=bench, limits=limits) as made:
        await made.until(await made.create_task())

    planning, *steps = [each.limits for each in backend.requests]
    assert (planning, steps[0]) == (limits, limits)
    assert [(each.turns, each.output_tokens, each.wall_seconds) for each in steps[1:]] == [
        (90, 9_000, 50.0),
        (3, 9_000, 1_200.0),
    ]


async def test_on_one_model_api_all_share_a_session(tmp_path: Path) -> None:
    asked = await steps_of(tmp_path, planned_by("", "reviewer", ""))

    # The plan's turn and each step before.
    assert [len(each.history) for each in asked] == [1, 2, 3]


async def test_at_a_coding_cli_everybody_has_a_session_of_their_own(tmp_path: Path) -> None:
    backend = planned_by("", "reviewer", "", "reviewer")
    backend.accepts_tools = False

    asked = await steps_of(tmp_path, backend)

    assert [each.persona for each in asked] == [
        *("pragmatist", "reviewer", "pragmatist", "reviewer")
    ]
    assert [len(each.history) for each in asked] == [1, 0, 2, 1]
    # Who comes new is told the whole task; who knows it already is not.
    assert "The plan: As asked." in asked[1].prompt
    assert "The plan: As asked." not in asked[3].prompt


async def test_the_planner_is_told_whom_a_step_may_name_and_what_for(tmp_path: Path) -> None:
    backend = planned_by("")
    poet = Persona(name="poet", title={}, about={"zh": "写诗"}, prompt="Verse.")

    await steps_of(tmp_path, backend, people=FakePersonas(poet))

    (plan,) = (each for each in backend.requests if each.purpose is RunPurpose.PLAN)
    assert "- reviewer: Reviews changes" in plan.system
    assert "- poet: 写诗" in plan.system
    assert "- none:" not in plan.system


async def test_a_session_that_has_grown_too_long_is_left_by_all_who_share_it(
    tmp_path: Path,
) -> None:
    backend = planned_by("", "reviewer", "")
    backend.context = 500_000

    asked = await steps_of(tmp_path, backend)

    assert [len(each.history) for each in asked][1:] == [0, 0]


async def test_a_persona_of_a_file_that_goes_away_while_it_works_gives_way_to_the_default(
    tmp_path: Path,
) -> None:
    people = FakePersonas(replace(BUILT_IN_PERSONAS["tester"], name="poet"))
    bench = make_context_builder(personas=people)
    backend = planned_by("poet", "poet")
    backend.on_step = lambda _title: people._all.pop("poet", None) and None
    async with run_engine(tmp_path, backend, context_builder=bench) as made:
        view = await made.until(await made.create_task())
        assert [step.persona for step in view.steps] == ["poet", "poet"]
        assert await SessionRepo(made.db).find_open(f"task:{view.task.id}")

    asked = [each for each in backend.requests if each.purpose is RunPurpose.STEP]
    assert [told_text(each) for each in asked] == ["tester", "pragmatist"]
