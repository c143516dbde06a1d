"""All that a card shows of a task, read from the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from bot.engine.workflow.graph import Workflow, linear, load_workflow
from bot.engine.workflow.progress import Progress
from bot.engine.workflow.shown.eta import eta
from bot.engine.workflow.shown.outline import Count, Left, Outline, Plan
from bot.engine.workflow.shown.past import Experience
from bot.engine.workflow.shown.window import Window, window
from bot.engine.workflow.store import WorkStore
from cards.views.work.tasks import MOST_AHEAD
from storage.records.live import Live
from storage.records.tasks import (
    Eta,
    Graph,
    NodeRun,
    NodeStatus,
    Step,
    Task,
    TaskId,
    TaskStatus,
    TaskView,
)
from storage.usage import UsageRepo
from storage.work.asked import asked_at

_PLANS = 16
_MUCH = 500
_LIVE = 3
"""Steps of which it is shown what they do: of more than that, those that began first."""


@dataclass(frozen=True, slots=True)
class _Read:
    """What is worked out of a plan and its runs."""

    steps: tuple[Step, ...]
    shown: Window
    count: Count
    left: tuple[Left, ...]


async def _read(outline: Outline, size: int) -> _Read:
    """Beside the event loop where it is much."""

    def read() -> _Read:
        shown = window(tuple(outline.lines()))
        return _Read(tuple(outline.steps()), shown, outline.counted, tuple(outline.left()))

    return await asyncio.to_thread(read) if size > _MUCH else read()


class TaskViews:
    """Without `now` nothing is said of how long a task will take."""

    def __init__(
        self,
        store: WorkStore,
        usage: UsageRepo,
        progress: Progress | None = None,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        self._store = store
        self._usage = usage
        self._progress = progress
        self._now = now
        self._experience = Experience(store.db)
        self._plans: dict[TaskId, tuple[int, Plan]] = {}

    async def view(self, task_id: TaskId) -> TaskView:
        task = await self._store.tasks.get(task_id)
        graph = await self._store.graphs.latest(task_id)
        plan = self._plan(graph) if graph else Plan(linear("", ()))
        runs = await self._store.graphs.runs(task_id)
        ahead = await self._ahead(task) if task.status is TaskStatus.PENDING else 0
        counted = task.status is TaskStatus.PENDING and ahead <= MOST_AHEAD
        outline = Outline(plan, runs, await self._asked(task))
        read = await _read(outline, len(plan.workflow.nodes) + len(runs))
        return TaskView(
            task=task,
            plan=plan.workflow.plan,
            steps=read.steps,
            spent=await self._usage.of_task(task_id),
            ahead=ahead,
            # Whom it waits for far back in the queue changes without its card being told.
            holder=await self._store.queue.holder(task) if counted else None,
            live=self._live(task, runs),
            helpers=await self._store.helpers.lines(task_id),
            outline=read.shown.lines,
            left_out=(read.shown.before, read.shown.behind),
            counted=(read.count.done, read.count.total),
            eta=await self._eta(task, plan.workflow, runs, read),
        )

    def _plan(self, graph: Graph) -> Plan:
        """Worked out once for each version: a card is drawn again and again."""
        known = self._plans.pop(graph.task_id, None)
        if known is None or known[0] != graph.version:
            known = (graph.version, Plan(load_workflow(graph.body)))
        self._plans[graph.task_id] = known
        while len(self._plans) > _PLANS:
            del self._plans[next(iter(self._plans))]
        return known[1]

    def _live(self, task: Task, runs: Mapping[str, NodeRun]) -> tuple[Live, ...]:
        if self._progress is None or task.status is not TaskStatus.RUNNING:
            return ()
        running = [run for run in runs.values() if run.status is NodeStatus.RUNNING]
        running.sort(key=lambda run: (run.started_at is None, run.started_at, run.path))
        shown = (self._progress.of(task.id, run.path) for run in running)
        return tuple(live for live in shown if live is not None)[:_LIVE]

    async def _asked(self, task: Task) -> Mapping[str, tuple[str, ...]]:
        if task.status not in {TaskStatus.RUNNING, TaskStatus.WAITING}:
            return {}
        async with self._store.db.read() as view:
            return await asked_at(view, task.id)

    async def _eta(
        self, task: Task, workflow: Workflow, runs: Mapping[str, NodeRun], read: _Read
    ) -> Eta | None:
        if self._now is None or task.status is not TaskStatus.RUNNING or not workflow.nodes:
            return None
        now = self._now()
        return eta(
            read.left,
            await self._experience.so_far(workflow, runs, now),
            done=read.count.done,
            total=read.count.total,
            parallel=workflow.parallel,
            now=now,
        )

    async def _ahead(self, task: Task) -> int:
        first = await self._store.queue.first(MOST_AHEAD + 1)
        place = next((n for n, each in enumerate(first) if each.id == task.id), None)
        if place is None:
            # Far back; or, where the whole queue was seen, claimed since the task was read.
            return len(first) if len(first) > MOST_AHEAD else 0
        return place
