"""Compensation: undoes nodes of a run that ends without success, or of a branch that a join ends.

As in BPMN, a node names what undoes it, and the latest is undone first. A loop or sub-workflow that
names one is undone by that in place of its steps. Each compensation is a run of its own beside that
of its node, stored before it starts: what has a result never runs again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from bot.engine.workflow.definition import Workflow, WorkflowNode, WorkflowTopology
from bot.engine.workflow.field_reader import ValidationIssue, unknown_node_issue
from bot.engine.workflow.node_runs import (
    ENDING_PATH,
    FAILED_KEY,
    SUSPENDED_KEY,
    UNFINISHED_ROUNDS_KEY,
    ActivationPath,
    StoredRuns,
    attempts_before,
    compensated_path,
    is_unreached,
    loops_around,
    parse_activation,
    scope_of,
)
from bot.engine.workflow.nodes.contract import NodeRole
from storage.records.tasks import NodeRun, NodeStatus, TaskId, TaskStatus

COMPENSATION_SECONDS = 3_600.0
"""How long all compensations of a run that ends may take, if its workflow does not say."""

_LATEST = datetime.max.replace(tzinfo=UTC)


def find_compensation_issues(workflow: Workflow) -> Iterator[ValidationIssue]:
    """A step is undone by another step, which stands outside the flow."""
    known = workflow.nodes_by_id
    linked = {name for edge in workflow.edges for name in (edge.source, edge.target)}
    linked |= {name for node in workflow.nodes for name in node.body}
    for node in workflow.nodes:
        other, facts = known.get(node.on_cancel), {"node": node.on_cancel}
        key = ""
        if not node.on_cancel:
            continue
        if other is None:
            yield unknown_node_issue(node.on_cancel, "onCancel", known, where=node.id)
        elif not (node.role.is_step or node.role is NodeRole.LOOP):
            key = "nothing_to_undo"
        elif not other.role.is_step:
            key = "cannot_undo"
        elif other.id in linked or other is node:
            key = "undoing_in_flow"
        elif other.on_cancel:
            key = "undoing_undone"
        if key:
            yield ValidationIssue(key=key, where=node.id, field="onCancel", facts=facts)


def node_of_run(path: str, nodes: Mapping[str, WorkflowNode]) -> WorkflowNode | None:
    """The node that runs at this path; where it undoes another, the one that undoes."""
    undone = compensated_path(path)
    place = parse_activation(undone or path)
    node = nodes.get(place.node) if place is not None else None
    return nodes.get(node.on_cancel) if undone and node is not None else node


class Compensations:
    """Those of one run: which are open, and in which order. `runs` is kept current by its owner."""

    def __init__(self, topology: WorkflowTopology, runs: Mapping[str, NodeRun]) -> None:
        self._workflow = topology.with_past.workflow
        self._nodes = topology.with_past.nodes
        self._runs = runs
        self._order = {name: n for n, name in enumerate(self._nodes)}
        self._paths = {path: compensated_path(path) or "" for path in runs if self._is_one(path)}
        self._undone = {*self._paths.values()}
        self._sorted: Sequence[str] | None = None

    def record(self, run: NodeRun) -> None:
        """Any run: the order is that in which the undone ones ended."""
        if run.path not in self._paths and self._is_one(run.path):
            self._paths[run.path] = compensated_path(run.path) or ""
            self._undone.add(self._paths[run.path])
        elif run.path not in self._undone:
            return
        self._sorted = None

    def _is_one(self, path: str) -> bool:
        """One whose node a new plan has dropped counts no more; it is over by then."""
        of = compensated_path(path)
        return of is not None and node_of_run(path, self._nodes) is not None

    def has(self, path: str) -> bool:
        """Whether the activation at this path is undone, or is to be."""
        return path in self._undone

    @property
    def all(self) -> Sequence[NodeRun]:
        """In the order in which they run: what ended last is undone first."""
        if self._sorted is None:
            self._sorted = sorted(self._paths, key=self._key, reverse=True)
        return [self._runs[path] for path in self._sorted]

    @property
    def open(self) -> Sequence[NodeRun]:
        """Those without a result."""
        over = {NodeStatus.DONE, NodeStatus.FAILED}
        return [run for run in self.all if run.status not in over] if self._paths else ()

    @property
    def next_step(self) -> tuple[ActivationPath, WorkflowNode] | None:
        """The next one, unless one is running: they run one after the other."""
        left = self.open
        if not left or any(run.status is NodeStatus.RUNNING for run in left):
            return None
        return self.step_at(left[0].path)

    def step_at(self, path: str) -> tuple[ActivationPath, WorkflowNode]:
        scope = scope_of(path)
        return ActivationPath(scope, path.removeprefix(scope)), self.node_of(path)

    def node_of(self, path: str) -> WorkflowNode:
        """The node that runs as the compensation at this path."""
        node = node_of_run(path, self._nodes)
        assert node is not None
        return node

    def due(self, task: TaskId, *, among: Iterable[str] | None = None) -> Iterator[NodeRun]:
        """A run to store for everything that has to be undone and is not yet: of nodes that are
        done, or were cut off. Nodes that failed are not undone. `among` limits the paths."""
        stored = StoredRuns(self._runs)
        for path in self._runs if among is None else among:
            place, run = parse_activation(path), self._runs.get(path)
            node = None if place is None else self._nodes.get(place.node)
            if place is None or node is None or run is None or not node.on_cancel:
                continue
            is_due = self._is_whole(place, stored) if node.body else _has_acted(node, run)
            if (
                is_due
                and place.compensation_path not in self._runs
                and not any(self._is_whole(each, stored) for each in loops_around(place))
            ):
                yield NodeRun(
                    task_id=task,
                    path=place.compensation_path,
                    status=NodeStatus.PENDING,
                    attempt=attempts_before(self._runs),
                    output={},
                    error="",
                    started_at=None,
                    ended_at=None,
                )

    def _is_whole(self, loop: ActivationPath, stored: StoredRuns) -> bool:
        """Whether a loop that has begun is undone as a whole: in place of what is inside it if
        it is done, and otherwise only if nothing inside it could be undone by itself."""
        node, run = self._nodes.get(loop.node), self._runs.get(loop.path)
        if node is None or run is None or not node.on_cancel or not node.body:
            return False
        if not stored.opened_rounds(loop.path):
            return False
        is_done = run.status is NodeStatus.DONE and not {"error", UNFINISHED_ROUNDS_KEY} & {
            *run.output
        }
        return is_done or not self._undoes_inside(node.id)

    def _undoes_inside(self, loop: str) -> bool:
        inside = self._workflow.nodes_inside([loop])
        return any(self._nodes[name].on_cancel for name in inside)

    def _key(self, compensation: str) -> tuple[datetime, int]:
        path = self._paths[compensation]
        of, place = self._runs.get(path), parse_activation(path)
        # A loop that is cut off has ended last.
        is_open = of is None or of.status is NodeStatus.WAITING
        ended = _LATEST if of is None or is_open else of.ended_at or of.started_at or _LATEST
        return ended, self._order.get(place.node, 0) if place is not None else 0


def _has_acted(node: WorkflowNode, run: NodeRun) -> bool:
    """Whether it is done, or has begun and was cut off."""
    match run.status:
        case NodeStatus.DONE:
            return not is_unreached(run) and "error" not in run.output
        case NodeStatus.RUNNING:
            return True
        case NodeStatus.PENDING | NodeStatus.CANCELLED:
            return run.started_at is not None and not _has_stopped_by_itself(node, run)
        case _:
            return False


def _has_stopped_by_itself(node: WorkflowNode, run: NodeRun) -> bool:
    """Whether its last attempt failed, or it waits for people: a call was not made then."""
    if node.role is NodeRole.HUMAN:
        return True
    is_asking = node.role is NodeRole.CALL and SUSPENDED_KEY in run.output
    return is_asking or FAILED_KEY in run.output


def ending_by_stop(
    task: TaskId,
    workflow: Workflow,
    runs: Mapping[str, NodeRun],
    now: datetime,
    *,
    reason: str = "",
) -> Sequence[NodeRun]:
    """The runs to store if people stop the run now; none if there is nothing to undo, or if it is
    ending already."""
    if not (workflow.compensations or workflow.past) or ENDING_PATH in runs:
        return ()
    undoing = Compensations(WorkflowTopology(workflow), runs)
    rows = [*undoing.due(task)]
    if not (rows or undoing.open):
        return ()
    return (ending_run(task, TaskStatus.CANCELLED, reason, now, undoing), *rows)


def ending_run(
    task: TaskId, status: TaskStatus, reason: str, now: datetime, undoing: Compensations
) -> NodeRun:
    """The run that records how a run ends once everything is undone."""
    before = [run.path for run in undoing.all]
    return NodeRun(
        task_id=task,
        path=ENDING_PATH,
        status=NodeStatus.DONE,
        attempt=1,
        output={"status": status.value, "reason": reason, "before": before},
        error="",
        started_at=now,
        ended_at=now,
    )


def given_up(run: NodeRun, why: str, now: datetime) -> NodeRun:
    """A compensation that will not run any more."""
    return replace(run, status=NodeStatus.FAILED, error=why, ended_at=now)
