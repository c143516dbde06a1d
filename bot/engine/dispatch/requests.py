"""Decisions that tasks wait for, on the cards that ask for them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

from bot.engine.workflow.asking import STEP_KINDS
from handlers.work.copies import Copies
from storage.approvals import Approvals
from storage.db import Database
from storage.errors import NotFound, StoreUnavailable
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.people import Language
from storage.records.tasks import EventKind, Task, TaskEvent
from storage.work.asked import withdraw_of_task
from storage.work.tasks import TaskRepo

log = logging.getLogger(__name__)

# What may have come of a decision, or made one superfluous.
_TELLING = {
    EventKind.WAITING,
    EventKind.RESUMED,
    EventKind.PAUSED,
    EventKind.BLOCKED,
    EventKind.COMPLETED,
    EventKind.FAILED,
    EventKind.CANCELLED,
    EventKind.NOTE,
}
_MOMENT = timedelta(minutes=1)


class Requests:
    """Asks once, however often it is told to, and shows what was decided on every copy.
    `on_asked` is called when something new waits."""

    def __init__(
        self,
        *,
        db: Database,
        approvals: Approvals,
        tasks: TaskRepo,
        copies: Copies,
        language_of: Callable[[Task], Awaitable[Language]],
        now: Callable[[], datetime],
        on_asked: Callable[[], None],
    ) -> None:
        self._db = db
        self._approvals = approvals
        self._tasks = tasks
        self._copies = copies
        self._language_of = language_of
        self._now = now
        self._on_asked = on_asked

    async def tell(self, task: Task, events: Sequence[TaskEvent]) -> None:
        """Ask for what the task waits for, and show what these events made of older requests."""
        told = [event for event in events if event.kind in _TELLING]
        if not told:
            return
        if task.status.is_final:
            await self._withdraw(task)
        # What was decided did what these events tell of, in one transaction with them.
        since = min(event.at for event in told) - _MOMENT
        for approval in await self._approvals.of_task(task.id):
            if approval.decided_at is not None and approval.decided_at >= since:
                await self._copies.show(approval, fallback=await self._language_of(task))
        for event in told:
            if event.kind is EventKind.WAITING and event.text:
                await self._ask(task, event.text)

    async def show_all(self, settled: Sequence[Approval]) -> None:
        """Bring every copy of these up to date."""
        for approval in settled:
            await self._show(approval)

    async def put(self, approval: Approval) -> None:
        """Show one for which somebody waits live."""
        fallback = await self._language(approval)
        await self._copies.ask(approval, approval.chat_id, fallback=fallback)
        self._on_asked()

    async def catch_up(self) -> None:
        """Show what was settled without anybody being told: a crash came between."""
        await self.show_all(await self._approvals.outdated())

    async def _ask(self, task: Task, approval_id: str) -> None:
        try:
            approval = await self._approvals.get(approval_id)
        except NotFound:
            # It waits for something else than a person.
            return
        # What became too late before anybody was asked is owed its card too, with a way to go on.
        too_late = approval.state is ApprovalState.EXPIRED and not approval.reason
        if approval.state is ApprovalState.WAITING or too_late:
            spoken = await self._language_of(task)
            await self._copies.ask(approval, task.chat_id, fallback=spoken, reply_to=task.reply_to)
            self._on_asked()

    async def _withdraw(self, task: Task) -> None:
        """Nobody has to decide about a task that is over."""
        open_kinds = {
            each.kind
            for each in await self._approvals.of_task(task.id)
            if each.state is ApprovalState.WAITING
        }
        kinds = open_kinds & {*STEP_KINDS, ApprovalKind.BUDGET}
        if not kinds:
            return
        async with self._db.write() as tx:
            held = await self._tasks.lock(tx, task.id)
            if held.status.is_final:
                await withdraw_of_task(
                    tx, task.id, why="approval.task_over", now=self._now(), kinds=kinds
                )

    async def _show(self, approval: Approval) -> None:
        try:
            await self._copies.show(approval, fallback=await self._language(approval))
        except StoreUnavailable:
            raise
        except Exception:
            # The boundary between one request's cards and all others'.
            log.exception("approval %s cannot be shown", approval.id)

    async def _language(self, approval: Approval) -> Language:
        if approval.task_id is None:
            return self._copies.language or Language.ENGLISH
        return await self._language_of(await self._tasks.get(approval.task_id))
