"""Titles and current activations of nodes for display."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

from bot.engine.tracing.span_builder import NodeName
from bot.engine.workflow.compensation import node_of_run
from bot.engine.workflow.definition import (
    COMPENSATION_MARK,
    ROOT_GRAPH,
    ScopeGraph,
    Workflow,
    WorkflowNode,
    WorkflowTopology,
    load_workflow,
)
from bot.engine.workflow.expressions.evaluator import fill_template, replace_placeholders
from bot.engine.workflow.field_reader import InvalidGraph
from bot.engine.workflow.node_runs import (
    PLANNING_PATH,
    VARIABLES_PATH,
    ActivationPath,
    StoredRuns,
    compensated_path,
    enclosing_round,
    is_finished,
    is_unreached,
    node_output,
    parse_activation,
)
from bot.engine.workflow.past_names import names_of_past
from storage.records.tasks import NodeRun, NodeStatus


class CurrentRuns:
    """The current activation of each node in a scope: the last one that started, or the next
    one."""

    def __init__(self, topology: WorkflowTopology, runs: Mapping[str, NodeRun]) -> None:
        self.topology = topology
        self.runs = runs
        self.stored = StoredRuns(runs)
        self._round_numbers: dict[str, Mapping[str, int]] = {}
        self._reopening_nodes: dict[str, AbstractSet[str]] = {}

    def activation(self, scope: str, node: str) -> ActivationPath:
        return ActivationPath(scope, node, self._rounds_in(scope).get(node, 1))

    def run_of(self, scope: str, node: str) -> NodeRun | None:
        return self.run_at(self.activation(scope, node))

    def run_at(self, activation: ActivationPath) -> NodeRun | None:
        """The run; None for an unreached branch that a back edge may still lead to."""
        scope, node = activation.scope, activation.node
        run = self.runs.get(activation.path)
        is_open = run is not None and is_unreached(run) and node in self._reopening(scope)
        return None if is_open and self.activation(scope, node) == activation else run

    def _reopening(self, scope: str) -> AbstractSet[str]:
        if scope not in self._reopening_nodes:
            graph = self._graph_of(scope)
            self._reopening_nodes[scope] = {
                node
                for name, edge in (graph.back_edges.items() if graph else ())
                if graph
                and not is_finished(self.runs.get(self.activation(scope, edge.source).path))
                for node in graph.back_regions[name]
            }
        return self._reopening_nodes[scope]

    def _rounds_in(self, scope: str) -> Mapping[str, int]:
        if scope not in self._round_numbers:
            graph = self._graph_of(scope)
            rounds: dict[str, int] = defaultdict(lambda: 1)
            for edge, n in self.stored.back_edge_counts(scope).items() if graph else ():
                for node in graph.back_regions.get(edge, ()) if graph else ():
                    rounds[node] += n
            self._round_numbers[scope] = rounds
        return self._round_numbers[scope]

    def _graph_of(self, scope: str) -> ScopeGraph | None:
        """None if a new plan has dropped the loop around the scope."""
        above = enclosing_round(scope)
        container = parse_activation(above[0]) if above else None
        return self.topology.scope_graphs.get(container.node if container else ROOT_GRAPH)


def display_status(node: WorkflowNode, status: NodeStatus) -> NodeStatus:
    """A loop waits for its rounds in the store, but people see it as running."""
    return NodeStatus.RUNNING if status is NodeStatus.WAITING and node.body else status


_PLACEHOLDER_MARKS = ("{{", "${")
_MAX_TITLE = 400


class NodeTitles:
    def __init__(self, topology: WorkflowTopology, runs: Mapping[str, NodeRun]) -> None:
        self._topology = topology.with_past
        self._runs = runs

    def has(self, node: str) -> bool:
        return node in self._topology.nodes

    def title_of(self, scope: str, node: str) -> str:
        """The title with its placeholders filled as far as possible, others as ‹expression›; the id
        for an untitled node."""
        return self._title_of(node, lambda: {**self._known_names, **self._names_inside(scope)})

    def title_of_undoing(self, path: str) -> str:
        """The title of the compensation at this path, filled with what it sees."""
        of, node = compensated_path(path) or "", node_of_run(path, self._topology.nodes)
        assert node is not None
        return self._title_of(node.id, lambda: self._names_before(of))

    def _names_before(self, path: str) -> Mapping[str, Any]:
        place = parse_activation(path)
        assert place is not None
        names = {**self._known_names, **self._names_inside(place.scope)}
        return names_of_past(self._topology, self._runs, place, names)

    def _title_of(self, node: str, names: Callable[[], Mapping[str, Any]]) -> str:
        title = self._topology.nodes[node].title
        if any(placeholder in title for placeholder in _PLACEHOLDER_MARKS):
            title = " ".join(_fill_title(title, names())[:_MAX_TITLE].split())
        return title or node

    @cached_property
    def _known_names(self) -> Mapping[str, Any]:
        workflow = self._topology.workflow
        variables = self._runs.get(VARIABLES_PATH)
        return {
            "variables": {**workflow.variables, **(variables.output if variables else {})},
            "inputs": {each.name: each.default for each in workflow.inputs} | dict(workflow.values),
            "outputs": {
                place.node: node_output(run)
                for path, run in self._runs.items()
                if is_finished(run) and (place := parse_activation(path)) is not None
            },
        }

    def _names_inside(self, scope: str) -> Mapping[str, Any]:
        """Names defined by the enclosing rounds."""
        above = enclosing_round(scope)
        container = parse_activation(above[0]) if above else None
        if above is None or container is None:
            return {}
        names = dict(self._names_inside(container.scope))
        iteration = self._runs.get(container.iteration_path)
        node = self._topology.nodes.get(container.node)
        if iteration is not None and node is not None and node.body:
            # The round has not started if the list is shorter.
            with suppress(LookupError):
                names.update(node.loop.round_names(node, iteration.output, above[1]))
            kept = self._runs.get(f"{scope}{VARIABLES_PATH}")
            if kept is not None:
                names["variables"] = {**names.get("variables", {}), **kept.output}
        return names


def _fill_title(title: str, names: Mapping[str, Any]) -> str:
    def one(placeholder: str, expression: str) -> str:
        unknown: list[str] = []
        text = fill_template(placeholder, names, unknown.append)
        # The run itself reports the problem; repeating it at every drawing would be noise.
        return f"‹{expression}›" if unknown else text

    return replace_placeholders(title, one)


def node_namer(
    body: Mapping[str, Any] | None,
    runs: Mapping[str, NodeRun] | None = None,
    older_bodies: Sequence[Mapping[str, Any]] = (),
) -> Callable[[str], NodeName | None]:
    """Return a function that names runs of the stored plan `body` by path, or None for paths that
    are no node run.

    A node that the plan dropped is named as in the first of `older_bodies` that has it, or else by
    its id. With `runs`, placeholders in titles are filled.
    """
    plans = [plan for each in (body, *older_bodies) if (plan := _load_or_none(each)) is not None]
    nodes = {node.id: node for plan in reversed(plans) for node in plan.nodes}
    written = {node.id: n for n, node in enumerate(plans[0].nodes)} if plans else {}
    titles = (
        [NodeTitles(WorkflowTopology(plan), runs) for plan in plans] if runs is not None else []
    )

    def title_of(place: ActivationPath) -> str:
        known = (each for each in titles if each.has(place.node))
        if (named := next(known, None)) is not None:
            return named.title_of(place.scope, place.node)
        return nodes[place.node].title if place.node in nodes else place.node

    def name_of(path: str) -> NodeName | None:
        if path == PLANNING_PATH:
            return NodeName(title="plan", type="plan")
        undone = compensated_path(path)
        place, mark = parse_activation(undone or path), ""
        if place is None:
            return None
        node = nodes.get(place.node)
        if undone is not None and node is not None and node.on_cancel:
            place, mark = replace(place, node=node.on_cancel, round=1), f"{COMPENSATION_MARK} "
            node = nodes.get(place.node)
        around = enclosing_round(place.scope)
        which = f" [{around[1] + 1}]" if around else ""
        again = f" #{place.round}" if place.round > 1 else ""
        return NodeName(
            title=f"{mark}{title_of(place) or place.node}{which}{again}",
            type=str(node.type) if node else "",
            parent_path=around[0] if around else "",
            order=(around[1] if around else 0, written.get(place.node, 0), place.round),
        )

    return name_of


def dropped_paths(body: Mapping[str, Any], paths: Collection[str]) -> Collection[str]:
    """The paths whose nodes are not in the stored plan `body`."""
    held = {each.get("id") for each in body.get("nodes", ())}
    places = {path: parse_activation(path) for path in paths}
    return [path for path, place in places.items() if place is not None and place.node not in held]


def _load_or_none(body: Mapping[str, Any] | None) -> Workflow | None:
    try:
        return load_workflow(body) if body else None
    except InvalidGraph:
        return None
