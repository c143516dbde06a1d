"""Steps put into a workflow while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.engine.llm.answer_schemas import StepAnswer
from bot.engine.llm.backend import RunPurpose
from bot.engine.workflow.definition import Workflow, WorkflowEdge, WorkflowNode, load_workflow
from bot.engine.workflow.field_reader import InvalidGraph
from bot.engine.workflow.nodes.delay import DelayConfig
from bot.engine.workflow.nodes.registry import NodeType
from bot.engine.workflow.plan import linear_workflow
from storage.records.tasks import EventKind, TaskStatus
from tests.bot.engine.workflow.integration.workflow_world import (
    PacedBackend,
    for_each,
    make_graph,
    make_node,
    task_node,
    two_branches,
    workflow_world,
)
from tests.engine_harness import BOSS, CHAT, FakeBackend, run_engine


async def test_a_step_comes_behind_the_one_that_runs(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.hold("b1")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(two_branches(parallel=1))
        await here.wait_for_run(made, "a2", "done")
        await backend.wait_until_started("b1")
        await here.engine.tasks.inject(made, ["new"], by=BOSS, source="i:1")
        backend.release("b1")
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["a1", "a2", "b1", "new", "b2", "last"]


async def test_a_step_comes_behind_what_was_done_last_where_nothing_runs(tmp_path: Path) -> None:
    backend = PacedBackend()
    plan = make_graph(
        task_node("a"),
        make_node("rest", NodeType.DELAY, DelayConfig(seconds=3600)),
        task_node("b"),
        "a>rest>b",
    )
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan)
        await here.engine.until(made, TaskStatus.WAITING)
        await here.engine.tasks.inject(made, ["new"], by=BOSS, source="i:1")
        await here.advance_clock(hours=2)
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert sorted(backend.started_steps) == ["a", "b", "new"]
    assert backend.started_steps[0] == "a"


async def test_conditions_speak_of_the_new_step(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.hold("check")
    backend.answers["check again"] = StepAnswer(status="done", summary="good: true")
    backend.answers["check"] = StepAnswer(status="done", summary="good: false")
    plan = make_graph(
        task_node("check"),
        task_node("publish"),
        task_node("mend"),
        "check>publish ? outputs.check.good",
        "check>mend",
    )
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan)
        await backend.wait_until_started("check")
        await here.engine.tasks.inject(made, ["check again"], by=BOSS, source="i:1")
        backend.release("check")
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["check", "check again", "publish"]


async def test_a_step_put_into_a_body_is_done_for_every_item(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.hold("read b")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(for_each("abc", task_node("read", "read {{item}}")))
        await backend.wait_until_started("read b")
        await here.engine.tasks.inject(made, ["note {{item}}"], by=BOSS, source="i:1")
        backend.release("read b")
        view = await here.engine.until(made)
        graph_now = await here.engine.store.graphs.find_latest(made.id)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == [
        "read a",
        "read b",
        # The item that was through already, too.
        "note a",
        "note b",
        "read c",
        "note c",
        "last",
    ]
    assert graph_now is not None
    assert load_workflow(graph_now.body).nodes_by_id["each"].body == ("read", "s1")


async def test_a_step_put_into_a_body_does_not_take_the_place_of_its_results(
    tmp_path: Path,
) -> None:
    backend = PacedBackend()
    for each in "ab":
        backend.answers[f"read {each}"] = StepAnswer(status="done", summary=f"page {each}")
    backend.hold("read a")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(for_each("ab", task_node("read", "read {{item}}")))
        await backend.wait_until_started("read a")
        await here.engine.tasks.inject(made, ["check", "check more"], by=BOSS, source="i:1")
        assert await here.engine.tasks.repeats_in_loop(made, ["check more"])
        assert not await here.engine.tasks.repeats_in_loop(made, ["read {{item}}"])
        backend.release("read a")
        await here.engine.until(made)
        results = (await here.runs(made))["each"].output["results"]

    assert backend.started_steps.count("check more") == 2
    assert [each["summary"] for each in results] == ["page a", "page b"]


async def test_a_step_put_in_behind_finished_rounds_is_done_once(tmp_path: Path) -> None:
    backend = PacedBackend()
    plan = make_graph(
        *(
            part
            for part in for_each("ab", task_node("read", "read {{item}}")).nodes
            if part.id != "last"
        ),
        make_node("rest", NodeType.DELAY, DelayConfig(seconds=3600)),
        task_node("last"),
        "each>rest>last",
        variables={"items": ["a", "b"]},
    )
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan)
        await here.engine.until(made, TaskStatus.WAITING)
        await here.engine.tasks.inject(made, ["new"], by=BOSS, source="i:1")
        await here.advance_clock(hours=2)
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert sorted(backend.started_steps) == ["last", "new", "read a", "read b"]


TWO_STEPS = linear_workflow(
    "As written.", [WorkflowNode(id="a", title="read"), WorkflowNode(id="b", title="write")]
)


async def test_a_task_with_a_plan_is_done_without_planning(tmp_path: Path) -> None:
    backend = FakeBackend()
    async with run_engine(tmp_path, backend) as world:
        task = await world.run_workflow(TWO_STEPS)
        view = await world.until(task)
        graph = await world.store.graphs.find_latest(task.id)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["read", "write"]
    assert all(request.purpose is RunPurpose.STEP for request in backend.requests)
    assert graph is not None
    assert (graph.version, graph.reason, graph.author) == (1, "workflow", BOSS.id)


async def test_the_same_source_makes_the_same_task_with_the_same_plan(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        first = await world.run_workflow(TWO_STEPS, source="m:1")
        other = linear_workflow("Other.", [WorkflowNode(id="x", title="other")])
        again = await world.run_workflow(other, source="m:1")
        view = await world.views.view(first.id)
        kinds = [event.kind for event in await world.tasks.events(first.id, 9)]

    assert again == first
    assert [step.title for step in view.steps] == ["read", "write"]
    assert kinds == [EventKind.CREATED, EventKind.PLANNED]


async def test_a_broken_plan_makes_no_task(tmp_path: Path) -> None:
    broken = Workflow(
        plan="", nodes=TWO_STEPS.nodes, edges=(WorkflowEdge(source="a", target="nowhere"),)
    )
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        with pytest.raises(InvalidGraph):
            await world.run_workflow(broken)
        page = await world.tasks.page(by=BOSS, chat=CHAT.id, status=None, page=1, size=5)

    assert page.total == 0
