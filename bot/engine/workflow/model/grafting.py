"""A workflow put behind nodes that another has left: none of its names is one of theirs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import count, pairwise
from typing import Any

from bot.engine.workflow.model import nodes
from bot.engine.workflow.model.nodes import NodeType
from bot.engine.workflow.model.shape import Edge, Node, Workflow

_SPOKEN_OF = re.compile(r"""\b(outputs|nodeStates)(\s*\.\s*|\s*\[\s*["'])(\w[\w-]*)""")
_EXPRESSIONS = {"condition", "init", "end", "step", "collection", "expression"}


def grafted(
    new: Workflow, *, over: Sequence[Node], first: Sequence[Node], taken: Iterable[str]
) -> Workflow:
    """`over` are nodes that are done with, `first` those that come one after the other before all
    of `new`, `taken` the ids that new nodes may not have. Its start is left out: it begins with
    what comes before."""
    whole = renamed(new, _names(new, {*taken, *(node.id for node in (*over, *first))}))
    starts = {node.id for node in whole.nodes if node.type == NodeType.START}
    behind = [edge for edge in whole.edges if edge.source not in starts]
    roots = [edge.target for edge in whole.edges if edge.source in starts] or _first(whole)
    chain = [Edge(source=one.id, target=two.id) for one, two in pairwise(first)]
    joints = [Edge(source=first[-1].id, target=root) for root in roots] if first else []
    past = [node for node in over if node.type not in {NodeType.START, NodeType.END}]
    return replace(
        whole,
        nodes=(
            *map(_past, past),
            *first,
            *(node for node in whole.nodes if node.id not in starts),
        ),
        edges=(*chain, *joints, *behind),
    )


def _first(workflow: Workflow) -> list[str]:
    inner = {name for node in workflow.nodes for name in node.body}
    reached = {edge.target for edge in workflow.edges}
    return [node.id for node in workflow.nodes if node.id not in inner | reached]


def _past(node: Node) -> Node:
    """Without what it led to, which is there no more."""
    led = isinstance(node.config, nodes.Loop | nodes.Foreach | nodes.Switch)
    return replace(node, type=NodeType.TASK, config=None) if led else node


def renamed(workflow: Workflow, names: Mapping[str, str]) -> Workflow:
    """The same with these nodes called otherwise, also where expressions speak of them."""
    return replace(
        workflow,
        nodes=tuple(_node(node, names) for node in workflow.nodes),
        edges=tuple(
            replace(
                edge,
                source=names.get(edge.source, edge.source),
                target=names.get(edge.target, edge.target),
                condition=_text(edge.condition, names),
                id="",
            )
            for edge in workflow.edges
        ),
        outputs={name: _text(text, names) for name, text in workflow.outputs.items()},
    )


def _names(workflow: Workflow, taken: set[str]) -> Mapping[str, str]:
    names = taken | {node.id for node in workflow.nodes}
    return {node.id: _free(node.id[:56], names) for node in workflow.nodes if node.id in taken}


def _free(name: str, taken: set[str]) -> str:
    return next(f"{name}_{n}" for n in count(2) if f"{name}_{n}" not in taken)


def _node(node: Node, names: Mapping[str, str]) -> Node:
    return replace(
        node,
        id=names.get(node.id, node.id),
        title=_text(node.title, names),
        detail=_text(node.detail, names),
        config=node.config and _config(node.config, names),
    )


def _config(config: nodes.Config, names: Mapping[str, str]) -> nodes.Config:
    told: dict[str, Any] = {each.name: getattr(config, each.name) for each in fields(config)}
    for name in told.keys() & _EXPRESSIONS:
        told[name] = _text(told[name], names)
    if isinstance(config, nodes.Loop | nodes.Foreach):
        told["body"] = tuple(names.get(each, each) for each in config.body)
    if isinstance(config, nodes.Switch):
        told["default"] = names.get(config.default, config.default)
        told["cases"] = tuple(
            replace(case, target=names.get(case.target, case.target)) for case in config.cases
        )
    if isinstance(config, nodes.Assign | nodes.Script):
        told["assignments"] = tuple(_assignment(each, names) for each in config.assignments)
    return type(config)(**told)


def _assignment(each: nodes.Assignment, names: Mapping[str, str]) -> nodes.Assignment:
    return replace(each, value=_text(str(each.value), names)) if each.is_expression else each


def _text(text: str, names: Mapping[str, str]) -> str:
    """A node with dashes is spoken of with underscores too."""
    spoken = {name.replace("-", "_"): other.replace("-", "_") for name, other in names.items()}

    def put(found: re.Match[str]) -> str:
        bracket, name = "[" in found[2], found[3]
        own, _, rest = (name, "", "") if bracket else name.partition("-")
        other = names.get(own) if bracket else spoken.get(own)
        rest = f"-{rest}" if not bracket and "-" in name else ""
        return found[0] if other is None else f"{found[1]}{found[2]}{other}{rest}"

    return _SPOKEN_OF.sub(put, text) if names else text
