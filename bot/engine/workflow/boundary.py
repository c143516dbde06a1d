"""The boundary between two steps: one transaction that settles the old and begins the new."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import Protocol, TypeAlias, assert_never

from bot.engine.agent.desk import Desk, Reply
from bot.engine.llm.base import CapHit
from bot.engine.workflow.advance import Complete, Park, Start, Stuck, go_on
from bot.engine.workflow.asking import Asked, Granted, Leave, Refused, as_heard
from bot.engine.workflow.graph import (
    HUMAN,
    PLANNING,
    Node,
    Workflow,
    inserted,
    is_complete,
    keep_finished,
)
from bot.engine.workflow.moves import Moves
from bot.engine.workflow.steps import Attempt, Following, Landing, Next, Replan, closing_title
from bot.engine.workflow.store import WorkStore
from bot.engine.workflow.suspension import Suspensions, stopped_output
from storage.db import Transaction
from storage.errors import Overtaken
from storage.records.approvals import Approval
from storage.records.tasks import (
    EventKind,
    Lease,
    NodeRun,
    NodeStatus,
    Phase,
    Task,
    TaskStatus,
)
from storage.work.journal import Orders, Report

_REPLANNED = "replanned"


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
        suspensions: Suspensions | None = None,
    ) -> None:
        self._suspensions = suspensions or Suspensions(None)
        self._store = store
        self._desk = desk
        self._leaves = leaves
        self._ask_for_more = ask_for_more
        self._now = now
        self._on_change = on_change
        self._moves = Moves(store, now)
        self._known = self._moves.known

    async def begin_planning(self, lease: Lease, session_id: str) -> tuple[NodeRun, Sequence[str]]:
        """The planning's run, and what people have told the worker so far."""
        now = self._now()
        async with self._write() as tx:
            task = await self._moves.fence(tx, lease)
            await self._store.tasks.move(tx, task, phase=Phase.PLANNING)
            await self._moves.event(tx, task, EventKind.STARTED)
            run = await self._known.start(tx, task, PLANNING, session_id=session_id, now=now)
            said = (await self._known.orders(tx, task)).said
            return replace(run, output={"heard": len(said)}), said

    async def adopt_plan(
        self, lease: Lease, run: NodeRun, reply: Reply, plan: Workflow, session_id: str
    ) -> Following:
        """Store the first plan and start its first free step."""
        async with self._write() as tx:
            task = await self._moves.fence(tx, lease)
            await self._desk.book(tx, reply)
            ended = replace(run, status=NodeStatus.DONE, ended_at=self._now())
            await self._known.finish(tx, ended)
            orders = await self._known.orders(tx, task)
            task = await self._moves.adopt(tx, task, replace(plan, served=orders.replan), reply)
            return await self._go_on(tx, task, session_id)

    async def replace_plan(
        self, lease: Lease, step: Next, reply: Reply, plan: Workflow, session_id: str
    ) -> Following:
        """Keep what is finished, put the new steps in place of the rest, and start the first.

        `step` of the old plan had been started and was not tried."""
        asked = step.replan or Replan(why="")
        async with self._write() as tx:
            task = await self._moves.fence(tx, lease)
            await self._desk.book(tx, reply)
            before = step.runs.get(step.node.id)
            why = asked.why or _REPLANNED
            await self._known.shelve(tx, step.run, before, why=why, now=self._now())
            workflow, runs = await self._known.state(tx, task)
            merged = keep_finished(workflow, runs, plan)
            if asked.order:
                merged = replace(merged, served=asked.order)
            else:
                task = await self._store.tasks.move(tx, task, replans=task.replans + 1)
            await self._moves.event(tx, task, EventKind.REPLANNED, asked.why)
            await self._moves.logbook.replanning(
                tx, task, task.graph_version + 1, asked.why, self._now()
            )
            task = await self._moves.adopt(tx, task, merged, reply)
            return await self._go_on(tx, task, session_id)

    async def give_up_planning(
        self, lease: Lease, run: NodeRun, *, error: str, status: TaskStatus, reason: str
    ) -> None:
        async with self._write() as tx:
            task = await self._moves.fence(tx, lease)
            failed = replace(run, status=NodeStatus.FAILED, error=error, ended_at=self._now())
            await self._known.finish(tx, failed)
            await self._moves.end(tx, task, status, reason)

    async def wait_for_money(self, lease: Lease, run: NodeRun, hit: CapHit, why: str) -> None:
        """The next call would pass a cap: the step is free again, and people are asked."""
        async with self._write() as tx:
            task = await self._moves.fence(tx, lease)
            await self._known.release(tx, run, why=why, now=self._now())
            approval = await self._ask_for_more(tx, task, hit)
            await self._moves.wait(tx, task, approval, wake_at=hit.until)

    async def go_on(self, lease: Lease, session_id: str) -> Following:
        """Start the first step that is free."""
        async with self._write() as tx:
            task = await self._moves.fence(tx, lease)
            if task.phase is not Phase.DOING:
                task = await self._store.tasks.move(tx, task, phase=Phase.DOING)
            await self._moves.event(tx, task, EventKind.STARTED)
            return await self._go_on(tx, task, session_id)

    async def settle(self, lease: Lease, attempt: Attempt, session_id: str) -> Following:
        """Store how the step ended and start the next."""
        while True:
            # Once more where somebody has moved the task: then it is read.
            with suppress(Overtaken):
                async with self._write() as tx:
                    task = await self._moves.take_up(tx, lease)
                    return await self._settle(tx, task, attempt, session_id)

    async def _settle(
        self, tx: Transaction, task: Task, attempt: Attempt, session_id: str
    ) -> Following:
        if attempt.reply is not None:
            await self._desk.book(tx, attempt.reply)
        # Free to run again, at once or when the Boss says so, where it has not succeeded.
        again = attempt.again or attempt.stop is not None
        await self._known.finish(tx, attempt.run, again=again)
        good = attempt.run.status is NodeStatus.DONE
        kind = EventKind.STEP_DONE if good else EventKind.STEP_FAILED
        await self._moves.event(tx, task, kind, attempt.run.error)
        await self._moves.logbook.tried(tx, task, attempt, self._now())
        task = await self._moves.count(tx, task, attempt)
        if attempt.stop is not None:
            await self._moves.end(tx, task, *attempt.stop)
            return None
        return await self._go_on(tx, task, session_id)

    async def suspend(self, lease: Lease, step: Next, reply: Reply, why: str) -> Following:
        """The step has stopped at calls of tools: people are asked, one at a time. Where all was
        decided in the meantime, it goes on."""
        async with self._write() as tx:
            task = await self._moves.fence(tx, lease)
            await self._desk.book(tx, reply)
            output = stopped_output(step.node, heard=len(step.said))
            run = replace(step.run, output=output)
            approval = await self._suspensions.ask(tx, task, step.node)
            if approval is None:
                runs = {**step.runs, step.node.id: run}
                return replace(step, task=task, runs=runs, replan=None, resumes=True)
            await self._known.release(tx, run, why=why, now=self._now())
            await self._moves.wait(tx, task, approval)
            return None

    async def note(self, lease: Lease, reason: str, told: str, *, instead_of: str = "") -> None:
        """Say on the card why the task stands still, or no more. What others have said there
        since stays."""
        async with self._write() as tx:
            task = await self._moves.fence(tx, lease)
            if task.status_reason == instead_of:
                await self._store.tasks.move(tx, task, status_reason=reason)
                await self._moves.event(tx, task, EventKind.NOTE, told)

    async def landed(self, lease: Lease, note: str, session_id: str) -> Following:
        """The work is where it belongs, or `note` says why not: the task is complete, unless
        somebody has put a step in meanwhile."""
        async with self._write() as tx:
            task = await self._moves.fence(tx, lease)
            workflow, runs = await self._known.state(tx, task)
            if not is_complete(workflow, runs):
                return await self._go_on(tx, task, session_id)
            summary = "\n\n".join(filter(None, (_summary(task, workflow, runs), note)))
            await self._moves.end(tx, task, TaskStatus.COMPLETED, "", summary)
            return None

    async def stop_at(self, lease: Lease, step: Next, status: TaskStatus, reason: str) -> None:
        """End the run before a step that was started and was not tried."""
        async with self._write() as tx:
            task = await self._moves.fence(tx, lease)
            await self._known.release(tx, step.run, why=reason, now=self._now())
            await self._moves.end(tx, task, status, reason)

    @asynccontextmanager
    async def _write(self) -> AsyncGenerator[Transaction, None]:
        try:
            async with self._store.db.write() as tx:
                yield tx
        except BaseException:
            self._known.forget()
            raise
        self._on_change()

    async def _go_on(self, tx: Transaction, task: Task, session_id: str) -> Following:
        workflow, runs = await self._known.state(tx, task)
        match go_on(await self._known.course(tx, task), task.control):
            case Start(node=node):
                return await self._enter(tx, task, workflow, runs, node=node, session=session_id)
            case Complete():
                return await self._complete(tx, task, workflow, runs, session_id)
            case Park(control=control):
                await self._moves.park(tx, task, control)
            case Stuck(failed=failed):
                error = failed.error if failed else "no step can run"
                await self._moves.end(tx, task, TaskStatus.FAILED, error)
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
        """Nothing is left to do, unless somebody said something that no step has heard, or its
        helpers have still to report: then it waits, and closes with what they bring."""
        said = (await self._known.orders(tx, task)).said
        unheard = said[_heard(runs, len(said)) :]
        people = [text for text in unheard if not isinstance(text, Report)]
        if not people and await self._store.helpers.count_open(tx, task=task.id):
            await self._moves.wait_for_helpers(tx, task)
            return None
        if unheard:
            titles = [f"💬 {text}" for text in people] or [closing_title(unheard)]
            changed = inserted(workflow, runs, titles)
            await self._moves.store_graph(tx, task, changed, "inject", str(task.created_by))
            await self._moves.event(tx, task, EventKind.INJECTED, " → ".join(people or titles))
            version = task.graph_version + 1
            task = await self._store.tasks.move(tx, task, graph_version=version)
            return await self._go_on(tx, task, session_id)
        if task.branch:
            return Landing(task=task)
        await self._moves.end(tx, task, TaskStatus.COMPLETED, "", _summary(task, workflow, runs))
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
        orders = await self._known.orders(tx, task)
        match await self._leaves.leave(tx, task, as_heard(node, orders, runs)):
            case Granted(by=by) if node.type == HUMAN and by is not None:
                await self._moves.done_by_person(tx, task, node, by)
                return await self._go_on(tx, task, session)
            case Granted() if asked := await self._suspensions.waits_for(tx, task, node, runs):
                await self._moves.wait(tx, task, asked)
            case Granted():
                return await self._start(
                    tx, task, workflow, runs, orders, node=node, session=session
                )
            case Asked(approval=approval):
                await self._moves.wait(tx, task, approval)
            case Refused(reason=reason):
                await self._moves.end(tx, task, TaskStatus.BLOCKED, reason or node.title)
            case never:
                assert_never(never)
        return None

    async def _start(
        self,
        tx: Transaction,
        task: Task,
        workflow: Workflow,
        runs: Mapping[str, NodeRun],
        orders: Orders,
        *,
        node: Node,
        session: str,
    ) -> Next:
        run = await self._known.start(tx, task, node.id, session_id=session, now=self._now())
        await self._moves.event(tx, task, EventKind.STEP_STARTED, node.title)
        replan = None
        if orders.replan > workflow.served:
            replan = Replan(why=orders.replan_why, order=orders.replan)
        self._known.leave(task)
        return Next(
            task=task,
            workflow=workflow,
            runs=runs,
            node=node,
            run=run,
            said=orders.said,
            replan=replan,
            resumes=await self._suspensions.resumes(tx, task, node, runs),
        )


def _heard(runs: Mapping[str, NodeRun], all_said: int) -> int:
    """How much of what people said has reached a step that was finished."""
    counts = [int(run.output["heard"]) for run in runs.values() if "heard" in run.output]
    return max(counts, default=all_said)


def _summary(task: Task, workflow: Workflow, runs: Mapping[str, NodeRun]) -> str:
    if workflow.answer or not workflow.nodes:
        return workflow.answer
    return str(runs[workflow.nodes[-1].id].output.get("summary", task.summary))
