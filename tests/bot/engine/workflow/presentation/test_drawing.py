"""Drawings of a workflow: complete, well-formed and harmless."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engine.workflow.definition import Workflow, WorkflowEdge, WorkflowNode
from bot.engine.workflow.plan import linear_workflow
from bot.engine.workflow.presentation import drawing
from bot.engine.workflow.presentation.layered_layout import BoxSize, arrange_layers
from bot.engine.workflow.serialization.reader import read_workflow
from cards.catalog import catalog_for
from storage.records.people import Language
from tests.bot.engine.workflow.presentation.sample_workflow import report_workflow

EN = catalog_for(Language.ENGLISH)
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '<script>alert(1)</script>"]; end %% `x` &amp; \x1b[31m \ud800 #35;'


def titled(title: str) -> Workflow:
    return linear_workflow(
        title, [WorkflowNode(id="a", title=title), WorkflowNode(id="b", title="second")]
    )


def parsed(workflow: Workflow) -> ET.Element:
    return ET.fromstring(drawing.render_svg(workflow, EN))


def test_every_node_has_its_box_and_every_edge_its_line() -> None:
    workflow = report_workflow()
    root = parsed(workflow)

    boxes = [each for each in root.iter(f"{SVG}g") if each.get("class") == "wf-node"]
    lines = [e for e in root.iter(f"{SVG}path") if e.get("class", "").startswith("wf-edge")]
    assert len(boxes) == len(workflow.nodes)
    assert len(lines) == len(workflow.edges)


def test_no_box_lies_on_another_and_all_are_within_the_picture() -> None:
    sizes = {f"n{n}": BoxSize(80 + 17 * (n % 5), 30 + 9 * (n % 4)) for n in range(60)}
    links = [(f"n{n}", f"n{n + 1 + n % 7}") for n in range(50)]
    drawn = arrange_layers(sizes, links)

    boxes = [(spot, sizes[name]) for name, spot in drawn.positions.items()]
    assert len(boxes) == 60
    for n, (a, size) in enumerate(boxes):
        assert 0 <= a.x <= drawn.width - size.width + 0.01
        assert 0 <= a.y <= drawn.height - size.height + 0.01
        for b, other in boxes[n + 1 :]:
            apart = a.x + size.width <= b.x or b.x + other.width <= a.x
            assert apart or a.y + size.height <= b.y or b.y + other.height <= a.y


def test_an_edge_leads_down_from_where_it_begins() -> None:
    sizes = dict.fromkeys(("a", "b", "c", "d"), BoxSize(80, 30))
    drawn = arrange_layers(sizes, [("a", "b"), ("b", "c"), ("a", "d"), ("d", "c"), ("a", "c")])

    for source, target in (("a", "b"), ("b", "c"), ("a", "d"), ("d", "c")):
        assert drawn.positions[source].layer_bottom < drawn.positions[target].y
    assert len(drawn.bend_points["a", "c"]) == 1


@given(st.text(min_size=1, max_size=300))
def test_whatever_a_title_holds_the_picture_is_well_formed(title: str) -> None:
    root = parsed(titled(title))

    assert root.tag == f"{SVG}svg"
    assert {each.tag.removeprefix(SVG) for each in root.iter()} <= {
        *("svg", "title", "style", "defs", "marker", "path", "rect", "g", "text", "polygon"),
    }


def test_a_picture_holds_no_script_and_nothing_from_elsewhere() -> None:
    picture = drawing.render_svg(titled(HOSTILE), EN)

    assert "<script" not in picture
    links = re.findall(r"(?:href|src|url\()=?[^ >]*", picture.replace("http://www.w3.org", ""))
    assert set(links) <= {'url(#wf-tip)"'}


@given(st.text(min_size=1, max_size=300))
def test_whatever_a_title_holds_mermaid_text_keeps_its_lines(title: str) -> None:
    lines = drawing.render_mermaid(titled(title), EN).splitlines()

    assert lines[0] == "flowchart TD"
    assert re.fullmatch(r'  n0\["[^"\[\]<>`|]*"\]', lines[1])
    assert lines[2:] == ['  n1["second"]', "  n0 --> n1"]


def test_mermaid_text_has_bodies_choices_and_ways_back() -> None:
    text = drawing.render_mermaid(report_workflow(), EN)

    assert 'subgraph n6["Every letter"]\n    n7["Read the letter' in text
    assert '{"Large?"}' in text
    assert '-->|"rejected"|' in text
    assert '-.->|"≤3"|' in text


@pytest.mark.parametrize("n", [200, 5_000])
def test_a_very_large_workflow_is_drawn_in_part(n: int) -> None:
    nodes = tuple(WorkflowNode(id=f"n{each}", title=f"Step {each}") for each in range(n))
    edges = tuple(WorkflowEdge(source=f"n{each // 3}", target=f"n{each}") for each in range(1, n))
    workflow = Workflow(plan="", nodes=nodes, edges=edges)

    picture, text = drawing.render_svg(workflow, EN), drawing.render_mermaid(workflow, EN)

    assert picture.count('class="wf-box"') == 200
    assert ("… and 4800 more" in picture) is (n == 5_000)
    assert len(picture) < 250_000
    assert ("4800 more nodes are left out" in text) is (n == 5_000)


def test_what_is_written_in_chinese_fits_its_box() -> None:
    root = parsed(titled("收集本周所有客户来信并整理成一份简短的报告交给团队讨论"))

    box = next(each for each in root.iter(f"{SVG}rect") if each.get("class") == "wf-box")
    lines = [each.text or "" for each in root.iter(f"{SVG}text")][:2]
    assert all(len(line) * 13 < float(box.get("width", "0")) for line in lines)
    assert lines[1].endswith("…")


def test_a_loop_on_itself_is_drawn() -> None:
    workflow = titled("again and again")
    again = replace(
        workflow, edges=(*workflow.edges, WorkflowEdge(source="a", target="a", max_loops=2))
    )

    assert "≤2" in drawing.render_svg(again, EN)


@pytest.mark.parametrize("language", list(Language))
def test_no_word_of_the_engines_own_is_shown_to_people(language: Language) -> None:
    words = catalog_for(language)
    workflow = read_workflow('{"name": "x", "nodes": [{"id": "a", "name": "Otter"}]}')

    for drawn in (
        drawing.render_svg(workflow, words),
        drawing.render_mermaid(workflow, words),
    ):
        texts = set(re.findall(r"""[">]([^<>"]+)[<"]""", drawn))
        assert {words("graph.type.start"), words("graph.type.end"), "Otter"} <= texts
        if language is Language.CHINESE:
            assert not {"start", "end", "task", "pending"} & texts
