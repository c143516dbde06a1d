"""Stops tasks whose run has something to undo first: by command, or by a refused cap."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from zoneinfo import ZoneInfo

from bot.engine.workflow.compensation import ending_by_stop
from bot.engine.workflow.definition import load_workflow
from bot.engine.workflow.node_runs import ENDING_PATH
from bot.engine.workflow.run_ending import ending_report
from bot.engine.workflow.run_state import TaskRunState
from bot.engine.workflow.step_approvals import STEP_APPROVAL_KINDS
from bot.engine.workflow.task_store import TaskStore
from cards.catalog import catalog_for
from storage.approvals import withdraw_task_approvals
from storage.db import Transaction
from storage.records.people import Language
from storage.records.tasks import Task, TaskStatus

_STOPPED_KEY = "stopped"
"""In the output of the run that records how a run ends: people have stopped it since it failed."""


class StopEffect(Enum):
    """ENDS: the task ends at once. UNDOES: that has begun now. GOES_ON: the run had failed, and
    goes on to be undone; another stop ends it."""

    ENDS = "ends"
    UNDOES = "undoes"
    GOES_ON = "goes_on"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskUndoing:
    """Every method is called with a task that the transaction has locked."""

    store: TaskStore
    language_of: Callable[[Task], Awaitable[Language]]
    zone: ZoneInfo
    now: Callable[[], datetime]

    async def stop(
        self, tx: Transaction, task: Task, *, reason: str = "", for_good: bool = False
    ) -> tuple[StopEffect, str]:
        """Store what has to be undone before the task counts as stopped for that reason. With the
        reason to show if it ends at once: what is left, if it was being undone already.

        `for_good` ends a run that has failed like one that was stopped before."""
        graph = await self.store.graphs.find_latest(task.id, tx=tx)
        if graph is None:
            return StopEffect.ENDS, reason
        workflow, now = load_workflow(graph.body), self.now()
        runs = await self.store.graphs.list_runs(task.id, tx=tx)
        if (ending := runs.get(ENDING_PATH)) is None:
            rows = ending_by_stop(task.id, workflow, runs, now, reason=reason)
            for run in rows:
                await self.store.graphs.save_run(tx, run)
            if not rows:
                return StopEffect.ENDS, reason
            await withdraw_task_approvals(
                tx, task.id, reason_key="approval.task_over", now=now, kinds=STEP_APPROVAL_KINDS
            )
            return StopEffect.UNDOES, reason
        for_good = for_good or ending.output["status"] == TaskStatus.CANCELLED
        if not (for_good or _STOPPED_KEY in ending.output):
            # The run's worker reads this row when it claims the task, and writes it only then.
            noted = replace(ending, output={**ending.output, _STOPPED_KEY: True})
            await self.store.graphs.save_run(tx, noted)
            return StopEffect.GOES_ON, ""
        state = TaskRunState(
            task=task,
            runs=dict(runs),
            zone=self.zone,
            text=catalog_for(await self.language_of(task)),
            warn=lambda _warning: None,
        )
        state.adopt_plan(workflow, task.graph_version)
        return StopEffect.ENDS, "\n".join(filter(None, (ending_report(state), reason)))
