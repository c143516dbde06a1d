"""Steps put into a workflow while it runs."""

from __future__ import annotations

from pathlib import Path

from bot.engine.llm.answers import StepAnswer
from bot.engine.workflow.graph import load_workflow
from bot.engine.workflow.model.nodes import Delay, NodeType
from storage.records.tasks import TaskStatus
from tests.bot.engine.workflow.flows.world import (
    Paced,
    flows,
    for_each,
    graph,
    node,
    task,
    two_branches,
)
from tests.engine_world import BOSS


async def test_a_step_comes_behind_the_one_that_runs(tmp_path: Path) -> None:
    backend = Paced()
    backend.hold("b1")
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(two_branches(parallel=1))
        await here.until_run(made, "a2", "done")
        await backend.begun("b1")
        await here.world.foreman.inject(made, ["new"], by=BOSS, source="i:1")
        backend.let_go("b1")
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.done == ["a1", "a2", "b1", "new", "b2", "last"]


async def test_a_step_comes_behind_what_was_done_last_where_nothing_runs(tmp_path: Path) -> None:
    backend = Paced()
    plan = graph(
        task("a"), node("rest", NodeType.DELAY, Delay(seconds=3600)), task("b"), "a>rest>b"
    )
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(plan)
        await here.world.until(made, TaskStatus.WAITING)
        await here.world.foreman.inject(made, ["new"], by=BOSS, source="i:1")
        await here.later(hours=2)
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert sorted(backend.done) == ["a", "b", "new"]
    assert backend.done[0] == "a"


async def test_conditions_speak_of_the_new_step(tmp_path: Path) -> None:
    backend = Paced()
    backend.hold("check")
    backend.answers["check again"] = StepAnswer(status="done", summary="good: true")
    backend.ends["check"] = StepAnswer(status="done", summary="good: false")
    plan = graph(
        task("check"),
        task("publish"),
        task("mend"),
        "check>publish ? outputs.check.good",
        "check>mend",
    )
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(plan)
        await backend.begun("check")
        await here.world.foreman.inject(made, ["check again"], by=BOSS, source="i:1")
        backend.let_go("check")
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.done == ["check", "check again", "publish"]


async def test_a_step_put_into_a_body_is_done_for_every_item(tmp_path: Path) -> None:
    backend = Paced()
    backend.hold("read b")
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(for_each("abc", task("read", "read {{item}}")))
        await backend.begun("read b")
        await here.world.foreman.inject(made, ["note {{item}}"], by=BOSS, source="i:1")
        backend.let_go("read b")
        view = await here.world.until(made)
        graph_now = await here.world.store.graphs.latest(made.id)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.done == [
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
    assert load_workflow(graph_now.body).by_id["each"].body == ("read", "s1")


async def test_a_step_put_into_a_body_does_not_take_the_place_of_its_results(
    tmp_path: Path,
) -> None:
    backend = Paced()
    for each in "ab":
        backend.ends[f"read {each}"] = StepAnswer(status="done", summary=f"page {each}")
    backend.hold("read a")
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(for_each("ab", task("read", "read {{item}}")))
        await backend.begun("read a")
        await here.world.foreman.inject(made, ["check", "check more"], by=BOSS, source="i:1")
        assert await here.world.foreman.is_in_rounds(made, ["check more"])
        assert not await here.world.foreman.is_in_rounds(made, ["read {{item}}"])
        backend.let_go("read a")
        await here.world.until(made)
        results = (await here.runs(made))["each"].output["results"]

    assert backend.done.count("check more") == 2
    assert [each["summary"] for each in results] == ["page a", "page b"]


async def test_a_step_put_in_behind_finished_rounds_is_done_once(tmp_path: Path) -> None:
    backend = Paced()
    plan = graph(
        *(
            part
            for part in for_each("ab", task("read", "read {{item}}")).nodes
            if part.id != "last"
        ),
        node("rest", NodeType.DELAY, Delay(seconds=3600)),
        task("last"),
        "each>rest>last",
        variables={"items": ["a", "b"]},
    )
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(plan)
        await here.world.until(made, TaskStatus.WAITING)
        await here.world.foreman.inject(made, ["new"], by=BOSS, source="i:1")
        await here.later(hours=2)
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert sorted(backend.done) == ["last", "new", "read a", "read b"]
