"""Which step hears what the helper of another reports."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from bot.engine.workflow.definition import Workflow
from bot.engine.workflow.node_runs import parse_activation
from bot.engine.workflow.nodes.foreach import ForeachConfig
from bot.engine.workflow.nodes.registry import NodeType
from bot.engine.workflow.report_delivery import reports_to_withhold
from storage.records.tasks import NodeStatus
from storage.tasks import SubagentReport
from tests.bot.engine.workflow.integration.workflow_world import make_graph, make_node, task_node
from tests.bot.engine.workflow.scheduler_simulator import SchedulerSimulator


def each(mode: Literal["sequential", "parallel"]) -> Workflow:
    config = ForeachConfig(collection="variables.items", body=("read", "write"), mode=mode)
    return make_graph(
        make_node("each", NodeType.FOREACH, config),
        *map(task_node, ("read", "write", "last")),
        "read>write",
        "each>last",
        variables={"items": ["a", "b"]},
        parallel=2,
    )


def loop() -> Workflow:
    """From `check` an edge leads back to before the branches."""
    plan = make_graph(
        task_node("begin"),
        make_node("fork", NodeType.PARALLEL),
        *map(task_node, ("a", "b", "check", "end")),
        "begin>fork>a>check",
        "fork>b>check>end",
        parallel=2,
    )
    back = replace(plan.edges[0], id="", source="check", target="begin", max_loops=2)
    return replace(plan, edges=(*plan.edges, replace(back, condition="loopCount < 2")))


def is_delivered(workflow: Workflow, sender: str, path: str) -> bool:
    sim, place = SchedulerSimulator(workflow), parse_activation(path)
    assert place is not None
    runs = {each: sim._run(each, NodeStatus.DONE) for each in (sender,)}
    return not reports_to_withhold(
        sim.scheduler.topology,
        place,
        [SubagentReport("found", "look", sender)],
        runs,
        running_paths=sim.scheduler.running_paths,
    )


@pytest.mark.parametrize(
    ("mode", "sender", "path", "does"),
    [
        ("parallel", "each[0]/read", "each[0]/write", True),
        ("parallel", "each[0]/read", "each[1]/write", False),
        ("parallel", "each[0]/read", "each[1]/read", False),
        ("parallel", "each[0]/write", "last", True),
        ("sequential", "each[0]/write", "each[1]/read", True),
        ("sequential", "each[0]/write", "last", True),
    ],
)
def test_in_rounds_it_is_the_same_round_or_what_comes_after(
    mode: Literal["sequential", "parallel"], sender: str, path: str, does: bool
) -> None:
    assert is_delivered(each(mode), sender, path) is does


@pytest.mark.parametrize(
    ("sender", "path", "does"),
    [
        ("a", "check", True),
        ("a", "b", False),
        ("a", "begin#2", True),
        ("check", "a#2", True),
        ("a", "a#2", True),
    ],
)
def test_what_an_edge_back_begins_anew_comes_after(sender: str, path: str, does: bool) -> None:
    assert is_delivered(loop(), sender, path) is does


def test_where_nobody_is_left_behind_the_sender_whoever_begins_hears_it() -> None:
    plan = make_graph(*map(task_node, ("s", "a", "b")), "s>a", "s>b", parallel=2)

    assert is_delivered(plan, "a", "b")


def test_where_the_sender_is_gone_from_the_plan_whoever_begins_hears_it() -> None:
    plan = make_graph(*map(task_node, ("s", "a", "b")), "s>a", "s>b", parallel=2)

    assert is_delivered(plan, "nobody", "b")
