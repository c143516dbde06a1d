"""Small workflows in a few words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.engine.workflow.model.nodes import Config
from bot.engine.workflow.model.shape import Edge, Node, Workflow
from bot.engine.workflow.model.validate import validated


def step(name: str, type_: str = "task", config: Config | None = None, **told: Any) -> Node:
    return Node(id=name, title=name, type=type_, config=config, **told)


def edge(text: str, condition: str = "", **told: Any) -> Edge:
    """`a b` for an edge from one to the other."""
    source, target = text.split()
    return Edge(source=source, target=target, condition=condition, **told)


def flow(nodes: str | tuple[Node | str, ...], *edges: Edge | str, **told: Any) -> Workflow:
    """Names alone are tasks; an edge alone is `a b`."""
    given = tuple(nodes.split()) if isinstance(nodes, str) else nodes
    return validated(
        Workflow(
            plan="",
            nodes=tuple(step(each) if isinstance(each, str) else each for each in given),
            edges=tuple(edge(each) if isinstance(each, str) else each for each in edges),
            **told,
        )
    )


def brings(**by_path: Any) -> Any:
    """Workers that bring that, by path or node; `n` for all but what is named."""

    def work(node: Node, _names: Mapping[str, Any], path: str) -> Any:
        return by_path.get(path, by_path.get(node.id, f"did {node.id}"))

    return work
