"""What a run in a shell says of its nodes and of what it gives back."""

from __future__ import annotations

from datetime import timedelta

from bot.app.terminal.workflow import nodes_of
from bot.engine.workflow.graph import Node, Workflow
from bot.engine.workflow.model.nodes import Foreach, NodeType
from bot.engine.workflow.routing.results import plain
from storage.records.tasks import NodeRun, NodeStatus, TaskId, TaskStatus
from tests.samples import NOW, a_task

EACH = Workflow(
    plan="p",
    nodes=(
        Node(
            id="each",
            title="Each",
            type=NodeType.FOREACH,
            config=Foreach(collection="[1]", body=("read",)),
        ),
        Node(id="read", title="Read {{item}}"),
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

    nodes = list(nodes_of(a_task(status=TaskStatus.FAILED), EACH, runs))

    assert [node.state for node in nodes] == ["failed", "failed"]
    assert nodes[1].title == "Read ‹item›"


def test_rounds_of_one_moment_stand_by_their_number() -> None:
    runs = {
        path: a_run(path, NodeStatus.DONE)
        for path in ("each[10]/read", "each[2]/read", "each[9]/read", "each")
    }

    nodes = nodes_of(a_task(status=TaskStatus.COMPLETED), EACH, runs)

    wanted = ["each", "each[2]/read", "each[9]/read", "each[10]/read"]
    assert [node.path for node in nodes] == wanted


def test_nothing_that_only_the_engine_uses_is_given_back() -> None:
    output = {"_raw": "All read.", "result": "All read.", "made": [], "left_out": [], "heard": 0}

    assert plain([output, {"n": 1, "@took": ["a"]}]) == ["All read.", {"n": 1}]
