"""How a task moves within a boundary's transaction, with its event and its log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

from bot.engine.agent.desk import Reply
from bot.engine.workflow.graph import Node, Workflow, dump_workflow
from bot.engine.workflow.known import Known
from bot.engine.workflow.logbook import Logbook
from bot.engine.workflow.routing.track import Say
from bot.engine.workflow.steps import Attempt
from bot.engine.workflow.store import LEASE, WorkStore
from storage.db import Transaction
from storage.records.approvals import Approval
from storage.records.helping import HELPERS_WORK
from storage.records.logs import LogKind
from storage.records.tasks import (
    Control,
    EventKind,
    Graph,
    Lease,
    NodeStatus,
    Phase,
    Task,
    TaskStatus,
)


class Moves:
    """Everything here is part of a larger transaction that has fenced the task."""

    def __init__(
        self, store: WorkStore, now: Callable[[], datetime], zone: ZoneInfo, say: Say
    ) -> None:
        self._store = store
        self._now = now
        self.known = Known(store.graphs, store.journal, zone, say)
        self.logbook = Logbook(store.logs)

    async def fence(self, tx: Transaction, lease: Lease) -> Task:
        task, ordered = await self._store.queue.hold(tx, lease, until=self._now() + LEASE)
        self.known.ordered(ordered)
        return task

    async def take_up(self, tx: Transaction, lease: Lease) -> Task:
        """The same without waiting, where it is known how the task was left. Has somebody moved
        it or given an order since, that is found out with what is written: then whatever is
        awaited next in this transaction, its commit at the latest, raises Overtaken."""
        if self.known.left is None:
            return await self.fence(tx, lease)
        task, ordered = self.known.left
        until = self._now() + LEASE
        await self._store.queue.hold_known(tx, lease, task, ordered=ordered, until=until)
        return task

    async def event(self, tx: Transaction, task: Task, kind: EventKind, text: str = "") -> None:
        await self._store.journal.append(tx, task.id, kind, now=self._now(), text=text)

    async def done_by_person(self, tx: Transaction, task: Task, node: Node, by: Approval) -> None:
        """A person has done or decided it: what they said is the step's result."""
        run = await self.known.start(tx, task, node.id, session_id="", now=self._now())
        output = {
            "summary": by.reason or "✅",
            "decided_by": by.decided_by or "",
            "approved": True,
        }
        done = replace(run, status=NodeStatus.DONE, output=output, ended_at=self._now())
        await self.known.finish(tx, done)
        await self.event(tx, task, EventKind.STEP_DONE, node.title)

    async def count(self, tx: Transaction, task: Task, attempt: Attempt) -> Task:
        """A model that could not be reached is no error of the worker's."""
        if attempt.run.status is NodeStatus.DONE:
            if not task.failures_in_row:
                return task
            return await self._store.tasks.move(tx, task, failures_in_row=0)
        errors = task.errors + (attempt.reply is not None)
        failures = task.failures_in_row + 1
        return await self._store.tasks.move(tx, task, failures_in_row=failures, errors=errors)

    async def wait(
        self,
        tx: Transaction,
        task: Task,
        approvals: Sequence[Approval] = (),
        wake_at: datetime | None = None,
        reason: str = "",
    ) -> None:
        """Give the slot back until somebody has decided, or its time has come. A pause that was
        asked for comes first."""
        if task.control is not Control.RUN and not approvals:
            await self.park(tx, task, task.control)
            return
        await self._store.tasks.move(
            tx,
            task,
            status=TaskStatus.WAITING,
            status_reason=reason,
            control=Control.RUN,
            wake_at=wake_at,
        )
        for approval in approvals:
            await self.event(tx, task, EventKind.WAITING, approval.id)
        if not approvals:
            await self.event(tx, task, EventKind.WAITING)

    async def wait_for_helpers(self, tx: Transaction, task: Task) -> None:
        """The same until the last of its helpers has reported, unless a pause was asked for."""
        if task.control is not Control.RUN:
            await self.park(tx, task, task.control)
            return
        await self._store.tasks.move(
            tx, task, status=TaskStatus.WAITING, status_reason=HELPERS_WORK, wake_at=None
        )
        await self.event(tx, task, EventKind.WAITING)

    async def park(self, tx: Transaction, task: Task, control: Control) -> None:
        if control is Control.YIELD:
            await self._store.tasks.move(tx, task, status=TaskStatus.PENDING, resumed_first=0)
        else:
            await self._store.tasks.move(
                tx, task, status=TaskStatus.PAUSED, control=Control.RUN, resumed_first=0
            )
        await self.event(tx, task, EventKind.PAUSED, task.status_reason)
        await self.logbook.parked(tx, task, self._now())

    async def end(
        self, tx: Transaction, task: Task, status: TaskStatus, reason: str, summary: str = ""
    ) -> None:
        final = status.is_final
        await self._store.tasks.move(
            tx,
            task,
            status=status,
            status_reason=reason,
            control=Control.RUN,
            phase=Phase.ENDED if final else task.phase,
            summary=summary or task.summary,
            ended_at=self._now() if final else None,
        )
        await self.event(tx, task, EventKind(status.value), reason)
        kind = LogKind.MILESTONE if status is TaskStatus.COMPLETED else LogKind.BLOCKED
        await self.logbook.ended(tx, task, kind, reason or summary, self._now())

    async def adopt(self, tx: Transaction, task: Task, plan: Workflow, reply: Reply) -> Task:
        version = task.graph_version + 1
        reason = "plan" if version == 1 else "replan"
        await self.logbook.planned(tx, task, plan, version, self._now())
        await self.store_graph(tx, task, plan, reason, reply.bill.backend)
        await self.event(tx, task, EventKind.PLANNED, plan.plan)
        return await self._store.tasks.move(
            tx,
            task,
            graph_version=version,
            failures_in_row=0,
            errors=0,
            phase=Phase.DOING,
            summary=plan.answer,
        )

    async def store_graph(
        self, tx: Transaction, task: Task, plan: Workflow, reason: str, author: str
    ) -> None:
        graph = Graph(
            task_id=task.id,
            version=task.graph_version + 1,
            body=dump_workflow(plan),
            reason=reason,
            author=author,
        )
        await self._store.graphs.add(tx, graph, now=self._now())
