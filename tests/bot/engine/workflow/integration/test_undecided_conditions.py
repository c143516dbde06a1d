"""A condition that a worker's answer leaves open is asked about: it takes no edge, uses up no loop
and survives the end of the process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from bot.engine.llm.answer_schemas import StepAnswer
from bot.engine.workflow.definition import Workflow, WorkflowEdge
from bot.engine.workflow.nodes.contract import OnLimit
from bot.engine.workflow.nodes.loop import LoopConfig
from bot.engine.workflow.nodes.registry import NodeType
from bot.engine.workflow.nodes.switch import SwitchCase, SwitchConfig
from cards.catalog import catalog_for
from cards.model import ButtonsBlock
from cards.views.approvals import approval_card
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.people import Language
from storage.records.tasks import NodeStatus, TaskStatus, TaskView
from tests.bot.engine.crash import CrashAfterCommit
from tests.bot.engine.workflow.integration.workflow_world import (
    PacedBackend,
    WorkflowWorld,
    for_each,
    make_graph,
    make_node,
    task_node,
    workflow_world,
)
from tests.engine_harness import ManualClock
from tests.waiting import WAIT_SECONDS

VAGUE = "Good structure, weak ending. <at id=all></at> I am torn."
TITLE = "The result of “review” doesn't say clearly: is `outputs.review.approved` true?"


def done(summary: str) -> StepAnswer:
    return StepAnswer(status="done", summary=summary)


def buttons(asked: Approval) -> list[str]:
    card = approval_card(asked, catalog_for(Language.ENGLISH), zone=ZoneInfo("UTC"))
    rows = (block.items for block in card.blocks if isinstance(block, ButtonsBlock))
    return [each.label for row in rows for each in row]


def review_loop(condition: str = "outputs.review.approved", other: str = "") -> Workflow:
    """A draft that goes back once at most."""
    return make_graph(
        *map(task_node, ("draft", "review", "fix", "send")),
        "draft>review",
        f"review>send ? {condition}",
        f"review>fix ? {other}" if other else "review>fix",
        WorkflowEdge(source="fix", target="review", max_loops=1, on_limit=OnLimit.FAIL),
    )


@pytest.fixture
def backend() -> PacedBackend:
    made = PacedBackend()
    made.answers["review"] = done(VAGUE)
    return made


@pytest.mark.parametrize(
    ("condition", "other"),
    [
        ("outputs.review.approved", ""),
        ("outputs.review.approved == true", "outputs.review.approved == false"),
        ("!(outputs.review.approved == false)", ""),
    ],
)
async def test_a_yes_takes_the_edge_and_one_question_is_enough(
    tmp_path: Path, backend: PacedBackend, condition: str, other: str
) -> None:
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(review_loop(condition, other))
        await here.engine.until(made, TaskStatus.WAITING)
        (asked,) = await here.open_requests(made, 1)
        await here.decide(asked)
        view = await here.engine.until(made)
        all_asked = await here.approvals.list_by_task(made.id)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["draft", "review", "send"]
    assert [each.kind for each in all_asked] == [ApprovalKind.CONDITION]


async def test_a_no_goes_back_and_the_question_has_cost_no_round(
    tmp_path: Path, backend: PacedBackend
) -> None:
    """The one round that is left is there for the fix, and the next review is asked about anew."""
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(review_loop())
        first = await here.wait_for_request(made, TITLE)
        assert not [path for path in await here.runs(made) if "@back" in path]
        await here.engine.until(made, TaskStatus.WAITING)
        await here.decide(first, approve=False, reason="too short")
        second = await here.wait_for_request(made, TITLE)
        await here.engine.until(made, TaskStatus.WAITING)
        await here.decide(second)
        view = await here.engine.until(made)

    assert first.id != second.id
    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["draft", "review", "fix", "review", "send"]


async def test_the_card_says_what_is_open_and_shows_the_answer_escaped(
    tmp_path: Path, backend: PacedBackend
) -> None:
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(review_loop())
        asked = await here.wait_for_request(made, TITLE)
        view = await here.engine.until(made, TaskStatus.WAITING)
    card = str(approval_card(asked, catalog_for(Language.ENGLISH), zone=ZoneInfo("UTC")))

    assert asked.approvers
    assert TITLE in card
    assert "I am torn" in card
    assert "<at id=all>" not in card
    assert view.task.status_reason == TITLE
    assert [step.path for step in view.outline if step.awaits_person] == ["review"]


@pytest.mark.parametrize("approve", [True, False])
async def test_an_answer_given_between_two_lives_counts(
    tmp_path: Path, backend: PacedBackend, approve: bool
) -> None:
    clock = ManualClock()
    async with workflow_world(tmp_path, backend, clock=clock) as here:
        made = await here.engine.run_workflow(review_loop())
        await here.wait_for_request(made, TITLE)
        await here.engine.until(made, TaskStatus.WAITING)
    backend.answers["review"] = done("approved: true")
    async with workflow_world(tmp_path, backend, clock=clock) as here:
        await here.decide(await here.wait_for_request(made, TITLE), approve=approve)
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    between = [] if approve else ["fix", "review"]
    assert backend.started_steps == ["draft", "review", *between, "send"]


async def live_to_the_end(here: WorkflowWorld) -> TaskView:
    """Ask for the task, say no to the first question and yes to the others."""
    made = await here.engine.run_workflow(review_loop(), source="test:once")
    while True:
        view = await here.engine.views.view(made.id)
        if view.task.status.is_final:
            return view
        asked = await here.approvals.list_by_task(made.id)
        for each in asked:
            if each.state is ApprovalState.WAITING:
                await here.decide(each, approve="#2" in each.path)
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("nth", range(1, 24, 2))
async def test_whenever_death_comes_each_question_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    clock, death = ManualClock(), CrashAfterCommit(nth)
    first, second = PacedBackend(), PacedBackend()
    first.answers["review"] = second.answers["review"] = done(VAGUE)
    async with workflow_world(tmp_path, first, clock=clock) as here:
        with monkeypatch.context() as patched:
            death.install(patched)
            await death.run_until_crash(live_to_the_end(here))
    async with workflow_world(tmp_path, second, clock=clock) as here:
        async with asyncio.timeout(WAIT_SECONDS):
            view = await live_to_the_end(here)
        asked = await here.approvals.list_by_task(view.task.id)

    assert view.task.status is TaskStatus.COMPLETED
    assert {*first.started_steps, *second.started_steps} == {"draft", "review", "fix", "send"}
    states = sorted((each.path.rpartition(":")[2], each.state) for each in asked)
    assert states == [("review", ApprovalState.REJECTED), ("review#2", ApprovalState.APPROVED)]


async def test_a_loop_asks_after_each_round_that_leaves_it_open(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.answers["polish"] = done(VAGUE)
    config = LoopConfig(
        mode="until", condition="outputs.polish.ok", body=("polish",), max_iterations=2
    )
    plan = make_graph(
        make_node("again", NodeType.LOOP, config),
        task_node("polish"),
        task_node("last"),
        "again>last",
    )
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan)
        for approve in (False, True):
            await here.engine.until(made, TaskStatus.WAITING)
            (asked,) = await here.open_requests(made, 1)
            assert "again" in asked.title
            assert "I am torn" in asked.detail
            await here.decide(asked, approve=approve)
            if not approve:
                await here.wait_for_run(made, "again[1]/polish", "done")
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["polish", "polish", "last"]


async def test_rounds_beside_each_other_are_asked_about_at_once(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.answers["look"] = done(VAGUE)
    plan = for_each(
        ["a", "b"],
        task_node("look"),
        task_node("yes"),
        task_node("no"),
        "look>yes ? outputs.look.fine",
        "look>no",
        mode="parallel",
        parallel=2,
    )
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan)
        one, two = sorted(await here.open_requests(made, 2), key=lambda each: each.path)
        await here.decide(two, approve=False)
        await here.decide(one)
        view = await here.engine.until(made)
        runs = await here.runs(made)

    assert view.task.status is TaskStatus.COMPLETED
    ran = {path for path, run in runs.items() if run.status is NodeStatus.DONE}
    assert {"each[0]/yes", "each[1]/no"} <= ran
    assert not {"each[1]/yes", "each[0]/no"} & ran


@pytest.mark.parametrize(("chosen", "behind"), [("big", "print"), ("3", "mail"), ("", "file")])
async def test_about_a_switch_that_cannot_be_decided_one_case_is_chosen(
    tmp_path: Path, backend: PacedBackend, chosen: str, behind: str
) -> None:
    """Its default is taken only if somebody says that it is none of them."""
    cases = (SwitchCase(value="big", target="print"), SwitchCase(value=3, target="mail"))
    config = SwitchConfig(expression="outputs.review.size", cases=cases, default="file")
    workflow = make_graph(
        *map(task_node, ("review", "print", "mail", "file")),
        make_node("which", NodeType.SWITCH, config),
        "review>which",
        *(f"which>{each}" for each in ("print", "mail", "file")),
    )
    title = "The result of “review” doesn't say clearly: what is `outputs.review.size`?"
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(workflow)
        asked = await here.wait_for_request(made, title)
        assert "I am torn" in asked.detail
        assert buttons(asked) == ["big", "3", "None of these", "📋 Details"]
        await here.engine.until(made, TaskStatus.WAITING)
        await here.decide(
            asked, approve=bool(chosen), values={"choice": chosen} if chosen else None
        )
        view = await here.engine.until(made)
        all_asked = await here.approvals.list_by_task(made.id)

    assert view.task.status is TaskStatus.COMPLETED
    assert len(all_asked) == 1
    assert backend.started_steps == ["review", behind]
