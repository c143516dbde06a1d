"""The nodes and outputs that a run in a shell reports."""

from __future__ import annotations

from datetime import timedelta

from bot.cli.workflow_run import list_activations, list_other_nodes
from bot.engine.workflow.definition import Workflow, WorkflowNode
from bot.engine.workflow.node_runs import public_value
from bot.engine.workflow.nodes.foreach import ForeachConfig
from bot.engine.workflow.nodes.registry import NodeType
from storage.records.tasks import NodeRun, NodeStatus, TaskId, TaskStatus
from tests.builders import NOW, make_task

EACH = Workflow(
    plan="p",
    nodes=(
        WorkflowNode(
            id="each",
            title="Each",
            type=NodeType.FOREACH,
            config=ForeachConfig(collection="[1]", body=("read",)),
        ),
        WorkflowNode(id="read", title="Read {{item}}"),
    ),
    edges=(),
)


def a_run(path: str, status: NodeStatus, *, error: str = "", begun: float = 0) -> NodeRun:
    return NodeRun(
        task_id=TaskId("t"),
        path=path,
        status=status,
        attempt=1,
        output={},
        error=error,
        started_at=NOW + timedelta(seconds=begun),
        ended_at=None,
    )


def test_what_the_task_failed_on_has_failed_and_so_has_the_loop_around_it() -> None:
    runs = {
        "each": a_run("each", NodeStatus.WAITING),
        "each[0]/read": a_run("each[0]/read", NodeStatus.PENDING, error="torn", begun=1),
    }

    nodes = list(list_activations(make_task(status=TaskStatus.FAILED), EACH, runs))

    assert [node.state for node in nodes] == ["failed", "failed"]
    assert nodes[1].title == "Read ‹item›"


def test_what_waits_for_a_person_and_what_has_not_begun_is_listed_too() -> None:
    plan = Workflow(
        plan="p",
        nodes=(
            WorkflowNode(id="a", title="A"),
            WorkflowNode(id="sign", title="Sign", type=NodeType.HUMAN),
            WorkflowNode(id="b", title="B"),
            *EACH.nodes,
        ),
    )
    runs = {"a": a_run("a", NodeStatus.DONE)}
    asked = ["sign", "each[0]/read", "@ask:a"]

    waiting = list_other_nodes(make_task(status=TaskStatus.WAITING), plan, runs, asked)
    over = list_other_nodes(make_task(status=TaskStatus.COMPLETED), plan, runs, [])

    assert [(node.path, node.state) for node in waiting] == [
        ("sign", "waiting"),
        ("each[0]/read", "waiting"),
        ("b", "pending"),
        ("each", "pending"),
    ]
    assert {node.state for node in over} == {"skipped"}


def test_rounds_of_one_moment_stand_by_their_number() -> None:
    runs = {
        path: a_run(path, NodeStatus.DONE)
        for path in ("each[10]/read", "each[2]/read", "each[9]/read", "each")
    }

    nodes = list_activations(make_task(status=TaskStatus.COMPLETED), EACH, runs)

    wanted = ["each", "each[2]/read", "each[9]/read", "each[10]/read"]
    assert [node.path for node in nodes] == wanted


def test_nothing_that_only_the_engine_uses_is_given_back() -> None:
    output = {"_raw": "All read.", "result": "All read.", "made": [], "left_out": [], "heard": 0}

    assert public_value([output, {"n": 1, "@took": ["a"]}]) == ["All read.", {"n": 1}]
