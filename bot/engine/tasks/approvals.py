"""Approvals of tasks: effects of decisions, approval cards, and expiry."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, assert_never

from bot.engine.permissions.requests import DecisionRecorder
from bot.engine.tasks.queue import requeue
from bot.engine.tasks.undoing import StopEffect, TaskUndoing
from bot.engine.workflow.definition import load_workflow
from bot.engine.workflow.error_policy import tolerates_step_failure
from bot.engine.workflow.step_approvals import STEP_APPROVAL_KINDS
from bot.engine.workflow.task_store import TaskStore
from cards import formats
from cards.catalog import catalog_for
from handlers.approval_cards import ApprovalCards
from storage.approvals import (
    ApprovalRepo,
    DecisionHandler,
    awaited_approval_ids,
    extend_approval_payload,
    withdraw_task_approvals,
)
from storage.db import Database, Transaction
from storage.errors import NotFound, StoreUnavailable
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.people import ChatId, Language, Person, PersonId
from storage.records.tasks import (
    EventKind,
    Task,
    TaskControl,
    TaskEvent,
    TaskId,
    TaskPhase,
    TaskStatus,
)
from storage.tasks import TaskRepo

_MAX_NAME = 60
_MAX_STEP_TITLE = 100
_MAX_REASON = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskApprovalEffects:
    """Applies decisions to tasks in the deciding transaction. A task changes only if it waits for
    this approval; a paused task stays paused.

    `grant_budget` books an approved budget extension; `tool_decisions` records decisions on tool
    calls.
    """

    store: TaskStore
    language_of: Callable[[Task], Awaitable[Language]]
    name_of: Callable[[PersonId], Awaitable[str]]
    now: Callable[[], datetime]
    undoing: TaskUndoing
    grant_budget: DecisionHandler
    tool_decisions: DecisionRecorder

    @property
    def consequences(self) -> Mapping[ApprovalKind, DecisionHandler]:
        return {
            ApprovalKind.HUMAN: self.apply_step_decision,
            ApprovalKind.CONDITION: self.apply_step_decision,
            ApprovalKind.RISK: self.apply_step_decision,
            ApprovalKind.BUDGET: self.apply_budget_decision,
            ApprovalKind.TOOL: self.apply_tool_decision,
            ApprovalKind.QUESTION: self.apply_tool_decision,
        }

    async def apply_step_decision(self, tx: Transaction, approval: Approval) -> None:
        if approval.task_id is None:
            return
        task = await self.store.tasks.lock(tx, approval.task_id)
        told = await self._decision_text(task, approval)
        if not await self._is_awaiting(tx, task, approval):
            await self._record_unawaited(tx, task, approval, told)
            return
        match approval.state:
            case ApprovalState.APPROVED:
                await requeue(self.store, tx, task, now=self.now(), text=told)
            case ApprovalState.REJECTED if await self._continues_if_rejected(tx, task, approval):
                await extend_approval_payload(tx, approval, refusal=told)
                await requeue(self.store, tx, task, now=self.now(), text=told)
            case ApprovalState.REJECTED:
                await extend_approval_payload(tx, approval, spent=True)
                await self._suspend(tx, task, TaskStatus.BLOCKED, told)
            case ApprovalState.EXPIRED:
                await self._suspend(tx, task, TaskStatus.PAUSED, told)
            case ApprovalState.WAITING:
                raise ValueError(f"approval {approval.id} is not settled")
            case _:
                assert_never(approval.state)

    async def _continues_if_rejected(self, tx: Transaction, task: Task, approval: Approval) -> bool:
        """Whether a no is an answer, or the workflow continues elsewhere if this step fails."""
        if approval.kind is ApprovalKind.CONDITION:
            return True
        graph = await self.store.graphs.find_latest(task.id, tx=tx)
        return graph is not None and tolerates_step_failure(
            load_workflow(graph.body), approval.path
        )

    async def apply_tool_decision(self, tx: Transaction, approval: Approval) -> None:
        """Wake the step when all its requests are decided; pass rejections to the worker too."""
        by = approval.decided_by
        decider = "" if by is None else await self.name_of(by)
        await self.tool_decisions.apply(tx, approval, decider)
        if approval.task_id is None:
            return
        task = await self.store.tasks.lock(tx, approval.task_id)
        told = await self._decision_text(task, approval)
        if not await self._is_awaiting(tx, task, approval):
            if not task.status.is_final:
                await self._append_event(tx, task, EventKind.NOTE, told)
        elif approval.state is ApprovalState.EXPIRED:
            await self._suspend(tx, task, TaskStatus.PAUSED, told)
        elif asked := await self.tool_decisions.request_next(tx, approval, task):
            await self._append_event(tx, task, EventKind.NOTE, told)
            await self._append_event(tx, task, EventKind.WAITING, asked.id)
        else:
            await requeue(self.store, tx, task, now=self.now(), text=told)

    async def apply_budget_decision(self, tx: Transaction, approval: Approval) -> None:
        """A rejection stops the tasks that wait for the budget; they can be retried."""
        if approval.state is ApprovalState.APPROVED:
            await self.grant_budget(tx, approval)
        for task_id in sorted(approval.payload.get("tasks", ())):
            task = await self.store.tasks.lock(tx, TaskId(task_id))
            if not await self._is_awaiting(tx, task, approval):
                continue
            told = await self._decision_text(task, approval)
            if approval.state is ApprovalState.APPROVED:
                await requeue(self.store, tx, task, now=self.now(), text=told)
            elif approval.state is ApprovalState.REJECTED:
                await self._cancel(tx, task, told)
            elif task.wake_at is not None and task.wake_at <= self.now():
                # The cap no longer applies, so no decision is needed.
                await requeue(self.store, tx, task, now=self.now())
            else:
                await self._suspend(tx, task, TaskStatus.PAUSED, told)

    async def _record_unawaited(
        self, tx: Transaction, task: Task, approval: Approval, text: str
    ) -> None:
        """Record a decision not awaited now; a rejection takes effect when the step runs again."""
        if approval.state is ApprovalState.REJECTED:
            await extend_approval_payload(tx, approval, refusal=text)
        if not task.status.is_final:
            await self._append_event(tx, task, EventKind.NOTE, text)

    async def _is_awaiting(self, tx: Transaction, task: Task, approval: Approval) -> bool:
        """A task may wait at several steps at once."""
        if task.status is not TaskStatus.WAITING:
            return False
        return approval.id in await awaited_approval_ids(tx, task.id)

    async def _suspend(self, tx: Transaction, task: Task, status: TaskStatus, reason: str) -> None:
        await self.store.tasks.update(
            tx, task, status=status, status_reason=reason, resumed_first=0, wake_at=None
        )
        await self._append_event(tx, task, EventKind(status.value), reason)

    async def _cancel(self, tx: Transaction, task: Task, told: str) -> None:
        """At once, or once everything is undone that has to be."""
        effect, reason = await self.undoing.stop(tx, task, reason=told, for_good=True)
        if effect is StopEffect.UNDOES:
            await requeue(self.store, tx, task, now=self.now(), text=told)
            return
        await self.store.tasks.update(
            tx,
            task,
            status=TaskStatus.CANCELLED,
            status_reason=reason,
            phase=TaskPhase.ENDED,
            control=TaskControl.RUN,
            ended_at=self.now(),
        )
        await self._append_event(tx, task, EventKind.CANCELLED, reason)

    async def _decision_text(self, task: Task, approval: Approval) -> str:
        words = catalog_for(await self.language_of(task))
        # One cap may stop many tasks; each is addressed by its own name.
        own = approval.task_id == task.id
        step = formats.single_line(approval.title if own else task.title, _MAX_STEP_TITLE)
        if approval.decided_by is None:
            return words(f"approval.told.{approval.state}", step=step)
        name = formats.single_line(await self.name_of(approval.decided_by), _MAX_NAME)
        answers = "_condition" if approval.kind is ApprovalKind.CONDITION else ""
        told = words(f"approval.told.{approval.state}{answers}", name=name, step=step)
        why = formats.single_line(approval.reason, _MAX_REASON)
        return words("approval.told.why", told=told, why=why) if why else told

    async def _append_event(self, tx: Transaction, task: Task, kind: EventKind, text: str) -> None:
        await self.store.events.append_event(tx, task.id, kind, now=self.now(), text=text)


log = logging.getLogger(__name__)

# Events that result from a decision or make one unnecessary.
_RELEVANT_EVENTS = {
    EventKind.WAITING,
    EventKind.RESUMED,
    EventKind.PAUSED,
    EventKind.BLOCKED,
    EventKind.COMPLETED,
    EventKind.FAILED,
    EventKind.CANCELLED,
    EventKind.NOTE,
}
_DECISION_MARGIN = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalCardPublisher:
    """Publishes each approval request once and updates all copies of its card. `on_published` is
    called after a new request."""

    db: Database
    approvals: ApprovalRepo
    tasks: TaskRepo
    approval_cards: ApprovalCards
    language_of: Callable[[Task], Awaitable[Language]]
    now: Callable[[], datetime]
    on_published: Callable[[], None]

    async def handle_events(self, task: Task, events: Sequence[TaskEvent]) -> None:
        """Publish requests that the task waits for and update those settled by these events."""
        told = [event for event in events if event.kind in _RELEVANT_EVENTS]
        if not told:
            return
        if task.status.is_final:
            await self._withdraw(task)
        # Decisions happen in the same transaction as these events.
        since = min(event.at for event in told) - _DECISION_MARGIN
        for approval in await self.approvals.list_by_task(task.id):
            if approval.decided_at is not None and approval.decided_at >= since:
                await self.approval_cards.update_all(
                    approval, fallback=await self.language_of(task)
                )
        for event in told:
            if event.kind is EventKind.WAITING and event.text:
                await self._publish_awaited(task, event.text)

    async def update_cards(self, settled: Sequence[Approval]) -> None:
        for approval in settled:
            await self._update_copies(approval)

    async def publish(self, approval: Approval) -> None:
        """Publish a request of a live conversation."""
        fallback = await self._fallback_language(approval)
        await self.approval_cards.request_decision(approval, approval.chat_id, fallback=fallback)
        self.on_published()

    async def update_outdated(self) -> None:
        """Update cards of approvals that were settled before a crash."""
        await self.update_cards(await self.approvals.list_with_stale_buttons())

    async def _publish_awaited(self, task: Task, approval_id: str) -> None:
        try:
            approval = await self.approvals.get(approval_id)
        except NotFound:
            # The task waits for something other than a decision.
            return
        # An approval that expired before it was published gets a card as well, with a way to
        # continue.
        too_late = approval.state is ApprovalState.EXPIRED and not approval.reason
        if approval.state is ApprovalState.WAITING or too_late:
            spoken = await self.language_of(task)
            await self.approval_cards.request_decision(
                approval, task.chat_id, fallback=spoken, reply_to=task.reply_to
            )
            self.on_published()

    async def _withdraw(self, task: Task) -> None:
        """Withdraw the open requests of a finished task."""
        open_kinds = {
            each.kind
            for each in await self.approvals.list_by_task(task.id)
            if each.state is ApprovalState.WAITING
        }
        kinds = open_kinds & {*STEP_APPROVAL_KINDS, ApprovalKind.BUDGET}
        if not kinds:
            return
        async with self.db.write() as tx:
            held = await self.tasks.lock(tx, task.id)
            if held.status.is_final:
                await withdraw_task_approvals(
                    tx, task.id, reason_key="approval.task_over", now=self.now(), kinds=kinds
                )

    async def _update_copies(self, approval: Approval) -> None:
        try:
            await self.approval_cards.update_all(
                approval, fallback=await self._fallback_language(approval)
            )
        except StoreUnavailable:
            raise
        except Exception:
            # Error boundary: one request must not stop the others.
            log.exception("approval %s cannot be shown", approval.id)

    async def _fallback_language(self, approval: Approval) -> Language:
        if approval.task_id is None:
            return self.approval_cards.language or Language.ENGLISH
        return await self.language_of(await self.tasks.get(approval.task_id))


class ApprovalExpirer:
    """A source of the due timer: expires approvals. `on_change` is called when tasks have
    changed."""

    name = "approvals"

    def __init__(
        self,
        *,
        approvals: ApprovalRepo,
        card_publisher: ApprovalCardPublisher,
        on_change: Callable[[], None],
    ) -> None:
        self._approvals = approvals
        self._card_publisher = card_publisher
        self._on_change = on_change
        self._cards_outdated = True

    async def next_due(self) -> datetime | None:
        return await self._approvals.next_expiry()

    async def run_due(self) -> None:
        """Expire overdue approvals. At start and after an error, update outdated cards too."""
        behind, self._cards_outdated = self._cards_outdated, True
        expired = await self._approvals.expire_overdue()
        if expired:
            self._on_change()
        await self._card_publisher.update_cards(expired)
        if behind:
            await self._card_publisher.update_outdated()
        self._cards_outdated = False


@dataclass(frozen=True, slots=True)
class ApprovalService:
    """Implements `handlers.ports.ApprovalPort`. `on_decided` is called after the commit, since
    tasks may have been queued."""

    approvals: ApprovalRepo
    on_decided: Callable[[], None]

    async def list_waiting(self, *, by: Person, chat: ChatId | None) -> Sequence[Approval]:
        return await self.approvals.list_waiting(by=by, chat=chat)

    async def list_settled(self, *, by: Person, limit: int) -> Sequence[Approval]:
        return await self.approvals.list_settled(by=by, limit=limit)

    async def find(self, prefix: str) -> Approval:
        return await self.approvals.find(prefix)

    async def decide(
        self,
        approval: Approval,
        *,
        approve: bool,
        by: Person,
        source: str,
        reason: str = "",
        scope: str = "",
        values: Mapping[str, Any] | None = None,
    ) -> Approval:
        decided = await self.approvals.decide(
            approval,
            approve=approve,
            by=by,
            source=source,
            reason=reason,
            scope=scope,
            values=values,
        )
        self.on_decided()
        return decided
