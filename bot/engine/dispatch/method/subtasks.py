"""Subtasks by name: a plan's steps as people speak of them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from bot.engine.workflow.graph import Edge, Node, Workflow, validated
from storage.errors import AmbiguousId, NotFound
from storage.records.tasks import NodeRun

_NUMBER = re.compile(r"#?(\d{1,4})[.。]?")
_QUOTED = re.compile(r'(?:"([^"]+)"|“([^”]+)”|「([^」]+)」|『([^』]+)』)\s*')
_MOST_CANDIDATES = 5


def appended(workflow: Workflow, titles: Iterable[str]) -> Workflow:
    """The plan with new steps behind all it has."""
    taken = {node.id for node in workflow.nodes}
    fresh = (f"s{n}" for n in range(1, 10_000) if f"s{n}" not in taken)
    new = [Node(id=next(fresh), title=title, given=True) for title in titles]
    left = {edge.source for edge in workflow.edges}
    last = [node.id for node in workflow.nodes if node.id not in left]
    edges = list(workflow.edges)
    for node in new:
        edges += [Edge(source=each, target=node.id) for each in last]
        last = [node.id]
    return validated(replace(workflow, nodes=(*workflow.nodes, *new), edges=tuple(edges)))


def left_of(workflow: Workflow, runs: Mapping[str, NodeRun]) -> tuple[Node, ...]:
    """What is not done yet."""
    return tuple(node for node in workflow.nodes if not _settled(runs, node))


def node_named(workflow: Workflow, runs: Mapping[str, NodeRun], name: str) -> Node:
    """By its exact name before its number before a beginning that fits one alone. Of several
    with one name, the first that is not done."""
    wanted = _unquoted(name.strip())
    exact = _exact(workflow, wanted)
    if exact:
        return next((node for node in exact if not _settled(runs, node)), exact[0])
    if (number := _number(wanted)) and number <= len(workflow.nodes):
        return workflow.nodes[number - 1]
    begun = [
        node
        for node in workflow.nodes
        if wanted and node.title.casefold().startswith(wanted.casefold())
    ]
    if len({node.title for node in begun}) > 1:
        raise AmbiguousId(wanted, tuple(node.title for node in begun[:_MOST_CANDIDATES]))
    if not begun:
        raise NotFound("subtask", wanted)
    return next((node for node in begun if not _settled(runs, node)), begun[0])


def node_and_rest(workflow: Workflow, runs: Mapping[str, NodeRun], said: str) -> tuple[Node, str]:
    """A subtask's name and what follows it. The longest name that the text begins with is meant;
    quotes say where a name ends; else it is the first word."""
    said = said.strip()
    if quoted := _QUOTED.match(said):
        return node_named(workflow, runs, quoted[0]), said[quoted.end() :].strip()
    for title in sorted({node.title for node in workflow.nodes}, key=len, reverse=True):
        head, rest = said[: len(title)], said[len(title) :]
        if head.casefold() == title.casefold() and (not rest or rest[0].isspace()):
            return node_named(workflow, runs, title), rest.strip()
    first, *others = said.split(maxsplit=1) or [""]
    return node_named(workflow, runs, first), "".join(others).strip()


def _exact(workflow: Workflow, wanted: str) -> Sequence[Node]:
    same = [node for node in workflow.nodes if node.title == wanted]
    folded = wanted.casefold()
    return same or [node for node in workflow.nodes if node.title.casefold() == folded]


def _number(text: str) -> int:
    found = _NUMBER.fullmatch(text)
    return int(found[1]) if found else 0


def _unquoted(name: str) -> str:
    found = _QUOTED.fullmatch(name)
    return next(part for part in found.groups() if part).strip() if found else name


def _settled(runs: Mapping[str, NodeRun], node: Node) -> bool:
    return node.id in runs and runs[node.id].status.is_settled
