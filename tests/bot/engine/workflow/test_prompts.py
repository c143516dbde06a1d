"""What a step is told of the plan and of what was done: enough, and never more than it can read."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from bot.engine.workflow import prompts
from bot.engine.workflow.graph import Node, Workflow, linear
from bot.engine.workflow.model.nodes import Foreach, NodeType
from bot.engine.workflow.model.shape import Edge
from storage.records.tasks import NodeRun, NodeStatus, TaskId
from tests.bot.engine.workflow.shown.samples import report, until
from tests.samples import NOW, a_task


def done(path: str, summary: str = "", after: int = 0) -> NodeRun:
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


def chain(n: int) -> Workflow:
    return linear("One by one", [Node(id=f"n{each}", title=f"Step {each}") for each in range(n)])


def told(
    workflow: Workflow,
    runs: dict[str, NodeRun],
    node: str,
    heard: prompts.Heard = prompts.NOTHING,
) -> str:
    step = workflow.by_id[node]
    return prompts.step_prompt(a_task(), workflow, runs, step, trouble="", said=(), heard=heard)


def test_of_hundreds_of_steps_those_around_the_current_one_are_listed() -> None:
    workflow = chain(500)
    runs = {f"n{n}": done(f"n{n}") for n in range(250)}

    text = told(workflow, runs, "n250")

    listed = [line for line in text.splitlines() if line.startswith(("✅", "📍", "○"))]
    assert len(listed) == 30
    assert "📍 Step 250" in listed
    assert "✅ Step 249" in listed
    assert "○ Step 260" in listed
    assert "… 238 steps before these" in text
    assert "… 232 steps behind these" in text


def test_results_too_many_to_read_are_those_nearest_before_the_step() -> None:
    workflow = chain(60)
    runs = {f"n{n}": done(f"n{n}", f"{n} " + "x" * 5_000, after=n) for n in range(50)}

    text = told(workflow, runs, "n50")

    assert len(text) < 30_000
    assert "Result of “Step 49”: 49 xxx" in text
    assert "Result of “Step 42”" in text
    assert "Result of “Step 41”" not in text
    assert text.index("Step 42”") < text.index("Step 49”")
    assert "only the nearest results" in text


def test_one_long_result_is_cut() -> None:
    workflow = chain(2)

    text = told(workflow, {"n0": done("n0", "y" * 10_000)}, "n1")

    assert "y" * 2_999 + "…" in text
    assert "y" * 3_000 not in text


def test_what_the_session_holds_already_is_not_told_again_in_whichever_round() -> None:
    workflow = chain(3)
    runs = {"n0": done("n0#2"), "n1": done("n1")}

    text = told(workflow, runs, "n2", prompts.Heard(task=True, steps=frozenset({"n0#2"})))

    assert "did n0" not in text
    assert "did n1" in text


def test_the_list_has_no_plumbing_and_bodies_stand_under_their_loop() -> None:
    lines = told(report(), until(report(), "review").runs, "review").splitlines()

    assert "✅ Every letter" in lines
    assert "  ○ Read the letter …" in lines
    assert "📍 Review" in lines
    assert not any("Side by side" in line or "Start" in line for line in lines)


def test_a_loop_tells_what_its_rounds_have_brought() -> None:
    nodes = (
        Node(
            id="each",
            title="Each",
            type=NodeType.FOREACH,
            config=Foreach(collection="[1, 2]", body=("one",)),
        ),
        Node(id="one", title="One"),
        Node(id="sum", title="Sum"),
    )
    workflow = Workflow(plan="", nodes=nodes, edges=(Edge(source="each", target="sum"),))
    each = replace(done("each"), output={"results": [{"result": "red"}, {"result": "blue"}]})

    text = told(workflow, {"each": each}, "sum")

    assert "Result of “Each”:" in text
    assert "red" in text
    assert "blue" in text


def test_a_branch_that_nothing_came_to_is_not_told_as_done() -> None:
    runs = until(report(), "bind#2").runs
    seen = {**runs, "mail": runs["mail#2"], "large": runs["large#2"]}

    text = told(report(), seen, "bind")

    assert "– Mail it" in text
    assert "📍 Bind it" in text


def test_results_of_steps_that_a_new_plan_has_cut_off_are_still_told() -> None:
    workflow = replace(chain(3), edges=(Edge(source="n1", target="n2"),))

    assert "did n0" in told(workflow, {"n0": done("n0"), "n1": done("n1")}, "n2")
