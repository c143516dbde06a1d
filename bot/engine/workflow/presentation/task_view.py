"""The view of a task for its card, loaded from the store, with an estimate of the remaining time
from the durations of earlier steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import fmean

from bot.engine.workflow.definition import Workflow, WorkflowNode, load_workflow
from bot.engine.workflow.field_reader import InvalidGraph
from bot.engine.workflow.live_progress import LiveProgress
from bot.engine.workflow.node_runs import parse_activation
from bot.engine.workflow.nodes.contract import NodeRole
from bot.engine.workflow.plan import linear_workflow
from bot.engine.workflow.presentation.outline import (
    OutlinePlan,
    RemainingStep,
    StepCount,
    WorkflowOutline,
)
from bot.engine.workflow.presentation.progress import expected_weights
from bot.engine.workflow.task_store import TaskStore
from cards.views.task_card import MAX_COUNTED_AHEAD
from storage.approvals import steps_awaiting_approval
from storage.db import Database
from storage.records.tasks import (
    LiveStep,
    NodeRun,
    NodeStatus,
    Task,
    TaskEta,
    TaskGraph,
    TaskId,
    TaskStatus,
    TaskStep,
    TaskView,
)
from storage.schedules import ScheduleRepo
from storage.step_durations import StepDurationRepo
from storage.usage import UsageRepo

MAX_LINES = 22

_ACTIVE_STATUSES = {NodeStatus.RUNNING, NodeStatus.WAITING, NodeStatus.FAILED}


@dataclass(frozen=True, slots=True)
class OutlineWindow:
    """The visible lines. `hidden_before` and `hidden_after` count the hidden steps, including
    folded ones.
    """

    lines: tuple[TaskStep, ...]
    hidden_before: int = 0
    hidden_after: int = 0


def select_window(lines: Sequence[TaskStep], limit: int = MAX_LINES) -> OutlineWindow:
    """Select the active lines with their parents, then the nearest lines, preferring later ones."""
    if len(lines) <= limit:
        return OutlineWindow(tuple(lines))
    now = _current_lines(lines)
    kept: set[int] = set()
    for n in now:
        wanted = {n, *_parent_lines(lines, n)}
        if len(kept | wanted) <= limit:
            kept |= wanted
    kept |= _nearest_lines(len(lines), now, kept, limit - len(kept))
    first = min(kept)
    return OutlineWindow(
        tuple(line for n, line in enumerate(lines) if n in kept),
        hidden_before=sum(1 + line.folded_steps for line in lines[:first]),
        hidden_after=sum(
            1 + line.folded_steps for n, line in enumerate(lines) if n > first and n not in kept
        ),
    )


def _current_lines(lines: Sequence[TaskStep]) -> list[int]:
    """Active lines, or else the first pending line, or else the last line."""
    going = [
        n for n, line in enumerate(lines) if line.awaits_person or line.status in _ACTIVE_STATUSES
    ]
    if going:
        return going
    left = (n for n, line in enumerate(lines) if line.status is NodeStatus.PENDING)
    return [next(left, len(lines) - 1)]


def _parent_lines(lines: Sequence[TaskStep], n: int) -> list[int]:
    found: list[int] = []
    depth = lines[n].depth
    while n and depth:
        n -= 1
        if lines[n].depth < depth:
            depth = lines[n].depth
            found.append(n)
    return found


def _nearest_lines(size: int, now: Sequence[int], kept: set[int], most: int) -> set[int]:
    """The nearest lines: three later ones for each earlier one."""
    far: dict[int, float] = {}
    for n in now:
        for other in range(max(0, n - most), min(size, n + 3 * most + 1)):
            distance = (other - n) / 3 if other > n else float(n - other)
            far[other] = min(distance, far.get(other, distance))
    free = sorted((each for each in far if each not in kept), key=far.__getitem__)
    return set(free[:most])


_MAX_CACHED_PLANS = 16
_MAX_CACHED_WEIGHTS = 64
_LARGE_PLAN = 500
_MAX_LIVE_STEPS = 3
"""Maximum number of running steps with live details; the earliest ones are shown."""


@dataclass(frozen=True, slots=True)
class _OutlineData:
    """The parts of an outline that a view needs."""

    steps: tuple[TaskStep, ...]
    window: OutlineWindow
    count: StepCount
    remaining: tuple[RemainingStep, ...]
    progress: float


def _subworkflows(workflow: Workflow) -> tuple[tuple[str, int], ...]:
    used = (node.loop.used_version(node.settings) for node in workflow.nodes if node.body)
    return tuple(dict.fromkeys(filter(None, used)))


async def _read_outline(
    outline: WorkflowOutline, size: int, weights: Mapping[str, float]
) -> _OutlineData:
    """Build the outline; in a thread if the plan is large."""

    def read() -> _OutlineData:
        shown = select_window(tuple(outline.lines()))
        return _OutlineData(
            tuple(outline.all_steps()),
            shown,
            outline.step_count,
            tuple(outline.remaining_steps()),
            outline.progress(weights),
        )

    return await asyncio.to_thread(read) if size > _LARGE_PLAN else read()


class TaskViewLoader:
    """Loads the views of tasks. Without `now`, views have no remaining time."""

    def __init__(
        self,
        store: TaskStore,
        usage: UsageRepo,
        progress: LiveProgress | None = None,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        self._store = store
        self._usage = usage
        self._progress = progress
        self._now = now
        self._durations = DurationHistory(store.db)
        self._schedules = ScheduleRepo(store.db)
        self._plans: dict[TaskId, tuple[int, OutlinePlan]] = {}
        self._shares: dict[TaskId, tuple[int, float]] = {}
        self._weights: dict[TaskId, tuple[int, Mapping[str, float]]] = {}

    async def view(self, task_id: TaskId) -> TaskView:
        task = await self._store.tasks.get(task_id)
        graph = await self._store.graphs.find_latest(task_id)
        plan = self._plan(graph) if graph else OutlinePlan(linear_workflow("", ()))
        runs = await self._store.graphs.list_runs(task_id)
        ahead = await self._tasks_ahead(task) if task.status is TaskStatus.PENDING else 0
        counted = task.status is TaskStatus.PENDING and ahead <= MAX_COUNTED_AHEAD
        outline = WorkflowOutline(plan, runs, await self._approvers(task))
        source = plan.workflow.source
        weights = await self._weights_of(task, plan.workflow, graph)
        read = await _read_outline(outline, len(plan.workflow.nodes) + len(runs), weights)
        return TaskView(
            task=task,
            plan=plan.workflow.plan,
            steps=read.steps,
            spent=await self._usage.sum_by_task(task_id),
            tasks_ahead=ahead,
            # Far back in the queue the holder changes without an update of this card.
            directory_holder=await self._store.queue.find_directory_holder(task)
            if counted
            else None,
            live_steps=self._live(task, runs),
            subagents=await self._store.subagents.list_lines(task_id),
            outline=read.window.lines,
            lines_left_out=(read.window.hidden_before, read.window.hidden_after),
            step_counts=(read.count.done, read.count.total),
            progress=self._not_less(task, read.progress),
            eta=await self._eta(task, plan.workflow, runs, read),
            schedule_id=await self._schedules.find_recurring_of_task(task_id),
            retry_at=await self._schedules.find_retry_of_task(task_id)
            if task.status in {TaskStatus.BLOCKED, TaskStatus.FAILED}
            else None,
            workflow=(source.name, source.number) if source else None,
            subworkflows=_subworkflows(plan.workflow),
        )

    async def nodes(self, task_id: TaskId) -> Sequence[TaskStep]:
        """All nodes of the plan, including those to come."""
        task = await self._store.tasks.get(task_id)
        graph = await self._store.graphs.find_latest(task_id)
        if graph is None:
            return ()
        runs = await self._store.graphs.list_runs(task_id)
        outline = WorkflowOutline(self._plan(graph), runs, await self._approvers(task))
        return await asyncio.to_thread(lambda: tuple(outline.all_nodes()))

    def _not_less(self, task: Task, progress: float) -> float:
        """The share, but never less than the share shown before, because overlapping loops can
        decrease it.
        """
        version, known = self._shares.pop(task.id, (task.graph_version, 0.0))
        share = max(progress, known) if version == task.graph_version else progress
        self._shares[task.id] = (task.graph_version, share)
        while len(self._shares) > _MAX_CACHED_WEIGHTS:
            del self._shares[next(iter(self._shares))]
        return share

    async def _weights_of(
        self, task: Task, workflow: Workflow, graph: TaskGraph | None
    ) -> Mapping[str, float]:
        """The weight of each step of the plan, from what was known when this version was made.
        Fixed for the version, because otherwise the percentage could decrease.
        """
        known = self._weights.pop(task.id, None)
        if known is None or known[0] != task.graph_version:
            nodes = workflow.nodes_by_id
            durations = (
                await self._durations.estimator_at(graph.at)
                if self._now is not None and graph is not None and graph.at is not None
                else DurationEstimator(())
            )
            expected = {name: durations.expected_seconds(node) for name, node in nodes.items()}
            known = (task.graph_version, expected_weights(nodes, expected))
        self._weights[task.id] = known
        while len(self._weights) > _MAX_CACHED_WEIGHTS:
            del self._weights[next(iter(self._weights))]
        return known[1]

    def _plan(self, graph: TaskGraph) -> OutlinePlan:
        """Cached per version, because cards are drawn often."""
        known = self._plans.pop(graph.task_id, None)
        if known is None or known[0] != graph.version:
            known = (graph.version, OutlinePlan(load_workflow(graph.body)))
        self._plans[graph.task_id] = known
        while len(self._plans) > _MAX_CACHED_PLANS:
            del self._plans[next(iter(self._plans))]
        return known[1]

    def _live(self, task: Task, runs: Mapping[str, NodeRun]) -> tuple[LiveStep, ...]:
        if self._progress is None or task.status is not TaskStatus.RUNNING:
            return ()
        running = [run for run in runs.values() if run.status is NodeStatus.RUNNING]
        running.sort(key=lambda run: (run.started_at is None, run.started_at, run.path))
        shown = (self._progress.live_step(task.id, run.path) for run in running)
        return tuple(live for live in shown if live is not None)[:_MAX_LIVE_STEPS]

    async def _approvers(self, task: Task) -> Mapping[str, tuple[str, ...]]:
        if task.status not in {TaskStatus.RUNNING, TaskStatus.WAITING}:
            return {}
        async with self._store.db.read_once() as view:
            return await steps_awaiting_approval(view, task.id)

    async def _eta(
        self, task: Task, workflow: Workflow, runs: Mapping[str, NodeRun], read: _OutlineData
    ) -> TaskEta | None:
        if self._now is None or task.status is not TaskStatus.RUNNING or not workflow.nodes:
            return None
        now = self._now()
        durations = await self._durations.estimator(workflow, runs, now)
        if not durations.size:
            # Before anything was ever timed, an estimate would be the default times the steps.
            return None
        return estimate_eta(
            read.remaining,
            durations,
            done=read.count.done,
            total=read.count.total,
            parallel=workflow.parallel,
            now=now,
        )

    async def _tasks_ahead(self, task: Task) -> int:
        first = await self._store.queue.list_first(MAX_COUNTED_AHEAD + 1)
        place = next((n for n, each in enumerate(first) if each.id == task.id), None)
        if place is None:
            # Far back; or, if the whole queue was read, claimed in the meantime.
            return len(first) if len(first) > MAX_COUNTED_AHEAD else 0
        return place


DEFAULT_STEP_SECONDS = 120.0
"""Assumed duration of a step without any history."""

_MIN_BY_NAME, _MIN_BY_TYPE = 2, 3
_MIN_REMAINING = 10.0
_FULL_SAMPLE = 20


@dataclass(frozen=True, slots=True)
class DurationSample:
    """A finished step and its duration."""

    name: str
    type: str
    seconds: float


class DurationEstimator:
    """Expected durations by name, by type, or overall."""

    def __init__(self, samples: Iterable[DurationSample]) -> None:
        by_name: dict[str, list[float]] = {}
        by_type: dict[str, list[float]] = {}
        took: list[float] = []
        for each in samples:
            by_name.setdefault(each.name, []).append(each.seconds)
            by_type.setdefault(each.type, []).append(each.seconds)
            took.append(each.seconds)
        self.size = len(took)
        self._names = _means(by_name, _MIN_BY_NAME)
        self._types = _means(by_type, _MIN_BY_TYPE)
        self._mean = fmean(took) if took else DEFAULT_STEP_SECONDS

    def expected_seconds(self, node: WorkflowNode) -> float | None:
        """By the settings, else the mean by name, by type or of all steps; None if unknown."""
        by_history = self._names.get(node.title, self._types.get(node.type, self._mean))
        return node.spec.expected_seconds(node.settings, by_history)


def _means(seen: Mapping[str, list[float]], least: int) -> Mapping[str, float]:
    return {name: fmean(took) for name, took in seen.items() if len(took) >= least}


def estimate_eta(
    remaining: Iterable[RemainingStep],
    durations: DurationEstimator,
    *,
    done: int,
    total: int,
    parallel: int,
    now: datetime,
) -> TaskEta:
    """Estimate the remaining time of automatic steps; steps for people are unpredictable.
    `remaining` lists steps with their run and their number of repetitions."""
    each: list[tuple[float, int]] = []
    for node, run, times in remaining:
        expected = durations.expected_seconds(node)
        if expected is not None:
            each.append((_remaining_seconds(expected, run, now), times))
    longest = max((seconds for seconds, _ in each), default=0.0)
    in_all = sum(seconds * times for seconds, times in each)
    return TaskEta(
        seconds=max(longest, in_all / max(1, parallel)),
        confidence=eta_confidence(durations.size, done, total),
        steps=sum(times for _, times in each),
    )


def eta_confidence(samples: int, done: int, total: int) -> float:
    """From 0 to 1: one half for the amount of history, one half for the progress of this task."""
    seen = min(samples / _FULL_SAMPLE, 1.0)
    own = min(done / total + 0.3, 1.0) if done and total else 0.3
    return (seen + own) / 2


def _remaining_seconds(expected: float, run: NodeRun | None, now: datetime) -> float:
    if run is not None and run.wake_at is not None:
        return max(0.0, (run.wake_at - now).total_seconds())
    if run is None or run.status is not NodeStatus.RUNNING:
        return expected
    if run.started_at is None:
        return expected / 2
    elapsed = max(timedelta(0), now - run.started_at).total_seconds()
    return max(expected - elapsed, _MIN_REMAINING)


_CACHE_TIME = timedelta(minutes=5)
_MAX_EARLIER = 16


class DurationHistory:
    """Durations of finished tasks, cached for some minutes."""

    def __init__(self, db: Database) -> None:
        self._durations = StepDurationRepo(db)
        self._samples: tuple[DurationSample, ...] = ()
        self._expires_at: datetime | None = None
        self._earlier: dict[datetime, DurationEstimator] = {}
        self._lock = asyncio.Lock()

    async def estimator(
        self, workflow: Workflow, runs: Mapping[str, NodeRun], now: datetime
    ) -> DurationEstimator:
        """Includes the steps that the task itself has finished."""
        async with self._lock:
            if self._expires_at is None or now >= self._expires_at:
                self._samples = await self._load_samples()
                self._expires_at = now + _CACHE_TIME
        took = (
            (run.path, (run.ended_at - run.started_at).total_seconds())
            for run in runs.values()
            if run.status is NodeStatus.DONE and run.started_at and run.ended_at
        )
        return DurationEstimator((*self._samples, *_duration_samples(workflow.nodes_by_id, took)))

    async def estimator_at(self, at: datetime) -> DurationEstimator:
        """The estimator from the tasks completed up to some minutes before that time; the same
        whenever it is asked for.
        """
        step = _CACHE_TIME.total_seconds()
        before = datetime.fromtimestamp(at.timestamp() // step * step, UTC)
        async with self._lock:
            known = self._earlier.pop(before, None)
            if known is None:
                known = DurationEstimator(await self._load_samples(before))
            self._earlier[before] = known
            if len(self._earlier) > _MAX_EARLIER:
                del self._earlier[next(iter(self._earlier))]
        return known

    async def _load_samples(self, before: datetime | None = None) -> tuple[DurationSample, ...]:
        found: list[DurationSample] = []
        for each in await self._durations.list_recent(before):
            try:
                nodes = load_workflow(each.graph_body).nodes_by_id
            except InvalidGraph:
                # Plans in the format of an earlier release are not comparable.
                continue
            found += _duration_samples(nodes, each.step_seconds)
        return tuple(found)


def _duration_samples(
    nodes: Mapping[str, WorkflowNode], took: Iterable[tuple[str, float]]
) -> Iterator[DurationSample]:
    for path, seconds in took:
        place = parse_activation(path)
        node = nodes.get(place.node) if place is not None else None
        if node is not None and node.role in {NodeRole.TASK, NodeRole.CALL}:
            yield DurationSample(node.title, node.type, max(0.0, seconds))
