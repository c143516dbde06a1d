"""A running workflow as an indented list: steps, choices, and loops with their current rounds."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice, takewhile
from typing import TypeAlias

from bot.engine.workflow.compensation import Compensations
from bot.engine.workflow.definition import (
    COMPENSATION_MARK,
    ROOT_GRAPH,
    OnError,
    ScopeGraph,
    Workflow,
    WorkflowEdge,
    WorkflowNode,
    WorkflowTopology,
    reachable,
)
from bot.engine.workflow.node_runs import (
    VALUES_KEY,
    ActivationPath,
    is_finished,
    is_unreached,
    questioned_path,
    taken_edges,
)
from bot.engine.workflow.nodes.contract import NodeRole
from bot.engine.workflow.presentation.node_display import CurrentRuns, NodeTitles, display_status
from bot.engine.workflow.presentation.progress import plan_progress
from cards.formats import clean_line, truncate
from storage.records.tasks import LoopProgress, NodeRun, NodeStatus, TaskStep

_MAX_BRANCH_DEPTH = 6

_BranchTrail: TypeAlias = tuple[tuple[str, int], ...]
"""The branches around a node: where each one splits off, and its number there."""


@dataclass(frozen=True, slots=True)
class OutlineSlot:
    """`branch` is set to the branch's label where a branch begins."""

    node: str
    depth: int
    branch: str | None


def outline_slots(graph: ScopeGraph) -> tuple[OutlineSlot, ...]:
    """All nodes of the scope in reading order. A node that waits for several branches comes after
    them, and is only inside the branches that contain all of them."""
    came: dict[str, WorkflowEdge] = {}
    found: list[OutlineSlot] = []
    left = {node: len(graph.incoming.get(node, ())) for node in graph.nodes}
    free = [node for node, n in left.items() if not n][::-1]
    trails: dict[str, list[_BranchTrail]] = defaultdict(list)
    # The nodes with a path to the end of the scope, rather than only back.
    onward = reachable(
        (node for node in graph.nodes if not graph.edges_from(node)),
        lambda node: (edge.source for edge in graph.incoming.get(node, ())),
    )
    while free:
        node = free.pop()
        trail = _common_trail(trails.pop(node, []))
        label = None
        if trail and trail[-1][0] == came[node].source:
            label = branch_name(graph, came[node])
        found.append(OutlineSlot(node, len(trail), label))
        branches = _branch_starts(graph, node, onward) if len(trail) < _MAX_BRANCH_DEPTH else []
        freed: list[str] = []
        for edge in graph.outgoing.get(node, ()):
            target = edge.target
            begins = target in branches
            trails[target].append((*trail, (node, branches.index(target))) if begins else trail)
            came[target] = edge
            left[target] -= 1
            if not left[target]:
                freed.append(target)
        # Branches that only lead back come first, so that the way forward is next.
        freed.reverse()
        free += sorted(freed, key=lambda each: each not in onward)
    return tuple(found)


def _branch_starts(graph: ScopeGraph, node: str, onward: frozenset[str]) -> list[str]:
    """The nodes with which branches behind `node` begin. A target that is an end starts no branch,
    and neither does the only way forward among targets that lead back."""
    targets = dict.fromkeys(edge.target for edge in graph.outgoing.get(node, ()))
    starts = [each for each in targets if graph.nodes[each].role is not NodeRole.END]
    if len(onward.intersection(starts)) == 1:
        starts = [each for each in starts if each not in onward]
    return starts


def _common_trail(trails: Sequence[_BranchTrail]) -> _BranchTrail:
    steps = zip(*trails, strict=False)
    return tuple(each[0] for each in takewhile(lambda step: len(set(step)) == 1, steps))


def branch_name(graph: ScopeGraph, edge: WorkflowEdge) -> str:
    """The label of a branch, or empty."""
    if edge.label:
        return clean_line(edge.label)
    source = graph.nodes[edge.source]
    return clean_line(source.spec.target_label(source.settings, edge.target))


_MAX_ROUNDS = 3
_MAX_CHOSEN = 3
_MAX_VALUES, _MAX_VALUE = 8, 60


RemainingStep: TypeAlias = tuple[WorkflowNode, NodeRun | None, int]
"""A remaining step, its run if there is one, and its number of repetitions."""


@dataclass(frozen=True, slots=True)
class StepCount:
    done: int = 0
    total: int = 0

    def __add__(self, other: StepCount) -> StepCount:
        return StepCount(self.done + other.done, self.total + other.total)


class OutlinePlan:
    """The parts of an outline that depend only on the plan."""

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self.topology = WorkflowTopology(workflow)
        self._slots: dict[str, tuple[OutlineSlot, ...]] = {}
        self._sizes: dict[str, int] = {}

    def slots(self, graph_id: str) -> tuple[OutlineSlot, ...]:
        if graph_id not in self._slots:
            self._slots[graph_id] = outline_slots(self.topology.scope_graphs[graph_id])
        return self._slots[graph_id]

    def size(self, graph_id: str) -> int:
        """The number of steps in one round."""
        if graph_id not in self._sizes:
            nodes = self.topology.scope_graphs[graph_id].nodes.values()
            sizes = (self.size(n.id) if n.body else int(n.role.is_counted) for n in nodes)
            self._sizes[graph_id] = sum(sizes)
        return self._sizes[graph_id]


class WorkflowOutline:
    """`approvers` names the people asked about a step, by its path."""

    def __init__(
        self,
        plan: OutlinePlan | Workflow,
        runs: Mapping[str, NodeRun],
        approvers: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self._plan = plan if isinstance(plan, OutlinePlan) else OutlinePlan(plan)
        self.topology = self._plan.topology
        self.runs = runs
        self._current = CurrentRuns(self.topology, runs)
        self._titles = NodeTitles(self.topology, runs)
        self._approvers = {
            questioned_path(path) or path: names for path, names in (approvers or {}).items()
        }
        self._finished_rounds: dict[str, bool] = {}

    def lines(self) -> list[TaskStep]:
        """The lines for a card, from first to last."""
        return [*_fold_skipped(self._lines(ROOT_GRAPH, "", 0)), *self._undoing_steps()]

    def all_steps(self) -> Iterator[TaskStep]:
        """Yield every activation of every step, in written order, then what undoes them."""
        return chain(self._steps(ROOT_GRAPH, ""), self._undoing_steps())

    def all_nodes(self) -> Iterator[TaskStep]:
        """Yield every activation of every node but starts and ends, also of those still to come; of
        the rounds to come, the next one. Then what undoes them."""
        return chain(self._steps(ROOT_GRAPH, "", every=True), self._undoing_steps())

    def progress(self, weights: Mapping[str, float]) -> float:
        """The share of the plan that is done: see `plan_progress`."""
        return plan_progress(self._current, weights)

    @cached_property
    def step_count(self) -> StepCount:
        """Future rounds count if their number is known; otherwise the next one counts."""
        return self._count(ROOT_GRAPH, "")

    def remaining_steps(self) -> Iterator[RemainingStep]:
        return self._remaining(ROOT_GRAPH, "", 1)

    def _lines(self, graph_id: str, scope: str, depth: int) -> Iterator[TaskStep]:
        branch: str | None = None
        for slot in self._plan.slots(graph_id):
            branch = slot.branch if slot.branch is not None else branch
            node, place = self.topology.nodes[slot.node], self._current.activation(scope, slot.node)
            run = self._current.run_at(place)
            if not _is_line(node, run):
                continue
            way = self._chosen_targets(graph_id, scope, node, run)
            line = self._step(node, place, depth=depth + slot.depth, branch=branch, way=way)
            branch = None
            yield line
            if node.body and not is_finished(run):
                for n in self._shown_rounds(node, place, run):
                    yield from self._lines(node.id, place.round_scope(n), line.depth + 1)

    def _steps(
        self, graph_id: str, scope: str, depth: int = 0, *, every: bool = False
    ) -> Iterator[TaskStep]:
        for name, node in self.topology.scope_graphs[graph_id].nodes.items():
            for n in range(1, self._current.activation(scope, name).round + 1):
                place = ActivationPath(scope, name, n)
                run = self._current.run_at(place)
                listed = every and not node.role.is_terminal
                has_error = run is not None and run.error and not node.body
                if listed or node.role.is_counted or has_error:
                    yield self._step(node, place, depth=depth)
                opened = self._current.stored.opened_rounds(place.path)
                for each in (
                    range(opened if is_finished(run) else max(1, opened)) if node.body else ()
                ):
                    inside = place.round_scope(each)
                    yield from self._steps(node.id, inside, depth + every, every=every)

    def _undoing_steps(self) -> Iterator[TaskStep]:
        """The compensations that the run has begun or is to make, in their order."""
        undoing = Compensations(self.topology, self.runs)
        for run in undoing.all:
            node = undoing.node_of(run.path)
            asks = self._approvers.get(run.path)
            title = self._titles.title_of_undoing(run.path)
            step = TaskStep(
                path=run.path,
                title=f"{COMPENSATION_MARK} {title}",
                status=_status(node, run, asked=asks is not None),
                persona=node.persona,
                kind=node.type,
                awaits_person=asks is not None,
                awaited_names=asks or (),
            )
            yield _with_run(step, run)

    def _step(
        self,
        node: WorkflowNode,
        place: ActivationPath,
        *,
        depth: int = 0,
        branch: str | None = None,
        way: tuple[str, ...] = (),
    ) -> TaskStep:
        run = self._current.run_at(place)
        has_rounds = node.body and not node.loop.runs_workflow
        rounds = self._rounds(node, place, run) if has_rounds else None
        asks = self._approvers.get(place.path)
        earlier = [self.runs.get(replace(place, round=n).path) for n in range(1, place.round)]
        step = TaskStep(
            path=place.path,
            title=self._titles.title_of(place.scope, place.node),
            status=_status(node, run, asked=asks is not None),
            persona=node.persona,
            kind=node.type,
            depth=depth,
            branch=branch,
            chosen_branches=way,
            round=1 + sum(run is not None and not is_unreached(run) for run in earlier),
            rounds=rounds,
            awaits_person=asks is not None,
            # If no person has the assignee's name, others are asked.
            awaited_names=() if asks is None else asks or node.spec.assignees(node.settings),
        )
        return step if run is None else _with_run(step, run)

    def _rounds(
        self, node: WorkflowNode, place: ActivationPath, run: NodeRun | None
    ) -> LoopProgress:
        opened = self._current.stored.opened_rounds(place.path)
        total = self._total(node, place)
        if run is not None and run.status is NodeStatus.DONE:
            done = opened if total is None else total
            lost = sum(self._has_failures(node.id, place.round_scope(n)) for n in range(opened))
            return LoopProgress(done=done, failed=lost, current=opened, total=total or opened)
        over = [n for n in range(opened) if self._is_round_finished(node, place.round_scope(n))]
        lost = sum(self._has_failures(node.id, place.round_scope(n)) for n in over)
        most = node.loop.shown_limit(node.settings)
        return LoopProgress(
            done=len(over), failed=lost, current=opened, total=total, max_total=most
        )

    def _total(self, node: WorkflowNode, place: ActivationPath) -> int | None:
        """The total number of rounds, if it is known in advance."""
        of = self.runs.get(place.iteration_path)
        return None if of is None else node.loop.total_rounds(node.settings, of.output)

    def _shown_rounds(
        self, node: WorkflowNode, place: ActivationPath, run: NodeRun | None
    ) -> list[int]:
        """Rounds in progress; before the first one, round 0 as a preview."""
        opened = self._current.stored.opened_rounds(place.path)
        if run is None or not opened:
            return [0]
        if node.has_parallel_rounds:
            going = [
                n for n in range(opened) if not self._is_round_finished(node, place.round_scope(n))
            ]
            return going[:_MAX_ROUNDS]
        return [opened - 1]

    def _is_round_finished(self, node: WorkflowNode, scope: str) -> bool:
        """Whether everything in it is settled, or a failure in it is tolerated."""
        if scope not in self._finished_rounds:
            names = self.topology.scope_graphs[node.id].nodes
            forgiven = node.on_error is not OnError.FAIL and self._has_failures(node.id, scope)
            settled = all(is_finished(self._current.run_of(scope, name)) for name in names)
            self._finished_rounds[scope] = forgiven or settled
        return self._finished_rounds[scope]

    def _has_failures(self, graph_id: str, scope: str) -> bool:
        runs = (
            self._current.run_of(scope, name) for name in self.topology.scope_graphs[graph_id].nodes
        )
        return any(run is not None and run.status is NodeStatus.FAILED for run in runs)

    def _chosen_targets(
        self, graph_id: str, scope: str, node: WorkflowNode, run: NodeRun | None
    ) -> tuple[str, ...]:
        """Titles of the chosen targets, if there was a choice."""
        chosen = taken_edges(run) if run is not None and run.status is NodeStatus.DONE else None
        edges = self.topology.scope_graphs[graph_id].edges_from(node.id)
        if not chosen or (node.role is not NodeRole.CHOICE and len(edges) <= 1):
            return ()
        to = dict.fromkeys(edge.target for edge in edges if edge.name in chosen)
        return tuple(self._titles.title_of(scope, target) for target in to)[:_MAX_CHOSEN]

    def _count(self, graph_id: str, scope: str) -> StepCount:
        count = StepCount()
        for name, node in self.topology.scope_graphs[graph_id].nodes.items():
            now = self._current.activation(scope, name)
            for n in range(1, now.round + 1):
                place = ActivationPath(scope, name, n)
                count += self._count_one(node, place, before=n < now.round)
        return count

    def _count_one(self, node: WorkflowNode, place: ActivationPath, *, before: bool) -> StepCount:
        """With `before`, only work done in that earlier activation counts."""
        run = self._current.run_at(place)
        if node.role.is_counted:
            if before and run is not None and is_unreached(run):
                return StepCount()
            settled = is_finished(run)
            return StepCount(int(settled), int(settled or not before))
        if not node.body:
            return StepCount()
        size = self._plan.size(node.id)
        if run is not None and run.status in {NodeStatus.SKIPPED, NodeStatus.CANCELLED}:
            return StepCount() if before else StepCount(size, size)
        opened = self._current.stored.opened_rounds(place.path)
        count = sum((self._round(node, place.round_scope(n)) for n in range(opened)), StepCount())
        if before or is_finished(run):
            return StepCount(count.total, count.total)
        total = self._total(node, place)
        ahead = (0 if opened else 1) if total is None else max(0, total - opened)
        return count + StepCount(0, ahead * size)

    def _round(self, node: WorkflowNode, scope: str) -> StepCount:
        count = self._count(node.id, scope)
        return (
            StepCount(count.total, count.total) if self._is_round_finished(node, scope) else count
        )

    def _remaining(self, graph_id: str, scope: str, times: int) -> Iterator[RemainingStep]:
        for name, node in self.topology.scope_graphs[graph_id].nodes.items():
            place = self._current.activation(scope, name)
            run = self._current.run_at(place)
            if is_finished(run):
                continue
            if node.role.is_counted:
                yield node, run, times
            elif node.body:
                yield from self._remaining_inside(node, place, times)

    def _remaining_inside(
        self, node: WorkflowNode, place: ActivationPath, times: int
    ) -> Iterator[RemainingStep]:
        opened = self._current.stored.opened_rounds(place.path)
        for n in range(opened):
            if not self._is_round_finished(node, place.round_scope(n)):
                yield from self._remaining(node.id, place.round_scope(n), times)
        total = self._total(node, place)
        ahead = (0 if opened else 1) if total is None else max(0, total - opened)
        if ahead:
            yield from self._remaining(node.id, place.round_scope(opened), times * ahead)


def _is_line(node: WorkflowNode, run: NodeRun | None) -> bool:
    if node.role.is_counted or node.body:
        return True
    if run is not None and run.error:
        return True
    return node.role is NodeRole.CHOICE and not (
        run is not None and run.status is NodeStatus.SKIPPED
    )


def _status(node: WorkflowNode, run: NodeRun | None, *, asked: bool) -> NodeStatus:
    status = NodeStatus.PENDING if run is None else display_status(node, run.status)
    return NodeStatus.WAITING if asked and not status.is_settled else status


def _with_run(step: TaskStep, run: NodeRun) -> TaskStep:
    # The error of an earlier attempt is hidden once the step is finished.
    is_told = "error" in run.output or run.status is NodeStatus.CANCELLED
    is_error_shown = is_told or not is_finished(run)
    return replace(
        step,
        summary=str(run.output.get("summary", "")),
        error=run.error if is_error_shown else "",
        files=tuple(run.output.get("files", ())),
        files_left_out=tuple(run.output.get("left_out", ())),
        started_at=run.started_at,
        ended_at=run.ended_at,
        waits_until=run.wake_at if run.status is NodeStatus.WAITING else None,
        values=tuple(_shown_values(run.output.get(VALUES_KEY) or {})),
    )


def _shown_values(values: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for name, value in islice(values.items(), _MAX_VALUES):
        if value is not None:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield name, truncate(clean_line(text[: _MAX_VALUE * 4]), _MAX_VALUE)


def _fold_skipped(lines: Iterable[TaskStep]) -> list[TaskStep]:
    """Merge consecutive skipped steps into one line."""
    folded: list[TaskStep] = []
    for line in lines:
        last = folded[-1] if folded else line
        both = folded and line.status is last.status is NodeStatus.SKIPPED
        if both and not line.error and not last.error and line.branch is None:
            folded[-1] = replace(last, folded_steps=last.folded_steps + 1)
        else:
            folded.append(line)
    return folded
