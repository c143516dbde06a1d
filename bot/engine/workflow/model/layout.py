"""What never changes about a workflow: who contains whom, who follows whom, which edges lead back.

A ring is the outermost level, or the body of one loop or foreach: nodes that run together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from bot.engine.workflow.model.nodes import NodeType
from bot.engine.workflow.model.shape import Edge, Node, Workflow

OUTERMOST = ""
_MOST_WORK = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """`into` and `out` are edges forward only; `back` those that lead back, by their names, and
    `region` what such an edge starts anew. `counted` lead forward, and have a bound because it is
    they that bound a circle."""

    nodes: Mapping[str, Node]
    order: Mapping[str, int]
    into: Mapping[str, tuple[Edge, ...]]
    out: Mapping[str, tuple[Edge, ...]]
    back: Mapping[str, Edge]
    back_out: Mapping[str, tuple[Edge, ...]]
    region: Mapping[str, frozenset[str]]
    ends: tuple[str, ...] = field(default=())
    positions: Mapping[str, int] = field(default_factory=dict)
    counted: Mapping[str, Edge] = field(default_factory=dict)

    def bounded(self, name: str) -> Edge:
        """The edge of that name that may be taken only so often."""
        return self.back.get(name) or self.counted[name]

    def position(self, edge: Edge) -> int:
        """Its place among the edges as they were written."""
        return self.positions[edge.name]

    def branches(self, node: str) -> bool:
        """Whether it has to be noted which of the edges behind a node were taken."""
        if self.nodes[node].type == NodeType.SWITCH or node in self.back_out:
            return True
        out = self.out.get(node, ())
        return any(edge.condition or edge.name in self.counted for edge in out)

    @property
    def last(self) -> tuple[str, ...]:
        """The nodes with nothing behind them."""
        return tuple(each for each in self.nodes if not self.out.get(each))


class Layout:
    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self.nodes = workflow.by_id
        self.container = {
            inner: node.id for node in workflow.nodes for inner in node.body if inner in self.nodes
        }

    @cached_property
    def rings(self) -> Mapping[str, Ring]:
        """By the id of the loop or foreach whose body it is; the outermost under no name."""
        members: dict[str, list[Node]] = defaultdict(list)
        for node in self.workflow.nodes:
            members[self.container.get(node.id, OUTERMOST)].append(node)
        edges: dict[str, list[Edge]] = defaultdict(list)
        for edge in self.workflow.edges:
            ring = self.container.get(edge.source, OUTERMOST)
            # An edge between a loop and its own body says what the body says already.
            if ring == self.container.get(edge.target, OUTERMOST):
                edges[ring].append(edge)
        return {name: _ring(members[name], edges[name]) for name in {OUTERMOST, *members}}


def _ring(nodes: list[Node], edges: list[Edge]) -> Ring:
    returning = back_edges([node.id for node in nodes], edges)
    names = {edge.name for edge in returning}
    circle = circles([node.id for node in nodes], edges)
    forward = [edge for edge in edges if edge.name not in names]
    out = _by_source(forward)
    counted = [edge for edge in forward if edge.max_loops is not None and _is_inside(edge, circle)]
    returning = tuple(_bounded(edge, counted, circle) for edge in returning)
    return Ring(
        nodes={node.id: node for node in nodes},
        order={node.id: n for n, node in enumerate(nodes)},
        into=_grouped((edge.target, edge) for edge in forward),
        out=out,
        back={edge.name: edge for edge in returning},
        back_out=_by_source(returning),
        region={edge.name: _behind(edge.target, out) for edge in returning},
        ends=tuple(node.id for node in nodes if node.type == NodeType.END),
        positions={edge.name: n for n, edge in enumerate(edges)},
        counted={edge.name: edge for edge in counted},
    )


def _bounded(edge: Edge, counted: Iterable[Edge], circle: Mapping[str, int]) -> Edge:
    """An edge back whose bound is on the way forward is taken no oftener than those are, though
    other ways may lead to where it begins."""
    if edge.max_loops is not None:
        return edge
    here = circle[edge.source]
    return replace(
        edge, max_loops=sum(each.max_loops or 0 for each in counted if circle[each.source] == here)
    )


def back_edges(nodes: Iterable[str], edges: Iterable[Edge]) -> tuple[Edge, ...]:
    """Those with a bound that lie on a circle. Where some node could then be come to in no other
    way, or an edge would not lead back to what comes before it, the bound is on an edge forward,
    and those lead back that do so for who walks from where the circle is entered."""
    order, known = tuple(nodes), tuple(edges)
    circle = circles(order, known)
    groups: dict[int, list[str]] = defaultdict(list)
    for node in order:
        if node in circle:
            groups[circle[node]].append(node)
    inside: dict[int, list[Edge]] = defaultdict(list)
    entered = dict[int, set[str]]()
    for edge in known:
        if _is_inside(edge, circle):
            inside[circle[edge.source]].append(edge)
        elif edge.target in circle:
            entered.setdefault(circle[edge.target], set()).add(edge.target)
    back: set[str] = set()
    for n, group in groups.items():
        firsts = [node for node in group if node in entered.get(n, ())] or group[:1]
        back |= _back_in(group, inside[n], firsts)
    return tuple(edge for edge in known if edge.name in back)


def _is_inside(edge: Edge, circle: Mapping[str, int]) -> bool:
    return edge.source in circle and circle[edge.source] == circle.get(edge.target)


def _back_in(group: Sequence[str], edges: Sequence[Edge], firsts: Sequence[str]) -> set[str]:
    bounded = [edge for edge in edges if edge.max_loops is not None]
    free = [edge for edge in edges if edge.max_loops is None]
    names = {edge.name for edge in bounded}
    # What has no bound at all is refused elsewhere.
    if circles(group, free):
        return names
    out = _by_source(free)
    is_small = len(bounded) * len(edges) <= _MOST_WORK
    leads_back = is_small and all(edge.source in _behind(edge.target, out) for edge in bounded)
    if leads_back and _behind_all(firsts, out) == set(group):
        return names
    return _retreating(firsts[0], _by_source((*free, *bounded)))


def _retreating(first: str, out: Mapping[str, tuple[Edge, ...]]) -> set[str]:
    """Edges to a node that the walk has come through."""
    found: set[str] = set()
    seen, way = {first}, {first}
    work = [(first, iter(out.get(first, ())))]
    while work:
        node, edges = work[-1]
        for edge in edges:
            if edge.target in way:
                found.add(edge.name)
            elif edge.target not in seen:
                seen.add(edge.target)
                way.add(edge.target)
                work.append((edge.target, iter(out.get(edge.target, ()))))
                break
        else:
            work.pop()
            way.discard(node)
    return found


def circles(nodes: Iterable[str], edges: Iterable[Edge]) -> Mapping[str, int]:
    """A number for each node on a circle, the same for all that can reach one another: Tarjan's
    strongly connected components, without recursion."""
    after: dict[str, list[str]] = defaultdict(list)
    loops: set[str] = set()
    for edge in edges:
        after[edge.source].append(edge.target)
        if edge.source == edge.target:
            loops.add(edge.source)
    found = _Tarjan(after)
    for node in nodes:
        found.visit(node)
    return {
        node: n
        for n, group in enumerate(found.groups)
        for node in group
        if len(group) > 1 or node in loops
    }


class _Tarjan:
    def __init__(self, after: Mapping[str, list[str]]) -> None:
        self._after = after
        self._index: dict[str, int] = {}
        self._low: dict[str, int] = {}
        self._stack: list[str] = []
        self._on_stack: set[str] = set()
        self.groups: list[list[str]] = []

    def visit(self, root: str) -> None:
        if root in self._index:
            return
        work = [(root, iter(self._after.get(root, ())))]
        self._enter(root)
        while work:
            node, others = work[-1]
            for other in others:
                if other not in self._index:
                    self._enter(other)
                    work.append((other, iter(self._after.get(other, ()))))
                    break
                if other in self._on_stack:
                    self._low[node] = min(self._low[node], self._index[other])
            else:
                work.pop()
                self._leave(node)
                if work:
                    above = work[-1][0]
                    self._low[above] = min(self._low[above], self._low[node])

    def _enter(self, node: str) -> None:
        self._index[node] = self._low[node] = len(self._index)
        self._stack.append(node)
        self._on_stack.add(node)

    def _leave(self, node: str) -> None:
        if self._low[node] != self._index[node]:
            return
        group: list[str] = []
        while not group or group[-1] != node:
            group.append(self._stack.pop())
            self._on_stack.discard(group[-1])
        self.groups.append(group)


def _behind(first: str, out: Mapping[str, tuple[Edge, ...]]) -> frozenset[str]:
    """A node and all that can come after it."""
    return _behind_all((first,), out)


def _behind_all(firsts: Iterable[str], out: Mapping[str, tuple[Edge, ...]]) -> frozenset[str]:
    open_ = list(firsts)
    seen = set(open_)
    while open_:
        for edge in out.get(open_.pop(), ()):
            if edge.target not in seen:
                seen.add(edge.target)
                open_.append(edge.target)
    return frozenset(seen)


def _by_source(edges: Iterable[Edge]) -> Mapping[str, tuple[Edge, ...]]:
    return _grouped((edge.source, edge) for edge in edges)


def _grouped(pairs: Iterable[tuple[str, Edge]]) -> Mapping[str, tuple[Edge, ...]]:
    groups: dict[str, list[Edge]] = defaultdict(list)
    for key, edge in pairs:
        groups[key].append(edge)
    return {key: tuple(edges) for key, edges in groups.items()}
