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

from bot.engine.workflow.model.layout import Layout
from bot.engine.workflow.model.nodes import Case, Foreach, Join, Loop, NodeType, Switch
from bot.engine.workflow.model.shape import Edge, Node, Workflow
from bot.engine.workflow.model.validate import faults_of
from bot.engine.workflow.routing.lanes import Lanes
from bot.engine.workflow.routing.paths import place_of
from tests.bot.engine.workflow.flows.world import graph, node, task
from tests.bot.engine.workflow.routing.graphs import Draw, by_path, told, workflows
from tests.bot.engine.workflow.routing.sim import Sim
from tests.thorough import sampled

_TURNS = 2_000
_law = settings(phases=[Phase.generate], max_examples=sampled(1_000, 100))


class Sessions(Sim):
    """Looks at each turn who works in which session."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.lanes = Lanes(Layout(self.workflow))

    def _finish(self, path: str) -> None:
        places = [place for each in self.flow.running if (place := place_of(each))]
        shared = Counter(map(self.lanes.of, places))
        assert all(n == 1 for n in shared.values()), (shared, places)
        super()._finish(path)


@given(workflows(parallel=4), st.integers(0, 1000))
@_law
def test_steps_under_way_at_the_same_time_have_sessions_of_their_own(
    workflow: Workflow, seed: int
) -> None:
    assume(not list(faults_of(workflow)))
    note(told(workflow))
    Sessions(workflow, by_path, seed=seed).run(_TURNS)


@st.composite
def webs(draw: Draw) -> Workflow:
    """Steps that part and meet again in any way."""
    ids = [f"n{n}" for n in range(draw(st.integers(4, 14)))]
    kinds = (*[NodeType.TASK] * 4, NodeType.PARALLEL, NodeType.CONDITION, NodeType.JOIN)
    modes = st.sampled_from((Join(mode="all"), Join(mode="any")))
    nodes = [node(ids[0], NodeType.START)]
    for name in ids[1:]:
        kind = draw(st.sampled_from(kinds))
        nodes.append(node(name, kind, draw(modes) if kind is NodeType.JOIN else None))
    edges = []
    for at, target in enumerate(ids[1:], 1):
        near = st.integers(max(0, at - 5), at - 1)
        for source in sorted(draw(st.sets(near, min_size=1, max_size=3))):
            condition = draw(st.sampled_from(("", "", f"outputs.n{source}.n > 1", "true")))
            edges.append(Edge(source=ids[source], target=target, condition=condition))
    return Workflow(plan="", nodes=tuple(nodes), edges=tuple(edges), parallel=5)


@given(webs(), st.integers(0, 1000))
@_law
def test_however_steps_part_and_meet_none_waits_for_the_session_of_another(
    workflow: Workflow, seed: int
) -> None:
    assume(not list(faults_of(workflow)))
    note(told(workflow))
    Sessions(workflow, never_fails, seed=seed).run(_TURNS)


def never_fails(_node: Node, _names: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    return {"summary": path, "n": sum(map(ord, path)) % 4}


FORK = node("fork", NodeType.PARALLEL)
WAYS: tuple[Node | str, ...] = (
    FORK,
    *map(task, ("a", "b", "a1", "a2", "a3", "b1", "b2", "b3", "last")),
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


def lane(workflow: Workflow, path: str) -> str:
    place = place_of(path)
    assert place is not None
    return Lanes(Layout(workflow)).of(place)


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
    assert lane(graph(*WAYS, parallel=2), path) == of


def test_one_after_the_other_all_share_the_tasks_own() -> None:
    workflow = graph(*WAYS, parallel=1)

    assert {lane(workflow, each.id) for each in workflow.nodes} == {""}


def test_a_switch_goes_on_in_one_session_whichever_way_it_takes() -> None:
    ways = Switch(
        expression="outputs.a.n",
        cases=(Case(value=1, target="one"), Case(value=2, target="two")),
        default="one",
    )
    workflow = graph(
        task("a"),
        node("which", NodeType.SWITCH, ways),
        *map(task, ("one", "two", "end")),
        "a>which>one>end",
        "which>two>end",
        parallel=2,
    )

    assert {lane(workflow, each) for each in ("a", "one", "two", "end")} == {""}


def test_two_conditions_that_may_both_hold_part() -> None:
    workflow = graph(
        *map(task, ("a", "x", "y")),
        "a>x ? outputs.a.n > 1",
        "a>y ? outputs.a.n > 2",
        parallel=2,
    )

    assert (lane(workflow, "x"), lane(workflow, "y")) == ("x", "y")


def test_a_fork_within_a_branch_comes_back_to_that_branch() -> None:
    workflow = graph(
        FORK,
        *map(task, ("a", "b", "c", "d", "m", "e", "last")),
        node("again", NodeType.PARALLEL),
        "fork>a>again>c>m>last",
        "again>d>m",
        "fork>b>e>last",
        parallel=3,
    )

    assert [lane(workflow, each) for each in "abcdem"] == ["a", "b", "c", "d", "b", "a"]
    assert lane(workflow, "last") == ""


def test_branches_that_meet_beside_others_have_a_new_one() -> None:
    workflow = graph(
        FORK,
        *map(task, ("a", "b", "c", "d", "m", "n")),
        "fork>a>m",
        "fork>b>m",
        "fork>c>n",
        "fork>d>n",
        parallel=4,
    )

    assert (lane(workflow, "m"), lane(workflow, "n")) == ("m", "n")


def body(mode: Literal["sequential", "parallel"], n: int) -> Workflow:
    inner = Loop(mode="for", body=("read",), end="2")
    outer = Foreach(collection="variables.items", body=("inner",), mode=mode, max_parallel=2)
    return graph(
        FORK,
        task("beside"),
        node("each", NodeType.FOREACH, outer),
        node("inner", NodeType.LOOP, inner),
        task("read"),
        node("both", NodeType.JOIN, Join()),
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
    assert lane(body(mode, 2), path) == of


def test_ten_thousand_nodes_have_theirs_soon() -> None:
    """A ladder: from each node one way leads on, and one to the end."""
    names = [f"n{n}" for n in range(10_000)]
    nodes = tuple(Node(id=name, title=name) for name in names)
    edges = [Edge(source=a, target=b) for a, b in pairwise(names)]
    edges += [Edge(source=name, target=names[-1]) for name in names[:-2]]
    workflow = Workflow(plan="", nodes=nodes, edges=tuple(edges), parallel=2)

    assert lane(workflow, names[0]) == lane(workflow, names[-1]) == ""
