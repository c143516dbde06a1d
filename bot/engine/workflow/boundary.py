"""The boundary between two steps: one transaction that settles the old and begins the new."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

from bot.engine.agent.desk import Desk, Reply
from bot.engine.llm.base import CapHit
from bot.engine.workflow.crossing import Crossing
from bot.engine.workflow.graph import PLANNING, Workflow, keep_finished
from bot.engine.workflow.moves import Moves
from bot.engine.workflow.running.here import AskForMore, Leaves, Money
from bot.engine.workflow.steps import Attempt, Following, Next, Replan
from bot.engine.workflow.store import WorkStore
from bot.engine.workflow.suspension import Suspensions, stopped_output
from cards.words import Words
from storage.db import Transaction
from storage.errors import Overtaken
from storage.records.tasks import (
    EventKind,
    Lease,
    NodeRun,
    NodeStatus,
    Phase,
    Task,
    TaskStatus,
)

_REPLANNED = "replanned"


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
        words: Words,
        zone: ZoneInfo,
        suspensions: Suspensions | None = None,
    ) -> None:
        self._suspensions = suspensions or Suspensions(None)
        self._store = store
        self._desk = desk
        self._ask_for_more = ask_for_more
        self._now = now
        self._on_change = on_change
        self._moves = Moves(store, now, zone, words)
        self._known = self._moves.known
        self._crossing = Crossing(
            store=store,
            moves=self._moves,
            leaves=leaves,
            suspensions=self._suspensions,
            words=words,
            now=now,
        )

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
            return await self._crossing.go_on(tx, task, session_id)

    async def paid(self, lease: Lease, reply: Reply) -> None:
        """Keep what an answer has cost of which nothing else comes."""
        async with self._write() as tx:
            await self._moves.fence(tx, lease)
            await self._desk.book(tx, reply)

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
            await self._known.shelve(tx, step.run, before, why=_REPLANNED, now=self._now())
            flow = await self._known.flow(tx, task)
            for run in (*flow.newest(), *flow.so_far(self._now())):
                await self._known.put(tx, run)
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
            return await self._crossing.go_on(tx, task, session_id)

    async def give_up_planning(
        self, lease: Lease, run: NodeRun, *, error: str, status: TaskStatus, reason: str
    ) -> None:
        async with self._write() as tx:
            task = await self._moves.fence(tx, lease)
            failed = replace(run, status=NodeStatus.FAILED, error=error, ended_at=self._now())
            await self._known.finish(tx, failed)
            await self._moves.end(tx, task, status, reason)

    async def wait_for_money(
        self, lease: Lease, run: NodeRun, hit: CapHit, why: str, session_id: str
    ) -> Following:
        """The next call would pass a cap: the step is free again, and people are asked."""
        async with self._write() as tx:
            task = await self._moves.fence(tx, lease)
            await self._known.release(tx, run, why=why, now=self._now())
            approval = await self._ask_for_more(tx, task, hit)
            if not task.graph_version:
                await self._moves.wait(tx, task, [approval], wake_at=hit.until)
                return None
            money = Money(approval=approval, until=hit.until, why=why)
            await self._crossing.wait_for_money(tx, task, money)
            return await self._crossing.go_on(tx, task, session_id)

    async def look_again(self, lease: Lease, session_id: str) -> Following:
        """Something may have come: its time, or what a person has decided."""
        async with self._write() as tx:
            task = await self._moves.fence(tx, lease)
            return await self._crossing.go_on(tx, task, session_id)

    async def go_on(self, lease: Lease, session_id: str) -> Following:
        """Start the first steps that are free."""
        async with self._write() as tx:
            task = await self._moves.fence(tx, lease)
            if task.phase is not Phase.DOING:
                task = await self._store.tasks.move(tx, task, phase=Phase.DOING)
            await self._moves.event(tx, task, EventKind.STARTED)
            return await self._crossing.go_on(tx, task, session_id)

    async def settle(
        self, lease: Lease, attempt: Attempt, session_id: str, replan: str = ""
    ) -> Following:
        """Store how the step ended and start the next. `replan` is why what is left wants a new
        plan, made before the next step is tried and after those that still run."""
        while True:
            # Once more where somebody has moved the task: then it is read.
            with suppress(Overtaken):
                async with self._write() as tx:
                    task = await self._moves.take_up(tx, lease)
                    return await self._settle(tx, task, attempt, session_id, replan)

    def decline(self, order: int) -> None:
        """No new plan could be made, which that order had asked for, or with 0 the work."""
        self._crossing.decline(order)

    async def _settle(
        self, tx: Transaction, task: Task, attempt: Attempt, session_id: str, replan: str
    ) -> Following:
        if attempt.reply is not None:
            await self._desk.book(tx, attempt.reply)
        # Free to run again, at once or when the Boss says so, where it has not succeeded.
        good = attempt.run.status is NodeStatus.DONE
        makes_up = await self._crossing.makes_up(tx, task, attempt.run)
        made_up = makes_up and not good and not attempt.hopeless
        stop = None if made_up else attempt.stop
        again = stop is not None or (attempt.again and not (made_up and replan))
        if replan and not made_up:
            self._crossing.wants = replace(self._crossing.wants, replan=replan)
        await self._known.finish(tx, attempt.run, again=again)
        kind = EventKind.STEP_DONE if good else EventKind.STEP_FAILED
        await self._moves.event(tx, task, kind, attempt.run.error)
        await self._moves.logbook.tried(tx, task, attempt, self._now())
        task = await self._moves.count(tx, task, attempt)
        if stop is not None:
            return await self._crossing.end_with(tx, task, attempt.run, stop)
        return await self._crossing.go_on(tx, task, session_id)

    async def suspend(
        self, lease: Lease, step: Next, reply: Reply, why: str, session_id: str
    ) -> Following:
        """The step has stopped at calls of tools: people are asked, one at a time. Where all was
        decided in the meantime, it goes on."""
        async with self._write() as tx:
            task = await self._moves.fence(tx, lease)
            await self._desk.book(tx, reply)
            output = stopped_output(step)
            run = replace(step.run, output=output)
            approval = await self._suspensions.ask(tx, task, step.node)
            if approval is None:
                runs = {**step.runs, step.node.id: run}
                again = replace(step, task=task, runs=runs, replan=None, resumes=True)
                return await self._crossing.go_on_with(tx, again)
            await self._known.release(tx, run, why=why, now=self._now())
            return await self._crossing.go_on(tx, task, session_id)

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
            flow = await self._known.flow(tx, task)
            if not flow.is_complete:
                return await self._crossing.go_on(tx, task, session_id)
            await self._crossing.finish(tx, task, note)
            return None

    async def stop_at(self, lease: Lease, step: Next, status: TaskStatus, reason: str) -> None:
        """End the run before a step that was started and was not tried."""
        async with self._write() as tx:
            task = await self._moves.fence(tx, lease)
            await self._known.release(tx, step.run, why=reason, now=self._now())
            await self._moves.end(tx, task, status, reason)

    @asynccontextmanager
    async def _write(self) -> AsyncGenerator[Transaction, None]:
        wanted = self._crossing.wants
        try:
            async with self._store.db.write() as tx:
                wanted = self._crossing.wants
                yield tx
        except BaseException:
            self._known.forget()
            self._crossing.wants = wanted
            raise
        self._on_change()
