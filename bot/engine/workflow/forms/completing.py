"""What goes without saying is put in: where it starts and ends, a switch's ways, names of edges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count, pairwise

from bot.engine.workflow.model.layout import back_edges, circles
from bot.engine.workflow.model.nodes import Foreach, NodeType, Switch
from bot.engine.workflow.model.shape import Edge, Node, Workflow

_PARALLEL = 3
_CHOOSING = {NodeType.CONDITION, NodeType.SWITCH, NodeType.PARALLEL, NodeType.JOIN}


def completed(workflow: Workflow) -> Workflow:
    """The same workflow with nothing left to be guessed. Done again it changes nothing; faults
    stay what they are."""
    if not workflow.nodes:
        return workflow
    edges = [*_outside_of_loops(workflow)]
    edges = [*edges, *_ways_of_switches(workflow, edges)]
    nodes, edges = _from_start_to_end(workflow, edges)
    return replace(workflow, nodes=tuple(nodes), edges=tuple(_named(edges)))


def in_order(nodes: Iterable[Node]) -> tuple[Edge, ...]:
    """The edges that are meant where none are written: each node behind the one before it, in
    bodies too. None where the nodes part ways."""
    all_of_them = tuple(nodes)
    if any(node.type in _CHOOSING for node in all_of_them):
        return ()
    owner = {inner: node.id for node in all_of_them for inner in node.body}
    rings: dict[str, list[Node]] = {}
    for node in all_of_them:
        rings.setdefault(owner.get(node.id, ""), []).append(node)
    return tuple(
        Edge(source=one.id, target=two.id) for ring in rings.values() for one, two in pairwise(ring)
    )


def parallel_of(nodes: Iterable[Node]) -> int:
    """How many steps may run at once where nobody has said so."""
    parts = any(
        node.type == NodeType.PARALLEL
        or (isinstance(node.config, Foreach) and node.config.mode == "parallel")
        for node in nodes
    )
    return _PARALLEL if parts else 1


def bounded(workflow: Workflow, most: int) -> Workflow:
    """With a bound for each edge that leads back and has none."""
    names = [node.id for node in workflow.nodes]
    known = {edge.name for edge in back_edges(names, workflow.edges)}
    left = [edge for edge in workflow.edges if edge.name not in known]
    on_circles = circles(names, left)
    back = set(_leading_back([node for node in names if node in on_circles], left))
    return replace(
        workflow,
        edges=tuple(
            replace(edge, max_loops=most) if edge in back and edge.max_loops is None else edge
            for edge in workflow.edges
        ),
    )


def _leading_back(nodes: Iterable[str], edges: Iterable[Edge]) -> Iterator[Edge]:
    """Those that lead to a node which the search has come through on its way."""
    out: dict[str, list[Edge]] = {}
    for edge in edges:
        out.setdefault(edge.source, []).append(edge)
    open_: set[str] = set()
    seen: set[str] = set()
    for root in nodes:
        if root in seen:
            continue
        way = [(root, iter(out.get(root, ())))]
        seen.add(root)
        open_.add(root)
        while way:
            node, others = way[-1]
            behind = next(others, None)
            if behind is None:
                open_.discard(node)
                way.pop()
            elif behind.target in open_:
                yield behind
            elif behind.target not in seen:
                seen.add(behind.target)
                open_.add(behind.target)
                way.append((behind.target, iter(out.get(behind.target, ()))))


def _outside_of_loops(workflow: Workflow) -> Iterator[Edge]:
    """An edge between a loop and its own body says what the body says already."""
    bodies = {node.id: set(node.body) for node in workflow.nodes if node.body}
    for edge in workflow.edges:
        inside = edge.target in bodies.get(edge.source, ())
        if not inside and edge.source not in bodies.get(edge.target, ()):
            yield edge


def _ways_of_switches(workflow: Workflow, edges: Iterable[Edge]) -> Iterator[Edge]:
    ways = {(edge.source, edge.target) for edge in edges}
    known = {node.id for node in workflow.nodes}
    for node in workflow.nodes:
        if not isinstance(node.config, Switch):
            continue
        targets = [*(case.target for case in node.config.cases), node.config.default]
        for target in dict.fromkeys(targets):
            if target in known and (node.id, target) not in ways:
                yield Edge(source=node.id, target=target)


def _from_start_to_end(workflow: Workflow, edges: list[Edge]) -> tuple[list[Node], list[Edge]]:
    """A start before all that nothing leads to, and an end behind all that leads nowhere."""
    nodes = list(workflow.nodes)
    inner = {name for node in nodes for name in node.body}
    outer = [node for node in nodes if node.id not in inner] or nodes
    kinds = {node.type for node in outer}
    taken = {node.id for node in nodes}
    names = [node.id for node in outer]
    back = {id(edge) for edge in back_edges(names, edges)}
    reached = {edge.target for edge in edges if id(edge) not in back}
    leading = {edge.source for edge in edges}
    made = list(edges)
    if NodeType.START not in kinds:
        first = [node.id for node in outer if node.id not in reached and node.type != NodeType.END]
        start = Node(id=_free("start", taken), title="start", type=NodeType.START)
        nodes = [start, *nodes]
        made = [*(Edge(source=start.id, target=name) for name in first or names[:1]), *made]
    if NodeType.END not in kinds:
        last = [node.id for node in outer if node.id not in leading and node.type != NodeType.START]
        end = Node(id=_free("end", taken), title="end", type=NodeType.END)
        nodes = [*nodes, end]
        made = [*made, *(Edge(source=name, target=end.id) for name in last or names[-1:])]
    return nodes, made


def _named(edges: Iterable[Edge]) -> Iterator[Edge]:
    edges = tuple(edges)
    taken = {edge.id for edge in edges}
    free = (f"e{n}" for n in count(1) if f"e{n}" not in taken)
    for edge in edges:
        yield edge if edge.id else replace(edge, id=next(free))


def _free(name: str, taken: set[str]) -> str:
    names = (name if n == 1 else f"{name}_{n}" for n in count(1))
    return next(each for each in names if each not in taken)
