"""A step that was asked for a file is not done without it, whatever its worker says."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bot.engine.agent.requested_files import find_named_files
from bot.engine.llm.answer_schemas import PlanAnswer, StepAnswer
from bot.engine.llm.backend import RunPurpose, RunRequest, RunResult
from bot.engine.workflow.planner import plan_from_answer
from cards.catalog import catalog_for
from storage.records.people import Language
from storage.records.tasks import TaskStatus
from tests.bot.engine.workflow.test_planner import BRANCHES
from tests.engine_harness import BOSS, FakeBackend, make_plan, run_engine

LIE = "Write a poem into cats.txt"


def write_file(home: Path, backend: FakeBackend, path: str) -> None:
    workspace = backend.requests[-1].workspace
    assert workspace is not None
    target = workspace / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("miau")


async def test_a_claim_without_a_file_is_told_once_and_then_a_person_is_asked(
    tmp_path: Path,
) -> None:
    backend = FakeBackend(steps=("Write the poem",))
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.create_task(LIE), TaskStatus.BLOCKED)

    assert "cats.txt" in view.task.status_reason
    assert backend.started_steps == ["Write the poem"] * 2
    assert "these files are missing: cats.txt" in backend.requests[-1].prompt


@pytest.mark.parametrize("path", ["cats.txt", "poems/cats.txt"])
async def test_a_worker_that_is_told_and_writes_the_file_is_done(tmp_path: Path, path: str) -> None:
    tries = iter((False, True))
    backend = FakeBackend(
        steps=("Write the poem",),
        on_step=lambda _: write_file(tmp_path, backend, path) if next(tries) else None,
    )
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.create_task(LIE))

    assert view.task.status is TaskStatus.COMPLETED
    assert len(backend.started_steps) == 2


async def test_only_the_last_step_answers_for_the_files_of_the_task(tmp_path: Path) -> None:
    def work(title: str) -> None:
        if title == "write it down":
            write_file(tmp_path, backend, "cats.txt")

    backend = FakeBackend(steps=("think of cats", "write it down"), on_step=work)
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.create_task(LIE))

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["think of cats", "write it down"]


async def test_a_step_answers_for_the_files_that_its_own_words_ask_for(tmp_path: Path) -> None:
    backend = FakeBackend(on_plan=lambda: make_plan("Write notes.md", "Tell me"))
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.create_task("Prepare it"), TaskStatus.BLOCKED)

    assert "notes.md" in view.task.status_reason
    assert "Tell me" not in backend.started_steps


async def test_a_workflow_declares_deliverables_with_placeholders(tmp_path: Path) -> None:
    node = {"id": "a", "name": "Do", "deliverables": ["{{variables.month}}.csv"]}
    workflow = {
        "variables": {"month": "may"},
        "nodes": [node, {"id": "b", "name": "Wait"}],
        "edges": [{"from": "a", "to": "b", "condition": "variables.month == 'may'"}],
    }
    made = iter((False, True, True))
    backend = FakeBackend(
        on_plan=lambda: PlanAnswer(workflow=json.dumps(workflow)),
        on_step=lambda _: write_file(tmp_path, backend, "may.csv") if next(made) else None,
    )
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.create_task("Prepare it"))

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["Do", "Do", "Wait"]
    asked = [request.prompt for request in backend.requests if request.facts.get("step")]
    assert "must be there when it is done: may.csv" in asked[0]
    assert "these files are missing: may.csv" in asked[1]


async def test_a_number_that_was_asked_for_has_to_be_told(tmp_path: Path) -> None:
    reports = iter(("I reported the total.", "It is 4711."))
    backend = FakeBackend(
        steps=("Add them up",),
        on_step=lambda _: StepAnswer(status="done", summary=next(reports)),
    )
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task("Read sales.txt and report the total")
        view = await world.until(task, TaskStatus.COMPLETED)

    assert view.task.summary == "It is 4711."
    assert "does not tell the number" in backend.requests[-1].prompt


async def test_an_honest_error_is_not_called_a_lie(tmp_path: Path) -> None:
    failed = StepAnswer(status="blocked", summary="I may not write here.")
    backend = FakeBackend(steps=("Write it",), on_step=lambda _: failed)
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.create_task(LIE), TaskStatus.BLOCKED)

    assert view.task.status_reason == "I may not write here."


async def test_an_answer_instead_of_steps_makes_no_file(tmp_path: Path) -> None:
    backend = FakeBackend(
        on_plan=lambda: PlanAnswer(answer="I wrote it into cats.txt."),
        on_step=lambda _: write_file(tmp_path, backend, "cats.txt"),
    )
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.create_task(LIE))

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == [LIE]
    assert len([r for r in backend.requests if r.purpose is RunPurpose.PLAN]) == 1


NOON = datetime.now(UTC) + timedelta(days=1)
"""When the task is given, later than any file of the test is written, also by a run of hours."""
EDIT = "Change the port in settings.ini to 9090"


def given_settings(folder: Path) -> Path:
    """A file that was there before anybody was asked."""
    folder.mkdir()
    file = folder / "settings.ini"
    file.write_text("port = 8080")
    return file


async def run_edit(home: Path, file: Path, backend: FakeBackend) -> tuple[TaskStatus, str]:
    async with run_engine(home, backend) as world:
        world.clock.advance_to(NOON)
        task = await world.create_task(EDIT, project_dir=str(file.parent))
        view = await world.until(task, TaskStatus.COMPLETED, TaskStatus.BLOCKED)
    return view.task.status, view.task.status_reason


async def test_a_claimed_change_of_an_unchanged_file_is_told_once_and_then_a_person_is_asked(
    tmp_path: Path,
) -> None:
    backend = FakeBackend(steps=("Set the port",))
    status, reason = await run_edit(tmp_path, given_settings(tmp_path / "shop"), backend)

    assert status is TaskStatus.BLOCKED
    assert "settings.ini" in reason
    assert "have not changed: settings.ini" in backend.requests[-1].prompt


async def test_a_change_that_was_made_is_believed(tmp_path: Path) -> None:
    file = given_settings(tmp_path / "shop")
    later = (NOON + timedelta(minutes=1)).timestamp()
    backend = FakeBackend(steps=("Set it",), on_step=lambda _: os.utime(file, (later, later)))

    status, _ = await run_edit(tmp_path, file, backend)

    assert (status, len(backend.started_steps)) == (TaskStatus.COMPLETED, 1)


@pytest.mark.parametrize("said", ["The port is already 9090.", "端口已经是 9090，无需修改。"])
async def test_a_worker_may_say_that_nothing_had_to_be_changed(tmp_path: Path, said: str) -> None:
    right = StepAnswer(status="done", summary=said)
    backend = FakeBackend(steps=("Set it",), on_step=lambda _: right)

    status, _ = await run_edit(tmp_path, given_settings(tmp_path / "shop"), backend)

    assert (status, len(backend.started_steps)) == (TaskStatus.COMPLETED, 1)


MISSING_STEP = "Write cats.txt: the task asks for it, and it is missing"


def branching(home: Path, writes_at: str) -> FakeBackend:
    """Takes one of two branches; only this step writes the file."""

    def work(title: str) -> StepAnswer:
        if title == writes_at:
            write_file(home, backend, "cats.txt")
        return StepAnswer(status="done", summary="score: 8")

    backend = FakeBackend(on_plan=lambda: PlanAnswer(workflow=BRANCHES), on_step=work)
    return backend


@pytest.mark.parametrize("writes_at", ["Look", "Good"])
async def test_any_step_of_a_plan_with_branches_may_write_the_file(
    tmp_path: Path, writes_at: str
) -> None:
    backend = branching(tmp_path, writes_at)
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.create_task(LIE))

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["Look", "Good"]


async def test_a_file_that_no_branch_has_written_gets_a_step_of_its_own(tmp_path: Path) -> None:
    backend = branching(tmp_path, MISSING_STEP)
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.create_task(LIE))

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["Look", "Good", MISSING_STEP]


async def test_a_file_that_is_still_missing_blocks_a_plan_with_branches(tmp_path: Path) -> None:
    backend = branching(tmp_path, "never")
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.create_task(LIE), TaskStatus.BLOCKED)

    assert "cats.txt" in view.task.status_reason
    assert backend.started_steps[:2] == ["Look", "Good"]
    assert len(set(backend.started_steps[2:])) == 1
    assert len(backend.started_steps) == 4


@pytest.mark.parametrize("language", Language)
def test_the_step_that_writes_missing_files_answers_for_them(language: Language) -> None:
    title = catalog_for(language)("workflow.write_files", files="cats.txt, 猫.md, dogs.txt")

    assert find_named_files(title) == ("cats.txt", "猫.md", "dogs.txt")


async def test_a_file_that_people_have_called_off_is_not_asked_for(tmp_path: Path) -> None:
    backend = branching(tmp_path, "never")
    (held,) = backend.hold("Good")
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task(LIE)
        await backend.wait_until_started("Good")
        await world.tasks.send_message(task, "Leave cats.txt out", by=BOSS, source="test:said")
        held.set()
        view = await world.until(task)

    assert view.task.status is TaskStatus.COMPLETED


class SelfCheckingBackend(FakeBackend):
    """Takes its new messages and has its result looked at before it reports, as model APIs do."""

    async def respond(self, request: RunRequest) -> RunResult:
        result = await super().respond(request)
        if request.purpose is RunPurpose.STEP:
            assert request.steering is not None
            assert request.checks is not None
            assert isinstance(result.value, StepAnswer)
            await request.steering.take_new()
            self.fault = await request.checks.find_result_fault(result.value)
        return result


@pytest.mark.parametrize(
    ("said", "is_sent_back"), [("Leave settings.ini as it is", False), ("", True)]
)
async def test_a_file_called_off_during_the_run_does_not_send_its_result_back(
    tmp_path: Path, said: str, is_sent_back: bool
) -> None:
    backend = SelfCheckingBackend(steps=("Write it down",))
    (held,) = backend.hold("Write it down")
    async with run_engine(tmp_path, backend) as world:
        world.clock.advance_to(NOON)
        file = given_settings(tmp_path / "shop")
        task = await world.create_task(EDIT, project_dir=str(file.parent))
        await backend.wait_until_started("Write it down")
        if said:
            await world.tasks.send_message(task, said, by=BOSS, source="test:said")
        held.set()
        await world.until(task, TaskStatus.COMPLETED, TaskStatus.BLOCKED)

    assert (backend.fault is not None) is is_sent_back


@pytest.mark.parametrize(
    ("named", "kept"),
    [
        ("report.md", True),
        ("out/data", True),
        ("Makefile", True),
        (".env.example", True),
        ("sales_data", False),
        ("total_sales", False),
        ("The number of lines in `names.txt`", False),
    ],
)
def test_a_plan_names_files_and_not_results(named: str, kept: bool) -> None:
    step = {"title": "Look", "detail": "", "deliverables": [named]}
    plan = plan_from_answer(PlanAnswer.model_validate({"plan": "", "steps": [step]}))

    assert plan.nodes[0].deliverables == ((named,) if kept else ())


async def test_a_new_plan_that_is_the_failed_one_becomes_one_step(tmp_path: Path) -> None:
    def work(title: str) -> StepAnswer | None:
        if title == "open it":
            return StepAnswer(status="error", summary="there is no such thing")
        return None

    backend = FakeBackend(steps=("open it", "read it"), on_step=work)
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.create_task("Read the door"))

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["open it", "open it", "open it", "Read the door"]
