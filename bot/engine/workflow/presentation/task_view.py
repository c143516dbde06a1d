"""The view of a task for its card, loaded from the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from bot.engine.workflow.definition import Workflow
from bot.engine.workflow.live_progress import LiveProgress
from bot.engine.workflow.plan import linear_workflow, load_workflow
from bot.engine.workflow.presentation.eta import DurationHistory, estimate_eta
from bot.engine.workflow.presentation.outline import (
    OutlinePlan,
    RemainingStep,
    StepCount,
    WorkflowOutline,
)
from bot.engine.workflow.task_store import TaskStore
from cards.views.task_card import MAX_COUNTED_AHEAD
from storage.approvals import steps_awaiting_approval
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
from storage.usage import UsageRepo

MAX_LINES = 22

_ACTIVE_STATUSES = {NodeStatus.RUNNING, NodeStatus.WAITING, NodeStatus.FAILED}


@dataclass(frozen=True, slots=True)
class OutlineWindow:
    """The visible lines; `hidden_before` and `hidden_after` count steps, including folded ones."""

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
    """Three later lines for each earlier one."""
    far: dict[int, float] = {}
    for n in now:
        for other in range(max(0, n - most), min(size, n + 3 * most + 1)):
            distance = (other - n) / 3 if other > n else float(n - other)
            far[other] = min(distance, far.get(other, distance))
    free = sorted((each for each in far if each not in kept), key=far.__getitem__)
    return set(free[:most])


_MAX_CACHED_PLANS = 16
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


async def _read_outline(outline: WorkflowOutline, size: int) -> _OutlineData:
    """In a thread if the plan is large."""

    def read() -> _OutlineData:
        shown = select_window(tuple(outline.lines()))
        return _OutlineData(
            tuple(outline.all_steps()), shown, outline.step_count, tuple(outline.remaining_steps())
        )

    return await asyncio.to_thread(read) if size > _LARGE_PLAN else read()


class TaskViewLoader:
    """Without `now`, views have no remaining time."""

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
        self._plans: dict[TaskId, tuple[int, OutlinePlan]] = {}

    async def view(self, task_id: TaskId) -> TaskView:
        task = await self._store.tasks.get(task_id)
        graph = await self._store.graphs.find_latest(task_id)
        plan = self._plan(graph) if graph else OutlinePlan(linear_workflow("", ()))
        runs = await self._store.graphs.list_runs(task_id)
        ahead = await self._tasks_ahead(task) if task.status is TaskStatus.PENDING else 0
        counted = task.status is TaskStatus.PENDING and ahead <= MAX_COUNTED_AHEAD
        outline = WorkflowOutline(plan, runs, await self._approvers(task))
        read = await _read_outline(outline, len(plan.workflow.nodes) + len(runs))
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
            eta=await self._eta(task, plan.workflow, runs, read),
        )

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
        async with self._store.db.read() as view:
            return await steps_awaiting_approval(view, task.id)

    async def _eta(
        self, task: Task, workflow: Workflow, runs: Mapping[str, NodeRun], read: _OutlineData
    ) -> TaskEta | None:
        if self._now is None or task.status is not TaskStatus.RUNNING or not workflow.nodes:
            return None
        now = self._now()
        return estimate_eta(
            read.remaining,
            await self._durations.estimator(workflow, runs, now),
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
