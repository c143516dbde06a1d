"""The workflow data model: nodes, edges, inputs and outputs; and its static structure: scopes,
adjacency, back edges and cycles.

A scope is the top level, or the body of one loop: nodes that run together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, reduce
from operator import or_
from typing import Annotated, Any, TypeAlias

from pydantic import GetCoreSchemaHandler, JsonValue, TypeAdapter, ValidationError
from pydantic_core import CoreSchema

from bot.engine.llm.limit_overrides import NO_OVERRIDES, LimitOverrides
from bot.engine.workflow.dominators import VIRTUAL_ROOT, DominatorTree, topological_order
from bot.engine.workflow.field_reader import InvalidGraph, ValidationIssue
from bot.engine.workflow.input_fields import InputDefinition
from bot.engine.workflow.nodes.contract import (
    BodyConfig,
    EdgeRule,
    LoopTypeSpec,
    NodeConfig,
    NodeRole,
    NodeTypeSpec,
    OnLimit,
)
from bot.engine.workflow.nodes.registry import CONFIG_TYPES, NodeType, spec_of
from bot.engine.workflow.output_schema import OutputField
from storage.records.prompt_versions import UsedVersion


class OnError(StrEnum):
    """Reaction to a node that failed for good: stop the workflow, continue as if the node were
    skipped, or continue with the error as its output."""

    FAIL = "fail"
    SKIP = "skip"
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Attempts in total, and the delay before the second one; each later delay is `multiplier`
    times longer."""

    max_attempts: int = 3
    backoff_ms: int = 2_000
    multiplier: float = 2.0


class _StoredConfig:
    """Tells pydantic that a config is any registered config type, distinguished by `kind`."""

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return handler.generate_schema(reduce(or_, CONFIG_TYPES))


FORMAT_VERSION = "2.0"

ROOT_GRAPH = ""

COMPENSATION_MARK = "↩️"
"""Marks what undoes another step, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowNode:
    """One step of a workflow.

    `repeatable`: running it again after a crash is safe. `given`: a person added it, so planners
    must keep it. `persona`: who does the work; empty for the task's own worker. `detail`: a
    template with the worker's instructions. `auto_wait`: ask a person for approval before the step
    runs. `deliverables`: workspace paths of files that must exist afterwards. `output`: the fields
    of the result that the worker must hand in. `timeout`: seconds per attempt, `limits`: those of
    each run of its worker. `own_session`: its worker reads nothing of the task's session.
    `on_cancel`: the node that undoes it. `config` is optional for types with a default; without
    `retry` the global retry rules apply.
    """

    id: str
    title: str
    detail: str = ""
    repeatable: bool = True
    type: str = NodeType.TASK
    given: bool = False
    persona: str = ""
    config: Annotated[NodeConfig, _StoredConfig] | None = None
    timeout: float | None = None
    on_error: OnError = OnError.FAIL
    retry: RetryPolicy | None = None
    auto_wait: bool = False
    deliverables: tuple[str, ...] = ()
    output: tuple[OutputField, ...] = ()
    limits: LimitOverrides = NO_OVERRIDES
    own_session: bool = False
    on_cancel: str = ""

    @property
    def templates(self) -> tuple[tuple[str, str], ...]:
        """All texts of the node that may contain placeholders, each with its field."""
        files = (("deliverables", each) for each in self.deliverables)
        return ("title", self.title), ("prompt", self.detail), *files

    @property
    def spec(self) -> NodeTypeSpec[Any]:
        """The specification of the node's type; the task type's if the type is unknown."""
        return spec_of(self.type)

    @property
    def role(self) -> NodeRole:
        return self.spec.role

    @property
    def settings(self) -> Any:
        """`config`, or the default of the type; None if neither exists."""
        spec = self.spec
        fits = spec.config is not None and isinstance(self.config, spec.config)
        return self.config if fits else spec.default

    @property
    def body(self) -> tuple[str, ...]:
        """The nodes that this node runs in rounds; empty unless it is a loop."""
        return self.config.body if isinstance(self.config, BodyConfig) else ()

    @property
    def loop(self) -> LoopTypeSpec[Any]:
        """The specification of a loop type; call it only for nodes with a body."""
        spec = self.spec
        assert isinstance(spec, LoopTypeSpec)
        return spec

    @property
    def targets(self) -> tuple[str, ...]:
        """Nodes that the settings name as targets; empty for most types."""
        return () if self.settings is None else self.spec.targets(self.settings)

    @property
    def time_limit(self) -> float | None:
        """The seconds that all rounds together may take, if there is such a limit."""
        return self.loop.time_limit(self.settings) if self.body else None

    @property
    def has_parallel_rounds(self) -> bool:
        settings = self.settings
        return settings is not None and self.spec.has_parallel_rounds(settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowEdge:
    """Makes `target` wait for `source`.

    The edge is taken if `condition` holds. Without a condition it is always taken, or, next to
    conditional edges, only if none of them holds. A back edge is taken at most `max_loops` times;
    `on_limit` decides what happens then.
    """

    source: str
    target: str
    id: str = ""
    condition: str = ""
    max_loops: int | None = None
    on_limit: OnLimit = OnLimit.CONTINUE
    label: str = ""

    @property
    def name(self) -> str:
        """The id, or a name derived from the two nodes."""
        return self.id or f"{self.source}→{self.target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """A complete workflow.

    `plan` is the approach in words; `answer` is set if no node is needed. `served` is the journal
    number of the last replan request that was handled. `variables` holds initial values, `values`
    the values given for `inputs`, and `outputs` the expressions that produce the results. `timeout`
    limits the whole run, and `compensation_timeout` the compensation after a failure or a stop,
    both in seconds. `parallel` limits concurrent steps. `source` is the version of the named
    workflow that this one was made from. `past` are the loops of plans that this one has replaced,
    with the nodes inside them. They are outside the flow, and kept because the work of their rounds
    may have to be undone.
    """

    plan: str
    nodes: tuple[WorkflowNode, ...] = ()
    edges: tuple[WorkflowEdge, ...] = ()
    answer: str = ""
    served: int = 0
    version: str = FORMAT_VERSION
    name: str = ""
    variables: Mapping[str, JsonValue] = field(default_factory=dict)
    inputs: tuple[InputDefinition, ...] = ()
    values: Mapping[str, JsonValue] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    parallel: int = 1
    compensation_timeout: float | None = None
    source: UsedVersion | None = None
    past: tuple[WorkflowNode, ...] = ()

    @property
    def nodes_by_id(self) -> Mapping[str, WorkflowNode]:
        return {node.id: node for node in self.nodes}

    @property
    def compensations(self) -> frozenset[str]:
        """The nodes that undo others. They stand outside the flow: no edge leads to them."""
        return frozenset(node.on_cancel for node in self.nodes if node.on_cancel)

    def nodes_inside(self, names: Iterable[str]) -> frozenset[str]:
        """The nodes that the bodies of these hold, at any depth, with those that undo them."""
        known = self.nodes_by_id
        return reachable(
            {inner for name in names for inner in known[name].body},
            lambda name: (*known[name].body, *filter(None, (known[name].on_cancel,))),
        )


def with_compensation_edges(workflow: Workflow) -> Workflow:
    """The workflow as people see it, with an edge from each node to the one that undoes it."""
    if not workflow.compensations:
        return workflow
    undoes = {node.id: node.on_cancel for node in workflow.nodes if node.on_cancel}
    owner = {inner: node.id for node in workflow.nodes for inner in node.body}
    places = {other: owner.get(name, ROOT_GRAPH) for name, other in undoes.items()}

    def drawn(node: WorkflowNode) -> WorkflowNode:
        inside = tuple(name for name, place in places.items() if place == node.id)
        if inside and isinstance(node.config, BodyConfig):
            node = replace(node, config=replace(node.config, body=(*node.body, *inside)))
        return replace(node, on_cancel="")

    edges = tuple(
        WorkflowEdge(source=name, target=other, label=COMPENSATION_MARK)
        for name, other in undoes.items()
    )
    nodes = tuple(map(drawn, workflow.nodes))
    return replace(workflow, nodes=nodes, edges=(*workflow.edges, *edges))


def may_ask_people(workflow: Workflow) -> bool:
    """Whether the workflow has steps for people or loops that ask a person at their limit."""
    return any(node.spec.asks_people(node.settings) for node in workflow.nodes) or any(
        edge.on_limit is OnLimit.ASK for edge in workflow.edges
    )


_MAX_WORK = 2_000_000

EdgesByNode: TypeAlias = Mapping[str, tuple[WorkflowEdge, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeGraph:
    """One scope. `incoming` and `outgoing` hold forward edges only. `back_edges` maps names to
    edges that lead back; `back_regions` holds the nodes that each of them restarts. `bounded_edges`
    lead forward and carry the bound of a cycle. `cancelling_joins` holds, by join, the nodes of
    the branches that it ends when it starts."""

    nodes: Mapping[str, WorkflowNode]
    node_order: Mapping[str, int]
    incoming: EdgesByNode
    outgoing: EdgesByNode
    back_edges: Mapping[str, WorkflowEdge]
    outgoing_back_edges: EdgesByNode
    back_regions: Mapping[str, frozenset[str]]
    end_nodes: tuple[str, ...]
    edge_positions: Mapping[str, int]
    bounded_edges: Mapping[str, WorkflowEdge]
    cancelling_joins: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def limited_edges(self) -> tuple[str, ...]:
        """The names of all edges with a loop limit."""
        return (*self.back_edges, *self.bounded_edges)

    def bounded_edge(self, name: str) -> WorkflowEdge:
        """The edge of that name, if it has a loop limit."""
        return self.back_edges.get(name) or self.bounded_edges[name]

    def edge_position(self, edge: WorkflowEdge) -> int:
        """The position of an edge in written order."""
        return self.edge_positions[edge.name]

    def edges_from(self, node: str) -> tuple[WorkflowEdge, ...]:
        """All edges that leave a node; back edges come first."""
        return (*self.outgoing_back_edges.get(node, ()), *self.outgoing.get(node, ()))

    def needs_choice_record(self, node: str) -> bool:
        """Whether the run must record which of its outgoing edges were taken."""
        if self.chooses_target(node) or node in self.outgoing_back_edges:
            return True
        out = self.outgoing.get(node, ())
        return any(edge.condition or edge.name in self.bounded_edges for edge in out)

    def chooses_target(self, node: str) -> bool:
        """Whether the node's execution chooses the edge."""
        return self.nodes[node].spec.edge_rule is EdgeRule.CHOSEN

    def nodes_behind(self, node: str) -> frozenset[str]:
        """The targets of the forward edges that leave a node."""
        return _reachable_from([edge.target for edge in self.outgoing.get(node, ())], self.outgoing)

    @property
    def leaf_nodes(self) -> tuple[str, ...]:
        return tuple(each for each in self.nodes if not self.outgoing.get(each))


class WorkflowTopology:
    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self.nodes = workflow.nodes_by_id
        self.container_of = {
            inner: node.id for node in workflow.nodes for inner in node.body if inner in self.nodes
        }

    @cached_property
    def with_past(self) -> WorkflowTopology:
        """Also has the loops of replaced plans, to look up what earlier runs were. Their nodes do
        not run any more.
        """
        if not self.workflow.past:
            return self
        known = {**self.nodes, **{node.id: node for node in self.workflow.past}}
        return WorkflowTopology(replace(self.workflow, nodes=tuple(known.values()), past=()))

    @cached_property
    def scope_graphs(self) -> Mapping[str, ScopeGraph]:
        """The graph of each scope, by the id of its loop; the top level has the id ROOT_GRAPH."""
        members: dict[str, list[WorkflowNode]] = defaultdict(list)
        outside = self.workflow.compensations
        for node in self.workflow.nodes:
            if node.id in outside:
                continue
            members[self.container_of.get(node.id, ROOT_GRAPH)].append(node)
        edges: dict[str, list[WorkflowEdge]] = defaultdict(list)
        for edge in self.workflow.edges:
            scope = self.container_of.get(edge.source, ROOT_GRAPH)
            # Edges between a loop and its own body are redundant.
            if scope == self.container_of.get(edge.target, ROOT_GRAPH):
                edges[scope].append(edge)
        return {
            name: _build_scope_graph(members[name], edges[name]) for name in {ROOT_GRAPH, *members}
        }


def _build_scope_graph(nodes: list[WorkflowNode], edges: list[WorkflowEdge]) -> ScopeGraph:
    returning = find_back_edges([node.id for node in nodes], edges)
    names = {edge.name for edge in returning}
    cycles = find_cycles([node.id for node in nodes], edges)
    forward = [edge for edge in edges if edge.name not in names]
    out = _edges_by_source(forward)
    bounded = [
        edge for edge in forward if edge.max_loops is not None and _is_within_cycle(edge, cycles)
    ]
    returning = tuple(_with_bound(edge, bounded, cycles) for edge in returning)
    return ScopeGraph(
        nodes={node.id: node for node in nodes},
        node_order={node.id: n for n, node in enumerate(nodes)},
        incoming=_group_edges((edge.target, edge) for edge in forward),
        outgoing=out,
        back_edges={edge.name: edge for edge in returning},
        outgoing_back_edges=_edges_by_source(returning),
        back_regions={edge.name: _reachable_from([edge.target], out) for edge in returning},
        end_nodes=tuple(node.id for node in nodes if node.role is NodeRole.END),
        edge_positions={edge.name: n for n, edge in enumerate(edges)},
        bounded_edges={edge.name: edge for edge in bounded},
        cancelling_joins={
            node.id: branches
            for node in nodes
            if cancels_others(node) and (branches := find_branches(nodes, forward, node.id)[1])
        },
    )


def cancels_others(node: WorkflowNode) -> bool:
    """Whether the node is a join that cancels the branches that have not arrived."""
    return node.role is NodeRole.JOIN and node.spec.cancels_others(node.settings)


def find_branches(
    nodes: Sequence[WorkflowNode], edges: Iterable[WorkflowEdge], join: str
) -> tuple[str, frozenset[str]]:
    """Find the `parallel` node where all branches that meet in a join have parted. Return it with
    the nodes of those branches; both are empty if there is no such node. `edges` are forward edges.
    """
    known = {node.id: node for node in nodes}
    sources: dict[str, list[str]] = {name: [] for name in known}
    targets: dict[str, list[str]] = {name: [] for name in known}
    for edge in edges:
        if edge.source in known and edge.target in known:
            targets[edge.source].append(edge.target)
            sources[edge.target].append(edge.source)
    order = topological_order(sources, targets)
    parted = DominatorTree(order, sources).immediate_dominator.get(join, VIRTUAL_ROOT)
    if parted == VIRTUAL_ROOT or known[parted].role is not NodeRole.FORK:
        return "", frozenset()
    before, behind = (
        reachable([join], sources.__getitem__),
        reachable([parted], targets.__getitem__),
    )
    return parted, (before & behind) - {parted, join}


def _with_bound(
    edge: WorkflowEdge, bounded: Iterable[WorkflowEdge], cycles: Mapping[str, int]
) -> WorkflowEdge:
    """A back edge without its own bound gets the sum of the bounds on its cycle's forward edges,
    although other paths may lead to its source."""
    if edge.max_loops is not None:
        return edge
    here = cycles[edge.source]
    total = sum(each.max_loops or 0 for each in bounded if cycles[each.source] == here)
    return replace(edge, max_loops=total)


def find_back_edges(
    nodes: Iterable[str], edges: Iterable[WorkflowEdge]
) -> tuple[WorkflowEdge, ...]:
    """The bounded edges on cycles. If removing them would make a node unreachable, or one of them
    does not lead back to a predecessor, the bound is on a forward edge; then the back edges are
    those that a depth-first walk from the cycle's entry finds."""
    order, known = tuple(nodes), tuple(edges)
    cycles = find_cycles(order, known)
    groups: dict[int, list[str]] = defaultdict(list)
    for node in order:
        if node in cycles:
            groups[cycles[node]].append(node)
    inside: dict[int, list[WorkflowEdge]] = defaultdict(list)
    entered: dict[int, set[str]] = defaultdict(set)
    for edge in known:
        if _is_within_cycle(edge, cycles):
            inside[cycles[edge.source]].append(edge)
        elif edge.target in cycles:
            entered[cycles[edge.target]].add(edge.target)
    back: set[str] = set()
    for n, group in groups.items():
        entries = [node for node in group if node in entered[n]] or group[:1]
        back |= {edge.name for edge in _back_edges_in_cycle(group, inside[n], entries)}
    return tuple(edge for edge in known if edge.name in back)


def _is_within_cycle(edge: WorkflowEdge, cycles: Mapping[str, int]) -> bool:
    return edge.source in cycles and cycles[edge.source] == cycles.get(edge.target)


def _back_edges_in_cycle(
    group: Sequence[str], edges: Sequence[WorkflowEdge], entries: Sequence[str]
) -> Iterable[WorkflowEdge]:
    bounded = [edge for edge in edges if edge.max_loops is not None]
    free = [edge for edge in edges if edge.max_loops is None]
    # Validation refuses cycles without any bound.
    if find_cycles(group, free):
        return bounded
    out = _edges_by_source(free)
    is_small = len(bounded) * len(edges) <= _MAX_WORK
    leads_back = is_small and all(
        edge.source in _reachable_from([edge.target], out) for edge in bounded
    )
    if leads_back and _reachable_from(entries, out) == set(group):
        return bounded
    return find_retreating_edges(entries[:1], (*free, *bounded))


def find_retreating_edges(
    roots: Iterable[str], edges: Sequence[WorkflowEdge]
) -> list[WorkflowEdge]:
    """Edges that lead to a node on their own path in a depth-first walk from the roots."""
    entered, left = _depth_first(roots, edges)
    return [
        edge
        for edge in edges
        if edge.source in left
        and entered[edge.target] <= entered[edge.source]
        and left[edge.source] <= left[edge.target]
    ]


def find_cycles(nodes: Iterable[str], edges: Iterable[WorkflowEdge]) -> Mapping[str, int]:
    """A number for each node on a cycle, equal for nodes that can reach each other: Kosaraju's
    strongly connected components."""
    known = tuple(edges)
    _, left = _depth_first(nodes, known)
    before: dict[str, list[str]] = defaultdict(list)
    for edge in known:
        if edge.source in left:
            before[edge.target].append(edge.source)
    component: dict[str, int] = {}
    for root in reversed(left):
        if root not in component:
            members = reachable(
                [root], lambda node: (each for each in before[node] if each not in component)
            )
            component.update(dict.fromkeys(members, left[root]))
    sizes = Counter(component.values())
    loops = {edge.source for edge in known if edge.source == edge.target}
    return {node: n for node, n in component.items() if sizes[n] > 1 or node in loops}


def _depth_first(
    roots: Iterable[str], edges: Iterable[WorkflowEdge]
) -> tuple[dict[str, int], dict[str, int]]:
    """The order in which a depth-first walk enters and leaves the nodes."""
    after = _edges_by_source(edges)
    entered: dict[str, int] = {}
    left: dict[str, int] = {}
    for root in roots:
        if root in entered:
            continue
        entered[root] = len(entered)
        path = [(root, iter(after.get(root, ())))]
        while path:
            node, others = path[-1]
            target = next((edge.target for edge in others if edge.target not in entered), None)
            if target is None:
                left[node] = len(left)
                path.pop()
            else:
                entered[target] = len(entered)
                path.append((target, iter(after.get(target, ()))))
    return entered, left


def reachable(starts: Iterable[str], neighbours: Callable[[str], Iterable[str]]) -> frozenset[str]:
    """The starts and every node that can be reached from them."""
    open_ = list(starts)
    seen = set(open_)
    while open_:
        new = set(neighbours(open_.pop())) - seen
        seen |= new
        open_ += new
    return frozenset(seen)


def _reachable_from(starts: Iterable[str], out: EdgesByNode) -> frozenset[str]:
    return reachable(starts, lambda node: (edge.target for edge in out.get(node, ())))


def _edges_by_source(edges: Iterable[WorkflowEdge]) -> EdgesByNode:
    return _group_edges((edge.source, edge) for edge in edges)


def _group_edges(pairs: Iterable[tuple[str, WorkflowEdge]]) -> EdgesByNode:
    groups: dict[str, list[WorkflowEdge]] = defaultdict(list)
    for key, edge in pairs:
        groups[key].append(edge)
    return {key: tuple(edges) for key, edges in groups.items()}


def dump_workflow(workflow: Workflow) -> dict[str, Any]:
    dumped: dict[str, Any] = _WORKFLOW_ADAPTER.dump_python(workflow, mode="json")
    for node in dumped["nodes"]:
        # Few nodes have these, and every version of a plan is stored whole.
        if not any(value is not None for value in node["limits"].values()):
            del node["limits"]
        for name in ("output", "own_session", "on_cancel"):
            if not node[name]:
                del node[name]
        if node["config"] is not None and node["config"].get("form") == []:
            del node["config"]["form"]
        if node["config"] is not None and node["config"].get("cancel_others") is False:
            del node["config"]["cancel_others"]
    for name in ("source", "compensation_timeout", "past"):
        if not dumped[name]:
            del dumped[name]
    return dumped


def load_workflow(body: Mapping[str, Any]) -> Workflow:
    """Load a stored plan, which was validated when it was stored. Raises InvalidGraph if its format
    is unknown."""
    try:
        return _WORKFLOW_ADAPTER.validate_python(body)
    except ValidationError as error:
        faults = (
            ValidationIssue(key="bad_shape", where=".".join(map(str, fault["loc"]))[:80])
            for fault in error.errors()
        )
        raise InvalidGraph(faults) from error


_WORKFLOW_ADAPTER = TypeAdapter(Workflow)
