"""The state of one scope, which is one round of a graph: the nodes that run, are ready or can no
longer be reached, the rounds of its loops, and the outputs that its expressions see.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.engine.workflow.definition import OnError, ScopeGraph, WorkflowEdge, WorkflowNode
from bot.engine.workflow.node_runs import (
    EXHAUSTED_EDGE_KEY,
    UNDECIDED_KEY,
    ActivationPath,
    is_done,
    is_finished,
    is_left_out,
    is_unreached,
    node_output,
    taken_edges,
)
from bot.engine.workflow.nodes.contract import EvaluationContext, RoundProgress
from storage.records.tasks import NodeRun, NodeStatus


class ScopeState:
    """One round of a graph. Its state follows from the runs alone, in whatever order they are
    recorded. `back_edge_counts` and `edge_counts` say how often each back edge and each bounded
    forward edge was taken; `used_limits` is how much of these counts is forgiven.
    """

    def __init__(
        self,
        graph: ScopeGraph,
        scope: str,
        back_edge_counts: Mapping[str, int] | None = None,
        used_limits: Mapping[str, int] | None = None,
    ) -> None:
        self.graph = graph
        self.scope = scope
        self.back_edge_counts = dict(back_edge_counts or {})
        self.used_limits = dict(used_limits or {})
        self.runs: dict[str, NodeRun] = {}
        self.previous_runs: dict[str, NodeRun] = {}
        self.failed_runs: dict[str, NodeRun] = {}
        self._round_numbers = dict.fromkeys(graph.nodes, 1)
        for edge, n in self.back_edge_counts.items():
            for node in graph.back_regions.get(edge, ()):
                self._round_numbers[node] += n
        self._open_inputs = {node: len(graph.incoming.get(node, ())) for node in graph.nodes}
        self._arrived_inputs = dict.fromkeys(graph.nodes, 0)
        self._ready_steps: list[int] = []
        self._ready_others: list[int] = []
        self._unreached: list[int] = []
        self._node_ids = tuple(graph.nodes)
        self._active: set[str] = set()
        self._finished_count = 0
        self._pending_back_edges: dict[str, WorkflowEdge] = {}
        self.exhausted_runs: dict[str, NodeRun] = {}
        self.dead_end_runs: dict[str, NodeRun] = {}
        self.undecided_runs: dict[str, NodeRun] = {}
        self.edge_counts: Counter[str] = Counter()
        self._joins_over: dict[str, list[str]] = defaultdict(list)
        for join, branches in graph.cancelling_joins.items():
            for node in branches:
                self._joins_over[node].append(join)
        for node in graph.nodes:
            self._evaluate_readiness(node)

    def activation(self, node: str) -> ActivationPath:
        """The node's current activation."""
        return ActivationPath(self.scope, node, self._round_numbers[node])

    def record_run(self, node: str, run: NodeRun) -> None:
        """Record the run of the node's current activation."""
        before = self.runs.get(node)
        self.runs[node] = run
        self._update_status(node, run)
        is_halted = node in self.exhausted_runs or node in self.undecided_runs
        if is_finished(run) and (not is_finished(before) or is_halted):
            self._finished_count += not is_finished(before)
            self._propagate(node, run)

    def is_closed(self, node: str) -> bool:
        """Whether the node's branch was cancelled, or is the one that arrived first: nothing in it
        continues.
        """
        return any(is_done(self.runs.get(join)) for join in self._joins_over.get(node, ()))

    def unfinished_branch_nodes(self, join: str) -> tuple[str, ...]:
        """The nodes that a join cancels, in the order of the plan."""
        branches = self.graph.cancelling_joins.get(join, frozenset())
        return tuple(
            each
            for each in (self._node_ids if branches else ())
            if each in branches and not is_finished(self.runs.get(each))
        )

    def lost_branch_nodes(self, join: str, ended: Collection[str]) -> tuple[str, ...]:
        """The nodes whose branches, `ended` included, all ended before they arrived at the join."""
        graph, branches = self.graph, self.graph.cancelling_joins.get(join, frozenset())
        arrived = {
            edge.source
            for edge in graph.incoming.get(join, ())
            if (run := self.runs.get(edge.source)) is not None
            and is_done(run)
            and (taken_edges(run) is None or edge.name in (taken_edges(run) or ()))
        }

        def behind(node: str) -> frozenset[str]:
            return branches & {node, *graph.nodes_behind(node)}

        return tuple(
            each
            for each in self._node_ids
            if each in branches and behind(each) & {*ended} and not behind(each) & arrived
        )

    def count_bounded_edges(self, run: NodeRun) -> None:
        """Count the bounded forward edges that a run of this round, or of an earlier one, took."""
        self.edge_counts.update(self.graph.bounded_edges.keys() & (taken_edges(run) or ()))

    def ready_steps(self) -> Iterator[str]:
        """Steps that may start now, in the order of the plan. Starts may be recorded during
        iteration.
        """
        at = 0
        while at < len(self._ready_steps):
            n = self._ready_steps[at]
            yield self._node_ids[n]
            at += self._ready_steps[at : at + 1] == [n]

    def next_ready_node(self) -> str | None:
        """A node that may run now and needs no worker."""
        return self._node_ids[self._ready_others[0]] if self._ready_others else None

    def next_unreached_node(self) -> str | None:
        """A node that no branch can reach any more."""
        while self._unreached and not self._is_pending(self._node_ids[self._unreached[-1]]):
            self._unreached.pop()
        return self._node_ids[self._unreached[-1]] if self._unreached else None

    def next_back_edge(self) -> WorkflowEdge | None:
        """A back edge that was taken, once nothing in the region that it restarts is running or
        ready."""
        ready = (self._node_ids[n] for n in (*self._ready_steps, *self._ready_others))
        busy = {*self._active, *ready}
        return next(
            (
                edge
                for edge in self._pending_back_edges.values()
                if busy.isdisjoint(self.graph.back_regions[edge.name])
            ),
            None,
        )

    def start_new_round(self, edge: WorkflowEdge) -> None:
        """Start a new round of all nodes in the edge's region."""
        region = self.graph.back_regions[edge.name]
        self.back_edge_counts[edge.name] = self.back_edge_counts.get(edge.name, 0) + 1
        self._pending_back_edges = {
            name: each
            for name, each in self._pending_back_edges.items()
            if each.source not in region
        }
        for node in region:
            self._reset_node(node)
        for node in region:
            self._recount_inputs(node, region)
        for node in region:
            self._evaluate_readiness(node)

    @property
    def is_complete(self) -> bool:
        settled = self._finished_count == len(self.graph.nodes)
        return settled and not (
            self._pending_back_edges
            or self.exhausted_runs
            or self.dead_end_runs
            or self.undecided_runs
        )

    @property
    def has_nothing_active(self) -> bool:
        return not self._active

    @property
    def is_idle(self) -> bool:
        """Whether nothing in the scope is running, and nothing could start."""
        return not (
            self._active or self._ready_steps or self._ready_others or self._pending_back_edges
        )

    def last_finished_run(self, node: str) -> NodeRun | None:
        """The node's last activation that is finished."""
        run = self.runs.get(node)
        return run if is_finished(run) else self.previous_runs.get(node)

    def last_reached_run(self) -> NodeRun | None:
        """The last run that was reached although nothing after it was."""
        for node in reversed(self._node_ids):
            run = self.runs.get(node)
            behind = (self.runs.get(edge.target) for edge in self.graph.outgoing.get(node, ()))
            if run is None or not is_finished(run) or is_left_out(run):
                continue
            if all(each is not None and is_left_out(each) for each in behind):
                return run
        return None

    def _reset_node(self, node: str) -> None:
        run = self.runs.pop(node, None)
        if run is not None:
            self.previous_runs[node] = run
        self._finished_count -= is_finished(run)
        self._round_numbers[node] += 1
        self._open_inputs[node] = self._arrived_inputs[node] = 0
        self.failed_runs.pop(node, None)
        self.exhausted_runs.pop(node, None)
        self.dead_end_runs.pop(node, None)
        self.undecided_runs.pop(node, None)
        self._remove_ready(node)

    def _ready_list(self, node: str) -> list[int]:
        step = self.graph.nodes[node].role.is_step
        return self._ready_steps if step else self._ready_others

    def _remove_ready(self, node: str) -> None:
        free, n = self._ready_list(node), self.graph.node_order[node]
        at = bisect_left(free, n)
        if at < len(free) and free[at] == n:
            del free[at]

    def _is_pending(self, node: str) -> bool:
        run = self.runs.get(node)
        return run is None or run.status is NodeStatus.PENDING

    def _update_status(self, node: str, run: NodeRun) -> None:
        self._active.discard(node)
        self.failed_runs.pop(node, None)
        self._remove_ready(node)
        match run.status:
            case NodeStatus.RUNNING | NodeStatus.WAITING:
                self._active.add(node)
            case NodeStatus.FAILED:
                self.failed_runs[node] = run
            case NodeStatus.PENDING:
                self._evaluate_readiness(node)
            case NodeStatus.DONE | NodeStatus.SKIPPED | NodeStatus.CANCELLED:
                pass

    def _propagate(self, node: str, run: NodeRun) -> None:
        self.exhausted_runs.pop(node, None)
        self.undecided_runs.pop(node, None)
        is_closed = self.is_closed(node)
        if EXHAUSTED_EDGE_KEY in run.output and not is_closed:
            self.exhausted_runs[node] = run
            return
        if UNDECIDED_KEY in run.output and not is_closed:
            self.undecided_runs[node] = run
            return
        if is_done(run):
            for each in self.graph.cancelling_joins.get(node, ()):
                self._close_node(each)
        chosen = taken_edges(run)
        self.count_bounded_edges(run)
        returning = [
            edge
            for edge in self.graph.outgoing_back_edges.get(node, ())
            if chosen and edge.name in chosen and not is_closed
        ]
        if returning:
            self._pending_back_edges.update({edge.name: edge for edge in returning})
            return
        is_end = not self.graph.outgoing.get(node) and not self.graph.chooses_target(node)
        is_cancelled = is_closed or run.status is NodeStatus.CANCELLED
        if chosen is not None and not chosen and not is_end and not is_cancelled:
            self.dead_end_runs[node] = run
        for edge in self.graph.outgoing.get(node, ()):
            self._open_inputs[edge.target] -= 1
            self._arrived_inputs[edge.target] += _is_edge_taken(edge, run)
            self._evaluate_readiness(edge.target)

    def _close_node(self, node: str) -> None:
        """Close a node of a branch that nothing continues: it takes no back edge, does not stop the
        plan and asks nobody.
        """
        for halted in (self.exhausted_runs, self.dead_end_runs, self.undecided_runs):
            halted.pop(node, None)
        for edge in self.graph.outgoing_back_edges.get(node, ()):
            self._pending_back_edges.pop(edge.name, None)

    def _recount_inputs(self, node: str, region: Iterable[str]) -> None:
        """Reset the inputs of a region that restarts: edges from outside keep their result, those
        from inside are open again.
        """
        for edge in self.graph.incoming.get(node, ()):
            before = None if edge.source in region else self.runs.get(edge.source)
            if before is None or not is_finished(before):
                self._open_inputs[node] += 1
            else:
                self._arrived_inputs[node] += _is_edge_taken(edge, before)

    def _evaluate_readiness(self, node: str) -> None:
        if not self._is_pending(node):
            return
        if self._may_start(node):
            self._remove_ready(node)
            insort(self._ready_list(node), self.graph.node_order[node])
        elif not self._open_inputs[node]:
            self._unreached.append(self.graph.node_order[node])

    def _may_start(self, node: str) -> bool:
        if not self.graph.incoming.get(node):
            return True
        spec = self.graph.nodes[node].spec
        needed = spec.needed_inputs(self.graph.nodes[node].settings)
        if needed is None:
            return not self._open_inputs[node] and self._arrived_inputs[node] > 0
        return self._arrived_inputs[node] >= needed


def _is_edge_taken(edge: WorkflowEdge, run: NodeRun) -> bool:
    chosen = taken_edges(run)
    if run.status is NodeStatus.SKIPPED and chosen is None:
        return not is_unreached(run) and not edge.condition
    return edge.name in chosen if chosen is not None else not edge.condition


_MAX_TOTAL_SIZE = 1_000_000
_MIN_ROUND_SIZE = 200
_MIN_PARTIAL_SIZE = 50_000
_NUMBER_SIZE = 8
_MAX_DEPTH = 30


@dataclass(slots=True)
class LoopState:
    """The state of a loop. `iteration` is what the rounds iterate over; `results` holds the result
    of each finished round.
    """

    node: WorkflowNode
    activation: ActivationPath
    iteration: Mapping[str, Any]
    results: dict[int, Any] = field(default_factory=dict)
    opened_rounds: int = 0
    ended_by_person: bool = False
    used_limit: int = 0

    @property
    def progress(self) -> RoundProgress:
        return RoundProgress(
            iteration=self.iteration,
            results=self.results,
            opened_rounds=self.opened_rounds,
            ended_by_person=self.ended_by_person,
            used_limit=self.used_limit,
        )

    @property
    def partial_output(self) -> Mapping[str, Any]:
        """The loop's output if it ended after the rounds that are finished."""
        return self.node.loop.partial_output(self.iteration, self.results)

    @property
    def tolerates_failure(self) -> bool:
        """True if the loop continues after a failed round."""
        return self.node.on_error is not OnError.FAIL

    def close_round(
        self, n: int, scope: ScopeState, failure: str | None, context: EvaluationContext
    ) -> None:
        """`failure` says why the round has no result; `context` is that of the round."""
        result: Any = {"error": failure}
        if failure is None:
            result = self.node.loop.round_result(self.node, _round_result(scope), context)
        self.results[n] = _ValueTruncator(self._max_round_size).truncate(result)

    def truncate(self, value: Any) -> Any:
        """Truncate the output of an unfinished round to the size allowed for a finished one."""
        return _ValueTruncator(max(self._max_round_size, _MIN_PARTIAL_SIZE)).truncate(value)

    @property
    def _max_round_size(self) -> int:
        """The limit of characters per round; with it the results of all rounds fit into one row."""
        total = len(self.iteration.get("items", ())) or 1
        return max(_MIN_ROUND_SIZE, _MAX_TOTAL_SIZE // total)


def _round_result(state: ScopeState) -> Any:
    """The output of the round's last node, or of each last node if it ends in several. For an end
    or a step that people added, the planned node before it counts.
    """
    runs = {
        name: state.runs[name] for name in _planned_leaf_nodes(state.graph) if name in state.runs
    }
    came = {name: dict(node_output(run)) for name, run in runs.items() if not is_unreached(run)}
    return next(iter(came.values())) if len(came) == 1 else came


def _planned_leaf_nodes(graph: ScopeGraph) -> Iterable[str]:
    found: dict[str, None] = {}
    open_, seen = list(reversed(graph.leaf_nodes)), set[str]()
    while open_:
        name = open_.pop()
        before = [edge.source for edge in graph.incoming.get(name, ())]
        node = graph.nodes[name]
        if not (node.given or node.role.is_terminal) or not before:
            found[name] = None
            continue
        seen.add(name)
        open_ += [each for each in reversed(before) if each not in seen]
    return found


class _ValueTruncator:
    """Truncates a value to a total number of characters and a maximum depth."""

    def __init__(self, most: int) -> None:
        self._remaining = most

    def truncate(self, value: Any, deep: int = 0) -> Any:
        if isinstance(value, str):
            return self._truncate_text(value)
        if deep > _MAX_DEPTH:
            return None
        if isinstance(value, Mapping):
            own = (str(key) for key in value)
            return {
                self._truncate_text(key): self.truncate(value[key], deep + 1)
                for key in own
                if self._remaining
            }
        if isinstance(value, list):
            return [self.truncate(each, deep + 1) for each in value if self._remaining]
        self._remaining = max(0, self._remaining - _NUMBER_SIZE)
        return value

    def _truncate_text(self, text: str) -> str:
        piece = text[: self._remaining]
        self._remaining -= len(piece)
        return piece


@dataclass(frozen=True, slots=True)
class OutputsView(Mapping[str, Any]):
    """The outputs of nodes by id, looked up from the innermost scope outwards; `latest_runs` has
    the last runs of nodes in other scopes. An id with dashes also works with underscores."""

    scopes: Sequence[ScopeState]
    latest_runs: Mapping[str, NodeRun]
    aliases: Mapping[str, str]

    def __getitem__(self, name: str) -> Any:
        run = self._find_run(self.aliases.get(name, name))
        if run is None:
            raise KeyError(name)
        return node_output(run)

    def __iter__(self) -> Iterator[str]:
        return iter(self.latest_runs)

    def __len__(self) -> int:
        return len(self.latest_runs)

    def _find_run(self, node: str) -> NodeRun | None:
        for state in self.scopes:
            run = state.runs.get(node)
            if run is not None and (is_finished(run) or run.status is NodeStatus.FAILED):
                return run
            if node in state.previous_runs:
                return state.previous_runs[node]
        return self.latest_runs.get(node)


@dataclass(frozen=True, slots=True)
class StatesView(Mapping[str, str]):
    """The status of nodes by id; an id with dashes also works with underscores."""

    scopes: Sequence[ScopeState]
    aliases: Mapping[str, str]

    def __getitem__(self, name: str) -> str:
        name = self.aliases.get(name, name)
        for state in self.scopes:
            if name in state.graph.nodes:
                run = state.runs.get(name)
                return run.status.value if run is not None else NodeStatus.PENDING.value
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for state in self.scopes for name in state.graph.nodes)

    def __len__(self) -> int:
        return sum(len(state.graph.nodes) for state in self.scopes)
