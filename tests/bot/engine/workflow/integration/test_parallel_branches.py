"""Steps of one task that run at once: they begin, pause, fail and end as one task."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from bot.engine.llm.answer_schemas import StepAnswer
from bot.engine.llm.backend import RunPurpose
from bot.engine.workflow.definition import OnError, WorkflowEdge, WorkflowNode
from bot.engine.workflow.nodes.foreach import ForeachConfig
from bot.engine.workflow.nodes.registry import NodeType
from storage.records.tasks import EventKind, NodeStatus, TaskPriority, TaskStatus
from tests.bot.engine.workflow.integration.workflow_world import (
    PacedBackend,
    failed_answer,
    for_each,
    make_graph,
    make_node,
    task_node,
    two_branches,
    workflow_world,
)
from tests.engine_harness import BOSS, ManualClock
from tests.waiting import WAIT_SECONDS


async def test_branches_run_at_the_same_time(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.hold("a1", "b1")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(two_branches())
        await backend.wait_until_started("a1", "b1")
        backend.release("a1", "b1")
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert sorted(backend.started_steps) == ["a1", "a2", "b1", "b2", "last"]
    assert backend.started_steps[-1] == "last"


async def test_no_more_steps_run_at_once_than_the_workflow_says(tmp_path: Path) -> None:
    backend = PacedBackend()
    names = [f"n{n}" for n in range(5)]
    backend.hold(*names)
    wide = make_graph(
        make_node("fork", NodeType.PARALLEL),
        *map(task_node, names),
        *(f"fork>{name}" for name in names),
        parallel=2,
    )
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(wide)
        for n in range(5):
            await backend.wait_until_started(names[n])
            running = [run for run in (await here.runs(made)).values() if run.status == "running"]
            assert len(running) <= 2
            backend.release(names[n])
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert sorted(backend.started_steps) == names


async def test_each_branch_has_a_session_of_its_own_over_a_death_too(tmp_path: Path) -> None:
    backend, clock = PacedBackend(), ManualClock()
    backend.hold("a2", "b2")
    async with workflow_world(tmp_path, backend, clock=clock) as here:
        made = await here.engine.run_workflow(two_branches())
        await backend.wait_until_started("a2", "b2")
    assert "did a1" in backend.session_before("a2")
    assert "did b1" not in backend.session_before("a2")
    assert "did b1" in backend.session_before("b2")

    other = PacedBackend()
    async with workflow_world(tmp_path, other, clock=clock) as here:
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert sorted(other.started_steps) == ["a2", "b2", "last"]
    assert "did a1" in other.session_before("a2")
    assert "did b1" not in other.session_before("a2")
    assert "did b1" in other.session_before("b2")
    assert "did a1" not in other.session_before("b2")


async def test_a_pause_waits_for_all_that_runs_and_begins_nothing(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.hold("a1", "b1")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(two_branches())
        await backend.wait_until_started("a1", "b1")
        await here.engine.tasks.pause(made, by=BOSS, source="p:1", reason="wait")
        backend.release("a1")
        await here.wait_for_run(made, "a1", "done")
        assert (await here.reload(made)).status is TaskStatus.RUNNING
        backend.release("b1")
        view = await here.engine.until(made, TaskStatus.PAUSED)
        assert sorted(backend.started_steps) == ["a1", "b1"]
        await here.engine.tasks.resume(view.task, by=BOSS, source="r:1")
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert sorted(backend.started_steps) == ["a1", "a2", "b1", "b2", "last"]


async def test_a_pause_taken_back_lets_a_branch_go_on_at_once(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.hold("a1", "b1")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(two_branches())
        await backend.wait_until_started("a1", "b1")
        await here.engine.tasks.pause(made, by=BOSS, source="p:1")
        backend.release("a1")
        await here.wait_for_run(made, "a1", "done")
        await here.engine.tasks.resume(made, by=BOSS, source="r:1")
        await backend.wait_until_started("a2")
        backend.release("b1")
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED


async def test_a_stop_ends_every_branch_and_a_retry_runs_what_was_cut_off(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.hold("a1", "b2")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(two_branches())
        await backend.wait_until_started("a1", "b2")
        await here.engine.tasks.stop(made, by=BOSS, source="s:1")
        view = await here.engine.until(made)
        runs = await here.runs(made)
        assert view.task.status is TaskStatus.CANCELLED
        assert not [run for run in runs.values() if run.status is NodeStatus.RUNNING]
        backend.release("a1", "b2")
        await here.engine.tasks.retry(view.task, by=BOSS, source="y:1")
        view = await here.engine.until(made, TaskStatus.COMPLETED)

    assert sorted(backend.started_steps) == ["a1", "a1", "a2", "b1", "b2", "b2", "last"]


async def test_what_is_said_reaches_the_next_step_of_each_branch(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.hold("a1", "b1")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(two_branches())
        await backend.wait_until_started("a1", "b1")
        await here.engine.tasks.send_message(made, "Use tabs.", by=BOSS, source="m:1")
        backend.release("a1", "b1")
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert "Use tabs." in backend.last_prompt("a2")
    assert "Use tabs." in backend.last_prompt("b2")


async def test_what_is_said_during_the_last_step_is_still_done(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.hold("last")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(two_branches())
        await backend.wait_until_started("last")
        await here.engine.tasks.send_message(made, "One more thing.", by=BOSS, source="m:1")
        backend.release("last")
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps[-1] == "💬 One more thing."


async def test_a_branch_that_fails_lets_the_other_end_and_only_it_is_retried(
    tmp_path: Path,
) -> None:
    backend = PacedBackend()
    backend.hold("b1")
    backend.answers["a1"] = StepAnswer(status="blocked", summary="no key")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(two_branches())
        await here.wait_for_run(made, "a1", "failed")
        assert (await here.reload(made)).status is TaskStatus.RUNNING
        backend.release("b1")
        view = await here.engine.until(made, TaskStatus.BLOCKED)
        assert view.task.status_reason == "no key"
        assert sorted(backend.started_steps) == ["a1", "b1"]
        del backend.answers["a1"]
        await here.engine.tasks.retry(view.task, by=BOSS, source="y:1")
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert sorted(backend.started_steps) == ["a1", "a1", "a2", "b1", "b2", "last"]


async def test_both_branches_may_fail_and_resume_tries_both(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.hold("a1", "b1")
    stuck = StepAnswer(status="blocked", summary="no")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(two_branches())
        await backend.wait_until_started("a1", "b1")
        backend.answers["a1"] = backend.answers["b1"] = stuck
        backend.release("a1", "b1")
        view = await here.engine.until(made, TaskStatus.BLOCKED)
        backend.answers.clear()
        await here.engine.tasks.resume(view.task, by=BOSS, source="r:1")
        view = await here.engine.until(made, TaskStatus.COMPLETED, TaskStatus.BLOCKED)

    assert view.task.status is TaskStatus.COMPLETED
    assert sorted(backend.started_steps) == ["a1", "a1", "a2", "b1", "b1", "b2", "last"]


@pytest.mark.parametrize("on_error", [OnError.SKIP, OnError.CONTINUE])
async def test_a_step_may_fail_where_its_node_says_so(tmp_path: Path, on_error: OnError) -> None:
    backend = PacedBackend()
    backend.answers["try"] = failed_answer("it is broken")
    plan = make_graph(
        task_node("try", on_error=on_error),
        task_node("next", "next {{outputs.try.error}}"),
        "try>next",
    )
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan)
        view = await here.engine.until(made)
        runs = await here.runs(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["try", "try", "try", "next it is broken"]
    wanted = NodeStatus.SKIPPED if on_error is OnError.SKIP else NodeStatus.DONE
    assert runs["try"].status is wanted


async def test_a_given_plan_is_not_made_anew_where_a_step_fails(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.answers["try"] = failed_answer()
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(
            make_graph(task_node("try"), task_node("next"), "try>next")
        )
        view = await here.engine.until(made, TaskStatus.BLOCKED, TaskStatus.FAILED)

    assert view.task.status is TaskStatus.BLOCKED
    assert all(request.purpose is RunPurpose.STEP for request in backend.requests)


async def test_items_that_fail_are_noted_and_the_others_are_done(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.answers["read b"] = failed_answer("no b")
    plan = for_each("abc", task_node("read", "read {{item}}"), on_error=OnError.CONTINUE)
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan)
        view = await here.engine.until(made)
        results = (await here.runs(made))["each"].output["results"]

    assert view.task.status is TaskStatus.COMPLETED
    assert [result.get("result") for result in results] == ["did read a", None, "did read c"]
    assert results[1] == {"error": "no b"}


async def test_a_new_plan_comes_when_all_that_runs_has_ended(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.hold("a1", "b1")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(two_branches())
        await backend.wait_until_started("a1", "b1")
        await here.engine.tasks.replan(made, "it is wrong", by=BOSS, source="n:1")
        backend.release("a1")
        await here.wait_for_run(made, "a1", "done")
        assert sorted(backend.started_steps) == ["a1", "b1"]
        backend.release("b1")
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps[2:] == ["one", "two", "three"]


async def test_a_new_plan_is_told_of_finished_rounds_and_keeps_what_they_brought(
    tmp_path: Path,
) -> None:
    backend = PacedBackend()
    for each in "ab":
        backend.answers[f"read {each}"] = StepAnswer(status="done", summary=f"page {each}")
    backend.hold("read b")
    plan = for_each("abc", task_node("read", "read {{item}}"))
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan)
        await backend.wait_until_started("read b")
        await here.engine.tasks.replan(made, "leave out c", by=BOSS, source="n:1")
        backend.release("read b")
        view = await here.engine.until(made)
        runs = await here.runs(made)
        began = await here.event_texts(made, EventKind.STEP_STARTED)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["read a", "read b", "one", "two", "three"]
    assert "read c" not in began
    asked = next(each.prompt for each in backend.requests if "leave out c" in each.prompt)
    assert "2 of 3 rounds are finished" in asked
    assert "page b" in asked
    assert [each["summary"] for each in runs["each"].output["results"]] == ["page a", "page b"]
    assert "page a" in backend.last_prompt("one")
    assert not any("leave out c" in run.error for run in runs.values())


async def test_a_new_plan_keeps_what_was_finished_in_rounds_within_rounds(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.hold("write a1")
    for name in ("read a", "write a1"):
        backend.answers[name] = StepAnswer(status="done", summary=f"{name}: fine")
    plan = make_graph(
        WorkflowNode(
            id="each",
            title="each",
            type=NodeType.FOREACH,
            config=ForeachConfig(collection="['a', 'b']", item_var="x", body=("read", "inner")),
        ),
        task_node("read", "read {{x}}"),
        WorkflowNode(
            id="inner",
            title="inner",
            type=NodeType.FOREACH,
            config=ForeachConfig(collection="[1, 2]", item_var="n", body=("write",)),
        ),
        task_node("write", "write {{x}}{{n}}"),
        "read>inner",
    )
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan)
        await backend.wait_until_started("write a1")
        await here.engine.tasks.replan(made, "leave out b", by=BOSS, source="n:1")
        backend.release("write a1")
        view = await here.engine.until(made)
        kept = (await here.runs(made))["each"].output

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["read a", "write a1", "one", "two", "three"]
    (begun,) = kept["unfinished"]
    assert begun["round"] == 1
    assert begun["outputs"]["read"]["summary"] == "read a: fine"
    assert begun["outputs"]["inner"]["results"][0]["summary"] == "write a1: fine"
    asked = next(each.prompt for each in backend.requests if "leave out b" in each.prompt)
    for prompt in (asked, backend.last_prompt("one")):
        assert "read a: fine" in prompt
        assert "write a1: fine" in prompt


async def test_a_new_plan_goes_by_what_was_brought_last_and_by_the_boss_s_own_wishes(
    tmp_path: Path,
) -> None:
    """A circle was gone round twice when the new plan came."""
    backend = PacedBackend()
    backend.answers["review"] = StepAnswer(status="done", summary="first look. ok: false")
    backend.hold("fix")
    plan = make_graph(
        task_node("write"),
        task_node("review"),
        task_node("fix"),
        task_node("send"),
        "write>review",
        WorkflowEdge(source="review", target="send", condition="outputs.review.ok == true"),
        WorkflowEdge(source="review", target="fix"),
        WorkflowEdge(source="fix", target="review", max_loops=5),
        name="Letters",
        outputs={"note": "outputs.review.summary", "sent": "outputs.send.summary"},
        timeout=7_200.0,
    )
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan)
        await backend.wait_until_started("fix")
        backend.answers["review"] = StepAnswer(status="done", summary="second look. ok: false")
        first = backend.gates["fix"]
        backend.hold("fix")
        first.set()
        await here.wait_for_run(made, "fix#2", "running")
        await here.engine.tasks.replan(made, "send it as it is", by=BOSS, source="n:1")
        backend.release("fix")
        view = await here.engine.until(made)
        kept = await here.runs(made)
        graph_ = await here.engine.store.graphs.find_latest(made.id)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == [
        "write",
        "review",
        "fix",
        "review",
        "fix",
        "one",
        "two",
        "three",
    ]
    assert kept["review"].output["summary"] == "second look. ok: false"
    assert "send" not in [step.title for step in view.steps]
    assert "note: second look. ok: false" in view.task.summary
    assert "sent:" not in view.task.summary
    assert graph_ is not None
    assert (graph_.body["name"], graph_.body["timeout"]) == ("Letters", 7_200.0)


async def test_urgent_work_cuts_in_between_two_items(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.hold("read b")
    plan = for_each("abc", task_node("read", "read {{item}}"))
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan, priority=TaskPriority.NORMAL)
        await backend.wait_until_started("read b")
        urgent = await here.engine.run_workflow(
            make_graph(task_node("urgent")), priority=TaskPriority.URGENT
        )
        async with asyncio.timeout(WAIT_SECONDS):
            while not (await here.reload(made)).status_reason:
                await asyncio.sleep(0.005)
        backend.release("read b")
        await here.engine.until(urgent)
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.started_steps == ["read a", "read b", "urgent", "read c", "last"]


async def test_a_variable_of_a_shell_reaches_the_worker_as_it_stands(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.hold("list")
    listing = replace(task_node("list"), detail="ls $${HOME}/in")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(make_graph(listing))
        await backend.wait_until_started("list")
        text = "rm ${TMP:-/tmp}/x"
        await here.engine.tasks.inject(made, [text], by=BOSS, source="i:1")
        backend.release("list")
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert "ls ${HOME}/in" in backend.last_prompt("list")
    assert backend.started_steps == ["list", text]
    assert text in [step.title for step in view.steps]


async def test_prompts_are_filled_and_outputs_end_in_the_message(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.answers["count"] = StepAnswer(status="done", summary="total: 3")
    plan = make_graph(
        task_node("count"),
        task_node("tell", "tell {{inputs.who}} about {{outputs.count.total}}"),
        "count>tell",
        values={"who": "Ann"},
        outputs={"twice": "outputs.count.total * 2"},
    )
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(plan)
        view = await here.engine.until(made)

    assert backend.started_steps == ["count", "tell Ann about 3"]
    assert "twice: 6" in view.task.summary


async def test_a_step_that_is_late_is_tried_again_and_then_fails(tmp_path: Path) -> None:
    backend = PacedBackend()
    backend.hold("slow")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(make_graph(task_node("slow", timeout=0.02)))
        view = await here.engine.until(made)
        tries = (await here.runs(made))["slow"].attempt

    assert view.task.status is TaskStatus.FAILED
    assert view.task.status_reason == (
        "The step ran out of time: its `timeout` in the workflow is over."
    )
    assert tries == 2


async def test_the_whole_workflow_has_a_time_of_its_own(tmp_path: Path) -> None:
    """Then what runs is broken off; tried again, its time begins anew."""
    backend = PacedBackend()
    backend.hold("a2", "b1")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(two_branches(timeout=3600.0))
        await backend.wait_until_started("a2", "b1")
        await here.advance_clock(hours=2)
        view = await here.engine.until(made)
        assert view.task.status is TaskStatus.FAILED
        assert view.task.status_reason == "The workflow ran out of time."
        backend.release("a2", "b1")
        await here.engine.tasks.retry(view.task, by=BOSS, source="y:1")
        view = await here.engine.until(made, TaskStatus.COMPLETED)

    assert backend.started_steps.count("a1") == 1
    assert backend.started_steps[-1] == "last"


async def test_events_tell_each_step_once(tmp_path: Path) -> None:
    async with workflow_world(tmp_path) as here:
        made = await here.engine.run_workflow(two_branches())
        await here.engine.until(made)
        begun = await here.event_texts(made, EventKind.STEP_STARTED)

    assert sorted(begun) == ["a1", "a2", "b1", "b2", "last"]
