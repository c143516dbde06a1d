"""Retry after a dead end, and a run from a node on, against a real store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.engine.llm.answer_schemas import StepAnswer
from bot.engine.workflow.definition import Workflow, WorkflowEdge
from bot.engine.workflow.input_fields import InputDefinition
from bot.engine.workflow.nodes.registry import NodeType
from storage.errors import NotAllowed, NotFound
from storage.records.people import PersonId, PersonRole
from storage.records.tasks import (
    NO_CHANGES,
    NodeStatus,
    RerunChanges,
    RerunRefused,
    Task,
    TaskStatus,
    TaskView,
)
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
from tests.engine_harness import BOSS, ManualClock
from tests.thoroughness import sampled


def _said(summary: str) -> StepAnswer:
    return StepAnswer(status="done", summary=summary)


def _review(limit: int, **settings: Any) -> Workflow:
    """`write`, then `review` and `fix` at most so often, until it is good; then `send`."""
    back = WorkflowEdge(source="fix", target="review", max_loops=limit)
    return make_graph(
        *(task_node(name) for name in ("write", "review", "fix")),
        task_node("send", repeatable=False),
        make_node("over", NodeType.END),
        "write>review",
        "review>send ? outputs.review.good",
        "review>fix ? !outputs.review.good",
        "send>over",
        back,
        **settings,
    )


async def test_a_dead_end_is_tried_again_with_its_rounds_afresh(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.answers["review"] = _said("good: false")
    async with workflow_world(tmp_path, backend) as here:
        tasks = here.engine.tasks
        made = await here.engine.run_workflow(_review(1))
        failed = await here.engine.until(made)
        before = await here.runs(made)
        assert failed.task.status is TaskStatus.FAILED
        assert backend.started_steps == ["write", "review", "fix", "review", "fix"]

        for _ in range(2):
            await tasks.retry(made, by=BOSS, source="r:1")
        await here.engine.until(made, TaskStatus.FAILED)
        backend.answers["review"] = _said("good: true")
        await tasks.retry(made, by=BOSS, source="r:2")
        view = await here.engine.until(made, TaskStatus.COMPLETED)
        after = await here.runs(made)
        spent, counts_from = view.spent, await here.engine.store.tasks.get_budget_start(made.id)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps[5:] == ["fix", "review", "fix", "fix", "review", "send"]
    assert after["write"] == before["write"]
    assert after["review"] == before["review"]
    assert spent.calls == len(backend.started_steps)
    assert counts_from is not None


async def test_a_run_from_a_node_keeps_the_rest_and_asks_again(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.answers["review"] = _said("good: true")
    plan = _review(
        2, inputs=(InputDefinition(name="topic"), InputDefinition(name="day", kind="date"))
    )
    async with workflow_world(tmp_path, backend) as here:
        tasks = here.engine.tasks
        made = await here.engine.run_workflow(plan)
        done = (await here.engine.until(made)).task
        before = await here.runs(made)
        other = replace(BOSS, id=PersonId("other"), role=PersonRole.MEMBER)
        with pytest.raises((NotAllowed, NotFound)):
            await tasks.rerun(done, "review", NO_CHANGES, by=other, source="x")
        for wanted, changes, why in (
            ("nothing", NO_CHANGES, "unknown_node"),
            ("fix", NO_CHANGES, "not_reached"),
            ("review", RerunChanges(inputs={"size": "1"}), "unknown_input"),
            ("review", RerunChanges(inputs={"day": "soon"}), "bad_value"),
            ("review", RerunChanges(outputs={"fix": {"good": "1"}}), "no_output"),
        ):
            with pytest.raises(RerunRefused) as refused:
                await tasks.rerun(done, wanted, changes, by=BOSS, source=f"no:{why}")
            assert refused.value.key == why
        assert await here.reload(done) == done

        inputs = {"topic": "cats", "day": "2026-11-27"}
        changes = RerunChanges(inputs=inputs, outputs={"write": {"result": "mine"}})
        for _ in range(2):
            await tasks.rerun(done, "review", changes, by=BOSS, source="r:1")
        request = await here.wait_for_request(done, "send")
        again = await here.runs(made)
        graph = await tasks.get_graph(done)
        discarded = await here.engine.store.graphs.list_discarded(done.id, 1)
        await here.decide(request)
        view = await here.engine.until(made, TaskStatus.COMPLETED)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["write", "review", "send", "review", "send"]
    assert again["write"].output["summary"] == "mine"
    assert again["write"].ended_at == before["write"].ended_at
    assert again["review"].attempt == 2
    assert graph is not None
    assert (graph.version, graph.reason, graph.author) == (2, "rerun", BOSS.id)
    assert graph.body["values"] == inputs
    assert {run.path: run for run in discarded} == {
        path: run for path, run in before.items() if path != "write"
    }


async def test_a_node_with_a_changed_output_is_not_done_again(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.answers["review"] = _said("good: true")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(_review(1))
        done = (await here.engine.until(made)).task
        backend.hold("fix")
        changes = RerunChanges(outputs={"review": {"good": "false"}})
        await here.engine.tasks.rerun(done, "review", changes, by=BOSS, source="r:1")
        await backend.wait_until_started("fix")
        running = await here.reload(done)
        with pytest.raises(RerunRefused) as refused:
            await here.engine.tasks.rerun(running, "write", NO_CHANGES, by=BOSS, source="r:2")
        assert refused.value.key == "running"
        backend.release("fix")
        await here.engine.until(made, TaskStatus.WAITING)

    assert backend.started_steps == ["write", "review", "send", "fix", "review"]


async def test_a_round_of_a_body_runs_again_with_those_behind_it(tmp_path: Path) -> None:
    backend = PacedBackend()
    plan = for_each(["a", "b", "c"], task_node("read", "read {{item}}"))
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan)
        done = (await here.engine.until(made)).task
        before = await here.runs(made)
        await here.engine.tasks.rerun(done, "each[1]/read", NO_CHANGES, by=BOSS, source="r:1")
        await here.engine.until(made, TaskStatus.COMPLETED)
        after = await here.runs(made)

    first = ["read a", "read b", "read c", "last"]
    assert backend.started_steps == [*first, "read b", "read c", "last"]
    assert after["each[0]/read"] == before["each[0]/read"]
    assert after["each"].status is NodeStatus.DONE
    assert after["each"].output == before["each"].output


@pytest.mark.parametrize("nth", range(1, 12, sampled(1, 3)))
async def test_a_rerun_goes_on_from_its_node_whenever_death_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    clock, death = ManualClock(), CrashAfterCommit(nth)
    first, second = PacedBackend(), PacedBackend()

    async def rerun(here: WorkflowWorld, made: Task) -> TaskView:
        await here.engine.tasks.rerun(made, "b", NO_CHANGES, by=BOSS, source="again")
        return await here.engine.until(made, TaskStatus.COMPLETED)

    async with workflow_world(tmp_path, first, clock=clock) as here:
        made = await here.engine.run_workflow(make_graph(*map(task_node, "abc"), "a>b>c"))
        await here.engine.until(made)
        with monkeypatch.context() as patched:
            death.install(patched)
            await death.run_until_crash(rerun(here, made))
    async with workflow_world(tmp_path, second, clock=clock) as here:
        # The message is handled again.
        view = await rerun(here, made)
        discarded = await here.engine.store.graphs.list_discarded(made.id, 1)

    steps = [*first.started_steps, *second.started_steps]
    # Only a step that was cut off begins once more.
    assert {name: steps.count(name) for name in "abc"} in (
        {"a": 1, "b": 2, "c": 2},
        {"a": 1, "b": 3, "c": 2},
        {"a": 1, "b": 2, "c": 3},
    )
    assert view.task.graph_version == 2
    assert {run.path for run in discarded} == {"b", "c"}
