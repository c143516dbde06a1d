"""Chooses the edges that are taken when a node has finished."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from bot.engine.workflow.definition import WorkflowEdge
from bot.engine.workflow.node_runs import EXHAUSTED_EDGE_KEY, TAKEN_EDGES_KEY, UNDECIDED_KEY
from bot.engine.workflow.nodes.contract import (
    EdgeRule,
    EvaluationContext,
    OnLimit,
    UndecidedCondition,
)
from bot.engine.workflow.scope import ScopeState


def choose_edges(
    scope: ScopeState, node: str, context: EvaluationContext, *, next_node: str | None = None
) -> Mapping[str, Any]:
    """Choose the edges behind a finished node. Returns the output fields that record the choice;
    empty where there was no choice. `next_node` is the target that a switch has chosen.

    Every edge whose condition holds is taken; behind a condition node, only the first. If none
    holds, the edges without a condition are taken. A back edge that has reached its limit counts as
    one whose condition does not hold. If an answer leaves a condition open, nothing is chosen until
    a person has decided about the subject of that condition.
    """
    try:
        return _choose_edges(scope, node, context, next_node)
    except UndecidedCondition as error:
        return {TAKEN_EDGES_KEY: [], UNDECIDED_KEY: error.subject}


def _choose_edges(
    scope: ScopeState, node: str, context: EvaluationContext, next_node: str | None
) -> Mapping[str, Any]:
    graph = scope.graph
    if not graph.needs_choice_record(node):
        return {}
    edges = [*graph.outgoing_back_edges.get(node, ()), *graph.outgoing.get(node, ())]
    if graph.chooses_target(node):
        return _choose_target_edges(scope, node, edges, next_node)
    in_order = sorted(edges, key=graph.edge_position)
    used_up = [edge for edge in in_order if _is_exhausted(scope, edge)]
    holding = (
        edge for edge in in_order if edge not in used_up and _condition_holds(scope, edge, context)
    )
    takes_first = graph.nodes[node].spec.edge_rule is EdgeRule.FIRST_HOLDING
    held = list(islice(holding, 1 if takes_first else None))
    if held:
        return _choice_output(held, ())
    others = [edge for edge in in_order if not edge.condition and edge not in used_up]
    # If the limit is ignored silently, it does not matter whether the edge was wanted.
    limited = [edge for edge in used_up if edge.on_limit is not OnLimit.CONTINUE]
    wanted = [edge for edge in limited if _condition_holds(scope, edge, context)]
    return _choice_output(others, wanted)


def _choose_target_edges(
    scope: ScopeState, node: str, edges: Sequence[WorkflowEdge], target: str | None
) -> Mapping[str, Any]:
    """Take the edge to the chosen target; if it is a back edge that has reached its limit, take the
    default.
    """
    chosen = [edge for edge in edges if edge.target == target]
    open_edges = [edge for edge in edges if not _is_exhausted(scope, edge)]
    taken = [edge for edge in chosen if edge in open_edges]
    if taken or not chosen:
        return _choice_output(taken, ())
    switch = scope.graph.nodes[node]
    default = switch.spec.fallback_target(switch.settings)
    return _choice_output([edge for edge in open_edges if edge.target == default], chosen)


def _choice_output(
    taken: Sequence[WorkflowEdge], used_up: Iterable[WorkflowEdge]
) -> Mapping[str, Any]:
    """The first wanted edge that is used up is recorded too, unless that may pass in silence."""
    output: dict[str, Any] = {TAKEN_EDGES_KEY: [edge.name for edge in taken]}
    over = [edge.name for edge in used_up if edge.on_limit is not OnLimit.CONTINUE]
    return {**output, EXHAUSTED_EDGE_KEY: over[0]} if over else output


def _condition_holds(scope: ScopeState, edge: WorkflowEdge, context: EvaluationContext) -> bool:
    """Whether the edge's condition holds. An edge on a cycle without a condition holds each time
    until its limit.
    """
    if not edge.condition:
        return edge.name in scope.graph.back_edges or edge.name in scope.graph.bounded_edges
    return context.is_true(edge.condition)


def _is_exhausted(scope: ScopeState, edge: WorkflowEdge) -> bool:
    if edge.max_loops is None:
        return False
    if edge.name in scope.graph.back_edges:
        count = scope.back_edge_counts.get(edge.name, 0)
    elif edge.name in scope.graph.bounded_edges:
        count = scope.edge_counts[edge.name]
    else:
        return False
    return count - scope.used_limits.get(edge.name, 0) >= edge.max_loops
