"""Runs parts of a task again: after a dead end, or from any node with what a person has changed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from zoneinfo import ZoneInfo

from bot.engine.workflow.definition import Workflow, dump_workflow, load_workflow
from bot.engine.workflow.rewind import RunRewind, rerun_from, retry_after_dead_end
from bot.engine.workflow.scheduler import WorkflowScheduler
from bot.engine.workflow.step_approvals import OUTDATED_KEY, STEP_APPROVAL_KINDS
from bot.engine.workflow.task_store import TaskStore
from cards.catalog import catalog_for
from storage.approvals import outdate_step_decisions, withdraw_task_approvals
from storage.db import Transaction
from storage.records.people import Language, PersonId
from storage.records.tasks import (
    EventKind,
    NodeRun,
    RerunChanges,
    RerunRefused,
    Task,
    TaskControl,
    TaskGraph,
    TaskPhase,
    TaskStatus,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRerunner:
    """Every method is called with a task that the transaction has locked, and returns it as it is
    stored."""

    store: TaskStore
    zone: ZoneInfo
    now: Callable[[], datetime]

    async def rerun(
        self, tx: Transaction, task: Task, wanted: str, changes: RerunChanges, by: PersonId
    ) -> Task:
        """Queue the task from that node on. Raises RerunRefused."""
        if task.outside:
            raise RerunRefused("outside", id=task.id)
        if task.status is TaskStatus.RUNNING:
            raise RerunRefused("running", id=task.id)
        workflow, runs = await self._load(tx, task)
        rewind = rerun_from(
            task.id,
            workflow,
            runs,
            wanted,
            changes,
            scheduler=partial(self._scheduler, task),
            now=self.now(),
        )
        task = await self._store_rewind(tx, task, rewind, reason="rerun", by=by)
        title = rewind.workflow.nodes_by_id[rewind.node].title or rewind.node
        await self.store.events.append_event(
            tx, task.id, EventKind.RESUMED, now=self.now(), text=f"↩️ {title}"
        )
        return task

    async def revive(self, tx: Transaction, task: Task, by: PersonId) -> Task:
        """Let the failed nodes of a task run again, or the one after which nothing could continue.
        The caller queues the task. Raises RerunRefused if nothing could start then."""
        workflow, runs = await self._load(tx, task)
        scheduler = partial(self._scheduler, task)
        now = self.now()
        rewind = retry_after_dead_end(task.id, workflow, runs, scheduler=scheduler, now=now)
        if rewind.discarded:
            return await self._store_rewind(tx, task, rewind, reason="retry", by=by)
        await self._store_runs(tx, task, rewind)
        return task

    async def _load(self, tx: Transaction, task: Task) -> tuple[Workflow, Mapping[str, NodeRun]]:
        graph = await self.store.graphs.find_latest(task.id, tx=tx)
        if graph is None:
            raise RerunRefused("no_plan", id=task.id)
        return load_workflow(graph.body), await self.store.graphs.list_runs(task.id, tx=tx)

    def _scheduler(
        self, task: Task, workflow: Workflow, runs: Mapping[str, NodeRun]
    ) -> WorkflowScheduler:
        return WorkflowScheduler(
            task.id,
            workflow,
            runs,
            zone=self.zone,
            text=catalog_for(Language.ENGLISH),
            warn=partial(log.warning, "task %s: %s", task.id),
        )

    async def _store_rewind(
        self, tx: Transaction, task: Task, rewind: RunRewind, *, reason: str, by: PersonId
    ) -> Task:
        now, before = self.now(), task.graph_version
        graph = TaskGraph(
            task_id=task.id,
            version=before + 1,
            body=dump_workflow(rewind.workflow),
            reason=reason,
            author=by,
        )
        await self.store.graphs.add(tx, graph, now=now)
        await self.store.graphs.discard_runs(tx, before, rewind.discarded)
        await self._store_runs(tx, task, rewind)
        again = rewind.again
        await withdraw_task_approvals(
            tx,
            task.id,
            reason_key="approval.asked_anew",
            now=now,
            kinds=STEP_APPROVAL_KINDS,
            keeps_step=lambda path: path not in again,
        )
        await outdate_step_decisions(tx, task.id, again, fact=OUTDATED_KEY)
        return await self.store.tasks.update(
            tx,
            task,
            graph_version=graph.version,
            status=TaskStatus.PENDING,
            status_reason="",
            phase=TaskPhase.DOING,
            control=TaskControl.RUN,
            failures_in_row=0,
            errors=0,
            resumed_first=0,
            summary=rewind.workflow.answer,
            wake_at=None,
            waiting_since=now,
            priority=task.priority,
            ended_at=None,
        )

    async def _store_runs(self, tx: Transaction, task: Task, rewind: RunRewind) -> None:
        if rewind.removed:
            await self.store.graphs.remove_runs(tx, task.id, rewind.removed)
        for run in rewind.changed:
            await self.store.graphs.save_run(tx, run)
