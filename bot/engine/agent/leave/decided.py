"""What a decision means for the calls it is about, in the transaction that takes it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from bot.engine.agent.leave.asking import Asker
from storage.agents.calls import CallRepo
from storage.agents.grants import GrantRepo
from storage.db import Transaction
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.tasks import Task
from storage.records.tools import CallRecord, CallState, GrantScope
from storage.work.asked import withdraw

_YES = "yes"


class Decided:
    def __init__(
        self,
        *,
        calls: CallRepo,
        grants: GrantRepo,
        asker: Asker,
        now: Callable[[], datetime],
    ) -> None:
        self._calls = calls
        self._grants = grants
        self._asker = asker
        self._now = now

    async def settle(self, tx: Transaction, approval: Approval, name: str) -> None:
        """Note it on the call, and what it allows beyond that; `name` is who decided. What
        nobody decided in time is asked again when its task gets there; talk does not wait."""
        state, answer = _meaning(approval, name)
        if approval.state is ApprovalState.EXPIRED and approval.task_id is not None:
            return
        for call in await self._calls.of_approval(tx, approval.id):
            await self._calls.decide(tx, call, state, answer)
            if state is CallState.ALLOWED:
                await self._allow_more(tx, approval, call)

    async def next(self, tx: Transaction, approval: Approval, task: Task) -> Approval | None:
        """What the same worker waits for after this; None if all has been decided."""
        return await self._asker.next_at(tx, task, approval.path)

    async def _allow_more(self, tx: Transaction, approval: Approval, call: CallRecord) -> None:
        word, by = str(approval.payload.get("reach", "")), approval.decided_by
        if word not in set(GrantScope) or not call.pattern or by is None:
            return
        scope = GrantScope(word)
        subjects = {GrantScope.TASK: call.task_id, GrantScope.CHAT: call.chat_id}
        subject = subjects.get(scope, "")
        if subject is None:
            return
        await self._grants.add(
            tx,
            scope=scope,
            subject=subject,
            tool=call.tool,
            pattern=call.pattern,
            approval_id=approval.id,
            by=by,
            now=self._now(),
        )
        for other in await self._calls.suspended(call.session_id, tx=tx):
            covered = (other.tool, other.pattern) == (call.tool, call.pattern)
            if other.state is CallState.OPEN and covered:
                await self._calls.decide(tx, other, CallState.ALLOWED)
                if other.approval_id and other.approval_id != approval.id:
                    await withdraw(tx, other.approval_id, why="approval.gone_on", now=self._now())


def _meaning(approval: Approval, name: str) -> tuple[CallState, str]:
    question = approval.kind is ApprovalKind.QUESTION
    why = f" Reason: {approval.reason}" if approval.reason else ""
    match approval.state:
        case ApprovalState.APPROVED if question:
            return CallState.ANSWERED, approval.reason or _YES
        case ApprovalState.APPROVED:
            return CallState.ALLOWED, ""
        case ApprovalState.REJECTED if question:
            return CallState.DENIED, f"{name} does not answer this.{why}"
        case ApprovalState.REJECTED:
            return CallState.DENIED, f"{name} said no.{why}"
        case ApprovalState.EXPIRED:
            return CallState.DENIED, "Nobody has decided in time."
        case ApprovalState.WAITING:
            raise ValueError(f"approval {approval.id} is not settled")
