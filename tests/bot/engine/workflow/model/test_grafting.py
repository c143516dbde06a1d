"""A new workflow behind what an old one has left: names that clash are changed everywhere."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bot.engine.workflow.forms.reading import read
from bot.engine.workflow.graph import inserted
from bot.engine.workflow.model import nodes
from bot.engine.workflow.model.grafting import grafted, renamed
from bot.engine.workflow.model.layout import OUTERMOST, Layout
from bot.engine.workflow.model.nodes import NodeType
from bot.engine.workflow.model.shape import Node, Workflow
from bot.engine.workflow.model.validate import faults_of
from tests.bot.engine.workflow.routing.graphs import workflows
from tests.thorough import sampled

NEW = read(
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


def node(name: str, kind: str = NodeType.TASK) -> Node:
    return Node(id=name, title=name, type=kind)


def test_a_node_is_renamed_wherever_it_is_spoken_of() -> None:
    known = renamed(NEW, {"find-it": "find-it_2", "do": "do_2"})

    each, pick = known.by_id["each"].config, known.by_id["pick"].config
    assert isinstance(each, nodes.Foreach)
    assert isinstance(pick, nodes.Switch)
    assert (each.collection, each.body) == ("outputs.find_it_2.items", ("do_2",))
    assert (pick.expression, pick.cases[0].target) == ("outputs.find_it_2.n-1", "find-it_2")
    assert known.by_id["do_2"].detail == "{{item}} of {{outputs['find-it_2'].items}}"
    assert known.by_id["find-it_2"].detail == "Find {{outputs.pick}}"
    assert known.outputs == {"n": "outputs.find_it_2.n + outputs.find_item"}
    assert [edge.condition for edge in known.edges if edge.condition] == [
        "nodeStates.find_it_2 == 'done'"
    ]
    assert ("pick", "find-it_2") in {(edge.source, edge.target) for edge in known.edges}


def test_it_begins_behind_what_people_have_put_in() -> None:
    over = (node("start", "start"), node("do"))
    whole = grafted(NEW, over=over, first=(node("a"), node("b")), taken=["find-it"])

    assert [each.id for each in whole.nodes] == [
        "do", "a", "b", "find-it_2", "each", "do_2", "pick", "end",
    ]  # fmt: skip
    ways = [(edge.source, edge.target) for edge in whole.edges]
    assert ways[:2] == [("a", "b"), ("b", "find-it_2")]


def test_names_that_are_free_stay() -> None:
    whole = grafted(NEW, over=(), first=(), taken=())

    assert {each.id for each in whole.nodes} == {"find-it", "each", "do", "pick", "end"}


def test_what_is_done_with_leads_nowhere() -> None:
    over = (NEW.by_id["each"], NEW.by_id["pick"])

    whole = grafted(NEW, over=over, first=(), taken=())

    assert [(each.type, each.config) for each in whole.nodes[:2]] == [(NodeType.TASK, None)] * 2
    assert not {"each", "pick"} & {edge.source for edge in whole.edges}


@settings(max_examples=sampled(500, 60), deadline=None)
@given(old=workflows(), new=workflows(), data=st.data())
def test_whatever_is_put_behind_whatever_it_can_be_run_and_added_to(
    old: Workflow, new: Workflow, data: st.DataObject
) -> None:
    assume(not list(faults_of(old)) and not list(faults_of(new)))
    outer = set(Layout(old).rings[OUTERMOST].nodes)
    over = [each for each in old.nodes if each.id in outer and data.draw(st.booleans())]
    given_ = [
        replace(node(name), given=True) for name in ("x1", "x2")[: data.draw(st.integers(0, 2))]
    ]

    whole = grafted(new, over=over, first=given_, taken=[each.id for each in old.nodes])

    assert not list(faults_of(whole))
    assert len(inserted(whole, {}, ["more"]).nodes) == len(whole.nodes) + 1
