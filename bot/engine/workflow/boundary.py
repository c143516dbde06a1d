"""The boundary between two steps: one transaction that settles the old and begins the new."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Protocol, TypeAlias, assert_never

from bot.engine.agent.desk import Desk, Reply
from bot.engine.llm.base import CapHit
from bot.engine.workflow.advance import Complete, Park, Start, Stuck, advance
from bot.engine.workflow.asking import Asked, Granted, Leave, Refused
from bot.engine.workflow.graph import (
    HUMAN,
    PLANNING,
    Node,
    Workflow,
    dump_workflow,
    inserted,
    is_complete,
    keep_finished,
    linear,
    load_workflow,
)
from bot.engine.workflow.logbook import Logbook
from bot.engine.workflow.steps import Attempt, Following, Landing, Next, Replan
from bot.engine.workflow.store import LEASE, WorkStore
from storage.db import Transaction
from storage.records.approvals import Approval
from storage.records.logs import LogKind
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


class Leaves(Protocol):
    """Who says whether a step may be taken."""

    async def leave(self, tx: Transaction, task: Task, node: Node) -> Leave: ...


AskForMore: TypeAlias = Callable[[Transaction, Task, CapHit], Awaitable[Approval]]
"""Asks people to extend a cap, in the transaction that lets the task wait for it."""


class Boundary:
    """Every method raises LostLease, having written nothing, if the task is not ours any more.

    `leaves` says which steps have to be asked about; `on_change` is called after each commit:
    whoever tells people of events looks then."""

    def __init__(
        self,
        *,
        store: WorkStore,
        desk: Desk,
        leaves: Leaves,
        ask_for_more: AskForMore,
        now: Callable[[], datetime],
        on_change: Callable[[], None],
    ) -> None:
        self._store = store
        self._desk = desk
        self._leaves = leaves
        self._ask_for_more = ask_for_more
        self._now = now
        self._on_change = on_change
        self._logbook = Logbook(store.logs)

    async def begin_planning(self, lease: Lease, session_id: str) -> tuple[NodeRun, Sequence[str]]:
        """The planning's run, and what people have told the worker so far."""
        now = self._now()
        async with self._write() as tx:
            task = await self._fence(tx, lease)
            await self._store.tasks.move(tx, task, phase=Phase.PLANNING)
            await self._event(tx, task, EventKind.STARTED)
            run = await self._store.graphs.start(
                tx, task.id, PLANNING, session_id=session_id, now=now
            )
            said = (await self._store.journal.orders(tx, task.id)).said
            return replace(run, output={"heard": len(said)}), said

    async def adopt_plan(
        self, lease: Lease, run: NodeRun, reply: Reply, plan: Workflow, session_id: str
    ) -> Following:
        """Store the first plan and start its first free step."""
        async with self._write() as tx:
            task = await self._fence(tx, lease)
            await self._desk.book(tx, reply)
            ended = replace(run, status=NodeStatus.DONE, ended_at=self._now())
            await self._store.graphs.finish(tx, ended)
            orders = await self._store.journal.orders(tx, task.id)
            task = await self._adopt(tx, task, replace(plan, served=orders.replan), reply)
            return await self._go_on(tx, task, session_id)

    async def replace_plan(
        self, lease: Lease, step: Next, reply: Reply, plan: Workflow, session_id: str
    ) -> Following:
        """Keep what is finished, put the new steps in place of the rest, and start the first.

        `step` of the old plan had been started and was not tried."""
        asked = step.replan or Replan(why="")
        async with self._write() as tx:
            task = await self._fence(tx, lease)
            await self._desk.book(tx, reply)
            shelved = replace(step.run, status=NodeStatus.PENDING, ended_at=self._now())
            await self._store.graphs.finish(tx, shelved)
            workflow, runs = await self._state(tx, task)
            merged = keep_finished(workflow, runs, plan)
            if asked.order:
                merged = replace(merged, served=asked.order)
            else:
                task = await self._store.tasks.move(tx, task, replans=task.replans + 1)
            await self._event(tx, task, EventKind.REPLANNED, asked.why)
            await self._logbook.replanning(tx, task, task.graph_version + 1, asked.why, self._now())
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

    async def wait_for_money(self, lease: Lease, run: NodeRun, hit: CapHit, why: str) -> None:
        """The next call would pass a cap: the step is free again, and people are asked."""
        async with self._write() as tx:
            task = await self._fence(tx, lease)
            await self._store.graphs.release(tx, run, why=why, now=self._now())
            approval = await self._ask_for_more(tx, task, hit)
            await self._wait(tx, task, approval, wake_at=hit.until)

    async def go_on(self, lease: Lease, session_id: str) -> Following:
        """Start the first step that is free."""
        async with self._write() as tx:
            task = await self._fence(tx, lease)
            if task.phase is not Phase.DOING:
                task = await self._store.tasks.move(tx, task, phase=Phase.DOING)
            await self._event(tx, task, EventKind.STARTED)
            return await self._go_on(tx, task, session_id)

    async def settle(self, lease: Lease, attempt: Attempt, session_id: str) -> Following:
        """Store how the step ended and start the next."""
        now = self._now()
        async with self._write() as tx:
            task = await self._fence(tx, lease)
            if attempt.reply is not None:
                await self._desk.book(tx, attempt.reply)
            await self._store.graphs.finish(tx, attempt.run)
            if attempt.again or attempt.stop is not None:
                # Free to run again, at once or when the Boss says so; the attempt keeps its error.
                await self._store.graphs.put(tx, replace(attempt.run, status=NodeStatus.PENDING))
            good = attempt.run.status is NodeStatus.DONE
            kind = EventKind.STEP_DONE if good else EventKind.STEP_FAILED
            await self._event(tx, task, kind, attempt.run.error)
            await self._logbook.tried(tx, task, attempt, now)
            task = await self._count(tx, task, attempt)
            if attempt.stop is not None:
                await self._end(tx, task, *attempt.stop)
                return None
            return await self._go_on(tx, task, session_id)

    async def landed(self, lease: Lease, note: str, session_id: str) -> Following:
        """The work is where it belongs, or `note` says why not: the task is complete, unless
        somebody has put a step in meanwhile."""
        async with self._write() as tx:
            task = await self._fence(tx, lease)
            workflow, runs = await self._state(tx, task)
            if not is_complete(workflow, runs):
                return await self._go_on(tx, task, session_id)
            summary = "\n\n".join(filter(None, (_summary(task, workflow, runs), note)))
            await self._end(tx, task, TaskStatus.COMPLETED, "", summary)
            return None

    async def stop_at(self, lease: Lease, step: Next, status: TaskStatus, reason: str) -> None:
        """End the run before a step that was started and was not tried."""
        async with self._write() as tx:
            task = await self._fence(tx, lease)
            await self._store.graphs.release(tx, step.run, why=reason, now=self._now())
            await self._end(tx, task, status, reason)

    @asynccontextmanager
    async def _write(self) -> AsyncGenerator[Transaction, None]:
        async with self._store.db.write() as tx:
            yield tx
        self._on_change()

    async def _go_on(self, tx: Transaction, task: Task, session_id: str) -> Following:
        workflow, runs = await self._state(tx, task)
        match advance(workflow, runs, task.control):
            case Start(node=node):
                return await self._enter(tx, task, workflow, runs, node=node, session=session_id)
            case Complete():
                return await self._complete(tx, task, workflow, runs, session_id)
            case Park(control=control):
                await self._park(tx, task, control)
            case Stuck(failed=failed):
                error = failed.error if failed else "no step can run"
                await self._end(tx, task, TaskStatus.FAILED, error)
            case never:
                assert_never(never)
        return None

    async def _complete(
        self,
        tx: Transaction,
        task: Task,
        workflow: Workflow,
        runs: Mapping[str, NodeRun],
        session_id: str,
    ) -> Following:
        """Nothing is left to do, unless somebody said something that no step has heard."""
        said = (await self._store.journal.orders(tx, task.id)).said
        if unheard := said[_heard(runs, len(said)) :]:
            changed = inserted(workflow, runs, [f"💬 {text}" for text in unheard])
            await self._store_graph(tx, task, changed, "inject", str(task.created_by))
            await self._event(tx, task, EventKind.INJECTED, " → ".join(unheard))
            version = task.graph_version + 1
            task = await self._store.tasks.move(tx, task, graph_version=version)
            return await self._go_on(tx, task, session_id)
        if task.branch:
            return Landing(task=task)
        await self._end(tx, task, TaskStatus.COMPLETED, "", _summary(task, workflow, runs))
        return None

    async def _enter(
        self,
        tx: Transaction,
        task: Task,
        workflow: Workflow,
        runs: Mapping[str, NodeRun],
        *,
        node: Node,
        session: str,
    ) -> Following:
        """Take a step, unless somebody has to allow it first."""
        match await self._leaves.leave(tx, task, node):
            case Granted(by=by) if node.type == HUMAN and by is not None:
                await self._done_by_person(tx, task, node, by)
                return await self._go_on(tx, task, session)
            case Granted():
                return await self._start(tx, task, workflow, runs, node=node, session=session)
            case Asked(approval=approval):
                await self._wait(tx, task, approval)
            case Refused(reason=reason):
                await self._end(tx, task, TaskStatus.BLOCKED, reason or node.title)
            case never:
                assert_never(never)
        return None

    async def _start(
        self,
        tx: Transaction,
        task: Task,
        workflow: Workflow,
        runs: Mapping[str, NodeRun],
        *,
        node: Node,
        session: str,
    ) -> Next:
        run = await self._store.graphs.start(
            tx, task.id, node.id, session_id=session, now=self._now()
        )
        await self._event(tx, task, EventKind.STEP_STARTED, node.title)
        orders = await self._store.journal.orders(tx, task.id)
        replan = None
        if orders.replan > workflow.served:
            replan = Replan(why=orders.replan_why, order=orders.replan)
        return Next(
            task=task,
            workflow=workflow,
            runs=runs,
            node=node,
            run=run,
            said=orders.said,
            replan=replan,
        )

    async def _done_by_person(self, tx: Transaction, task: Task, node: Node, by: Approval) -> None:
        """A person has done or decided it: what they said is the step's result."""
        run = await self._store.graphs.start(tx, task.id, node.id, session_id="", now=self._now())
        output = {"summary": by.reason or "✅", "decided_by": by.decided_by or ""}
        done = replace(run, status=NodeStatus.DONE, output=output, ended_at=self._now())
        await self._store.graphs.finish(tx, done)
        await self._event(tx, task, EventKind.STEP_DONE, node.title)

    async def _count(self, tx: Transaction, task: Task, attempt: Attempt) -> Task:
        """A model that could not be reached is no error of the worker's."""
        if attempt.run.status is NodeStatus.DONE:
            return await self._store.tasks.move(tx, task, failures_in_row=0)
        errors = task.errors + (attempt.reply is not None)
        failures = task.failures_in_row + 1
        return await self._store.tasks.move(tx, task, failures_in_row=failures, errors=errors)

    async def _wait(
        self, tx: Transaction, task: Task, approval: Approval, wake_at: datetime | None = None
    ) -> None:
        """Give the slot back until somebody has decided."""
        await self._store.tasks.move(
            tx,
            task,
            status=TaskStatus.WAITING,
            status_reason="",
            control=Control.RUN,
            wake_at=wake_at,
        )
        await self._event(tx, task, EventKind.WAITING, approval.id)

    async def _park(self, tx: Transaction, task: Task, control: Control) -> None:
        if control is Control.YIELD:
            await self._store.tasks.move(tx, task, status=TaskStatus.PENDING, resumed_first=0)
        else:
            await self._store.tasks.move(
                tx, task, status=TaskStatus.PAUSED, control=Control.RUN, resumed_first=0
            )
        await self._event(tx, task, EventKind.PAUSED, task.status_reason)
        await self._logbook.parked(tx, task, self._now())

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
        kind = LogKind.MILESTONE if status is TaskStatus.COMPLETED else LogKind.BLOCKED
        await self._logbook.ended(tx, task, kind, reason or summary, self._now())

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
        reason = "plan" if version == 1 else "replan"
        await self._logbook.planned(tx, task, plan, version, self._now())
        await self._store_graph(tx, task, plan, reason, reply.bill.backend)
        await self._event(tx, task, EventKind.PLANNED, plan.plan)
        return await self._store.tasks.move(
            tx,
            task,
            graph_version=version,
            failures_in_row=0,
            errors=0,
            phase=Phase.DOING,
            summary=plan.answer,
        )

    async def _store_graph(
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


def _heard(runs: Mapping[str, NodeRun], all_said: int) -> int:
    """How much of what people said has reached a step that was finished."""
    counts = [int(run.output["heard"]) for run in runs.values() if "heard" in run.output]
    return max(counts, default=all_said)


def _summary(task: Task, workflow: Workflow, runs: Mapping[str, NodeRun]) -> str:
    if workflow.answer or not workflow.nodes:
        return workflow.answer
    return str(runs[workflow.nodes[-1].id].output.get("summary", task.summary))
