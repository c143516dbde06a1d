"""A loop, a foreach or a sub-workflow with `onCancel` is undone as a whole; rounds of a plan that
was replaced are undone like all others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bot.engine.llm.answer_schemas import PlanAnswer, PlanStep, StepAnswer
from bot.engine.llm.backend import BackendError
from bot.engine.workflow.definition import Workflow, WorkflowEdge
from bot.engine.workflow.nodes.foreach import ForeachConfig
from bot.engine.workflow.nodes.join import JoinConfig
from bot.engine.workflow.nodes.registry import NodeType
from bot.engine.workflow.nodes.subworkflow import SubworkflowConfig
from storage.records.tasks import NodeStatus, RerunRefused, Task, TaskStatus, TaskView
from tests.bot.engine.crash import CrashAfterCommit
from tests.bot.engine.workflow.integration.workflow_world import (
    PacedBackend,
    WorkflowWorld,
    make_graph,
    make_node,
    task_node,
    workflow_world,
)
from tests.engine_harness import BOSS, ManualClock
from tests.thoroughness import sampled

CITIES = "['Rome', 'Oslo']"


def tour(*nodes: Any, undoes: str = "no_tour", inside: Any = None, **facts: Any) -> Workflow:
    """Books a hotel in each city, and pays."""
    cities = ForeachConfig(collection=CITIES, body=("book",))
    return make_graph(
        make_node("tour", NodeType.FOREACH, cities, on_cancel=undoes),
        inside or task_node("book", "book {{item}}"),
        task_node("pay"),
        task_node("more"),
        *([task_node(undoes, "drop tour of {{len(outputs.tour.results)}}")] if undoes else ()),
        *nodes,
        "tour>pay>more",
        **facts,
    )


def booking_one_by_one() -> Any:
    return task_node("book", "book {{item}}", on_cancel="no_book")


NO_BOOK = task_node("no_book", "drop {{item}}: {{outputs.book.result}}")


def dropped(backend: PacedBackend) -> list[str]:
    return [title for title in backend.started_steps if title.startswith("drop")]


def cannot_pay() -> PacedBackend:
    backend = PacedBackend()
    backend.fails["pay"] = BackendError("no money")
    return backend


async def run(tmp_path: Path, plan: Workflow, backend: PacedBackend) -> TaskView:
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan)
        return await here.engine.until(made)


async def test_a_loop_is_undone_as_a_whole_in_place_of_its_steps(tmp_path: Path) -> None:
    backend = cannot_pay()
    view = await run(tmp_path, tour(NO_BOOK, inside=booking_one_by_one()), backend)

    assert view.task.status is TaskStatus.FAILED
    assert dropped(backend) == ["drop tour of 2"]
    assert "Undone: drop tour of 2" in view.task.status_reason
    assert "↩️ drop tour of 2" in [step.title for step in view.steps]


async def test_a_loop_that_was_cut_off_is_undone_step_by_step(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.fails["book Oslo"] = BackendError("no room")
    view = await run(tmp_path, tour(NO_BOOK, inside=booking_one_by_one()), backend)

    assert view.task.status is TaskStatus.FAILED
    assert dropped(backend) == ["drop Rome: did book Rome"]


async def test_without_others_inside_its_own_undoes_a_loop_that_was_cut_off(
    tmp_path: Path,
) -> None:
    backend = PacedBackend()
    backend.fails["book Oslo"] = BackendError("no room")
    view = await run(tmp_path, tour(), backend)

    assert dropped(backend) == ["drop tour of 1"]
    assert "Undone: drop tour of 1" in view.task.status_reason


@pytest.mark.parametrize("failing", ["first", "last"])
async def test_a_loop_without_rounds_is_not_undone(tmp_path: Path, failing: str) -> None:
    backend = PacedBackend()
    backend.fails[failing] = BackendError("no")
    no_cities = ForeachConfig(collection="[]", body=("book",))
    plan = make_graph(
        task_node("first"),
        make_node("tour", NodeType.FOREACH, no_cities, on_cancel="no"),
        task_node("book"),
        task_node("last"),
        task_node("no", "drop"),
        "first>tour>last",
    )
    await run(tmp_path, plan, backend)

    assert dropped(backend) == []


async def test_a_sub_workflow_is_undone_as_a_whole_and_in_order(tmp_path: Path) -> None:
    backend = cannot_pay()
    plan = make_graph(
        task_node("hotel", on_cancel="no_hotel"),
        make_node(
            "publish",
            NodeType.SUBWORKFLOW,
            SubworkflowConfig(
                workflow="publish", body=("write", "send"), outputs={"link": "outputs.send.result"}
            ),
            on_cancel="retract",
        ),
        task_node("write", on_cancel="no_write"),
        task_node("send"),
        task_node("flight", on_cancel="no_flight"),
        task_node("pay"),
        task_node("no_write", "drop draft"),
        task_node("no_hotel", "drop hotel"),
        task_node("no_flight", "drop flight"),
        task_node("retract", "drop {{outputs.publish.link}}"),
        "write>send",
        "hotel>publish>flight>pay",
    )
    view = await run(tmp_path, plan, backend)

    assert dropped(backend) == ["drop flight", "drop did send", "drop hotel"]
    assert view.task.status is TaskStatus.FAILED


async def test_a_join_undoes_a_loop_that_it_cuts_off_as_a_whole(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.hold("fast", "book Oslo")
    cities = ForeachConfig(collection=CITIES, body=("book",))
    plan = make_graph(
        make_node("fork", NodeType.PARALLEL),
        task_node("fast"),
        make_node("tour", NodeType.FOREACH, cities, on_cancel="no_tour"),
        task_node("book", "book {{item}}"),
        make_node("meet", NodeType.JOIN, JoinConfig(mode="any", cancel_others=True)),
        task_node("last"),
        task_node("no_tour", "drop tour of {{len(outputs.tour.results)}}"),
        "fork>fast>meet>last",
        "fork>tour>meet",
        parallel=2,
    )
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan)
        await backend.wait_until_started("book Oslo")
        backend.release("fast")
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert dropped(backend) == ["drop tour of 1"]


async def test_a_retry_runs_a_loop_again_that_was_undone(tmp_path: Path) -> None:
    backend = cannot_pay()
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(tour())
        view = await here.engine.until(made)
        before = len(backend.started_steps)
        backend.fails.clear()
        await here.engine.tasks.retry(view.task, by=BOSS, source="r:1")
        ended = await here.engine.until(made)

    assert ended.task.status is TaskStatus.COMPLETED
    assert backend.started_steps[before:] == ["book Rome", "book Oslo", "pay", "more"]


@pytest.mark.parametrize("nth", range(1, 13, sampled(1, 3)))
@pytest.mark.parametrize("is_whole", [True, False])
async def test_whenever_death_comes_a_loop_is_undone_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int, is_whole: bool
) -> None:
    clock, death = ManualClock(), CrashAfterCommit(nth)
    first, second = PacedBackend(), PacedBackend()
    stops_at = "pay" if is_whole else "book Oslo"
    first.hold(stops_at)
    second.hold(stops_at)
    plan = tour(NO_BOOK, inside=booking_one_by_one()) if is_whole else tour()

    async def stop(here: WorkflowWorld, made: Task) -> TaskView:
        await here.engine.tasks.stop(made, by=BOSS, source="s:1")
        return await here.engine.until(made)

    async with workflow_world(tmp_path, first, clock=clock) as here:
        made = await here.engine.run_workflow(plan)
        await first.wait_until_started(stops_at)
        with monkeypatch.context() as patched:
            death.install(patched)
            await death.run_until_crash(stop(here, made))
        runs = await here.runs(made)
        was_done = "@undo:tour" in runs and runs["@undo:tour"].status is NodeStatus.DONE
    async with workflow_world(tmp_path, second, clock=clock) as here:
        view = await stop(here, made)

    told = f"drop tour of {2 if is_whole else 1}"
    assert view.task.status is TaskStatus.CANCELLED
    assert f"Undone: {told}" in view.task.status_reason
    assert {*dropped(first), *dropped(second)} == {told}
    assert not (was_done and dropped(second))


# --- plans that were replaced


def numbered(backend: PacedBackend) -> None:
    refs = iter(f"ref: R{n}" for n in range(1, 9))
    backend.on_step = lambda title: (
        StepAnswer(status="done", summary=next(refs)) if title.startswith("book") else None
    )
    backend.on_plan = lambda: PlanAnswer(plan="Anew.", steps=[PlanStep(title="anew")])


async def test_rounds_of_a_loop_of_a_replaced_plan_are_undone_and_named(tmp_path: Path) -> None:
    backend = PacedBackend()
    numbered(backend)
    backend.hold("pay")
    backend.fails["anew"] = BackendError("no")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(tour(NO_BOOK, undoes="", inside=booking_one_by_one()))
        await backend.wait_until_started("pay")
        await here.engine.tasks.replan(made, "otherwise", by=BOSS, source="p:1")
        backend.release("pay")
        view = await here.engine.until(made)
        with pytest.raises(RerunRefused) as refused:
            await here.engine.tasks.retry(view.task, by=BOSS, source="r:1")

    assert view.task.status is TaskStatus.FAILED
    assert dropped(backend) == ["drop Oslo: ref: R2", "drop Rome: ref: R1"]
    assert "Undone: drop Oslo: ref: R2, drop Rome: ref: R1" in view.task.status_reason
    assert refused.value.key == "undone_in_old_plan"
    assert [s.title for s in view.steps if s.title.startswith("↩️")] == [
        "↩️ drop Oslo: ref: R2",
        "↩️ drop Rome: ref: R1",
    ]


async def test_rounds_through_edges_of_a_replaced_plan_are_undone_with_their_own_output(
    tmp_path: Path,
) -> None:
    backend = PacedBackend()
    numbered(backend)
    backend.hold("pay")
    backend.fails["anew"] = BackendError("no")
    plan = make_graph(
        task_node("book", on_cancel="no_book"),
        task_node("check"),
        task_node("pay"),
        task_node("no_book", "drop {{outputs.book.result}}"),
        task_node("more"),
        "book>check>pay>more",
        WorkflowEdge(source="check", target="book", condition="loopCount < 2", max_loops=2),
    )
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan)
        await backend.wait_until_started("pay")
        await here.engine.tasks.replan(made, "otherwise", by=BOSS, source="p:1")
        backend.release("pay")
        await here.engine.until(made)

    assert dropped(backend) == ["drop ref: R3", "drop ref: R2", "drop ref: R1"]


async def test_a_loop_of_a_replaced_plan_is_undone_as_a_whole(tmp_path: Path) -> None:
    backend = PacedBackend()
    numbered(backend)
    backend.hold("pay")
    backend.fails["anew"] = BackendError("no")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(tour(NO_BOOK, inside=booking_one_by_one()))
        await backend.wait_until_started("pay")
        await here.engine.tasks.replan(made, "otherwise", by=BOSS, source="p:1")
        await here.engine.tasks.replan(made, "once more", by=BOSS, source="p:2")
        backend.release("pay")
        await here.engine.until(made)

    assert dropped(backend) == ["drop tour of 2"]
