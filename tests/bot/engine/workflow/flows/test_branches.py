"""Steps of one task that run at once: they begin, pause, fail and end as one task."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from bot.engine.llm.answers import StepAnswer
from bot.engine.llm.base import Purpose
from bot.engine.workflow.model.nodes import Foreach, NodeType, OnError
from bot.engine.workflow.model.shape import Edge, Node
from storage.records.tasks import EventKind, NodeStatus, Priority, TaskStatus
from tests.bot.engine.workflow.flows.world import (
    Paced,
    failing,
    flows,
    for_each,
    graph,
    node,
    task,
    two_branches,
)
from tests.engine_world import BOSS, Clock


async def test_branches_run_at_the_same_time(tmp_path: Path) -> None:
    backend = Paced()
    backend.hold("a1", "b1")
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(two_branches())
        await backend.begun("a1", "b1")
        backend.let_go("a1", "b1")
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert sorted(backend.done) == ["a1", "a2", "b1", "b2", "last"]
    assert backend.done[-1] == "last"


async def test_no_more_steps_run_at_once_than_the_workflow_says(tmp_path: Path) -> None:
    backend = Paced()
    names = [f"n{n}" for n in range(5)]
    backend.hold(*names)
    wide = graph(
        node("fork", NodeType.PARALLEL),
        *map(task, names),
        *(f"fork>{name}" for name in names),
        parallel=2,
    )
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(wide)
        for n in range(5):
            await backend.begun(names[n])
            running = [run for run in (await here.runs(made)).values() if run.status == "running"]
            assert len(running) <= 2
            backend.let_go(names[n])
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert sorted(backend.done) == names


async def test_each_branch_has_a_session_of_its_own_over_a_death_too(tmp_path: Path) -> None:
    backend, clock = Paced(), Clock()
    backend.hold("a2", "b2")
    async with flows(tmp_path, backend, clock=clock) as here:
        made = await here.world.run_workflow(two_branches())
        await backend.begun("a2", "b2")
    assert "did a1" in backend.history("a2")
    assert "did b1" not in backend.history("a2")
    assert "did b1" in backend.history("b2")

    other = Paced()
    async with flows(tmp_path, other, clock=clock) as here:
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert sorted(other.done) == ["a2", "b2", "last"]
    assert "did a1" in other.history("a2")
    assert "did b1" not in other.history("a2")
    assert "did b1" in other.history("b2")
    assert "did a1" not in other.history("b2")


async def test_a_pause_waits_for_all_that_runs_and_begins_nothing(tmp_path: Path) -> None:
    backend = Paced()
    backend.hold("a1", "b1")
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(two_branches())
        await backend.begun("a1", "b1")
        await here.world.foreman.pause(made, by=BOSS, source="p:1", reason="wait")
        backend.let_go("a1")
        await here.until_run(made, "a1", "done")
        assert (await here.again(made)).status is TaskStatus.RUNNING
        backend.let_go("b1")
        view = await here.world.until(made, TaskStatus.PAUSED)
        assert sorted(backend.done) == ["a1", "b1"]
        await here.world.foreman.resume(view.task, by=BOSS, source="r:1")
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert sorted(backend.done) == ["a1", "a2", "b1", "b2", "last"]


async def test_a_pause_taken_back_lets_a_branch_go_on_at_once(tmp_path: Path) -> None:
    backend = Paced()
    backend.hold("a1", "b1")
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(two_branches())
        await backend.begun("a1", "b1")
        await here.world.foreman.pause(made, by=BOSS, source="p:1")
        backend.let_go("a1")
        await here.until_run(made, "a1", "done")
        await here.world.foreman.resume(made, by=BOSS, source="r:1")
        await backend.begun("a2")
        backend.let_go("b1")
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED


async def test_a_stop_ends_every_branch_and_a_retry_runs_what_was_cut_off(tmp_path: Path) -> None:
    backend = Paced()
    backend.hold("a1", "b2")
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(two_branches())
        await backend.begun("a1", "b2")
        await here.world.foreman.stop(made, by=BOSS, source="s:1")
        view = await here.world.until(made)
        runs = await here.runs(made)
        assert view.task.status is TaskStatus.CANCELLED
        assert not [run for run in runs.values() if run.status is NodeStatus.RUNNING]
        backend.let_go("a1", "b2")
        await here.world.foreman.retry(view.task, by=BOSS, source="y:1")
        view = await here.world.until(made, TaskStatus.COMPLETED)

    assert sorted(backend.done) == ["a1", "a1", "a2", "b1", "b2", "b2", "last"]


async def test_what_is_said_reaches_the_next_step_of_each_branch(tmp_path: Path) -> None:
    backend = Paced()
    backend.hold("a1", "b1")
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(two_branches())
        await backend.begun("a1", "b1")
        await here.world.foreman.tell(made, "Use tabs.", by=BOSS, source="m:1")
        backend.let_go("a1", "b1")
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert "Use tabs." in backend.heard("a2")
    assert "Use tabs." in backend.heard("b2")


async def test_what_is_said_during_the_last_step_is_still_done(tmp_path: Path) -> None:
    backend = Paced()
    backend.hold("last")
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(two_branches())
        await backend.begun("last")
        await here.world.foreman.tell(made, "One more thing.", by=BOSS, source="m:1")
        backend.let_go("last")
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.done[-1] == "💬 One more thing."


async def test_a_branch_that_fails_lets_the_other_end_and_only_it_is_retried(
    tmp_path: Path,
) -> None:
    backend = Paced()
    backend.hold("b1")
    backend.answers["a1"] = StepAnswer(status="blocked", summary="no key")
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(two_branches())
        await here.until_run(made, "a1", "failed")
        assert (await here.again(made)).status is TaskStatus.RUNNING
        backend.let_go("b1")
        view = await here.world.until(made, TaskStatus.BLOCKED)
        assert view.task.status_reason == "no key"
        assert sorted(backend.done) == ["a1", "b1"]
        del backend.answers["a1"]
        await here.world.foreman.retry(view.task, by=BOSS, source="y:1")
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert sorted(backend.done) == ["a1", "a1", "a2", "b1", "b2", "last"]


async def test_both_branches_may_fail_and_resume_tries_both(tmp_path: Path) -> None:
    backend = Paced()
    backend.hold("a1", "b1")
    stuck = StepAnswer(status="blocked", summary="no")
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(two_branches())
        await backend.begun("a1", "b1")
        backend.ends["a1"] = backend.ends["b1"] = stuck
        backend.let_go("a1", "b1")
        view = await here.world.until(made, TaskStatus.BLOCKED)
        backend.ends.clear()
        await here.world.foreman.resume(view.task, by=BOSS, source="r:1")
        view = await here.world.until(made, TaskStatus.COMPLETED, TaskStatus.BLOCKED)

    assert view.task.status is TaskStatus.COMPLETED
    assert sorted(backend.done) == ["a1", "a1", "a2", "b1", "b1", "b2", "last"]


@pytest.mark.parametrize("on_error", [OnError.SKIP, OnError.CONTINUE])
async def test_a_step_may_fail_where_its_node_says_so(tmp_path: Path, on_error: OnError) -> None:
    backend = Paced()
    backend.answers["try"] = failing("it is broken")
    plan = graph(
        task("try", on_error=on_error),
        task("next", "next {{outputs.try.error}}"),
        "try>next",
    )
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(plan)
        view = await here.world.until(made)
        runs = await here.runs(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.done == ["try", "try", "try", "next it is broken"]
    wanted = NodeStatus.SKIPPED if on_error is OnError.SKIP else NodeStatus.DONE
    assert runs["try"].status is wanted


async def test_a_given_plan_is_not_made_anew_where_a_step_fails(tmp_path: Path) -> None:
    backend = Paced()
    backend.answers["try"] = failing()
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(graph(task("try"), task("next"), "try>next"))
        view = await here.world.until(made, TaskStatus.BLOCKED, TaskStatus.FAILED)

    assert view.task.status is TaskStatus.BLOCKED
    assert all(request.purpose is Purpose.STEP for request in backend.asked)


async def test_items_that_fail_are_noted_and_the_others_are_done(tmp_path: Path) -> None:
    backend = Paced()
    backend.answers["read b"] = failing("no b")
    plan = for_each("abc", task("read", "read {{item}}"), on_error=OnError.CONTINUE)
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(plan)
        view = await here.world.until(made)
        results = (await here.runs(made))["each"].output["results"]

    assert view.task.status is TaskStatus.COMPLETED
    assert [result.get("result") for result in results] == ["did read a", None, "did read c"]
    assert results[1] == {"error": "no b"}


async def test_a_new_plan_comes_when_all_that_runs_has_ended(tmp_path: Path) -> None:
    backend = Paced()
    backend.hold("a1", "b1")
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(two_branches())
        await backend.begun("a1", "b1")
        await here.world.foreman.replan(made, "it is wrong", by=BOSS, source="n:1")
        backend.let_go("a1")
        await here.until_run(made, "a1", "done")
        assert backend.done[-1] == "b1"
        backend.let_go("b1")
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert sorted(backend.done[:2]) == ["a1", "b1"]
    assert backend.done[2:] == ["one", "two", "three"]


async def test_a_new_plan_is_told_of_finished_rounds_and_keeps_what_they_brought(
    tmp_path: Path,
) -> None:
    backend = Paced()
    for each in "ab":
        backend.ends[f"read {each}"] = StepAnswer(status="done", summary=f"page {each}")
    backend.hold("read b")
    plan = for_each("abc", task("read", "read {{item}}"))
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(plan)
        await backend.begun("read b")
        await here.world.foreman.replan(made, "leave out c", by=BOSS, source="n:1")
        backend.let_go("read b")
        view = await here.world.until(made)
        runs = await here.runs(made)
        began = await here.told(made, EventKind.STEP_STARTED)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.done == ["read a", "read b", "one", "two", "three"]
    assert "read c" not in began
    asked = next(each.prompt for each in backend.asked if "leave out c" in each.prompt)
    assert "2 of 3 rounds are finished" in asked
    assert "page b" in asked
    assert [each["summary"] for each in runs["each"].output["results"]] == ["page a", "page b"]
    assert "page a" in backend.heard("one")
    assert not any("leave out c" in run.error for run in runs.values())


async def test_a_new_plan_keeps_what_was_finished_in_rounds_within_rounds(tmp_path: Path) -> None:
    backend = Paced()
    backend.hold("write a1")
    for name in ("read a", "write a1"):
        backend.ends[name] = StepAnswer(status="done", summary=f"{name}: fine")
    plan = graph(
        Node(
            id="each",
            title="each",
            type=NodeType.FOREACH,
            config=Foreach(collection="['a', 'b']", item_var="x", body=("read", "inner")),
        ),
        task("read", "read {{x}}"),
        Node(
            id="inner",
            title="inner",
            type=NodeType.FOREACH,
            config=Foreach(collection="[1, 2]", item_var="n", body=("write",)),
        ),
        task("write", "write {{x}}{{n}}"),
        "read>inner",
    )
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(plan)
        await backend.begun("write a1")
        await here.world.foreman.replan(made, "leave out b", by=BOSS, source="n:1")
        backend.let_go("write a1")
        view = await here.world.until(made)
        kept = (await here.runs(made))["each"].output

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.done == ["read a", "write a1", "one", "two", "three"]
    (begun,) = kept["unfinished"]
    assert begun["round"] == 1
    assert begun["outputs"]["read"]["summary"] == "read a: fine"
    assert begun["outputs"]["inner"]["results"][0]["summary"] == "write a1: fine"
    asked = next(each.prompt for each in backend.asked if "leave out b" in each.prompt)
    for prompt in (asked, backend.heard("one")):
        assert "read a: fine" in prompt
        assert "write a1: fine" in prompt


async def test_a_new_plan_goes_by_what_was_brought_last_and_by_the_boss_s_own_wishes(
    tmp_path: Path,
) -> None:
    """A circle was gone round twice when the new plan came."""
    backend = Paced()
    backend.ends["review"] = StepAnswer(status="done", summary="first look. ok: false")
    backend.hold("fix")
    plan = graph(
        task("write"),
        task("review"),
        task("fix"),
        task("send"),
        "write>review",
        Edge(source="review", target="send", condition="outputs.review.ok == true"),
        Edge(source="review", target="fix"),
        Edge(source="fix", target="review", max_loops=5),
        name="Letters",
        outputs={"note": "outputs.review.summary", "sent": "outputs.send.summary"},
        timeout=7_200.0,
    )
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(plan)
        await backend.begun("fix")
        backend.ends["review"] = StepAnswer(status="done", summary="second look. ok: false")
        first = backend.gates["fix"]
        backend.hold("fix")
        first.set()
        await here.until_run(made, "fix#2", "running")
        await here.world.foreman.replan(made, "send it as it is", by=BOSS, source="n:1")
        backend.let_go("fix")
        view = await here.world.until(made)
        kept = await here.runs(made)
        graph_ = await here.world.store.graphs.latest(made.id)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.done == ["write", "review", "fix", "review", "fix", "one", "two", "three"]
    assert kept["review"].output["summary"] == "second look. ok: false"
    assert "send" not in [step.title for step in view.steps]
    assert "note: second look. ok: false" in view.task.summary
    assert "sent:" not in view.task.summary
    assert graph_ is not None
    assert (graph_.body["name"], graph_.body["timeout"]) == ("Letters", 7_200.0)


async def test_urgent_work_cuts_in_between_two_items(tmp_path: Path) -> None:
    backend = Paced()
    backend.hold("read b")
    plan = for_each("abc", task("read", "read {{item}}"))
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(plan, priority=Priority.NORMAL)
        await backend.begun("read b")
        urgent = await here.world.run_workflow(graph(task("urgent")), priority=Priority.URGENT)
        async with asyncio.timeout(60):
            while not (await here.again(made)).status_reason:
                await asyncio.sleep(0.005)
        backend.let_go("read b")
        await here.world.until(urgent)
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.done == ["read a", "read b", "urgent", "read c", "last"]


async def test_a_variable_of_a_shell_reaches_the_worker_as_it_stands(tmp_path: Path) -> None:
    backend = Paced()
    backend.hold("list")
    listing = replace(task("list"), detail="ls $${HOME}/in")
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(graph(listing))
        await backend.begun("list")
        text = "rm ${TMP:-/tmp}/x"
        await here.world.foreman.inject(made, [text], by=BOSS, source="i:1")
        backend.let_go("list")
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert "ls ${HOME}/in" in backend.heard("list")
    assert backend.done == ["list", text]
    assert text in [step.title for step in view.steps]


async def test_prompts_are_filled_and_outputs_end_in_the_message(tmp_path: Path) -> None:
    backend = Paced()
    backend.answers["count"] = StepAnswer(status="done", summary="total: 3")
    plan = graph(
        task("count"),
        task("tell", "tell {{inputs.who}} about {{outputs.count.total}}"),
        "count>tell",
        values={"who": "Ann"},
        outputs={"twice": "outputs.count.total * 2"},
    )
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(plan)
        view = await here.world.until(made)

    assert backend.done == ["count", "tell Ann about 3"]
    assert "twice: 6" in view.task.summary


async def test_a_step_that_is_late_is_tried_again_and_then_fails(tmp_path: Path) -> None:
    backend = Paced()
    backend.hold("slow")
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(graph(task("slow", timeout=0.02)))
        view = await here.world.until(made)
        tries = (await here.runs(made))["slow"].attempt

    assert view.task.status is TaskStatus.FAILED
    assert view.task.status_reason == "The step's own time is over."
    assert tries == 2


async def test_the_whole_workflow_has_a_time_of_its_own(tmp_path: Path) -> None:
    """Then what runs is broken off; tried again, its time begins anew."""
    backend = Paced()
    backend.hold("a2", "b1")
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(two_branches(timeout=3600.0))
        await backend.begun("a2", "b1")
        await here.later(hours=2)
        view = await here.world.until(made)
        assert view.task.status is TaskStatus.FAILED
        assert view.task.status_reason == "The whole workflow has used up its time."
        backend.let_go("a2", "b1")
        await here.world.foreman.retry(view.task, by=BOSS, source="y:1")
        view = await here.world.until(made, TaskStatus.COMPLETED)

    assert backend.done.count("a1") == 1
    assert backend.done[-1] == "last"


async def test_events_tell_each_step_once(tmp_path: Path) -> None:
    async with flows(tmp_path) as here:
        made = await here.world.run_workflow(two_branches())
        await here.world.until(made)
        begun = await here.told(made, EventKind.STEP_STARTED)

    assert sorted(begun) == ["a1", "a2", "b1", "b2", "last"]
