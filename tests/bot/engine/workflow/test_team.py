"""A step is done by who it names, else by who does the task: with their words, mode and model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bot.engine.agent.personas.builtin import BUILT_IN
from bot.engine.agent.personas.persona import Persona
from bot.engine.agent.workbench import Workbench
from bot.engine.llm.answers import PlanAnswer, PlanStep
from bot.engine.llm.base import Caps, Mode, Purpose, RunRequest
from storage.sessions import SessionRepo
from tests.engine_world import FakeBackend, engine

CLI = Caps(durable=False, tools=False, resume=True, money=False)


class People:
    """The nine, and whoever else is named."""

    def __init__(self, *more: Persona) -> None:
        self._all = {**BUILT_IN, **{each.name: each for each in more}}

    async def get(self, name: str) -> Persona:
        return self._all.get(name, BUILT_IN["pragmatist"])

    async def known(self) -> Mapping[str, Persona]:
        return self._all


def planned_by(*names: str) -> FakeBackend:
    steps = [PlanStep(title=f"step {n}", persona=name) for n, name in enumerate(names)]
    return FakeBackend(on_plan=lambda: PlanAnswer(plan="As asked.", steps=steps))


async def steps_of(
    home: Path, backend: FakeBackend, *, persona: str = "", people: People | None = None
) -> list[RunRequest]:
    bench = Workbench(personas=people or People())
    async with engine(home, backend, bench=bench) as made:
        await made.until(await made.add(persona=persona))
    return [request for request in backend.asked if request.purpose is Purpose.STEP]


def told(request: RunRequest) -> str:
    return next(
        (name for name, p in BUILT_IN.items() if p.charter and p.charter in request.system), ""
    )


async def test_a_step_goes_before_its_task_and_that_before_the_default(tmp_path: Path) -> None:
    asked = await steps_of(tmp_path, planned_by("", "reviewer", ""), persona="architect")

    assert [told(each) for each in asked] == ["architect", "reviewer", "architect"]
    assert [each.mode for each in asked] == [Mode.EXECUTE, Mode.REVIEW, Mode.EXECUTE]


async def test_where_nobody_is_named_the_pragmatist_works(tmp_path: Path) -> None:
    assert [told(each) for each in await steps_of(tmp_path, planned_by(""))] == ["pragmatist"]


async def test_a_name_that_nobody_has_means_the_tasks_own_worker(tmp_path: Path) -> None:
    asked = await steps_of(tmp_path, planned_by("Wizard", "auto"), persona="tester")

    assert [told(each) for each in asked] == ["tester", "tester"]


async def test_who_works_without_a_way_is_told_none(tmp_path: Path) -> None:
    (asked,) = await steps_of(tmp_path, planned_by(""), persona="none")

    assert told(asked) == ""


async def test_on_one_model_api_all_share_a_session(tmp_path: Path) -> None:
    asked = await steps_of(tmp_path, planned_by("", "reviewer", ""))

    # The plan's turn and each step before.
    assert [len(each.history) for each in asked] == [1, 2, 3]


async def test_at_a_coding_cli_everybody_has_a_session_of_their_own(tmp_path: Path) -> None:
    backend = planned_by("", "reviewer", "", "reviewer")
    backend.caps = CLI

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

    await steps_of(tmp_path, backend, people=People(poet))

    (plan,) = (each for each in backend.asked if each.purpose is Purpose.PLAN)
    assert "- reviewer: Judges changes" in plan.system
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
    people = People(replace(BUILT_IN["tester"], name="poet"))
    bench = Workbench(personas=people)
    backend = planned_by("poet", "poet")
    backend.on_step = lambda _title: people._all.pop("poet", None) and None
    async with engine(tmp_path, backend, bench=bench) as made:
        view = await made.until(await made.add())
        assert [step.persona for step in view.steps] == ["poet", "poet"]
        assert await SessionRepo(made.db).open(f"task:{view.task.id}")

    asked = [each for each in backend.asked if each.purpose is Purpose.STEP]
    assert [told(each) for each in asked] == ["tester", "pragmatist"]
