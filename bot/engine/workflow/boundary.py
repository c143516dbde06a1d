"""The boundary between two steps: one transaction that settles the old and begins the new."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from bot.engine.agent.desk import Desk, Reply
from bot.engine.workflow.advance import Complete, Park, Start, Stuck, advance
from bot.engine.workflow.graph import (
    PLANNING,
    Node,
    Workflow,
    dump_workflow,
    keep_finished,
    linear,
    load_workflow,
)
from bot.engine.workflow.store import LEASE, WorkStore
from storage.db import Transaction
from storage.records.tasks import (
    Control,
    EventKind,
    Graph,
    Lease,
    NodeRun,
    NodeStatus,
    Phase,
    Task,
    TaskStatus,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """How a step's try ended, ready to be stored. `again` lets the step run once more;
    `stop` ends the task's run with that status and reason instead."""

    run: NodeRun
    reply: Reply | None
    again: bool = False
    stop: tuple[TaskStatus, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """The step that has been marked running, with what it may look at; `said` is what people
    told the worker since the task was made."""

    task: Task
    workflow: Workflow
    runs: Mapping[str, NodeRun]
    node: Node
    run: NodeRun
    said: Sequence[str]


class Boundary:
    """Every method raises LostLease, having written nothing, if the task is not ours any more.

    `on_change` is called after each commit: whoever tells people of events looks then."""

    def __init__(
        self,
        store: WorkStore,
        desk: Desk,
        now: Callable[[], datetime],
        on_change: Callable[[], None],
    ) -> None:
        self._store = store
        self._desk = desk
        self._now = now
        self._on_change = on_change

    async def begin_planning(self, lease: Lease, session_id: str) -> NodeRun:
        now = self._now()
        async with self._write() as tx:
            task = await self._fence(tx, lease)
            await self._store.tasks.move(tx, task, phase=Phase.PLANNING)
            await self._event(tx, task, EventKind.STARTED)
            return await self._store.graphs.start(
                tx, task.id, PLANNING, session_id=session_id, now=now
            )

    async def adopt_plan(
        self, lease: Lease, run: NodeRun, reply: Reply, plan: Workflow, session_id: str
    ) -> Next | None:
        """Store the first plan and start its first free step."""
        async with self._write() as tx:
            task = await self._fence(tx, lease)
            await self._desk.book(tx, reply)
            ended = replace(run, status=NodeStatus.DONE, ended_at=self._now())
            await self._store.graphs.finish(tx, ended)
            task = await self._adopt(tx, task, plan, reply)
            return await self._go_on(tx, task, session_id)

    async def replace_plan(
        self, lease: Lease, shelved: NodeRun, reply: Reply, plan: Workflow, session_id: str
    ) -> Next | None:
        """Keep what is finished, put the new steps in place of the rest, and start the first.

        `shelved` is the step of the old plan that had been started and was not tried."""
        async with self._write() as tx:
            task = await self._fence(tx, lease)
            await self._desk.book(tx, reply)
            await self._store.graphs.finish(tx, replace(shelved, ended_at=self._now()))
            workflow, runs = await self._state(tx, task)
            merged = keep_finished(workflow, runs, plan)
            task = await self._store.tasks.move(tx, task, replans=task.replans + 1)
            task = await self._adopt(tx, task, merged, reply)
            return await self._go_on(tx, task, session_id)

    async def give_up_planning(
        self, lease: Lease, run: NodeRun, *, error: str, status: TaskStatus, reason: str
    ) -> None:
        async with self._write() as tx:
            task = await self._fence(tx, lease)
            failed = replace(run, status=NodeStatus.FAILED, error=error, ended_at=self._now())
            await self._store.graphs.finish(tx, failed)
            await self._end(tx, task, status, reason)

    async def go_on(self, lease: Lease, session_id: str) -> Next | None:
        """Start the first step that is free; None if the slot was given back."""
        async with self._write() as tx:
            task = await self._fence(tx, lease)
            if task.phase is not Phase.DOING:
                task = await self._store.tasks.move(tx, task, phase=Phase.DOING)
            await self._event(tx, task, EventKind.STARTED)
            return await self._go_on(tx, task, session_id)

    async def settle(self, lease: Lease, attempt: Attempt, session_id: str) -> Next | None:
        """Store how the step ended and start the next; None if the slot was given back."""
        async with self._write() as tx:
            task = await self._fence(tx, lease)
            if attempt.reply is not None:
                await self._desk.book(tx, attempt.reply)
            await self._store.graphs.finish(tx, attempt.run)
            good = attempt.run.status is NodeStatus.DONE
            if attempt.again or attempt.stop is not None:
                # Free to run again, at once or when the Boss says so; the attempt keeps its error.
                await self._store.graphs.put(tx, replace(attempt.run, status=NodeStatus.PENDING))
            kind = EventKind.STEP_DONE if good else EventKind.STEP_FAILED
            await self._event(tx, task, kind, attempt.run.error)
            failures = 0 if good else task.failures_in_row + 1
            task = await self._store.tasks.move(tx, task, failures_in_row=failures)
            if attempt.stop is not None:
                await self._end(tx, task, *attempt.stop)
                return None
            return await self._go_on(tx, task, session_id)

    @asynccontextmanager
    async def _write(self) -> AsyncGenerator[Transaction, None]:
        async with self._store.db.write() as tx:
            yield tx
        self._on_change()

    async def _go_on(self, tx: Transaction, task: Task, session_id: str) -> Next | None:
        workflow, runs = await self._state(tx, task)
        match advance(workflow, runs, task.control):
            case Start(node=node):
                run = await self._store.graphs.start(
                    tx, task.id, node.id, session_id=session_id, now=self._now()
                )
                await self._event(tx, task, EventKind.STEP_STARTED, node.title)
                said = await self._store.journal.said(tx, task.id)
                return Next(task=task, workflow=workflow, runs=runs, node=node, run=run, said=said)
            case Complete():
                await self._end(tx, task, TaskStatus.COMPLETED, "", _summary(task, workflow, runs))
            case Park(control=control):
                await self._park(tx, task, control)
            case Stuck(failed=failed):
                error = failed.error if failed else "no step can run"
                await self._end(tx, task, TaskStatus.FAILED, error)
            case never:
                assert_never(never)
        return None

    async def _park(self, tx: Transaction, task: Task, control: Control) -> None:
        if control is Control.YIELD:
            await self._store.tasks.move(tx, task, status=TaskStatus.PENDING, resumed_first=0)
        else:
            await self._store.tasks.move(
                tx, task, status=TaskStatus.PAUSED, control=Control.RUN, resumed_first=0
            )
        await self._event(tx, task, EventKind.PAUSED, task.status_reason)

    async def _end(
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
        await self._event(tx, task, EventKind(status.value), reason)

    async def _fence(self, tx: Transaction, lease: Lease) -> Task:
        return await self._store.queue.fence(tx, lease, until=self._now() + LEASE)

    async def _event(self, tx: Transaction, task: Task, kind: EventKind, text: str = "") -> None:
        await self._store.journal.append(tx, task.id, kind, now=self._now(), text=text)

    async def _state(self, tx: Transaction, task: Task) -> tuple[Workflow, Mapping[str, NodeRun]]:
        graph = await self._store.graphs.latest(task.id, tx=tx)
        workflow = load_workflow(graph.body) if graph else linear("", ())
        return workflow, await self._store.graphs.runs(task.id, tx=tx)

    async def _adopt(self, tx: Transaction, task: Task, plan: Workflow, reply: Reply) -> Task:
        version = task.graph_version + 1
        graph = Graph(
            task_id=task.id,
            version=version,
            body=dump_workflow(plan),
            reason="plan" if version == 1 else "replan",
            author=reply.bill.backend,
        )
        await self._store.graphs.add(tx, graph, now=self._now())
        await self._event(tx, task, EventKind.PLANNED, plan.plan)
        return await self._store.tasks.move(
            tx,
            task,
            graph_version=version,
            failures_in_row=0,
            phase=Phase.DOING,
            summary=plan.answer,
        )


def _summary(task: Task, workflow: Workflow, runs: Mapping[str, NodeRun]) -> str:
    if workflow.answer or not workflow.nodes:
        return workflow.answer
    return str(runs[workflow.nodes[-1].id].output.get("summary", task.summary))
