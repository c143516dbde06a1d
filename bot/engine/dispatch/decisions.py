"""What follows for tasks from decisions, in the transaction that takes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from typing import assert_never

from bot.engine.agent.leave.decided import Decided
from bot.engine.dispatch.requeue import requeue
from bot.engine.workflow.graph import load_workflow
from bot.engine.workflow.running.forgiving import goes_on_without
from bot.engine.workflow.store import WorkStore
from cards import formats
from cards.words import words_for
from storage.approvals import Consequence
from storage.db import Transaction
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.people import Language, PersonId
from storage.records.tasks import Control, EventKind, Phase, Task, TaskId, TaskStatus
from storage.work.asked import awaited_by, remark

_NAME = 60
_STEP = 100
_WHY = 300


class Decisions:
    """Moves a task only if it waits for this very decision; one that is paused stays paused.

    `grant` books what an approved budget allows, `decided` what a decision means for a call of a
    tool, where workers ask for leave; `name_of` is what a person is called."""

    def __init__(
        self,
        *,
        store: WorkStore,
        language_of: Callable[[Task], Awaitable[Language]],
        name_of: Callable[[PersonId], Awaitable[str]],
        now: Callable[[], datetime],
        grant: Consequence,
        decided: Decided | None = None,
    ) -> None:
        self._store = store
        self._language_of = language_of
        self._name_of = name_of
        self._now = now
        self._grant = grant
        self._decided = decided

    @property
    def consequences(self) -> Mapping[ApprovalKind, Consequence]:
        return {
            ApprovalKind.HUMAN: self.of_step,
            ApprovalKind.RISK: self.of_step,
            ApprovalKind.BUDGET: self.of_budget,
            **({} if self._decided is None else self._of_calls(self._decided)),
        }

    async def of_step(self, tx: Transaction, approval: Approval) -> None:
        if approval.task_id is None:
            return
        task = await self._store.tasks.lock(tx, approval.task_id)
        told = await self._told(task, approval)
        if not await self._waits(tx, task, approval):
            await self._note(tx, task, approval, told)
            return
        match approval.state:
            case ApprovalState.APPROVED:
                await requeue(self._store, tx, task, now=self._now(), told=told)
            case ApprovalState.REJECTED if await self._goes_on_without(tx, task, approval.path):
                await remark(tx, approval, refusal=told)
                await requeue(self._store, tx, task, now=self._now(), told=told)
            case ApprovalState.REJECTED:
                await remark(tx, approval, spent=True)
                await self._park(tx, task, TaskStatus.BLOCKED, told)
            case ApprovalState.EXPIRED:
                await self._park(tx, task, TaskStatus.PAUSED, told)
            case ApprovalState.WAITING:
                raise ValueError(f"approval {approval.id} is not settled")
            case _:
                assert_never(approval.state)

    async def _goes_on_without(self, tx: Transaction, task: Task, path: str) -> bool:
        """Whether its workflow has a way on where that step fails."""
        graph = await self._store.graphs.latest(task.id, tx=tx)
        return graph is not None and goes_on_without(load_workflow(graph.body), path)

    def _of_calls(self, decided: Decided) -> Mapping[ApprovalKind, Consequence]:
        consequence = partial(self.of_call, decided)
        return {ApprovalKind.TOOL: consequence, ApprovalKind.QUESTION: consequence}

    async def of_call(self, decided: Decided, tx: Transaction, approval: Approval) -> None:
        """A no reaches the worker as well: its step goes on either way, once nothing of what it
        asked is open."""
        by = approval.decided_by
        await decided.settle(tx, approval, "" if by is None else await self._name_of(by))
        if approval.task_id is None:
            return
        task = await self._store.tasks.lock(tx, approval.task_id)
        told = await self._told(task, approval)
        if not await self._waits(tx, task, approval):
            if not task.status.is_final:
                await self._tell(tx, task, EventKind.NOTE, told)
        elif approval.state is ApprovalState.EXPIRED:
            await self._park(tx, task, TaskStatus.PAUSED, told)
        elif asked := await decided.next(tx, approval, task):
            await self._tell(tx, task, EventKind.NOTE, told)
            await self._tell(tx, task, EventKind.WAITING, asked.id)
        else:
            await requeue(self._store, tx, task, now=self._now(), told=told)

    async def of_budget(self, tx: Transaction, approval: Approval) -> None:
        """No means stop: the tasks that wait for the money end, and can be retried."""
        if approval.state is ApprovalState.APPROVED:
            await self._grant(tx, approval)
        for task_id in sorted(approval.payload.get("tasks", ())):
            task = await self._store.tasks.lock(tx, TaskId(task_id))
            if not await self._waits(tx, task, approval):
                continue
            told = await self._told(task, approval)
            if approval.state is ApprovalState.APPROVED:
                await requeue(self._store, tx, task, now=self._now(), told=told)
            elif approval.state is ApprovalState.REJECTED:
                await self._cancel(tx, task, told)
            elif task.wake_at is not None and task.wake_at <= self._now():
                # The cap has opened by itself: nobody has to decide any more.
                await requeue(self._store, tx, task, now=self._now())
            else:
                await self._park(tx, task, TaskStatus.PAUSED, told)

    async def _note(self, tx: Transaction, task: Task, approval: Approval, told: str) -> None:
        """It does not wait for this now, but a refusal meets it when it comes back to the step."""
        if approval.state is ApprovalState.REJECTED:
            await remark(tx, approval, refusal=told)
        if not task.status.is_final:
            await self._tell(tx, task, EventKind.NOTE, told)

    async def _waits(self, tx: Transaction, task: Task, approval: Approval) -> bool:
        """A task can wait at several of its steps at once."""
        if task.status is not TaskStatus.WAITING:
            return False
        return approval.id in await awaited_by(tx, task.id)

    async def _park(self, tx: Transaction, task: Task, status: TaskStatus, told: str) -> None:
        await self._store.tasks.move(
            tx, task, status=status, status_reason=told, resumed_first=0, wake_at=None
        )
        await self._tell(tx, task, EventKind(status.value), told)

    async def _cancel(self, tx: Transaction, task: Task, told: str) -> None:
        await self._store.tasks.move(
            tx,
            task,
            status=TaskStatus.CANCELLED,
            status_reason=told,
            phase=Phase.ENDED,
            control=Control.RUN,
            ended_at=self._now(),
        )
        await self._tell(tx, task, EventKind.CANCELLED, told)

    async def _told(self, task: Task, approval: Approval) -> str:
        words = words_for(await self._language_of(task))
        # A cap stops many tasks at once: to each it is told by its own name.
        own = approval.task_id == task.id
        step = formats.line(approval.title if own else task.title, _STEP)
        if approval.decided_by is None:
            return words(f"approval.told.{approval.state}", step=step)
        name = formats.line(await self._name_of(approval.decided_by), _NAME)
        told = words(f"approval.told.{approval.state}", name=name, step=step)
        why = formats.line(approval.reason, _WHY)
        return words("approval.told.why", told=told, why=why) if why else told

    async def _tell(self, tx: Transaction, task: Task, kind: EventKind, text: str) -> None:
        await self._store.journal.append(tx, task.id, kind, now=self._now(), text=text)
