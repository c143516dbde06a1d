"""Requests for leave to use a tool, and questions workers ask: one at a time, bound to one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from bot.engine.llm.calls import CallKind
from storage.agents.calls import CallRepo
from storage.approvals import NewApproval, add_approval, approval_by_id
from storage.db import Transaction
from storage.ids import Ids
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.tasks import Task
from storage.records.tools import CallRecord, CallState
from storage.work.asked import owner_ids

MOST_OPTIONS = 8

_TITLE = 200
_SAID = 200


class Asker:
    """`lifetime` is how long a request stays open."""

    def __init__(
        self, *, calls: CallRepo, lifetime: timedelta, ids: Ids, now: Callable[[], datetime]
    ) -> None:
        self._calls = calls
        self._lifetime = lifetime
        self._ids = ids
        self._now = now

    async def next(
        self, tx: Transaction, calls: Sequence[CallRecord], task: Task | None
    ) -> Approval | None:
        """The request that these wait for now; None if all has been decided, or, of talk, is
        about to be: what has run out there is settled, not asked again."""
        waiting = (call for call in calls if call.state is CallState.OPEN)
        first = next(waiting, None)
        if first is None or (task is None and await self._has_run_out(tx, first)):
            return None
        return await self.ask(tx, first, task)

    async def next_at(self, tx: Transaction, task: Task, path: str) -> Approval | None:
        """The same of a task's step."""
        return await self.next(tx, await self._calls.suspended_at(task.id, path, tx=tx), task)

    async def stopped_at(self, tx: Transaction, task: Task, path: str) -> bool:
        """Whether the step's session ends with a wish of it."""
        return bool(await self._calls.suspended_at(task.id, path, tx=tx))

    async def _has_run_out(self, tx: Transaction, call: CallRecord) -> bool:
        if not call.approval_id:
            return False
        asked = await approval_by_id(tx, call.approval_id, now=self._now())
        return asked is not None and asked.state is ApprovalState.EXPIRED and not asked.decided_at

    async def ask(self, tx: Transaction, call: CallRecord, task: Task | None) -> Approval:
        """The request about this call: the one that waits, or a new one."""
        if call.approval_id:
            asked = await approval_by_id(tx, call.approval_id, now=self._now())
            if asked is not None and asked.state is ApprovalState.WAITING:
                return asked
        if call.chat_id is None:
            raise ValueError(f"call {call.id} has nobody to be asked")
        now = self._now()
        question = call.kind == CallKind.ASK
        approvers = (call.person_id, *await owner_ids(tx)) if question else ()
        new = NewApproval(
            kind=ApprovalKind.QUESTION if question else ApprovalKind.TOOL,
            chat_id=call.chat_id,
            title=(_question(call) if question else call.title)[:_TITLE],
            detail=_question(call) if question else call.detail or call.title,
            expires_at=now + self._lifetime,
            task_id=call.task_id,
            path=call.path,
            subject=str(call.id),
            command_hash=call.command_hash,
            approvers=tuple(dict.fromkeys(each for each in approvers if each is not None)),
            payload=_payload(call, task),
        )
        approval = await add_approval(tx, new, ids=self._ids, now=now)
        await self._calls.ask(tx, call.id, approval.id)
        return approval


def _payload(call: CallRecord, task: Task | None) -> Mapping[str, Any]:
    facts: dict[str, Any] = {
        "tool": call.tool,
        "does": call.kind,
        "why": call.why,
        "pattern": call.pattern,
        "options": _options(call),
    }
    if task is not None:
        facts |= {"task": task.title, "said": task.instruction[:_SAID]}
    return facts


def _question(call: CallRecord) -> str:
    return str(call.arguments.get("question") or call.detail or call.title)


def _options(call: CallRecord) -> list[str]:
    given = call.arguments.get("options") if call.kind == CallKind.ASK else None
    if not isinstance(given, list):
        return []
    return [str(each) for each in given if str(each).strip()][:MOST_OPTIONS]
