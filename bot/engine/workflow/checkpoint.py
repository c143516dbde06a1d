"""A task's checkpoint: one transaction that stores an event and decides what is next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from zoneinfo import ZoneInfo

from bot.engine.agent.model_calls import ModelReply
from bot.engine.agent.model_gateway import ModelGateway
from bot.engine.permissions.requests import ApprovalRequester
from bot.engine.workflow import checkpoint_events as events
from bot.engine.workflow.checkpoint_events import CheckpointEvent, NextAction
from bot.engine.workflow.definition import load_workflow
from bot.engine.workflow.run_state import MAX_NOTES, ChangeSet, LeaseMemory, TaskRunState
from bot.engine.workflow.step_approvals import (
    RequestCapExtension,
    StepApprovalRequester,
    answer_calls,
)
from bot.engine.workflow.task_store import LEASE_DURATION, TaskStore
from bot.engine.workflow.transitions import transition
from cards.catalog import TextCatalog
from storage.approvals import find_approval
from storage.db import Transaction
from storage.errors import ConcurrentUpdate
from storage.records.tasks import Task, TaskLease


class TaskCheckpoint:
    """The unit of work of one lease. Every method raises LostLease, having written nothing, if
    another process holds the task by now.

    `approvals` decides which steps need a person's consent. `on_change` is called after each commit
    so that the notifier looks for new events. `cancelled_attempts` holds, by path and attempt
    number, the attempts that this lease started and cancelled before they had a result.
    """

    def __init__(
        self,
        lease: TaskLease,
        *,
        store: TaskStore,
        gateway: ModelGateway,
        approvals: StepApprovalRequester,
        request_cap_extension: RequestCapExtension,
        now: Callable[[], datetime],
        on_change: Callable[[], None],
        words: TextCatalog,
        zone: ZoneInfo,
        tool_approvals: ApprovalRequester,
    ) -> None:
        self._lease = lease
        self._store = store
        self._gateway = gateway
        self._approvals = approvals
        self._request_cap_extension = request_cap_extension
        self._now = now
        self._on_change = on_change
        self._words = words
        self._zone = zone
        self._tool_approvals = tool_approvals
        self._memory = LeaseMemory()
        # None until it is read, and after a transaction that failed.
        self._state: TaskRunState | None = None
        # True if the store has the task as in `_state`, unless another transaction has changed it.
        self._is_task_known = False
        self.cancelled_attempts: set[tuple[str, int]] = set()

    async def commit(self, event: CheckpointEvent, session_id: str = "") -> NextAction:
        """Store the event and what follows from it. Attempts that begin are stored with
        `session_id`."""
        try:
            return await self._commit_once(
                event, session_id, may_assume=isinstance(event, events.StepEnded)
            )
        except ConcurrentUpdate:
            # Somebody has moved the task or given an order since: now it is read first, also if
            # another step has been stored meanwhile.
            return await self._commit_once(event, session_id, may_assume=False)

    async def record_reply(self, reply: ModelReply) -> None:
        """Store one reply of a model with its cost, without a transition."""
        async with self._store.db.write() as tx:
            await self._store.queue.fence(tx, self._lease, until=self._now() + LEASE_DURATION)
            await self._gateway.record_reply(tx, reply)

    def decline_replan(self, order_number: int) -> None:
        """Continue with the old plan because no new one could be made. `order_number` is the number
        of the command that asked for one, or 0 if the work itself did.
        """
        declined = max(order_number, self._memory.declined_order)
        self._memory = replace(self._memory, planning_step="", declined_order=declined)

    async def _commit_once(
        self, event: CheckpointEvent, session_id: str, *, may_assume: bool
    ) -> NextAction:
        async with self._store.db.write() as tx:
            # It counts only if it is committed: after a failure the state is read again.
            known, self._state = self._state, None
            state = await self._load(tx, known, may_assume=may_assume)
            if (reply := events.reply_of(event)) is not None:
                # First: the tool calls at which its step has stopped are stored with it.
                await self._gateway.record_reply(tx, reply)
            await self._record_call(tx, state.task, event)
            now, rules = self._now(), self._approvals.rules
            memory = before = self._memory
            if (hold := memory.budget_hold) is not None:
                asked = await find_approval(tx, hold.approval.id, now=now)
                hold = None if asked is None else replace(hold, approval=asked)
                memory = replace(memory, budget_hold=hold)
            deciding = transition(state, memory, event, rules=rules, session_id=session_id, now=now)
            outcome = await answer_calls(deciding, partial(self._answer, tx, state.task))
            await self._apply(tx, state.task, outcome.changes, now)
        memory = outcome.memory
        if self._memory is not before:
            # A new plan was declined while this was committed: see `decline_replan`.
            declined = self._memory.declined_order
            memory = replace(memory, planning_step="", declined_order=declined)
        self._state, self._memory = state, memory
        self.cancelled_attempts |= {(run.path, run.attempt) for run in outcome.changes.cancelled}
        self._is_task_known = (
            isinstance(outcome.next, events.StepsStarted) and state.last_command_id is not None
        )
        self._on_change()
        return outcome.next

    async def _record_call(self, tx: Transaction, task: Task, event: CheckpointEvent) -> None:
        """Record the tool call that a step waits for, or that it no longer waits."""
        match event:
            case events.StepSuspended(call=(session_id, call_id)):
                await self._tool_approvals.suspend_at(tx, session_id, call_id)
            case events.StepEnded(is_call=True):
                await self._tool_approvals.end_at(tx, task, event.run.path)
            case _:
                pass

    async def _load(
        self, tx: Transaction, state: TaskRunState | None, *, may_assume: bool
    ) -> TaskRunState:
        """Lock the task and renew the lease; read what has changed since the last checkpoint.

        With `may_assume`, a task that is known is locked without waiting. If somebody has moved
        it or given an order, that is found out with what is written: then whatever is awaited next
        in this transaction, its commit at the latest, raises ConcurrentUpdate."""
        until = self._now() + LEASE_DURATION
        if may_assume and state is not None and self._is_task_known:
            assert state.last_command_id is not None
            await self._store.queue.fence_unchanged(
                tx, self._lease, state.task, last_command_id=state.last_command_id, until=until
            )
            return state
        task, last = await self._store.queue.fence_with_last_command(tx, self._lease, until=until)
        if state is None:
            runs = dict(await self._store.graphs.list_runs(task.id, tx=tx))
            state = TaskRunState(task=task, runs=runs, zone=self._zone, text=self._words)
        state.task = task
        if state.plan_version != task.graph_version:
            graph = await self._store.graphs.find_latest(task.id, tx=tx)
            assert graph is not None
            state.adopt_plan(load_workflow(graph.body), task.graph_version)
        if last is None or last != state.last_command_id:
            state.orders = await self._store.events.get_worker_input(task.id, tx=tx)
            state.last_command_id = last
        return state

    async def _answer(self, tx: Transaction, task: Task, call: events.StoreCall) -> object:
        match call:
            case events.RequestBudget(hit=hit):
                return await self._request_cap_extension(tx, task, hit)
            case events.RequestToolCall(path=path):
                return await self._tool_approvals.request_next_at(tx, task, path)
            case events.HasSuspendedCalls(path=path):
                return await self._tool_approvals.is_suspended_at(tx, task, path)
            case events.CountSubagents():
                return await self._store.subagents.count_unfinished(tx, task=task.id)
            case _:
                return await self._approvals.answer(tx, task, call)

    async def _apply(self, tx: Transaction, task: Task, changes: ChangeSet, now: datetime) -> None:
        """Write what the transition has decided."""
        store = self._store
        for plan in changes.plans:
            await store.graphs.add(tx, plan, now=now)
        for run in changes.runs.values():
            await store.graphs.save_run(tx, run)
        for run, session_id in changes.started:
            await store.graphs.start_attempt(tx, run, session_id=session_id)
        for run in changes.ended:
            await store.graphs.finish_attempt(tx, run)
        for kind, text in changes.events:
            await store.events.append_event(tx, task.id, kind, now=now, text=text)
        for line in changes.logs:
            most = MAX_NOTES.get(line.kind)
            if most is None or await store.logs.count(task.id, line.kind, tx=tx) < most:
                await store.logs.add_deferred(tx, line, now=now)
        if changes.task:
            await store.tasks.update(tx, task, **changes.task)
