"""A step that names files is done only when they are there, whatever its worker says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bot.engine.llm.answers import PlanAnswer, PlanStep, StepAnswer
from bot.engine.llm.base import Purpose, RunRequest
from bot.engine.workflow.forms.answers import steps_of
from bot.engine.workflow.graph import dump_workflow, load_workflow
from storage.records.tasks import TaskStatus
from tests.engine_world import FakeBackend, engine

DONE = StepAnswer(status="done", summary="It is written.")


def plan(*deliverables: str) -> PlanAnswer:
    steps = [PlanStep(title="write the report", deliverables=list(deliverables))]
    return PlanAnswer(plan="As asked.", steps=steps)


class Writer(FakeBackend):
    """Says at every try that it is done, and has written from its try number `at` on."""

    def __init__(self, at: int, path: str = "out/report.md", answer: StepAnswer = DONE) -> None:
        super().__init__(on_plan=lambda: plan("out/report.md"))
        self._at = at
        self._path = path
        self.on_step = lambda _title: self._wrote(answer)

    @property
    def tries(self) -> list[RunRequest]:
        return [each for each in self.asked if each.purpose is Purpose.STEP]

    def _wrote(self, answer: StepAnswer) -> Any:
        workspace = self.tries[-1].workspace
        assert workspace is not None
        if len(self.tries) >= self._at:
            target = workspace / self._path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("All is well.")
        return answer


async def status_with(home: Path, backend: FakeBackend) -> tuple[TaskStatus, str]:
    async with engine(home, backend) as world:
        view = await world.until(
            await world.add("Write a report"),
            TaskStatus.COMPLETED,
            TaskStatus.BLOCKED,
            TaskStatus.FAILED,
        )
    return view.task.status, view.task.status_reason


async def test_its_worker_is_told_of_them_and_done_with_them_is_done(tmp_path: Path) -> None:
    backend = Writer(at=1)

    assert (await status_with(tmp_path, backend))[0] is TaskStatus.COMPLETED

    (only,) = backend.tries
    assert "out/report.md" in only.prompt
    (kept,) = (tmp_path / "files" / "tasks").glob("*/out/report.md")
    assert kept.read_text() == "All is well."


async def test_done_without_them_is_a_failed_try_and_the_next_is_told_what_is_missing(
    tmp_path: Path,
) -> None:
    backend = Writer(at=2)

    assert (await status_with(tmp_path, backend))[0] is TaskStatus.COMPLETED

    _, second = backend.tries
    assert "not there: out/report.md" in second.prompt


async def test_one_that_never_makes_them_is_never_done(tmp_path: Path) -> None:
    status, why = await status_with(tmp_path, Writer(at=1, path="somewhere-else.md"))

    assert status in {TaskStatus.BLOCKED, TaskStatus.FAILED}
    assert "out/report.md" in why


async def test_an_answer_that_says_error_is_not_asked_for_them(tmp_path: Path) -> None:
    answer = StepAnswer(status="blocked", summary="I need the numbers.")

    status, why = await status_with(tmp_path, Writer(at=9, answer=answer))

    assert (status, why) == (TaskStatus.BLOCKED, "I need the numbers.")


def test_only_what_can_be_a_file_of_the_workspace_is_looked_for() -> None:
    names = ("a.md", "a.md", "docs/b c.md", "/etc/x", "~/x", "../x", "out/", "*.md", "{name}.md")

    made = steps_of(plan(*names, "https://a.example/x"))

    assert made is not None
    assert made.nodes[0].deliverables == ("a.md", "docs/b c.md")


@pytest.mark.parametrize("names", [(), ("a.md",)])
def test_they_are_kept_with_the_plan_and_older_plans_have_none(names: tuple[str, ...]) -> None:
    made = steps_of(plan(*names))
    assert made is not None
    body = dump_workflow(made)

    assert load_workflow(body) == made
    for node in body["nodes"]:
        del node["deliverables"]
    assert load_workflow(body).nodes[0].deliverables == ()
