"""Rewinds a task's run so that a node, and all that follows it, runs again: decides which stored
runs no longer count.

Pure. What is discarded belongs to the previous version of the plan; the caller, who has locked the
task, stores it there in the transaction that adds the next version.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pydantic import JsonValue

from bot.engine.workflow.definition import (
    ROOT_GRAPH,
    ScopeGraph,
    Workflow,
    WorkflowNode,
    WorkflowTopology,
    reachable,
)
from bot.engine.workflow.field_reader import MAX_TEXT
from bot.engine.workflow.input_fields import convert_input
from bot.engine.workflow.node_runs import (
    BACK_EDGE_PREFIX,
    ENDING_PATH,
    EXHAUSTED_EDGE_KEY,
    FAILED_KEY,
    FRESH_START_PATH,
    TAKEN_EDGES_KEY,
    UNDECIDED_KEY,
    VALUES_KEY,
    ActivationPath,
    StoredRuns,
    attempts_before,
    back_edge_path,
    compensated_path,
    enclosing_round,
    fresh_limit_path,
    is_done,
    is_finished,
    is_left_out,
    noted_path,
    parse_activation,
    scope_of,
)
from bot.engine.workflow.output_schema import (
    OutputField,
    convert_value,
    describe_choice,
    describe_field,
)
from bot.engine.workflow.past_names import find_assignments, restore_variables
from bot.engine.workflow.scheduler import WorkflowScheduler
from storage.records.tasks import NodeRun, NodeStatus, RerunChanges, RerunRefused, TaskId

_EARLIEST = datetime.min.replace(tzinfo=UTC)
_MAX_NAMES = 12
_MAX_SHOWN = 60
_MAX_MOVES = 1_000

SchedulerFactory = Callable[[Workflow, Mapping[str, NodeRun]], WorkflowScheduler]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRewind:
    """The result of rewinding. `workflow` is the plan's next version; `path` and `node` say where
    it continues. `discarded` are the runs that no longer count, as they were; `changed` are the
    runs to store; `removed` are the paths that have no run any more. `again` are the paths whose
    earlier approvals must not count.
    """

    workflow: Workflow
    path: str
    node: str
    discarded: Sequence[NodeRun] = ()
    changed: Sequence[NodeRun] = ()
    removed: Sequence[str] = ()

    @property
    def again(self) -> frozenset[str]:
        return frozenset(run.path for run in self.discarded)


def rerun_from(
    task_id: TaskId,
    workflow: Workflow,
    runs: Mapping[str, NodeRun],
    wanted: str,
    changes: RerunChanges,
    *,
    scheduler: SchedulerFactory,
    now: datetime,
) -> RunRewind:
    """Rewind to `wanted`, the id, title or path of a node. Raises RerunRefused with the reason.

    If an output of that node itself is changed, the node does not run again but is done with that
    output. A finished step that must not be repeated asks a person before it runs again.
    """
    topology = WorkflowTopology(workflow)
    place = find_activation(topology, runs, wanted)
    plan = replace(workflow, values={**workflow.values, **_read_inputs(workflow, changes.inputs)})
    state = _Rewinding(topology, runs)
    state.forget_ending()
    state.rewind(place)
    state.release_failed(scheduler(plan, state.left).failed_runs(), now)
    done_again = {each.node for path in state.discarded if (each := parse_activation(path))}
    plan = replace(plan, nodes=tuple(_asking_first(node, done_again) for node in plan.nodes))
    _change_outputs(state, topology, place, changes.outputs, now)
    state.start_afresh(task_id, now, version=True)
    if place.node in changes.outputs:
        run = state.left[place.path]
        state.left[place.path] = scheduler(
            plan, {path: each for path, each in state.left.items() if path != place.path}
        ).complete_run(run, now)
    else:
        flow = scheduler(plan, state.left)
        flow.advance(now, _MAX_MOVES)
        if flow.is_complete and not flow.has_run(place.path):
            raise RerunRefused("not_awaited", name=topology.nodes[place.node].title or place.node)
    return state.result(plan, place.path)


def retry_after_dead_end(
    task_id: TaskId,
    workflow: Workflow,
    runs: Mapping[str, NodeRun],
    *,
    scheduler: SchedulerFactory,
    now: datetime,
) -> RunRewind:
    """Let failed nodes run again, or rewind to the node after which nothing could continue. Loops
    that have used up their rounds may run as many again. A finished step that must not be repeated
    asks a person first, unless it was undone. Raises RerunRefused if nothing could start then.
    """
    topology = WorkflowTopology(workflow)
    state = _Rewinding(topology, runs)
    undone = state.forget_ending()
    failed = state.release_failed(scheduler(workflow, state.left).failed_runs(), now)
    path = next(iter((*failed, *undone)), "")
    dead = None if path else scheduler(workflow, state.left).dead_end_run
    if dead is not None and (place := parse_activation(dead.path)) is not None:
        state.renew_edges(dead, now)
        if EXHAUSTED_EDGE_KEY not in dead.output:
            place = _nearest_step(topology, runs, place)
        path = place.path
        state.rewind(place)
    state.start_afresh(task_id, now, version=False)
    flow = scheduler(workflow, state.left)
    flow.advance(now, _MAX_MOVES)
    if not flow.can_go_on:
        raise RerunRefused("no_way_on", why=flow.stuck_reason())
    repeated = {run.path for run in state.discarded.values() if is_done(run)} - {*undone}
    again = {each.node for path in repeated if (each := parse_activation(path)) is not None}
    plan = replace(workflow, nodes=tuple(_asking_first(node, again) for node in workflow.nodes))
    return state.result(plan, path)


def _nearest_step(
    topology: WorkflowTopology, runs: Mapping[str, NodeRun], place: ActivationPath
) -> ActivationPath:
    """The step to repeat for a node that only chooses by earlier outputs, and would choose the same
    again: the step before it, if there is only one.
    """
    graph = topology.scope_graphs[topology.container_of.get(place.node, ROOT_GRAPH)]
    while not graph.nodes[place.node].role.is_step:
        before = [
            run
            for edge in graph.incoming.get(place.node, ())
            if is_done(run := runs.get(replace(place, node=edge.source).path))
        ]
        if len(before) != 1 or before[0] is None:
            break
        found = parse_activation(before[0].path)
        if found is None or graph.nodes[found.node].body:
            break
        place = found
    return place


def find_activation(
    topology: WorkflowTopology, runs: Mapping[str, NodeRun], wanted: str
) -> ActivationPath:
    """The activation that is meant: a path as it is, or the latest activation of the node. Raises
    RerunRefused.
    """
    wanted = wanted.strip()
    place = parse_activation(wanted)
    if place is not None and wanted in runs and place.node in topology.nodes:
        if is_left_out(runs[wanted]):
            raise RerunRefused("not_reached", name=wanted)
        return place
    node = _find_node(topology, wanted)
    tried = [
        (run, each)
        for path, run in runs.items()
        if (each := parse_activation(path)) is not None
        and each.node == node.id
        and not is_left_out(run)
    ]
    if not tried:
        raise RerunRefused("not_reached", name=node.title or node.id)
    return max(tried, key=lambda each: (each[0].started_at or _EARLIEST, each[1].round))[1]


def _find_node(topology: WorkflowTopology, wanted: str) -> WorkflowNode:
    if wanted in topology.nodes:
        return topology.nodes[wanted]
    word = wanted.casefold()
    same = [
        node
        for node in topology.nodes.values()
        if word in {node.id.casefold(), node.title.casefold()}
    ]
    if len(same) != 1:
        raise RerunRefused("unknown_node", name=wanted, names=_names(topology.nodes))
    return same[0]


def _names(names: Iterable[str]) -> str:
    known = list(names)
    more = f" … +{len(known) - _MAX_NAMES}" if len(known) > _MAX_NAMES else ""
    return ", ".join(f"`{name}`" for name in known[:_MAX_NAMES]) + more


class _Rewinding:
    """A rewind in progress: `left` are the runs that count, `discarded` those that no longer do,
    both by path.
    """

    def __init__(self, topology: WorkflowTopology, runs: Mapping[str, NodeRun]) -> None:
        self._topology = topology
        self._before = runs
        self._stored = StoredRuns(runs)
        self.left: dict[str, NodeRun] = dict(runs)
        self.discarded: dict[str, NodeRun] = {}

    def rewind(self, place: ActivationPath) -> None:
        """Discard an activation and all that came after it: in its scope, in later rounds of the
        loops around it, and behind these loops, which are running again."""
        self._discard_from(place, itself=True)
        scope = place.scope
        while (above := enclosing_round(scope)) is not None:
            path, n = above
            loop = parse_activation(path)
            assert loop is not None
            self._reopen_loop(loop, n)
            self._discard_from(loop, itself=False)
            scope = loop.scope
        self._restore_variables()

    def forget_ending(self) -> Sequence[str]:
        """Discard what was undone and all that came after it; return the paths."""
        ending = self.left.pop(ENDING_PATH, None)
        if ending is None:
            return ()
        # A branch that a join has ended stays so, and what undoes it.
        kept = {*ending.output.get("before", ())}
        undoing = {
            of: self.left[path]
            for path in self.left
            if path not in kept and (of := compensated_path(path)) is not None
        }
        for run in undoing.values():
            self._discard(run.path)
        undone = [of for of, run in undoing.items() if run.status is NodeStatus.DONE]
        for path in undone:
            place = parse_activation(path)
            if place is not None and path in self.left and not is_left_out(self.left[path]):
                self._refuse_old_plan(place)
                self.rewind(place)
        return undone

    def _refuse_old_plan(self, place: ActivationPath) -> None:
        """Rounds of a plan that was replaced cannot be done again."""
        past = {node.id: node for node in self._topology.workflow.past}
        if place.node in past:
            title = past[place.node].title or place.node
            raise RerunRefused("undone_in_old_plan", name=title)

    def release_failed(self, failed: Iterable[NodeRun], now: datetime) -> Sequence[str]:
        """Let these nodes run again and return their paths. A loop may run as many rounds as its
        limit once more.
        """
        paths: list[str] = []
        for run in failed:
            output = {**run.output, FAILED_KEY: True}
            self.left[run.path] = replace(
                run, status=NodeStatus.PENDING, output=output, ended_at=now
            )
            self._renew_rounds(run, now)
            paths.append(run.path)
        return paths

    def _renew_rounds(self, run: NodeRun, now: datetime) -> None:
        place, opened = parse_activation(run.path), self._stored.opened_rounds(run.path)
        if place is not None and opened:
            name = place.path.removeprefix(place.scope)
            self._note(fresh_limit_path(place.scope, name), {"used": opened}, run.task_id, now)

    def renew_edges(self, dead: NodeRun, now: datetime) -> None:
        """Renew the limits of the scope's back edges and bounded edges."""
        place = parse_activation(dead.path)
        assert place is not None
        graph = self._graph_of(place.scope)
        counts = self._stored.back_edge_counts(place.scope)
        for name in graph.limited_edges:
            used = counts.get(name, 0) or self._count_taken(graph, place.scope, name)
            if used:
                self._note(fresh_limit_path(place.scope, name), {"used": used}, dead.task_id, now)

    def start_afresh(self, task_id: TaskId, now: datetime, *, version: bool) -> None:
        """Record from when on time and budget count, and after which numbers attempts do. With
        `version` the workers begin new sessions.
        """
        before = self._before.get(FRESH_START_PATH)
        times = int(before.output.get("times", 0)) if before else 0
        known = [attempts_before(self._before), *(each.attempt for each in self.discarded.values())]
        output = {"attempts": max(known), "times": times + version}
        self._note(FRESH_START_PATH, output, task_id, now)

    def result(self, workflow: Workflow, path: str) -> RunRewind:
        return RunRewind(
            workflow=workflow,
            path=path,
            node=place.node if (place := parse_activation(path)) is not None else "",
            discarded=tuple(self.discarded.values()),
            changed=tuple(run for path, run in self.left.items() if run != self._before.get(path)),
            removed=tuple(path for path in self._before if path not in self.left),
        )

    def _graph_of(self, scope: str) -> ScopeGraph:
        above = enclosing_round(scope)
        container = parse_activation(above[0]) if above else None
        name = container.node if container else ROOT_GRAPH
        graph = self._topology.scope_graphs.get(name)
        if graph is None:
            raise RerunRefused("unknown_node", name=name, names=_names(self._topology.nodes))
        return graph

    def _count_taken(self, graph: ScopeGraph, scope: str, edge: str) -> int:
        source = graph.bounded_edge(edge).source
        return sum(
            edge in run.output.get(TAKEN_EDGES_KEY, ())
            for path, run in self._before.items()
            if scope_of(path) == scope
            and (place := parse_activation(path)) is not None
            and place.node == source
        )

    def _reopen_loop(self, loop: ActivationPath, n: int) -> None:
        """Let the loop wait for its `n`-th round again; rounds that ran beside it stay."""
        node = self._topology.nodes.get(loop.node)
        if node is None or not node.body:
            raise RerunRefused("unknown_node", name=loop.node, names=_names(self._topology.nodes))
        if not node.has_parallel_rounds:
            inside = f"{loop.path}["
            for path in [each for each in self.left if each.startswith(inside)]:
                if int(path.removeprefix(inside).split("]", 1)[0]) > n:
                    self._discard(path)
        for path in [each for each in self.left if noted_path(each) == loop.path]:
            if path != loop.iteration_path:
                self._discard(path)
        run = self.left.get(loop.path)
        if run is not None and run.status is not NodeStatus.WAITING:
            self.left[loop.path] = replace(
                run, status=NodeStatus.WAITING, output={}, error="", ended_at=None
            )

    def _discard_from(self, place: ActivationPath, *, itself: bool) -> None:
        """Discard what follows an activation in its scope. Back edges that were taken after it
        count as not taken, and the rounds that they began are discarded too.
        """
        graph, scope = self._graph_of(place.scope), place.scope
        behind = reachable(
            [place.node], lambda node: (each.target for each in graph.outgoing.get(node, ()))
        )
        counts = dict(self._stored.back_edge_counts(scope))
        kept = self._kept_counts(graph, place, behind, counts)
        rounds = {
            name: 1 + sum(n for edge, n in kept.items() if name in graph.back_regions.get(edge, ()))
            for name in graph.nodes
        }

        def is_over(each: ActivationPath) -> bool:
            if each.node not in graph.nodes:
                return False
            if each.node not in behind or (each.node == place.node and not itself):
                return each.round > rounds[each.node]
            return each.round >= rounds[each.node]

        for path in [each for each in self.left if each.startswith(scope)]:
            local = path.removeprefix(scope)
            name = (noted_path(path) or path).removeprefix(scope).split("[", 1)[0]
            if local.startswith(BACK_EDGE_PREFIX):
                continue
            if (own := parse_activation(name)) is not None and is_over(replace(own, scope=scope)):
                self._discard(path)
        for edge, n in counts.items():
            path = back_edge_path(scope, edge)
            if kept.get(edge, 0) == n or path not in self.left:
                continue
            self._discard(fresh_limit_path(scope, edge))
            if kept.get(edge, 0):
                note = self.left[path]
                self.left[path] = replace(note, output={**note.output, "times": kept[edge]})
            else:
                self._discard(path)

    def _kept_counts(
        self,
        graph: ScopeGraph,
        place: ActivationPath,
        behind: frozenset[str],
        counts: Mapping[str, int],
    ) -> Mapping[str, int]:
        """How often each back edge still counts as taken. Edges whose region overlaps another one's
        keep their counts, because both share round numbers.
        """
        kept = dict(counts)
        covering = [edge for edge, n in counts.items() if n and place.node in _region(graph, edge)]
        now = 1 + sum(counts[edge] for edge in covering)
        if place.round < now:
            if len(covering) != 1:
                raise RerunRefused("several_loops", name=place.path)
            kept[covering[0]] = place.round - 1
        inner = {
            edge
            for edge, n in counts.items()
            if n and edge not in covering and graph.back_edges[edge].target in behind
        }
        outer = [edge for edge, n in kept.items() if n and edge not in inner]
        for edge in inner:
            if not any(_region(graph, edge) & _region(graph, each) for each in outer):
                kept[edge] = 0
        return kept

    def _restore_variables(self) -> None:
        """Variables as the kept assignments left them."""
        if any(find_assignments(self._topology, self.discarded)):
            self.left |= restore_variables(self._topology, self.left)

    def _discard(self, path: str) -> None:
        run = self.left.pop(path, None)
        if run is not None:
            self.discarded[path] = self._before.get(path, run)

    def _note(self, path: str, output: Mapping[str, Any], task_id: TaskId, now: datetime) -> None:
        self.left[path] = NodeRun(
            task_id=task_id,
            path=path,
            status=NodeStatus.DONE,
            attempt=1,
            output=output,
            error="",
            started_at=now,
            ended_at=now,
        )


def _region(graph: ScopeGraph, edge: str) -> frozenset[str]:
    return graph.back_regions.get(edge, frozenset())


def _asking_first(node: WorkflowNode, done: set[str]) -> WorkflowNode:
    return replace(node, auto_wait=True) if node.id in done and not node.repeatable else node


def _read_inputs(workflow: Workflow, given: Mapping[str, str]) -> Mapping[str, JsonValue]:
    known = {each.name: each for each in workflow.inputs}
    read: dict[str, JsonValue] = {}
    for name, text in given.items():
        if name not in known:
            raise RerunRefused("unknown_input", name=name, names=_names(known))
        each = known[name]
        value = convert_input(each, text) if len(text) <= MAX_TEXT else None
        if value is None:
            kind = "2026-11-27" if each.kind == "date" else each.kind
            wanted = describe_choice(name, each.options, kind)
            raise RerunRefused("bad_value", text=text[:_MAX_SHOWN], wanted=wanted)
        read[name] = value
    return read


def _parse_value(field: OutputField, text: str) -> JsonValue:
    try:
        value: JsonValue = convert_value(field, text)
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise RerunRefused(
            "bad_value", text=text[:_MAX_SHOWN], wanted=describe_field(field)
        ) from error
    return value


def _guess_value(text: str) -> JsonValue:
    """The text as a JSON value if it is one, otherwise as a text."""
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value


def _change_outputs(
    state: _Rewinding,
    topology: WorkflowTopology,
    place: ActivationPath,
    outputs: Mapping[str, Mapping[str, str]],
    now: datetime,
) -> None:
    """Replace outputs of nodes before the place, and of the node at it."""
    for name, given in outputs.items():
        if name not in topology.nodes:
            raise RerunRefused("unknown_node", name=name, names=_names(topology.nodes))
        node = topology.nodes[name]
        at = place.path if name == place.node else _last_finished(state.left, name)
        run = state.discarded.get(at) if name == place.node else state.left.get(at)
        if run is None or node.body:
            raise RerunRefused("no_output", name=name)
        fields = {each.name: each for each in node.output}
        values: dict[str, Any] = {}
        for key, text in given.items():
            declared = fields.get(key)
            values[key] = _parse_value(declared, text) if declared else _guess_value(text)
        output = {key: value for key, value in run.output.items() if not _is_choice(key)}
        if name != place.node:
            output = dict(run.output)
        if "result" in values:
            output["summary"] = str(values.pop("result"))
        if VALUES_KEY in output or fields:
            output[VALUES_KEY] = {**output.get(VALUES_KEY, {}), **values}
        else:
            output |= values
        state.left[at] = replace(
            run, status=NodeStatus.DONE, output=output, error="", ended_at=run.ended_at or now
        )


def _is_choice(key: str) -> bool:
    return key in {TAKEN_EDGES_KEY, EXHAUSTED_EDGE_KEY, UNDECIDED_KEY}


def _last_finished(runs: Mapping[str, NodeRun], node: str) -> str:
    done = [
        run
        for path, run in runs.items()
        if is_finished(run)
        and not is_left_out(run)
        and (place := parse_activation(path)) is not None
        and place.node == node
    ]
    return max(done, key=lambda run: run.ended_at or _EARLIEST).path if done else ""
