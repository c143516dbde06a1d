"""What comes after a boundary, within its transaction: which steps begin, who is asked, or why the
slot is given back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import assert_never

from bot.engine.workflow.asking import STEP_KINDS, Asked, Granted, Refused, as_heard
from bot.engine.workflow.graph import HUMAN, Node, inserted
from bot.engine.workflow.model.nodes import Human
from bot.engine.workflow.moves import Moves
from bot.engine.workflow.routing.flow import Flow
from bot.engine.workflow.routing.hearing import Ears, unheard_of
from bot.engine.workflow.routing.paths import Place
from bot.engine.workflow.routing.results import given_back, summary_of
from bot.engine.workflow.routing.seen import as_done, seen_from
from bot.engine.workflow.running.here import (
    STOP,
    Here,
    Leaves,
    Money,
    Round,
    Wants,
)
from bot.engine.workflow.steps import Following, Landing, Next, Replan, Steps, closing_title
from bot.engine.workflow.store import WorkStore
from bot.engine.workflow.suspension import Suspensions
from cards import formats
from cards.words import Words
from storage.approvals import approval_by_id
from storage.db import Transaction
from storage.records.approvals import Approval, ApprovalState
from storage.records.tasks import Control, EventKind, NodeRun, NodeStatus, Task, TaskStatus
from storage.work.asked import withdraw_of_task
from storage.work.journal import Orders, Report


class Crossing:
    """Everything here is part of a boundary's transaction, which has fenced the task."""

    def __init__(
        self,
        *,
        store: WorkStore,
        moves: Moves,
        leaves: Leaves,
        suspensions: Suspensions,
        words: Words,
        now: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._moves = moves
        self._known = moves.known
        self._leaves = leaves
        self._suspensions = suspensions
        self._words = words
        self._now = now
        self._told: set[str] = set()
        self._ears = Ears()
        self.wants = Wants()

    async def go_on(self, tx: Transaction, task: Task, session_id: str) -> Following:
        """Whatever comes next. None if the slot was given back."""
        flow = await self._known.flow(tx, task)
        settled = await self._known.settle(tx, task, self._now())
        here = Here(tx, task, flow, session_id)
        over = [run for run in settled if flow.is_asked(run)]
        counted = {run.path for run in over if run.output.get("auto")}
        await self._nobody_asked(here, counted, "approval.counted")
        await self._nobody_asked(here, {run.path for run in over} - counted)
        late = self._is_late(here)
        if flow.failed is not None and not (late and flow.running):
            return await self._fail(here, flow.failed)
        if flow.is_complete:
            return await self._complete(here)
        if late:
            return await self._time_out(here)
        if self.wants.money is not None and await self._is_refused(here, self.wants.money):
            return None
        if flow.is_busy or self._holds(task):
            return await self._hold(here)
        return await self._begin(here)

    async def go_on_with(self, tx: Transaction, step: Next) -> Following:
        """That step has not ended after all."""
        flow = await self._known.flow(tx, step.task)
        return self._on_the_way(Here(tx, step.task, flow, ""), [step])

    async def wait_for_money(self, tx: Transaction, task: Task, money: Money) -> None:
        """Nothing more begins until it is decided; people are asked at once."""
        self.wants = replace(self.wants, money=money)
        if (await self._known.flow(tx, task)).running:
            await self._tell_asked(tx, task, money.approval)

    def _holds(self, task: Task) -> bool:
        """Whether nothing more may begin."""
        return task.control is not Control.RUN or self.wants.money is not None

    async def _hold(self, here: Here) -> Following:
        if here.flow.running or here.flow.is_busy:
            return self._on_the_way(here, soon=here.flow.is_busy)
        await self._rest(here, [])
        return None

    async def _is_refused(self, here: Here, money: Money) -> bool:
        """What was decided while others ran: with leave to spend more it goes on, a no ends it
        when they have ended. True if it has ended."""
        asked = await approval_by_id(here.tx, money.approval.id, now=self._now())
        if asked is not None and asked.state is ApprovalState.WAITING:
            return False
        if asked is None or asked.state is not ApprovalState.REJECTED:
            self.wants = replace(self.wants, money=None)
            return False
        if here.flow.running:
            return False
        self.wants = replace(self.wants, money=None)
        reason = asked.reason or money.why
        await self._moves.end(here.tx, here.task, TaskStatus.CANCELLED, reason)
        return True

    async def _nobody_asked(
        self, here: Here, paths: Collection[str] | None, why: str = "approval.gone_on"
    ) -> None:
        """Nobody has to decide any more about steps that are over; None for all of the task."""
        if paths is None or paths:
            await withdraw_of_task(
                here.tx,
                here.task.id,
                why=why,
                now=self._now(),
                kinds=STEP_KINDS,
                but=lambda path: paths is not None and path not in paths,
            )

    async def makes_up(self, tx: Transaction, task: Task, run: NodeRun) -> bool:
        """Whether the workflow goes on though this step has failed for good."""
        return (await self._known.flow(tx, task)).makes_up(run.path)

    async def end_with(
        self, tx: Transaction, task: Task, failed: NodeRun, stop: tuple[TaskStatus, str]
    ) -> Following:
        """A step's failing ends the run, once no other step is under way."""
        flow = await self._known.flow(tx, task)
        if flow.running:
            output = {**failed.output, STOP: [stop[0].value, stop[1]]}
            await self._known.put(tx, replace(failed, output=output))
            return self._on_the_way(Here(tx, task, flow, ""))
        await self._free_failed(tx, flow)
        await self._moves.end(tx, task, *stop)
        return None

    async def _begin(self, here: Here) -> Following:
        """Start steps while there is room; where people have decided something, look again."""
        found = Round(begun=[], asked=[])
        flow = here.flow
        orders = await self._known.orders(here.tx, here.task)
        wants_plan = (
            bool(self.wants.replan)
            or self.wants.planning in flow.running
            or self._is_ordered(orders, flow)
        )
        for place, node in flow.steps():
            full = len(flow.running) >= flow.workflow.parallel
            if (full and not flow.asks_people) or (wants_plan and flow.running):
                break
            if full and node.type != HUMAN:
                continue
            if await self._enter(here, place, node, found):
                return None
            if found.settled:
                break
        if found.settled and not found.begun:
            return await self.go_on(here.tx, here.task, here.session)
        return await self._sum_up(here, found)

    async def _sum_up(self, here: Here, found: Round) -> Following:
        if not here.flow.running:
            await self._rest(here, found.asked)
            return None
        for approval in found.asked:
            await self._tell_asked(here.tx, here.task, approval)
        return self._on_the_way(here, found.begun, soon=found.settled)

    async def _tell_asked(self, tx: Transaction, task: Task, approval: Approval) -> None:
        if approval.id not in self._told:
            self._told.add(approval.id)
            await self._moves.event(tx, task, EventKind.WAITING, approval.id)

    def _on_the_way(self, here: Here, begun: Sequence[Next] = (), *, soon: bool = False) -> Steps:
        """Steps run, or there is more that goes on by itself, `soon`."""
        self._known.leave(here.task)
        return Steps(
            steps=tuple(begun),
            look_at=self._now() if soon else self._wakes_at(here),
            listens=here.flow.workflow.parallel > 1 or here.flow.asks_people,
        )

    def decline(self, order: int) -> None:
        """There is no new plan: it goes on with the old one."""
        declined = max(order, self.wants.declined)
        self.wants = replace(self.wants, planning="", declined=declined)

    def _is_ordered(self, orders: Orders, flow: Flow) -> bool:
        """Whether people want a new plan that nobody has made or tried to."""
        return orders.replan > max(flow.workflow.served, self.wants.declined)

    async def _rest(self, here: Here, asked: Sequence[Approval]) -> None:
        """Nothing runs: why, and until when."""
        flow, control = here.flow, here.task.control
        wakes = self._wakes_at(here)
        if self.wants.money is not None:
            money, self.wants = self.wants.money, replace(self.wants, money=None)
            await self._moves.wait(here.tx, here.task, [money.approval], wake_at=money.until)
        elif control is not Control.RUN:
            await self._moves.park(here.tx, here.task, control)
        elif asked or flow.waits:
            reason = "" if asked or wakes is None else self._until(flow, wakes)
            await self._moves.wait(here.tx, here.task, asked, wake_at=wakes, reason=reason)
        else:
            await self._moves.end(here.tx, here.task, TaskStatus.FAILED, flow.why_stuck())

    def _until(self, flow: Flow, wakes: datetime) -> str:
        at = formats.moment(wakes, flow.zone)
        return self._words("workflow.waits_until", at=at)

    async def _fail(self, here: Here, failed: NodeRun) -> Following:
        """The others end first. What failed may be tried again when the Boss says so."""
        if here.flow.running:
            return self._on_the_way(here)
        status, reason = failed.output.get(STOP, (TaskStatus.FAILED, failed.error))
        await self._free_failed(here.tx, here.flow)
        await self._moves.end(here.tx, here.task, TaskStatus(status), reason)
        return None

    async def _free_failed(self, tx: Transaction, flow: Flow) -> None:
        while (each := flow.failed) is not None:
            free = {key: value for key, value in each.output.items() if key != STOP}
            again = replace(each, status=NodeStatus.PENDING, output=free)
            await self._known.put(tx, again)

    async def _time_out(self, here: Here) -> Following:
        """What runs is broken off. If it is tried again, its time begins anew."""
        why, now = self._words("workflow.timed_out"), self._now()
        _, runs = await self._known.state(here.tx, here.task)
        for path in tuple(here.flow.running):
            await self._known.release(here.tx, runs[path], why=why, now=now)
        await self._known.put(here.tx, here.flow.timed_out(now))
        await self._moves.end(here.tx, here.task, TaskStatus.FAILED, why)
        return None

    def _wakes_at(self, here: Here) -> datetime | None:
        """When there is something to do though nobody says a word."""
        return min(filter(None, (here.flow.wakes_at, self._deadline(here))), default=None)

    def _deadline(self, here: Here) -> datetime | None:
        seconds = here.flow.workflow.timeout
        if seconds is None or (began := here.flow.began_at(here.task.started_at)) is None:
            return None
        return began + timedelta(seconds=seconds)

    def _is_late(self, here: Here) -> bool:
        deadline = self._deadline(here)
        return deadline is not None and deadline <= self._now()

    async def _complete(self, here: Here) -> Following:
        """Nothing is left to do, unless somebody said something that no step has heard, or its
        helpers have still to report: then it waits, and closes with what they bring."""
        tx, task = here.tx, here.task
        _, runs = await self._known.state(tx, task)
        said = (await self._known.orders(tx, task)).said
        unheard = unheard_of(said, runs)
        people = [text for text in unheard if not isinstance(text, Report)]
        if not people and await self._store.helpers.count_open(tx, task=task.id):
            await self._moves.wait_for_helpers(tx, task)
            return None
        if unheard:
            titles = [f"💬 {text}" for text in people] or [closing_title(unheard)]
            return await self._close_with(here, titles)
        if task.branch:
            return Landing(task=task)
        await self.finish(tx, task, "")
        return None

    async def finish(self, tx: Transaction, task: Task, note: str) -> None:
        """The task is complete; `note` says what else there is to say."""
        workflow, runs = await self._known.state(tx, task)
        flow = await self._known.flow(tx, task)
        if flow.asks_people or workflow.parallel > 1:
            # A branch that nobody waited for may still have asked.
            await self._nobody_asked(Here(tx, task, flow, ""), None)
        back = given_back(flow, self._now())
        parts = (summary_of(task, workflow, runs), back, note)
        await self._moves.end(tx, task, TaskStatus.COMPLETED, "", "\n\n".join(filter(None, parts)))

    async def _close_with(self, here: Here, titles: Sequence[str]) -> Following:
        tx, task = here.tx, here.task
        workflow, runs = await self._known.state(tx, task)
        changed = inserted(workflow, runs, titles)
        await self._moves.store_graph(tx, task, changed, "inject", str(task.created_by))
        await self._moves.event(tx, task, EventKind.INJECTED, " → ".join(titles))
        version = task.graph_version + 1
        task = await self._store.tasks.move(tx, task, graph_version=version)
        return await self.go_on(tx, task, here.session)

    async def _enter(self, here: Here, place: Place, node: Node, found: Round) -> bool:
        """Take a step, unless somebody has to allow it first. True if the run has ended."""
        tx, task = here.tx, here.task
        step = as_done(here.flow, place, node, self._now())
        orders = await self._known.orders(tx, task)
        _, runs = await self._known.state(tx, task)
        heard = as_heard(step, orders, runs)
        match await self._leaves.leave(tx, task, heard, here.flow.may_wait):
            case Granted(by=by) if node.type == HUMAN and by is not None:
                await self._moves.done_by_person(tx, task, step, by)
                found.settled = True
            case Granted() if asked := await self._suspensions.waits_for(tx, task, step, runs):
                found.asked.append(asked)
            case Granted():
                found.begun.append(await self._start(here, place, step))
            case Asked(approval=approval):
                await self._wait_here(here, place, node)
                found.asked.append(approval)
            case Refused(reason=reason):
                found.settled = True
                return await self._refused(here, place, reason or step.title)
            case never:
                assert_never(never)
        return False

    async def _refused(self, here: Here, place: Place, reason: str) -> bool:
        """The run is over, at once or when the others have ended; unless the workflow has a way
        on without this step."""
        now = self._now()
        run = replace(here.flow.run_at(place, NodeStatus.FAILED, now), error=reason)
        if here.flow.makes_up(place.path):
            refused = replace(run, output={"approved": False})
            await self._known.put(here.tx, here.flow.ended(refused, now))
            return False
        if not here.flow.running:
            await self._moves.end(here.tx, here.task, TaskStatus.BLOCKED, reason)
            return True
        stop = {STOP: [TaskStatus.BLOCKED.value, reason]}
        await self._known.put(here.tx, replace(run, output=stop))
        return False

    async def _wait_here(self, here: Here, place: Place, node: Node) -> None:
        """Somebody is asked for a time: when that is over is kept."""
        timeout = node.config.timeout if isinstance(node.config, Human) else None
        if timeout is None or place.path in here.flow.waiting_at(place.scope):
            return
        run = here.flow.run_at(place, NodeStatus.WAITING, self._now())
        wake_at = self._now() + timedelta(seconds=timeout)
        await self._known.put(here.tx, replace(run, wake_at=wake_at))

    async def _start(self, here: Here, place: Place, step: Node) -> Next:
        tx, task, flow = here.tx, here.task, here.flow
        orders = await self._known.orders(tx, task)
        _, before = await self._known.state(tx, task)
        runs = seen_from(flow, place, before)
        run = await self._known.start(tx, task, step.id, session_id=here.session, now=self._now())
        ordered = self._is_ordered(orders, flow)
        so_far = flow.so_far(self._now()) if ordered or self.wants.replan else ()
        replan = Replan(why=self.wants.replan, so_far=so_far) if self.wants.replan else None
        if ordered:
            replan = Replan(why=orders.replan_why, order=orders.replan, so_far=so_far)
        if replan is None:
            # Else it only holds the place of what the new plan begins with.
            await self._moves.event(tx, task, EventKind.STEP_STARTED, step.title)
        self.wants = replace(self.wants, replan="", planning=step.id if replan else "")
        return Next(
            task=task,
            workflow=flow.workflow,
            runs=runs,
            node=step,
            run=run,
            said=orders.said,
            deaf=self._ears.deaf(flow, place, orders.said, before),
            replan=replan,
            resumes=await self._suspensions.resumes(tx, task, step, runs),
            lane=flow.lanes.of(place),
        )
