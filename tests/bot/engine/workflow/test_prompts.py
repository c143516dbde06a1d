"""The prompt of a step: relevant context within size limits."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from bot.engine.workflow import prompts
from bot.engine.workflow.definition import Workflow, WorkflowEdge, WorkflowNode
from bot.engine.workflow.nodes.foreach import ForeachConfig
from bot.engine.workflow.nodes.registry import NodeType
from bot.engine.workflow.plan import linear_workflow
from storage.records.tasks import NodeRun, NodeStatus, TaskId
from tests.bot.engine.workflow.presentation.sample_workflow import report_workflow, run_until
from tests.builders import NOW, make_task


def done_run(path: str, summary: str = "", after: int = 0) -> NodeRun:
    return NodeRun(
        task_id=TaskId("t1"),
        path=path,
        status=NodeStatus.DONE,
        attempt=1,
        output={"summary": summary or f"did {path}"},
        error="",
        started_at=NOW,
        ended_at=NOW + timedelta(seconds=after),
    )


def make_chain(n: int) -> Workflow:
    return linear_workflow(
        "One by one", [WorkflowNode(id=f"n{each}", title=f"Step {each}") for each in range(n)]
    )


def step_prompt_for(
    workflow: Workflow,
    runs: dict[str, NodeRun],
    node: str,
    heard: prompts.DeliveredContext = prompts.NOTHING_DELIVERED,
) -> str:
    step = workflow.nodes_by_id[node]
    return prompts.step_prompt(
        make_task(), workflow, runs, step, last_error="", messages=(), delivered=heard
    )


def test_of_hundreds_of_steps_those_around_the_current_one_are_listed() -> None:
    workflow = make_chain(500)
    runs = {f"n{n}": done_run(f"n{n}") for n in range(250)}

    text = step_prompt_for(workflow, runs, "n250")

    listed = [line for line in text.splitlines() if line.startswith(("✅", "📍", "○"))]
    assert len(listed) == 30
    assert "📍 Step 250" in listed
    assert "✅ Step 249" in listed
    assert "○ Step 260" in listed
    assert "… 238 steps before these" in text
    assert "… 232 steps after these" in text


def test_results_too_many_to_read_are_those_nearest_before_the_step() -> None:
    workflow = make_chain(60)
    runs = {f"n{n}": done_run(f"n{n}", f"{n} " + "x" * 5_000, after=n) for n in range(50)}

    text = step_prompt_for(workflow, runs, "n50")

    assert len(text) < 30_000
    assert "Result of “Step 49”: 49 xxx" in text
    assert "Result of “Step 42”" in text
    assert "Result of “Step 41”" not in text
    assert text.index("Step 42”") < text.index("Step 49”")
    assert "only the nearest results" in text


def test_one_long_result_is_cut() -> None:
    workflow = make_chain(2)

    text = step_prompt_for(workflow, {"n0": done_run("n0", "y" * 10_000)}, "n1")

    assert "y" * 2_999 + "…" in text
    assert "y" * 3_000 not in text


def test_what_the_session_holds_already_is_not_told_again_in_whichever_round() -> None:
    workflow = make_chain(3)
    runs = {"n0": done_run("n0#2"), "n1": done_run("n1")}

    text = step_prompt_for(
        workflow, runs, "n2", prompts.DeliveredContext(task=True, steps=frozenset({"n0#2"}))
    )

    assert "did n0" not in text
    assert "did n1" in text


def test_the_list_has_no_plumbing_and_bodies_stand_under_their_loop() -> None:
    lines = step_prompt_for(
        report_workflow(), run_until(report_workflow(), "review").runs, "review"
    ).splitlines()

    assert "✅ Every letter" in lines
    assert "  ○ Read the letter …" in lines
    assert "📍 Review" in lines
    assert not any("Side by side" in line or "Start" in line for line in lines)


def test_a_loop_tells_what_its_rounds_have_brought() -> None:
    nodes = (
        WorkflowNode(
            id="each",
            title="Each",
            type=NodeType.FOREACH,
            config=ForeachConfig(collection="[1, 2]", body=("one",)),
        ),
        WorkflowNode(id="one", title="One"),
        WorkflowNode(id="sum", title="Sum"),
    )
    workflow = Workflow(plan="", nodes=nodes, edges=(WorkflowEdge(source="each", target="sum"),))
    each = replace(done_run("each"), output={"results": [{"result": "red"}, {"result": "blue"}]})

    text = step_prompt_for(workflow, {"each": each}, "sum")

    assert "Result of “Each”:" in text
    assert "red" in text
    assert "blue" in text


def test_a_branch_that_nothing_came_to_is_not_told_as_done() -> None:
    runs = run_until(report_workflow(), "bind#2").runs
    seen = {**runs, "mail": runs["mail#2"], "large": runs["large#2"]}

    text = step_prompt_for(report_workflow(), seen, "bind")

    assert "– Mail it" in text
    assert "📍 Bind it" in text


def test_results_of_steps_that_a_new_plan_has_cut_off_are_still_told() -> None:
    workflow = replace(make_chain(3), edges=(WorkflowEdge(source="n1", target="n2"),))

    assert "did n0" in step_prompt_for(workflow, {"n0": done_run("n0"), "n1": done_run("n1")}, "n2")
