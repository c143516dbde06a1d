"""Short builders for workflows, nodes and edges."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pytest

from bot.engine.workflow.definition import Workflow, WorkflowEdge, WorkflowNode
from bot.engine.workflow.field_reader import InvalidGraph, ValidationIssue
from bot.engine.workflow.nodes.contract import NodeConfig
from bot.engine.workflow.planner import format_issues
from bot.engine.workflow.serialization.reader import read_workflow
from bot.engine.workflow.validation import validate_workflow
from cards.catalog import catalog_for
from storage.records.people import Language


def make_step(
    name: str, type_: str = "task", config: NodeConfig | None = None, **told: Any
) -> WorkflowNode:
    return WorkflowNode(id=name, title=name, type=type_, config=config, **told)


def make_edge(text: str, condition: str = "", **told: Any) -> WorkflowEdge:
    """Build an edge from `a b`."""
    source, target = text.split()
    return WorkflowEdge(source=source, target=target, condition=condition, **told)


def make_workflow(
    nodes: str | tuple[WorkflowNode | str, ...], *edges: WorkflowEdge | str, **told: Any
) -> Workflow:
    """A plain name is a task; `a b` is an edge."""
    given = tuple(nodes.split()) if isinstance(nodes, str) else nodes
    return validate_workflow(
        Workflow(
            plan="",
            nodes=tuple(make_step(each) if isinstance(each, str) else each for each in given),
            edges=tuple(make_edge(each) if isinstance(each, str) else each for each in edges),
            **told,
        )
    )


IssuePlace: TypeAlias = tuple[str, str, str]
"""Key, location and field of an issue."""


def graph_text(*nodes: Any, edges: Any = None, **more: Any) -> str:
    """YAML with the task `a` and these nodes, in order unless edges are given."""
    data = {"name": "x", "nodes": [{"id": "a"}, *nodes], **more}
    return json.dumps(data if edges is None else {**data, "edges": edges})


def node_data(kind: str = "task", **fields: Any) -> dict[str, Any]:
    return {"id": "b", "type": kind, **fields}


def issues_in(text: str) -> tuple[ValidationIssue, ...]:
    with pytest.raises(InvalidGraph) as caught:
        read_workflow(text)
    return caught.value.issues


def assert_refused(text: str, expected: Sequence[IssuePlace]) -> None:
    """Exactly these issues are found, and each is formatted on a line with its location."""
    issues = issues_in(text)

    found = [(each.key, each.where, each.field) for each in issues]
    assert [place for place in expected if place not in found] == [], found
    assert len(found) <= len(expected) + 2, found
    for language in Language:
        lines = format_issues(issues, catalog_for(language)).splitlines()
        assert len(lines) == len(issues)
        for line, issue in zip(lines, issues, strict=True):
            assert line.startswith(issue.where or issue.field or line)


def read_node(node: Any, *others: Any) -> WorkflowNode:
    """The first node, read from a file with these fields."""
    text = json.dumps({"name": "x", "nodes": [node, *others]})
    return read_workflow(text).nodes_by_id[node["id"]]


def worker_returning(**by_path: Any) -> Any:
    """Workers with these results by path or node; `n` is the default."""

    def work(node: WorkflowNode, _names: Mapping[str, Any], path: str) -> Any:
        return by_path.get(path, by_path.get(node.id, f"did {node.id}"))

    return work
