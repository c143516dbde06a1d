"""A step with a declared output: its values decide, with their types, and a worker that does not
give them has not done its step."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from bot.engine.llm.answer_schemas import StepAnswer
from bot.engine.llm.backend import InvalidAnswer, RunPurpose, RunRequest
from bot.engine.workflow.output_schema import TypedStepAnswer
from bot.engine.workflow.serialization.reader import read_workflow
from cards.catalog import catalog_for
from cards.views.task_parts import outline_block
from cards.views.tasks import task_detail_card
from storage.records.people import Language
from storage.records.tasks import TaskStatus
from tests.bot.engine.workflow.builders import graph_text
from tests.engine_harness import FakeBackend, run_engine

REVIEW = graph_text(
    {"id": "review", "name": "review it", "output": {"approved": "bool", "score": "int"}},
    {"id": "send", "name": "send {{outputs.review.score + 1}}"},
    {"id": "fix", "name": "fix it"},
    edges=[
        {"from": "a", "to": "review"},
        {"from": "review", "to": "send", "condition": "outputs.review.approved"},
        {"from": "review", "to": "fix"},
    ],
)


def done(**output: Any) -> Any:
    """A form filled in as the request asks for it."""

    def fill(request: RunRequest) -> StepAnswer:
        assert request.result is not None
        given = {"status": "done", "summary": "Seen. approved: true", "output": output}
        filled = request.result.model_validate(given)
        assert isinstance(filled, StepAnswer)
        return filled

    return fill


class ReviewBackend(FakeBackend):
    """Gives the review as `review` fills it in; all else is done."""

    def __init__(self, review: Any) -> None:
        super().__init__()

        def answer(title: str) -> StepAnswer:
            if title != "review it":
                return StepAnswer(status="done", summary="ok")
            given = review(self.requests[-1])
            assert isinstance(given, StepAnswer)
            return given

        self.on_step = answer

    @property
    def reviews(self) -> list[RunRequest]:
        steps = [each for each in self.requests if each.purpose is RunPurpose.STEP]
        return [each for each in steps if "Your step now: review it" in each.prompt]


async def test_values_decide_with_their_types_whatever_the_text_says(tmp_path: Path) -> None:
    backend = ReviewBackend(done(approved=False, score="8"))
    async with run_engine(tmp_path, backend) as world:
        task = await world.run_workflow(read_workflow(REVIEW))
        view = await world.until(task)
        runs = await world.store.graphs.list_runs(task.id)

    assert view.task.status is TaskStatus.COMPLETED
    assert runs["review"].output["@values"] == {"approved": False, "score": 8}
    assert runs["fix"].ended_at is not None
    assert runs["fix"].output["summary"] == "ok"
    assert runs["send"].status.value == "skipped"
    assert {each.result.__name__ for each in backend.reviews if each.result} == {"StepAnswer"}
    assert all(issubclass(each.result or int, TypedStepAnswer) for each in backend.reviews)


async def test_values_reach_templates_with_their_types(tmp_path: Path) -> None:
    backend = ReviewBackend(done(approved=True, score=8))
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.run_workflow(read_workflow(REVIEW)))

    assert "send 9" in [step.title for step in view.steps]


async def test_the_card_shows_them_bounded_and_escaped(tmp_path: Path) -> None:
    hostile = "[x](http://evil) **b** <at id=all></at>\n" + "y" * 500
    backend = ReviewBackend(done(approved=False, score=8, why=hostile))
    workflow = read_workflow(REVIEW.replace('"score": "int"', '"score": "int", "why": "text"'))
    async with run_engine(tmp_path, backend) as world:
        view = await world.until(await world.run_workflow(workflow))
    words = catalog_for(Language.ENGLISH)
    now, zone = datetime(2026, 1, 1, tzinfo=UTC), ZoneInfo("UTC")
    live = outline_block(view, words, now=now)
    detail = task_detail_card(view, words, now=now, zone=zone)

    (shown,) = [each.detail for each in live.items if each.label.startswith("review it")]
    assert shown.startswith("approved: false · score: 8 · why: [x](http://evil)")
    assert len(shown) <= 100
    assert "`approved`: false · `score`: 8 · `why`: &#91;x" in str(detail)
    assert "y" * 61 not in str(detail)


async def test_a_worker_that_never_gives_it_is_asked_so_often_and_the_fault_is_named(
    tmp_path: Path,
) -> None:
    def refuse(_request: RunRequest) -> StepAnswer:
        faults = "output: missing or wrong: approved (boolean)"
        raise InvalidAnswer("still invalid", faults=faults)

    backend = ReviewBackend(refuse)
    async with run_engine(tmp_path, backend) as world:
        task = await world.run_workflow(read_workflow(REVIEW))
        view = await world.until(task, TaskStatus.FAILED, TaskStatus.BLOCKED)

    assert view.task.status_reason.count("approved (boolean)") == 1
    assert len(backend.reviews) == 3
    assert "approved (boolean)" in backend.reviews[1].prompt
