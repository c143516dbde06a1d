"""Plans as data: what may run, what is refused, what survives a replan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engine.workflow.graph import (
    BadGraph,
    Edge,
    Node,
    Workflow,
    dump_workflow,
    inserted,
    keep_finished,
    linear,
    load_workflow,
    validated,
)
from bot.engine.workflow.model.nodes import Config, Human, Join, NodeType
from bot.engine.workflow.routing.flow import Flow
from storage.records.tasks import NodeRun, NodeStatus, TaskId

NOW = datetime(2026, 1, 5, tzinfo=UTC)


def run_of(path: str, status: NodeStatus = NodeStatus.DONE) -> NodeRun:
    return NodeRun(
        task_id=TaskId("t"),
        path=path,
        status=status,
        attempt=1,
        output={},
        error="",
        started_at=NOW,
        ended_at=NOW,
    )


def test_a_plan_that_names_one_person_as_plans_once_did_can_still_be_read() -> None:
    asks = Node(id="h", title="?", type=NodeType.HUMAN, config=Human(assignee=("Ann",)))
    body = dump_workflow(Workflow(plan="p", nodes=(asks,)))
    body["nodes"][0]["config"]["assignee"] = "Ann"

    assert load_workflow(body).nodes[0].config == Human(assignee=("Ann",))
    body["nodes"][0]["config"]["assignee"] = ""
    assert load_workflow(body).nodes[0].config == Human()


def nodes(n: int) -> list[Node]:
    return [Node(id=f"s{i}", title=f"step {i}") for i in range(1, n + 1)]


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    """Any graph whose edges point from earlier to later nodes."""
    n = draw(st.integers(1, 8))
    pairs = [(a, b) for a in range(n) for b in range(a + 1, n)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    made = nodes(n)
    edges = tuple(Edge(source=made[a].id, target=made[b].id) for a, b in chosen)
    return validated(Workflow(plan="p", nodes=tuple(made), edges=edges))


def flow_of(workflow: Workflow, runs: Mapping[str, NodeRun]) -> Flow:
    return Flow(
        TaskId("t"), workflow, runs, zone=ZoneInfo("UTC"), say=lambda key, **_: key, warn=print
    )


def free(workflow: Workflow, runs: Mapping[str, NodeRun]) -> list[str]:
    return [place.path for place, _ in flow_of(workflow, runs).steps()]


@given(workflows())
def test_every_valid_graph_runs_each_node_once_and_in_order(workflow: Workflow) -> None:
    runs: dict[str, NodeRun] = {}
    for _ in workflow.nodes:
        first = free(workflow, runs)[0]
        assert first not in runs
        waits_for = {edge.source for edge in workflow.edges if edge.target == first}
        assert waits_for <= runs.keys()
        runs[first] = run_of(first)

    assert flow_of(workflow, runs).is_complete


@given(workflows(), st.data())
def test_a_flow_kept_up_with_each_run_knows_what_one_made_anew_would(
    workflow: Workflow, data: st.DataObject
) -> None:
    flow = flow_of(workflow, {})
    runs: dict[str, NodeRun] = {}
    for _ in range(2 * len(workflow.nodes)):
        can = [place.path for place, _ in flow.steps()] or sorted(flow.running)
        if not can:
            break
        path = data.draw(st.sampled_from(can))
        ends = [NodeStatus.DONE, NodeStatus.RUNNING, NodeStatus.PENDING, NodeStatus.SKIPPED]
        runs[path] = run_of(path, data.draw(st.sampled_from(ends)))
        flow.note(runs[path])

        anew = flow_of(workflow, runs)
        assert list(flow.steps()) == list(anew.steps())
        assert flow.is_complete == anew.is_complete
        assert flow.running == anew.running


@given(workflows())
def test_a_workflow_survives_the_store(workflow: Workflow) -> None:
    assert load_workflow(dump_workflow(workflow)) == workflow


@given(workflows(), st.data())
def test_a_replan_keeps_what_is_settled_first_and_reuses_no_id(
    workflow: Workflow, data: st.DataObject
) -> None:
    done = data.draw(st.sets(st.sampled_from([node.id for node in workflow.nodes])))
    runs = {each: run_of(each) for each in done}

    new = keep_finished(workflow, runs, linear("new", nodes(3)))

    kept = [node.id for node in new.nodes[: len(done)]]
    assert kept == [node.id for node in workflow.nodes if node.id in done]
    fresh = {node.id for node in new.nodes[len(done) :]}
    assert not fresh & {node.id for node in workflow.nodes}
    first = next(iter(new.nodes[len(done) :]))
    assert free(new, runs) == [first.id]


def test_a_replan_drops_a_step_that_people_put_in_once_it_was_begun() -> None:
    workflow = inserted(linear("p", nodes(2)), {}, ["mine", "too"])
    tried, other = (node.id for node in workflow.nodes[:2])
    runs = {tried: run_of(tried, NodeStatus.PENDING)}

    new = keep_finished(workflow, runs, linear("new", nodes(1)))

    assert [node.id for node in new.nodes][:1] == [other]
    assert [node.title for node in new.nodes][1:] == ["step 1"]


def test_a_failed_step_leaves_the_plan_stuck_and_is_named() -> None:
    failed = run_of("s1", NodeStatus.FAILED)
    flow = flow_of(linear("p", nodes(2)), {"s1": failed})

    assert flow.failed == failed
    assert not list(flow.steps())


def test_an_empty_plan_is_complete() -> None:
    assert flow_of(linear("p", ()), {}).is_complete


def test_all_faults_are_told_at_once() -> None:
    twice = Node(id="a", title="a")
    bad = Workflow(
        plan="p",
        nodes=(twice, twice, Node(id="@plan", title="b")),
        edges=(Edge(source="a", target="nowhere"),),
    )

    with pytest.raises(BadGraph) as refusal:
        validated(bad)

    told = [str(fault) for fault in refusal.value.faults]
    assert [each.split()[1] for each in told] == ["twice", "bad_id", "unknown_node"]


def test_a_circle_is_refused() -> None:
    circle = (Edge(source="s1", target="s2"), Edge(source="s2", target="s1"))
    with pytest.raises(BadGraph, match="unbounded"):
        validated(Workflow(plan="p", nodes=tuple(nodes(2)), edges=circle))


def test_a_body_of_another_shape_is_refused() -> None:
    with pytest.raises(BadGraph):
        load_workflow({"nodes": [{"nid": 3}]})


def test_a_waiting_source_holds_its_targets_back() -> None:
    workflow = linear("p", nodes(2))
    runs = {"s1": replace(run_of("s1"), status=NodeStatus.WAITING)}

    assert not free(workflow, runs)


@pytest.mark.parametrize("config", [Human(), Join(), Human(auto_approve=True)])
def test_what_a_node_is_told_comes_back_though_it_is_all_default(config: Config) -> None:
    kind = NodeType(config.kind)
    plan = Workflow(plan="", nodes=(Node(id="a", title="a", type=kind, config=config),))

    assert load_workflow(dump_workflow(plan)) == plan
