"""All that a card shows of a task, read from the store."""

from __future__ import annotations

from collections.abc import Mapping

from bot.engine.workflow.graph import Node, Workflow, linear, load_workflow
from bot.engine.workflow.progress import Progress
from bot.engine.workflow.store import WorkStore
from cards.views.work.tasks import MOST_AHEAD
from storage.records.live import Live
from storage.records.tasks import (
    NodeRun,
    NodeStatus,
    Step,
    Task,
    TaskId,
    TaskStatus,
    TaskView,
)
from storage.usage import UsageRepo


class TaskViews:
    def __init__(
        self, store: WorkStore, usage: UsageRepo, progress: Progress | None = None
    ) -> None:
        self._store = store
        self._usage = usage
        self._progress = progress

    async def view(self, task_id: TaskId) -> TaskView:
        task = await self._store.tasks.get(task_id)
        graph = await self._store.graphs.latest(task_id)
        workflow: Workflow = load_workflow(graph.body) if graph else linear("", ())
        runs = await self._store.graphs.runs(task_id)
        ahead = await self._ahead(task) if task.status is TaskStatus.PENDING else 0
        counted = task.status is TaskStatus.PENDING and ahead <= MOST_AHEAD
        return TaskView(
            task=task,
            plan=workflow.plan,
            steps=tuple(_step(node, runs.get(node.id)) for node in workflow.nodes),
            spent=await self._usage.of_task(task_id),
            ahead=ahead,
            # Whom it waits for far back in the queue changes without its card being told.
            holder=await self._store.queue.holder(task) if counted else None,
            live=self._live(task, runs),
            helpers=await self._store.helpers.lines(task_id),
        )

    def _live(self, task: Task, runs: Mapping[str, NodeRun]) -> Live | None:
        if self._progress is None or task.status is not TaskStatus.RUNNING:
            return None
        running = [path for path, run in runs.items() if run.status is NodeStatus.RUNNING]
        shown = (self._progress.of(task.id, path) for path in running)
        return next((live for live in shown if live is not None), None)

    async def _ahead(self, task: Task) -> int:
        first = await self._store.queue.first(MOST_AHEAD + 1)
        place = next((n for n, each in enumerate(first) if each.id == task.id), None)
        if place is None:
            # Far back; or, where the whole queue was seen, claimed since the task was read.
            return len(first) if len(first) > MOST_AHEAD else 0
        return place


def _step(node: Node, run: NodeRun | None) -> Step:
    if run is None:
        return Step(path=node.id, title=node.title, status=NodeStatus.PENDING, persona=node.persona)
    return Step(
        path=node.id,
        title=node.title,
        status=run.status,
        summary=str(run.output.get("summary", "")),
        error=run.error,
        files=tuple(run.output.get("files", ())),
        left_out=tuple(run.output.get("left_out", ())),
        persona=node.persona,
        started_at=run.started_at,
        ended_at=run.ended_at,
    )
