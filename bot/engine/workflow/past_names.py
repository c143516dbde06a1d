"""The names that a node saw in a round that may be over by now. The store keeps every output but
only the latest variables of a run, so earlier variables are computed from the assignments.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from bot.engine.workflow.definition import WorkflowTopology
from bot.engine.workflow.node_runs import (
    ASSIGNMENT_KEY,
    VARIABLES_PATH,
    ActivationPath,
    enclosing_round,
    is_done,
    is_finished,
    node_output,
    parse_activation,
    scope_of,
)
from storage.records.tasks import NodeRun

_EARLIEST = datetime.min.replace(tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)


def names_of_past(
    topology: WorkflowTopology,
    runs: Mapping[str, NodeRun],
    place: ActivationPath,
    names: Mapping[str, Any],
) -> Mapping[str, Any]:
    """`names` with the outputs and variables of the time when this activation ended, its own output
    included. For a node that ended only later, its next output is used.
    """
    at = runs[place.path].ended_at or _LATEST
    around, found = {*_scopes_around(place.scope)}, dict[str, NodeRun]()
    ended = (run for path, run in runs.items() if scope_of(path) in around and is_finished(run))
    for run in sorted(ended, key=lambda run: run.ended_at or _EARLIEST):
        each = parse_activation(run.path)
        if each is not None and (each.node not in found or (run.ended_at or _EARLIEST) <= at):
            found[each.node] = run
    # Two rounds may have ended in the same moment.
    if is_finished(runs[place.path]):
        found[place.node] = runs[place.path]
    outputs = {node: node_output(run) for node, run in found.items()}
    aliases = {node.replace("-", "_"): output for node, output in outputs.items()}
    variables = dict(names["variables"])
    if assigned := {name for names in _assigning_nodes(topology).values() for name in names}:
        before = {path: run for path, run in runs.items() if (run.ended_at or _LATEST) <= at}
        before |= {path: run for path, run in runs.items() if path.endswith(VARIABLES_PATH)}
        kept = restore_variables(topology, before).get(variables_path(topology, place.scope))
        first = _first_variables(topology, runs, place.scope)
        # One that no node assigns any more keeps its value: its plan was replaced.
        variables = {name: each for name, each in variables.items() if name not in assigned}
        variables = {**first, **variables, **(kept.output if kept is not None else {})}
    seen = ChainMap(outputs, aliases, names["outputs"])
    return {**names, "outputs": seen, "variables": variables}


def _scopes_around(scope: str) -> Iterator[str]:
    """This scope and the scopes that contain it."""
    yield scope
    while (above := enclosing_round(scope)) is not None:
        scope = scope_of(above[0])
        yield scope


def variables_path(topology: WorkflowTopology, scope: str) -> str:
    """The path of the run with the variables of that scope, which are those of the innermost
    workflow around it.
    """
    while (above := enclosing_round(scope)) is not None:
        loop = parse_activation(above[0])
        if loop is None or topology.nodes[loop.node].loop.runs_workflow:
            break
        scope = scope_of(above[0])
    return f"{scope}{VARIABLES_PATH}"


def restore_variables(
    topology: WorkflowTopology, runs: Mapping[str, NodeRun]
) -> Mapping[str, NodeRun]:
    """The runs that store variables, by path, as the assignments among `runs` left them."""
    values: dict[str, dict[str, Any]] = {path: {} for path in runs if path.endswith(VARIABLES_PATH)}
    for place, run in find_assignments(topology, runs):
        node = topology.nodes[place.node]
        names = set(node.spec.assigned_variables(node.config))
        values.setdefault(variables_path(topology, place.scope), {}).update(
            (name, value) for name, value in run.output.items() if name in names
        )
    return {
        path: replace(runs[path], output=output) for path, output in values.items() if path in runs
    }


def find_assignments(
    topology: WorkflowTopology, runs: Mapping[str, NodeRun]
) -> Sequence[tuple[ActivationPath, NodeRun]]:
    """The runs that have set variables, in order of time."""
    setting = _assigning_nodes(topology)
    made = [
        (place, run)
        for path, run in runs.items()
        if is_done(run) and (place := parse_activation(path)) and place.node in setting
    ]
    return sorted(
        made,
        key=lambda each: (each[1].output.get(ASSIGNMENT_KEY, 0), each[1].ended_at or _EARLIEST),
    )


def _assigning_nodes(topology: WorkflowTopology) -> Mapping[str, Sequence[str]]:
    """The nodes that set variables, with the names of those variables."""
    named = (
        (node.id, tuple(node.spec.assigned_variables(node.config)))
        for node in topology.nodes.values()
        if node.config is not None
    )
    return {node: names for node, names in named if names}


def _first_variables(
    topology: WorkflowTopology, runs: Mapping[str, NodeRun], scope: str
) -> Mapping[str, Any]:
    """The variables of that scope before the first assignment."""
    above = enclosing_round(scope_of(variables_path(topology, scope)))
    loop = None if above is None else parse_activation(above[0])
    if above is None or loop is None:
        return topology.workflow.variables
    node = topology.nodes[loop.node]
    own = node.loop.round_names(node, runs[loop.iteration_path].output, above[1])
    first: Mapping[str, Any] = own.get("variables", {})
    return first
