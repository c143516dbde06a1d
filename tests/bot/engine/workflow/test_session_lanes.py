"""Steps that can run at the same time never share a session, and those that follow each other do
where nothing parts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Literal

import pytest
from hypothesis import Phase, assume, given, note, settings
from hypothesis import strategies as st

from bot.engine.workflow.definition import Workflow, WorkflowEdge, WorkflowNode, WorkflowTopology
from bot.engine.workflow.node_runs import parse_activation
from bot.engine.workflow.nodes.foreach import ForeachConfig
from bot.engine.workflow.nodes.join import JoinConfig
from bot.engine.workflow.nodes.loop import LoopConfig
from bot.engine.workflow.nodes.registry import NodeType
from bot.engine.workflow.nodes.switch import SwitchCase, SwitchConfig
from bot.engine.workflow.session_lanes import SessionLanes
from bot.engine.workflow.validation import find_issues
from tests.bot.engine.workflow.integration.workflow_world import make_graph, make_node, task_node
from tests.bot.engine.workflow.random_workflows import Draw, by_path, dump_text, workflows
from tests.bot.engine.workflow.scheduler_simulator import SchedulerSimulator
from tests.thoroughness import sampled

_TURNS = 2_000
_law = settings(phases=[Phase.generate], max_examples=sampled(1_000, 50))


class SessionSimulator(SchedulerSimulator):
    """Looks at each turn who works in which session."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.lanes = SessionLanes(WorkflowTopology(self.workflow))

    def _finish(self, path: str) -> None:
        places = [
            place for each in self.scheduler.running_paths if (place := parse_activation(each))
        ]
        shared = Counter(map(self.lanes.lane_of, places))
        assert all(n == 1 for n in shared.values()), (shared, places)
        super()._finish(path)


@given(workflows(parallel=4), st.integers(0, 1000))
@_law
def test_steps_under_way_at_the_same_time_have_sessions_of_their_own(
    workflow: Workflow, seed: int
) -> None:
    assume(not list(find_issues(workflow)))
    note(dump_text(workflow))
    SessionSimulator(workflow, by_path, seed=seed).run(_TURNS)


@st.composite
def random_dags(draw: Draw) -> Workflow:
    """Steps that part and meet again in any way."""
    ids = [f"n{n}" for n in range(draw(st.integers(4, 14)))]
    kinds = (*[NodeType.TASK] * 4, NodeType.PARALLEL, NodeType.CONDITION, NodeType.JOIN)
    modes = st.sampled_from((JoinConfig(mode="all"), JoinConfig(mode="any")))
    nodes = [make_node(ids[0], NodeType.START)]
    for name in ids[1:]:
        kind = draw(st.sampled_from(kinds))
        nodes.append(make_node(name, kind, draw(modes) if kind is NodeType.JOIN else None))
    edges = []
    for at, target in enumerate(ids[1:], 1):
        near = st.integers(max(0, at - 5), at - 1)
        for source in sorted(draw(st.sets(near, min_size=1, max_size=3))):
            condition = draw(st.sampled_from(("", "", f"outputs.n{source}.n > 1", "true")))
            edges.append(WorkflowEdge(source=ids[source], target=target, condition=condition))
    return Workflow(plan="", nodes=tuple(nodes), edges=tuple(edges), parallel=5)


@given(random_dags(), st.integers(0, 1000))
@_law
def test_however_steps_part_and_meet_none_waits_for_the_session_of_another(
    workflow: Workflow, seed: int
) -> None:
    assume(not list(find_issues(workflow)))
    note(dump_text(workflow))
    SessionSimulator(workflow, never_fails, seed=seed).run(_TURNS)


def never_fails(_node: WorkflowNode, _names: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    return {"summary": path, "n": sum(map(ord, path)) % 4}


FORK = make_node("fork", NodeType.PARALLEL)
WAYS: tuple[WorkflowNode | str, ...] = (
    FORK,
    *map(task_node, ("a", "b", "a1", "a2", "a3", "b1", "b2", "b3", "last")),
    "fork>a",
    "fork>b",
    "a>a1 ? outputs.a.ok == true",
    "a>a2",
    "a1>a3",
    "a2>a3",
    "b>b1 ? outputs.b.ok == true",
    "b>b2",
    "b1>b3",
    "b2>b3",
    "a3>last",
    "b3>last",
)


def lane_at(workflow: Workflow, path: str) -> str:
    place = parse_activation(path)
    assert place is not None
    return SessionLanes(WorkflowTopology(workflow)).lane_of(place)


@pytest.mark.parametrize(
    ("path", "of"),
    [
        ("a", "a"),
        ("a1", "a"),
        ("a2", "a"),
        ("a3", "a"),
        ("b1", "b"),
        ("b3", "b"),
        ("last", ""),
    ],
)
def test_a_branch_keeps_its_session_behind_a_choice(path: str, of: str) -> None:
    assert lane_at(make_graph(*WAYS, parallel=2), path) == of


def test_one_after_the_other_all_share_the_tasks_own() -> None:
    workflow = make_graph(*WAYS, parallel=1)

    assert {lane_at(workflow, each.id) for each in workflow.nodes} == {""}


def test_a_switch_goes_on_in_one_session_whichever_way_it_takes() -> None:
    ways = SwitchConfig(
        expression="outputs.a.n",
        cases=(SwitchCase(value=1, target="one"), SwitchCase(value=2, target="two")),
        default="one",
    )
    workflow = make_graph(
        task_node("a"),
        make_node("which", NodeType.SWITCH, ways),
        *map(task_node, ("one", "two", "end")),
        "a>which>one>end",
        "which>two>end",
        parallel=2,
    )

    assert {lane_at(workflow, each) for each in ("a", "one", "two", "end")} == {""}


def test_two_conditions_that_may_both_hold_part() -> None:
    workflow = make_graph(
        *map(task_node, ("a", "x", "y")),
        "a>x ? outputs.a.n > 1",
        "a>y ? outputs.a.n > 2",
        parallel=2,
    )

    assert (lane_at(workflow, "x"), lane_at(workflow, "y")) == ("x", "y")


def test_a_fork_within_a_branch_comes_back_to_that_branch() -> None:
    workflow = make_graph(
        FORK,
        *map(task_node, ("a", "b", "c", "d", "m", "e", "last")),
        make_node("again", NodeType.PARALLEL),
        "fork>a>again>c>m>last",
        "again>d>m",
        "fork>b>e>last",
        parallel=3,
    )

    assert [lane_at(workflow, each) for each in "abcdem"] == ["a", "b", "c", "d", "b", "a"]
    assert lane_at(workflow, "last") == ""


def test_branches_that_meet_beside_others_have_a_new_one() -> None:
    workflow = make_graph(
        FORK,
        *map(task_node, ("a", "b", "c", "d", "m", "n")),
        "fork>a>m",
        "fork>b>m",
        "fork>c>n",
        "fork>d>n",
        parallel=4,
    )

    assert (lane_at(workflow, "m"), lane_at(workflow, "n")) == ("m", "n")


def body(mode: Literal["sequential", "parallel"], n: int) -> Workflow:
    inner = LoopConfig(mode="for", body=("read",), end="2")
    outer = ForeachConfig(collection="variables.items", body=("inner",), mode=mode, max_parallel=2)
    return make_graph(
        FORK,
        task_node("beside"),
        make_node("each", NodeType.FOREACH, outer),
        make_node("inner", NodeType.LOOP, inner),
        task_node("read"),
        make_node("both", NodeType.JOIN, JoinConfig()),
        "fork>each>both",
        "fork>beside>both",
        parallel=n,
        variables={"items": ["a", "b"]},
    )


@pytest.mark.parametrize(
    ("mode", "path", "of"),
    [
        ("sequential", "each[0]/inner[0]/read", "each"),
        ("sequential", "each[1]/inner[1]/read", "each"),
        ("parallel", "each[0]/inner[0]/read", "each[0]/each"),
        ("parallel", "each[0]/inner[1]/read", "each[0]/each"),
        ("parallel", "each[1]/inner[0]/read", "each[1]/each"),
    ],
)
def test_rounds_that_run_beside_each_other_have_their_own(
    mode: Literal["sequential", "parallel"], path: str, of: str
) -> None:
    assert lane_at(body(mode, 2), path) == of


def test_ten_thousand_nodes_have_theirs_soon() -> None:
    """A ladder: from each node one way leads on, and one to the end."""
    names = [f"n{n}" for n in range(10_000)]
    nodes = tuple(WorkflowNode(id=name, title=name) for name in names)
    edges = [WorkflowEdge(source=a, target=b) for a, b in pairwise(names)]
    edges += [WorkflowEdge(source=name, target=names[-1]) for name in names[:-2]]
    workflow = Workflow(plan="", nodes=nodes, edges=tuple(edges), parallel=2)

    assert lane_at(workflow, names[0]) == lane_at(workflow, names[-1]) == ""
