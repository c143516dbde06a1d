"""Plans as data: validity, replans and inserted steps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bot.engine.workflow.definition import (
    ROOT_GRAPH,
    Workflow,
    WorkflowEdge,
    WorkflowNode,
    WorkflowTopology,
    dump_workflow,
    load_workflow,
)
from bot.engine.workflow.field_reader import InvalidGraph
from bot.engine.workflow.nodes.contract import NodeConfig
from bot.engine.workflow.nodes.foreach import ForeachConfig
from bot.engine.workflow.nodes.human import HumanConfig
from bot.engine.workflow.nodes.join import JoinConfig
from bot.engine.workflow.nodes.registry import NodeType
from bot.engine.workflow.nodes.switch import SwitchConfig
from bot.engine.workflow.plan import (
    graft_workflow,
    insert_steps,
    linear_workflow,
    merge_with_finished,
    rename_nodes,
)
from bot.engine.workflow.scheduler import WorkflowScheduler
from bot.engine.workflow.serialization.reader import read_workflow
from bot.engine.workflow.validation import find_issues, validate_workflow
from storage.records.tasks import NodeRun, NodeStatus, TaskId
from tests.bot.engine.workflow.random_workflows import workflows
from tests.thoroughness import sampled

NEW = read_workflow(
    json.dumps(
        {
            "name": "x",
            "nodes": [
                {"id": "find-it", "prompt": "Find {{outputs.pick}}"},
                {"id": "each", "type": "foreach", "collection": "outputs.find_it.items",
                 "bodyNodes": ["do"]},
                {"id": "do", "prompt": "{{item}} of {{outputs['find-it'].items}}"},
                {"id": "pick", "type": "switch",
                 "switch": {"expression": "outputs.find_it.n-1",
                            "cases": [{"value": 1, "targetNode": "find-it"}]}},
            ],
            "edges": [
                {"from": "find-it", "to": "each", "condition": "nodeStates.find_it == 'done'"},
                {"from": "each", "to": "pick"},
                {"from": "pick", "to": "find-it", "maxLoops": 2},
            ],
        }
    )
)  # fmt: skip
NEW = replace(NEW, outputs={"n": "outputs.find_it.n + outputs.find_item"})


def graft_node(name: str, kind: str = NodeType.TASK) -> WorkflowNode:
    return WorkflowNode(id=name, title=name, type=kind)


def test_a_node_is_renamed_wherever_it_is_spoken_of() -> None:
    known = rename_nodes(NEW, {"find-it": "find-it_2", "do": "do_2"})

    each, pick = known.nodes_by_id["each"].config, known.nodes_by_id["pick"].config
    assert isinstance(each, ForeachConfig)
    assert isinstance(pick, SwitchConfig)
    assert (each.collection, each.body) == ("outputs.find_it_2.items", ("do_2",))
    assert (pick.expression, pick.cases[0].target) == ("outputs.find_it_2.n-1", "find-it_2")
    assert known.nodes_by_id["do_2"].detail == "{{item}} of {{outputs['find-it_2'].items}}"
    assert known.nodes_by_id["find-it_2"].detail == "Find {{outputs.pick}}"
    assert known.outputs == {"n": "outputs.find_it_2.n + outputs.find_item"}
    assert [edge.condition for edge in known.edges if edge.condition] == [
        "nodeStates.find_it_2 == 'done'"
    ]
    assert ("pick", "find-it_2") in {(edge.source, edge.target) for edge in known.edges}


def test_it_begins_behind_what_people_have_put_in() -> None:
    over = (graft_node("start", "start"), graft_node("do"))
    whole = graft_workflow(
        NEW, finished=over, leading=(graft_node("a"), graft_node("b")), taken_ids=["find-it"]
    )

    assert [each.id for each in whole.nodes] == [
        "do", "a", "b", "find-it_2", "each", "do_2", "pick", "end",
    ]  # fmt: skip
    ways = [(edge.source, edge.target) for edge in whole.edges]
    assert ways[:2] == [("a", "b"), ("b", "find-it_2")]


def test_names_that_are_free_stay() -> None:
    whole = graft_workflow(NEW, finished=(), leading=(), taken_ids=())

    assert {each.id for each in whole.nodes} == {"find-it", "each", "do", "pick", "end"}


def test_what_is_done_with_leads_nowhere() -> None:
    over = (NEW.nodes_by_id["each"], NEW.nodes_by_id["pick"])

    whole = graft_workflow(NEW, finished=over, leading=(), taken_ids=())

    assert [(each.type, each.config) for each in whole.nodes[:2]] == [(NodeType.TASK, None)] * 2
    assert not {"each", "pick"} & {edge.source for edge in whole.edges}


@settings(max_examples=sampled(500, 40), deadline=None)
@given(old=workflows(), new=workflows(), data=st.data())
def test_whatever_is_put_behind_whatever_it_can_be_run_and_added_to(
    old: Workflow, new: Workflow, data: st.DataObject
) -> None:
    assume(not list(find_issues(old)) and not list(find_issues(new)))
    outer = set(WorkflowTopology(old).scope_graphs[ROOT_GRAPH].nodes)
    over = [each for each in old.nodes if each.id in outer and data.draw(st.booleans())]
    given_ = [
        replace(graft_node(name), given=True)
        for name in ("x1", "x2")[: data.draw(st.integers(0, 2))]
    ]

    whole = graft_workflow(
        new, finished=over, leading=given_, taken_ids=[each.id for each in old.nodes]
    )

    assert not list(find_issues(whole))
    assert len(insert_steps(whole, {}, ["more"]).nodes) == len(whole.nodes) + 1


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
    asks = WorkflowNode(
        id="h", title="?", type=NodeType.HUMAN, config=HumanConfig(assignee=("Ann",))
    )
    body = dump_workflow(Workflow(plan="p", nodes=(asks,)))
    body["nodes"][0]["config"]["assignee"] = "Ann"

    assert load_workflow(body).nodes[0].config == HumanConfig(assignee=("Ann",))
    body["nodes"][0]["config"]["assignee"] = ""
    assert load_workflow(body).nodes[0].config == HumanConfig()


def make_nodes(n: int) -> list[WorkflowNode]:
    return [WorkflowNode(id=f"s{i}", title=f"step {i}") for i in range(1, n + 1)]


@st.composite
def acyclic_workflows(draw: st.DrawFn) -> Workflow:
    """Any graph whose edges point from earlier to later nodes."""
    n = draw(st.integers(1, 8))
    pairs = [(a, b) for a in range(n) for b in range(a + 1, n)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    made = make_nodes(n)
    edges = tuple(WorkflowEdge(source=made[a].id, target=made[b].id) for a, b in chosen)
    return validate_workflow(Workflow(plan="p", nodes=tuple(made), edges=edges))


def scheduler_of(workflow: Workflow, runs: Mapping[str, NodeRun]) -> WorkflowScheduler:
    return WorkflowScheduler(
        TaskId("t"), workflow, runs, zone=ZoneInfo("UTC"), text=lambda key, **_: key, warn=print
    )


def ready_step_ids(workflow: Workflow, runs: Mapping[str, NodeRun]) -> list[str]:
    return [place.path for place, _ in scheduler_of(workflow, runs).ready_steps()]


@given(acyclic_workflows())
def test_every_valid_graph_runs_each_node_once_and_in_order(workflow: Workflow) -> None:
    runs: dict[str, NodeRun] = {}
    for _ in workflow.nodes:
        first = ready_step_ids(workflow, runs)[0]
        assert first not in runs
        waits_for = {edge.source for edge in workflow.edges if edge.target == first}
        assert waits_for <= runs.keys()
        runs[first] = run_of(first)

    assert scheduler_of(workflow, runs).is_complete


@given(acyclic_workflows(), st.data())
def test_a_flow_kept_up_with_each_run_knows_what_one_made_anew_would(
    workflow: Workflow, data: st.DataObject
) -> None:
    flow = scheduler_of(workflow, {})
    runs: dict[str, NodeRun] = {}
    for _ in range(2 * len(workflow.nodes)):
        can = [place.path for place, _ in flow.ready_steps()] or sorted(flow.running_paths)
        if not can:
            break
        path = data.draw(st.sampled_from(can))
        ends = [NodeStatus.DONE, NodeStatus.RUNNING, NodeStatus.PENDING, NodeStatus.SKIPPED]
        runs[path] = run_of(path, data.draw(st.sampled_from(ends)))
        flow.record_run(runs[path])

        anew = scheduler_of(workflow, runs)
        assert list(flow.ready_steps()) == list(anew.ready_steps())
        assert flow.is_complete == anew.is_complete
        assert flow.running_paths == anew.running_paths


@given(acyclic_workflows())
def test_a_workflow_survives_the_store(workflow: Workflow) -> None:
    assert load_workflow(dump_workflow(workflow)) == workflow


@given(acyclic_workflows(), st.data())
def test_a_replan_keeps_what_is_settled_first_and_reuses_no_id(
    workflow: Workflow, data: st.DataObject
) -> None:
    done = data.draw(st.sets(st.sampled_from([node.id for node in workflow.nodes])))
    runs = {each: run_of(each) for each in done}

    new = merge_with_finished(workflow, runs, linear_workflow("new", make_nodes(3)))

    kept = [node.id for node in new.nodes[: len(done)]]
    assert kept == [node.id for node in workflow.nodes if node.id in done]
    fresh = {node.id for node in new.nodes[len(done) :]}
    assert not fresh & {node.id for node in workflow.nodes}
    first = next(iter(new.nodes[len(done) :]))
    assert ready_step_ids(new, runs) == [first.id]


def test_a_replan_drops_a_step_that_people_put_in_once_it_was_begun() -> None:
    workflow = insert_steps(linear_workflow("p", make_nodes(2)), {}, ["mine", "too"])
    tried, other = (node.id for node in workflow.nodes[:2])
    runs = {tried: run_of(tried, NodeStatus.PENDING)}

    new = merge_with_finished(workflow, runs, linear_workflow("new", make_nodes(1)))

    assert [node.id for node in new.nodes][:1] == [other]
    assert [node.title for node in new.nodes][1:] == ["step 1"]


def test_a_failed_step_leaves_the_plan_stuck_and_is_named() -> None:
    failed = run_of("s1", NodeStatus.FAILED)
    flow = scheduler_of(linear_workflow("p", make_nodes(2)), {"s1": failed})

    assert flow.failed_run == failed
    assert not list(flow.ready_steps())


def test_an_empty_plan_is_complete() -> None:
    assert scheduler_of(linear_workflow("p", ()), {}).is_complete


def test_all_faults_are_told_at_once() -> None:
    twice = WorkflowNode(id="a", title="a")
    bad = Workflow(
        plan="p",
        nodes=(twice, twice, WorkflowNode(id="@plan", title="b")),
        edges=(WorkflowEdge(source="a", target="nowhere"),),
    )

    with pytest.raises(InvalidGraph) as refusal:
        validate_workflow(bad)

    told = [str(fault) for fault in refusal.value.issues]
    assert [each.split()[1] for each in told] == ["twice", "bad_id", "unknown_node"]


def test_a_circle_is_refused() -> None:
    circle = (WorkflowEdge(source="s1", target="s2"), WorkflowEdge(source="s2", target="s1"))
    with pytest.raises(InvalidGraph, match="unbounded"):
        validate_workflow(Workflow(plan="p", nodes=tuple(make_nodes(2)), edges=circle))


def test_a_body_of_another_shape_is_refused() -> None:
    with pytest.raises(InvalidGraph):
        load_workflow({"nodes": [{"nid": 3}]})


def test_a_waiting_source_holds_its_targets_back() -> None:
    workflow = linear_workflow("p", make_nodes(2))
    runs = {"s1": replace(run_of("s1"), status=NodeStatus.WAITING)}

    assert not ready_step_ids(workflow, runs)


@pytest.mark.parametrize("config", [HumanConfig(), JoinConfig(), HumanConfig(auto_approve=True)])
def test_what_a_node_is_told_comes_back_though_it_is_all_default(config: NodeConfig) -> None:
    node = WorkflowNode(id="a", title="a", type=config.kind, config=config)
    plan = Workflow(plan="", nodes=(node,))

    assert load_workflow(dump_workflow(plan)) == plan


def test_what_undoes_a_step_stays_outside_a_chain_that_is_changed() -> None:
    hotel = WorkflowNode(id="hotel", title="hotel", on_cancel="no_hotel")
    others = [WorkflowNode(id=each, title=each) for each in ("pay", "no_hotel")]
    edge = WorkflowEdge(source="hotel", target="pay")
    plan = validate_workflow(Workflow(plan="", nodes=(hotel, *others), edges=(edge,)))
    runs = {"hotel": run_of("hotel")}

    injected = insert_steps(plan, runs, ["ask"])
    wire = linear_workflow("", [WorkflowNode(id="a", title="wire")])
    replanned = merge_with_finished(plan, runs, wire)

    for changed, middle in ((injected, ["ask", "pay"]), (replanned, ["wire"])):
        titles = {node.id: node.title for node in changed.nodes}
        ways = [(titles[each.source], titles[each.target]) for each in changed.edges]
        assert ways == [*pairwise(["hotel", *middle])]
        assert changed.compensations == {"no_hotel"}
        assert not list(find_issues(changed))
