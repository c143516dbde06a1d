"""The share of a plan that is done, which never decreases under one version of the plan.

Each node weighs its expected duration. Branches that were not taken count neither as done nor as
left. Where the number of rounds is open, each finished round fills half of what is left, so that
another round takes nothing back.
"""

from __future__ import annotations

from collections.abc import Mapping

from bot.engine.workflow.definition import ROOT_GRAPH, ScopeGraph, WorkflowNode
from bot.engine.workflow.node_runs import (
    ActivationPath,
    is_finished,
    is_unreached,
    taken_edges,
)
from bot.engine.workflow.presentation.node_display import CurrentRuns
from storage.records.tasks import NodeRun

ROUNDS_OF_A_LOOP = 3
"""How many times its body a loop weighs."""

_PERSON_SECONDS = 60.0
_LEAST_SECONDS = 1.0


def expected_weights(
    nodes: Mapping[str, WorkflowNode], expected: Mapping[str, float | None]
) -> Mapping[str, float]:
    """The expected seconds of each counted node; steps of people weigh a minute."""
    weights: dict[str, float] = {}
    for name, node in nodes.items():
        if node.role.is_counted:
            seconds = expected.get(name)
            weights[name] = max(_LEAST_SECONDS, _PERSON_SECONDS if seconds is None else seconds)
    return weights


def plan_progress(current: CurrentRuns, weights: Mapping[str, float]) -> float:
    """The share that is done, from 0 to 1. `weights` must stay the same under one version of the
    plan; otherwise the share could decrease.
    """
    return _PlanProgress(current, weights).share(ROOT_GRAPH, "", empty=0.0)


class _PlanProgress:
    def __init__(self, current: CurrentRuns, weights: Mapping[str, float]) -> None:
        self._current = current
        self._weights = dict(weights)
        self._graphs = current.topology.scope_graphs

    def share(self, graph_id: str, scope: str, *, empty: float = 1.0) -> float:
        """The share of a graph. `empty` is the share of a graph that has nothing to wait for."""
        graph = self._graphs[graph_id]
        open_ = self._nodes_that_may_run_again(graph, scope)
        cyclic = {node for region in graph.back_regions.values() for node in region}
        done = total = 0.0
        for name, node in graph.nodes.items():
            place, weight = self._current.activation(scope, name), self._weight(node)
            share = self._node_share(node, place, again=name in open_, cyclic=name in cyclic)
            if share is not None:
                done, total = done + weight * share, total + weight
        return done / total if total else empty

    def _weight(self, node: WorkflowNode) -> float:
        if node.id not in self._weights:
            inner = self._graphs[node.id].nodes.values() if node.body else ()
            self._weights[node.id] = ROUNDS_OF_A_LOOP * sum(map(self._weight, inner))
        return self._weights[node.id]

    def _nodes_that_may_run_again(self, graph: ScopeGraph, scope: str) -> set[str]:
        """The nodes in regions of back edges that may still be taken, directly or after another
        one.
        """
        open_: set[str] = set()
        left = dict(graph.back_edges)
        while taken := [
            name
            for name, edge in left.items()
            if edge.source in open_ or self._may_take(scope, edge.source, name)
        ]:
            for name in taken:
                del left[name]
                open_ |= graph.back_regions[name]
        return open_

    def _may_take(self, scope: str, source: str, edge: str) -> bool:
        run = self._current.runs.get(self._current.activation(scope, source).path)
        return run is None or not is_finished(run) or edge in (taken_edges(run) or ())

    def _node_share(
        self, node: WorkflowNode, place: ActivationPath, *, again: bool, cyclic: bool
    ) -> float | None:
        """None for a node that no branch can reach any more and that never ran."""
        visits = [self._run(place, n) for n in range(1, place.round + 1)]
        finished = sum(is_finished(run) and not is_unreached(run) for run in visits if run)
        run = visits[-1]
        if run is not None and is_finished(run) and not again:
            return 1.0 if finished or not is_unreached(run) else None
        is_inside = node.body and run is not None and not is_finished(run)
        inside = self._body_share(node, place) if is_inside else 0.0
        return 1.0 - 0.5**finished * (1.0 - inside * (0.5 if cyclic else 1.0))

    def _run(self, place: ActivationPath, n: int) -> NodeRun | None:
        return self._current.runs.get(ActivationPath(place.scope, place.node, n).path)

    def _body_share(self, node: WorkflowNode, place: ActivationPath) -> float:
        of = self._current.runs.get(place.iteration_path)
        total = None if of is None else node.loop.total_rounds(node.settings, of.output)
        opened = self._current.stored.opened_rounds(place.path)
        done = sum(self.share(node.id, place.round_scope(n)) for n in range(opened))
        if total is None:
            return 1.0 - 0.5**done
        return min(1.0, done / total) if total else 1.0
