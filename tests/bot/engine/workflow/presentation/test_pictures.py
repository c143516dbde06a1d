"""Pictures of plans and runs: what was taken is marked, loops lie beside boxes, much is folded."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

from bot.engine.workflow.definition import Workflow, WorkflowEdge, WorkflowNode
from bot.engine.workflow.presentation import drawing, pictures, timeline
from bot.engine.workflow.presentation.collapse import fold_workflow
from bot.engine.workflow.serialization.reader import read_workflow
from cards.catalog import catalog_for
from storage.records.people import Language
from storage.records.traces import SpanKind, SpanState, Trace, TraceSpan
from tests.bot.engine.workflow.scheduler_simulator import SchedulerSimulator

EN, ZH = catalog_for(Language.ENGLISH), catalog_for(Language.CHINESE)
REVIEW = """
name: 周报
nodes:
  - {id: write, name: 写初稿}
  - {id: review, name: 审阅}
  - {id: fix, name: 修改}
  - {id: each, type: foreach, collection: "[1, 2]", name: 通知, bodyNodes: [ask, tell, skip]}
  - {id: ask, type: condition, name: 要通知吗}
  - {id: tell, name: 通知他}
  - {id: skip, name: 不通知}
edges:
  - {from: write, to: review}
  - {from: review, to: each, condition: outputs.review.ok}
  - {from: review, to: fix}
  - {from: fix, to: review, maxLoops: 3}
  - {from: ask, to: tell, condition: "true"}
  - {from: ask, to: skip}
"""


def test_a_run_is_marked_also_inside_bodies() -> None:
    workflow, seen = read_workflow(REVIEW), list[str]()

    def work(node: WorkflowNode, _names: object, _path: str) -> dict[str, object]:
        seen.append(node.id)
        return {"summary": "x", "ok": seen.count("review") > 1}

    sim = SchedulerSimulator(workflow, work=work)
    sim.run()
    svg = drawing.render_svg(workflow, ZH, runs=sim.runs)

    assert svg.count('class="wf-edge wf-taken"') == 7
    assert svg.count('<path class="wf-edge"') == 1
    assert svg.count('opacity="0.45"') == 1
    assert {"×2", "否则", "outputs.review.ok", "≤3"} <= set(re.findall(r">([^<>]+)</text>", svg))


def test_a_way_back_crosses_no_box() -> None:
    names = [f"n{n}" for n in range(8)]
    chain = [WorkflowEdge(source=a, target=b) for a, b in pairwise(names)]
    side = [WorkflowEdge(source="n1", target=f"s{n}") for n in range(3)]
    back = WorkflowEdge(source="n6", target="n1", max_loops=2, label="again")
    nodes = tuple(WorkflowNode(id=name, title=name) for name in (*names, "s0", "s1", "s2"))
    workflow = Workflow(plan="", nodes=nodes, edges=(*chain, *side, back))
    picture = drawing._SvgPicture(fold_workflow(workflow), EN, None)
    placed = picture._root

    points = placed.route(next(iter(placed.back_edges)))
    for point in points[1:-1]:
        for name, spot in placed.layout.positions.items():
            size = placed.sizes[name]
            if not name.startswith("\0"):
                beside = point.x <= spot.x or point.x >= spot.x + size.width
                assert beside or point.layer_bottom <= spot.y or point.y >= spot.layer_bottom


def test_a_thousand_nodes_are_folded() -> None:
    nodes = tuple(WorkflowNode(id=f"n{n}", title=f"Step {n}") for n in range(1_000))
    chain = tuple(WorkflowEdge(source=f"n{n}", target=f"n{n + 1}") for n in range(999))
    fan = tuple(
        edge
        for n in range(1, 999)
        for edge in (
            WorkflowEdge(source="n0", target=f"n{n}"),
            WorkflowEdge(source=f"n{n}", target="n999"),
        )
    )

    for edges, told in ((chain, "1000 in sequence"), (fan, "994 in parallel")):
        svg = drawing.render_svg(Workflow(plan="", nodes=nodes, edges=edges), EN)
        assert told in svg
        assert svg.count("<title>Step") <= 7


def test_pictures_are_stored_as_png(tmp_path: Path) -> None:
    start = datetime(2026, 1, 5, tzinfo=UTC)
    spans = tuple(
        TraceSpan(
            id=str(n),
            parent="0" if n else "",
            name=f"步骤 <{n}>",
            kind=SpanKind.NODE,
            state=SpanState.FAILED if n == 1 else SpanState.RUNNING,
            started_at=start + timedelta(seconds=n),
            ended_at=None if n else start + timedelta(seconds=90),
            depth=1,
        )
        for n in range(60)
    )
    trace = Trace(id="t", task_id=None, taken_at=start + timedelta(seconds=90), spans=spans)
    svg = timeline.render_timeline(trace, ZH)
    stored = pictures.save_picture(tmp_path, svg)

    assert ET.fromstring(svg).tag.endswith("svg")
    assert "……还有 20 项" in svg
    if pictures.render_png(svg) is None:
        assert stored.png == ""
    else:
        assert (tmp_path / stored.png).read_bytes().startswith(b"\x89PNG")
