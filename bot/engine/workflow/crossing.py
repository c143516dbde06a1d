"""What comes after a boundary, within its transaction: which steps begin, who is asked, or why the
slot is given back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol, TypeAlias, assert_never

from bot.engine.llm.base import CapHit
from bot.engine.workflow.asking import Asked, Granted, Leave, Refused, as_heard
from bot.engine.workflow.graph import HUMAN, Node, inserted
from bot.engine.workflow.model.nodes import Human
from bot.engine.workflow.moves import Moves
from bot.engine.workflow.routing.flow import Flow
from bot.engine.workflow.routing.lanes import Lanes
from bot.engine.workflow.routing.paths import Place
from bot.engine.workflow.routing.results import given_back, summary_of
from bot.engine.workflow.routing.seen import as_done, seen_from
from bot.engine.workflow.steps import Following, Landing, Next, Replan, Steps, closing_title
from bot.engine.workflow.store import WorkStore
from bot.engine.workflow.suspension import Suspensions
from cards import formats
from cards.words import Words
from storage.db import Transaction
from storage.records.approvals import Approval
from storage.records.tasks import Control, EventKind, NodeRun, NodeStatus, Task, TaskStatus
from storage.work.journal import Report

STOP = "@stop"
"""In the output of a step that failed while others ran: how its task is to end."""


class Leaves(Protocol):
    """Who says whether a step may be taken."""

    async def leave(
        self, tx: Transaction, task: Task, node: Node, beside: Callable[[str], bool]
    ) -> Leave:
        """`beside` says which other steps, by their paths, may wait for a person as well."""
        ...


AskForMore: TypeAlias = Callable[[Transaction, Task, CapHit], Awaitable[Approval]]
"""Asks people to extend a cap, in the transaction that lets the task wait for it."""


@dataclass(frozen=True, slots=True)
class Wants:
    """What the work itself wants while other steps still run: a new plan, and why; or money, and
    until when that is waited for."""

    replan: str = ""
    money: tuple[Approval, datetime | None] | None = None


@dataclass(frozen=True, slots=True)
class _Here:
    """The transaction, the task as it has locked it, its workflow under way, and the session whose
    number is kept with what is begun."""

    tx: Transaction
    task: Task
    flow: Flow
    session: str


@dataclass(slots=True)
class _Round:
    """What one look at the steps has found."""

    begun: list[Next]
    asked: list[Approval]
    settled: bool = False


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
        self.wants = Wants()

    async def go_on(self, tx: Transaction, task: Task, session_id: str) -> Following:
        """Whatever comes next. None if the slot was given back."""
        flow = await self._known.flow(tx, task)
        await self._known.settle(tx, task, self._now())
        here = _Here(tx, task, flow, session_id)
        if flow.failed is not None:
            return await self._fail(here, flow.failed)
        if flow.is_complete:
            return await self._complete(here)
        if self._is_late(flow):
            return await self._time_out(here)
        if flow.is_busy or self._holds(task):
            return await self._hold(here)
        return await self._begin(here)

    def _holds(self, task: Task) -> bool:
        """Whether nothing more may begin."""
        return task.control is not Control.RUN or self.wants.money is not None

    async def _hold(self, here: _Here) -> Following:
        if here.flow.running or here.flow.is_busy:
            return self._others(here.task)
        await self._rest(here, [])
        return None

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
            return self._others(task)
        await self._moves.end(tx, task, *stop)
        return None

    async def _begin(self, here: _Here) -> Following:
        """Start steps while there is room; where people have decided something, look again."""
        found = _Round(begun=[], asked=[])
        flow = here.flow
        orders = await self._known.orders(here.tx, here.task)
        wants_plan = bool(self.wants.replan) or orders.replan > flow.workflow.served
        for place, node in flow.steps():
            room = flow.workflow.parallel - len(flow.running)
            if room < 1 or (wants_plan and flow.running):
                break
            if await self._enter(here, place, node, found):
                return None
            if found.settled:
                break
        if found.settled and not found.begun:
            return await self.go_on(here.tx, here.task, here.session)
        return await self._sum_up(here, found)

    async def _sum_up(self, here: _Here, found: _Round) -> Following:
        if not here.flow.running:
            await self._rest(here, found.asked)
            return None
        for approval in found.asked:
            if approval.id not in self._told:
                self._told.add(approval.id)
                await self._moves.event(here.tx, here.task, EventKind.WAITING, approval.id)
        self._known.leave(here.task)
        return Steps(
            steps=tuple(found.begun),
            look_at=self._now() if found.settled else here.flow.wakes_at,
            asked=bool(found.asked),
        )

    def _others(self, task: Task) -> Steps:
        """Others still run, or there is more that goes on by itself."""
        self._known.leave(task)
        return Steps()

    async def _rest(self, here: _Here, asked: Sequence[Approval]) -> None:
        """Nothing runs: why, and until when."""
        flow, control = here.flow, here.task.control
        wakes = min(filter(None, (flow.wakes_at, self._deadline(flow))), default=None)
        if self.wants.money is not None:
            approval, until = self.wants.money
            self.wants = replace(self.wants, money=None)
            await self._moves.wait(here.tx, here.task, [approval], wake_at=until)
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

    async def _fail(self, here: _Here, failed: NodeRun) -> Following:
        """The others end first. What failed may be tried again when the Boss says so."""
        if here.flow.running:
            return self._others(here.task)
        status, reason = failed.output.get(STOP, (TaskStatus.FAILED, failed.error))
        free = {key: value for key, value in failed.output.items() if key != STOP}
        again = replace(failed, status=NodeStatus.PENDING, output=free)
        await self._known.put(here.tx, again)
        await self._moves.end(here.tx, here.task, TaskStatus(status), reason)
        return None

    async def _time_out(self, here: _Here) -> Following:
        if here.flow.running:
            return self._others(here.task)
        why = self._words("workflow.timed_out")
        await self._moves.end(here.tx, here.task, TaskStatus.FAILED, why)
        return None

    def _deadline(self, flow: Flow) -> datetime | None:
        if flow.workflow.timeout is None or flow.began_at is None:
            return None
        return flow.began_at + timedelta(seconds=flow.workflow.timeout)

    def _is_late(self, flow: Flow) -> bool:
        deadline = self._deadline(flow)
        return deadline is not None and deadline <= self._now()

    async def _complete(self, here: _Here) -> Following:
        """Nothing is left to do, unless somebody said something that no step has heard, or its
        helpers have still to report: then it waits, and closes with what they bring."""
        tx, task = here.tx, here.task
        _, runs = await self._known.state(tx, task)
        said = (await self._known.orders(tx, task)).said
        unheard = said[_heard(runs, len(said)) :]
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
        back = given_back(flow, self._now())
        parts = (summary_of(task, workflow, runs), back, note)
        await self._moves.end(tx, task, TaskStatus.COMPLETED, "", "\n\n".join(filter(None, parts)))

    async def _close_with(self, here: _Here, titles: Sequence[str]) -> Following:
        tx, task = here.tx, here.task
        workflow, runs = await self._known.state(tx, task)
        changed = inserted(workflow, runs, titles)
        await self._moves.store_graph(tx, task, changed, "inject", str(task.created_by))
        await self._moves.event(tx, task, EventKind.INJECTED, " → ".join(titles))
        version = task.graph_version + 1
        task = await self._store.tasks.move(tx, task, graph_version=version)
        return await self.go_on(tx, task, here.session)

    async def _enter(self, here: _Here, place: Place, node: Node, found: _Round) -> bool:
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
                return await self._refused(here, place, reason or step.title)
            case never:
                assert_never(never)
        return False

    async def _refused(self, here: _Here, place: Place, reason: str) -> bool:
        """The run is over, at once or when the others have ended."""
        if not here.flow.running:
            await self._moves.end(here.tx, here.task, TaskStatus.BLOCKED, reason)
            return True
        run = here.flow.run_at(place, NodeStatus.FAILED, self._now())
        stop = {STOP: [TaskStatus.BLOCKED.value, reason]}
        await self._known.put(here.tx, replace(run, output=stop, error=reason))
        return False

    async def _wait_here(self, here: _Here, place: Place, node: Node) -> None:
        """Somebody is asked for a time: when that is over is kept."""
        timeout = node.config.timeout if isinstance(node.config, Human) else None
        if timeout is None or place.path in here.flow.waiting_at(place.scope):
            return
        run = here.flow.run_at(place, NodeStatus.WAITING, self._now())
        wake_at = self._now() + timedelta(seconds=timeout)
        await self._known.put(here.tx, replace(run, wake_at=wake_at))

    async def _start(self, here: _Here, place: Place, step: Node) -> Next:
        tx, task, flow = here.tx, here.task, here.flow
        orders = await self._known.orders(tx, task)
        _, before = await self._known.state(tx, task)
        runs = seen_from(flow, place, before)
        run = await self._known.start(tx, task, step.id, session_id=here.session, now=self._now())
        await self._moves.event(tx, task, EventKind.STEP_STARTED, step.title)
        replan = Replan(why=self.wants.replan) if self.wants.replan else None
        self.wants = replace(self.wants, replan="")
        if orders.replan > flow.workflow.served:
            replan = Replan(why=orders.replan_why, order=orders.replan)
        return Next(
            task=task,
            workflow=flow.workflow,
            runs=runs,
            node=step,
            run=run,
            said=orders.said,
            replan=replan,
            resumes=await self._suspensions.resumes(tx, task, step, runs),
            lane=Lanes(flow.layout).of(place),
        )


def _heard(runs: Mapping[str, NodeRun], all_said: int) -> int:
    """How much of what people said has reached a step that was finished."""
    counts = [int(run.output["heard"]) for run in runs.values() if "heard" in run.output]
    return max(counts, default=all_said)
