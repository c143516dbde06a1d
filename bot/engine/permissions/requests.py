"""Creates approval requests for tool calls, applies decisions and delivers them to suspended
sessions.

It also covers calls of interrupted chat turns, which the model doesn't remember: read-only calls
may run again, calls with side effects are answered with their outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from bot.engine.llm.tool_calls import (
    ERROR_PREFIX,
    READ_ONLY_KINDS,
    CallDecision,
    CallKind,
    CallVerdict,
    ToolCall,
    call_fingerprint,
)
from bot.engine.permissions.rules import SESSIONS_SPAWN
from bot.engine.workers.spec import WorkerSpec
from cards.catalog import catalog_for
from cards.permission_reasons import describe_reason
from storage.approvals import NewApproval, add_approval, find_approval, withdraw_approval
from storage.db import Transaction
from storage.ids import IdGenerator
from storage.people import current_person_id, find_name, owner_ids
from storage.records.approvals import (
    Approval,
    ApprovalKind,
    ApprovalState,
    StandingPermissionScope,
    ToolCallRecord,
    ToolCallState,
    unbind_from_files,
)
from storage.records.people import Language, PersonId
from storage.records.tasks import Task
from storage.tools import PermissionGrantRepo, ToolCallRepo, model_call_id


class DecisionSignal:
    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wake all waiters; call it after the commit, because they read the store."""
        self._event.set()
        self._event = asyncio.Event()

    def next_event(self) -> asyncio.Event:
        """Return the event of the next notification.

        Take it before reading the store, so that no notification is missed."""
        return self._event


MAX_OPTIONS = 8

_MAX_TITLE_CHARS = 200
_MAX_INSTRUCTION_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequester:
    """Creates approval requests that stay open for `lifetime`."""

    calls: ToolCallRepo
    lifetime: timedelta
    ids: IdGenerator
    now: Callable[[], datetime]

    async def request_next(
        self, tx: Transaction, calls: Sequence[ToolCallRecord], task: Task | None
    ) -> Approval | None:
        """Return the request for the first open call; None if all are decided.

        In a chat also None if that request has expired: it is settled, not repeated."""
        waiting = (call for call in calls if call.state is ToolCallState.OPEN)
        first = next(waiting, None)
        if first is None or (task is None and await self._has_expired(tx, first)):
            return None
        return await self.request(tx, first, task)

    async def request_next_at(self, tx: Transaction, task: Task, path: str) -> Approval | None:
        """Like `request_next`, for a task's step."""
        return await self.request_next(
            tx, await self.calls.list_suspended_of_step(task.id, path, tx=tx), task
        )

    async def suspend_at(self, tx: Transaction, session_id: str, call_id: str) -> None:
        """Let a step that calls a tool itself wait at this call."""
        await self.calls.suspend(tx, session_id, (call_id,))

    async def end_at(self, tx: Transaction, task: Task, path: str) -> None:
        """The step has ended: nothing waits at its calls any more."""
        for call in await self.calls.list_suspended_of_step(task.id, path, tx=tx):
            await self.calls.mark_delivered(tx, call, now=self.now())

    async def is_suspended_at(self, tx: Transaction, task: Task, path: str) -> bool:
        """Return whether the step's session is suspended at a call."""
        return bool(await self.calls.list_suspended_of_step(task.id, path, tx=tx))

    async def _has_expired(self, tx: Transaction, call: ToolCallRecord) -> bool:
        if not call.approval_id:
            return False
        asked = await find_approval(tx, call.approval_id, now=self.now())
        return asked is not None and asked.state is ApprovalState.EXPIRED and not asked.decided_at

    async def request(self, tx: Transaction, call: ToolCallRecord, task: Task | None) -> Approval:
        """Return the waiting request for this call, or a new one."""
        if call.approval_id:
            asked = await find_approval(tx, call.approval_id, now=self.now())
            if asked is not None and asked.state is ApprovalState.WAITING:
                return asked
        if call.chat_id is None:
            raise ValueError(f"call {call.id} has nobody to be asked")
        now = self.now()
        question = call.kind == CallKind.ASK
        owners = await owner_ids(tx)
        approvers = (call.person_id, *owners) if question else ()
        new = NewApproval(
            kind=ApprovalKind.QUESTION if question else ApprovalKind.TOOL,
            chat_id=call.chat_id,
            title=(_question_text(call) if question else call.title)[:_MAX_TITLE_CHARS],
            detail=_question_text(call) if question else call.detail or call.title,
            expires_at=now + self.lifetime,
            task_id=call.task_id,
            path=call.path,
            subject=str(call.id),
            command_hash=call.command_hash,
            approvers=tuple(dict.fromkeys(each for each in approvers if each is not None)),
            payload=_approval_payload(call, task, by=await _member_name(tx, call, owners)),
        )
        approval = await add_approval(tx, new, ids=self.ids, now=now)
        await self.calls.bind_approval(tx, call.id, approval.id)
        return approval


async def _member_name(tx: Transaction, call: ToolCallRecord, owners: Sequence[PersonId]) -> str:
    """Who gave the work, if it is no owner: whoever decides has to know."""
    if call.person_id is None:
        return ""
    person = await current_person_id(tx, call.person_id)
    return "" if person in owners else await find_name(tx, person)


def _approval_payload(call: ToolCallRecord, task: Task | None, *, by: str) -> Mapping[str, Any]:
    facts: dict[str, Any] = {
        "tool": call.tool,
        "does": call.kind,
        "why": call.why,
        "pattern": call.pattern,
        "options": _answer_options(call),
    }
    if by:
        facts["by"] = by
    if task is not None:
        facts |= {"task": task.title, "said": task.instruction[:_MAX_INSTRUCTION_CHARS]}
    return facts


def _question_text(call: ToolCallRecord) -> str:
    return str(call.arguments.get("question") or call.detail or call.title)


def _answer_options(call: ToolCallRecord) -> list[str]:
    given = call.arguments.get("options") if call.kind == CallKind.ASK else None
    if not isinstance(given, list):
        return []
    return [str(each) for each in given if str(each).strip()][:MAX_OPTIONS]


_DEFAULT_ANSWER = "yes"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRecorder:
    calls: ToolCallRepo
    grants: PermissionGrantRepo
    requester: ApprovalRequester
    now: Callable[[], datetime]

    async def apply(self, tx: Transaction, approval: Approval, decider: str) -> None:
        """Record the decision on its calls, and the permission it grants.

        Expired requests of tasks are repeated when the task gets there again; those of chats count
        as denied."""
        state, answer = _call_state(approval, decider)
        if approval.state is ApprovalState.EXPIRED and approval.task_id is not None:
            return
        for call in await self.calls.list_by_approval(tx, approval.id):
            await self.calls.decide(tx, call, state, answer)
            if state is ToolCallState.ALLOWED:
                await self._add_grant(tx, approval, call)

    async def request_next(
        self, tx: Transaction, approval: Approval, task: Task
    ) -> Approval | None:
        """Return the worker's next request; None if all calls are decided."""
        return await self.requester.request_next_at(tx, task, approval.path)

    async def _add_grant(self, tx: Transaction, approval: Approval, call: ToolCallRecord) -> None:
        word, by = str(approval.payload.get("reach", "")), approval.decided_by
        if word not in set(StandingPermissionScope) or not call.pattern or by is None:
            return
        scope = StandingPermissionScope(word)
        subjects = {
            StandingPermissionScope.TASK: call.task_id,
            StandingPermissionScope.CHAT: call.chat_id,
        }
        subject = subjects.get(scope, "")
        if subject is None:
            return
        is_for_task = scope is StandingPermissionScope.TASK
        pattern = unbind_from_files(call.pattern) if is_for_task else call.pattern
        await self.grants.add(
            tx,
            scope=scope,
            subject=subject,
            tool=call.tool,
            pattern=pattern,
            approval_id=approval.id,
            by=by,
            now=self.now(),
        )
        for other in await self.calls.list_suspended(call.session_id, tx=tx):
            theirs = unbind_from_files(other.pattern) if is_for_task else other.pattern
            covered = (other.tool, theirs) == (call.tool, pattern)
            if other.state is ToolCallState.OPEN and covered:
                await self.calls.decide(tx, other, ToolCallState.ALLOWED)
                if other.approval_id and other.approval_id != approval.id:
                    await withdraw_approval(
                        tx, other.approval_id, reason_key="approval.gone_on", now=self.now()
                    )


def _call_state(approval: Approval, name: str) -> tuple[ToolCallState, str]:
    question = approval.kind is ApprovalKind.QUESTION
    why = f" Reason: {approval.reason}" if approval.reason else ""
    match approval.state:
        case ApprovalState.APPROVED if question:
            return ToolCallState.ANSWERED, approval.reason or _DEFAULT_ANSWER
        case ApprovalState.APPROVED:
            return ToolCallState.ALLOWED, ""
        case ApprovalState.REJECTED if question:
            return ToolCallState.DENIED, f"{name} does not answer this.{why}"
        case ApprovalState.REJECTED:
            return ToolCallState.DENIED, f"{name} said no.{why}"
        case ApprovalState.EXPIRED:
            return ToolCallState.DENIED, "No decision in time."
        case ApprovalState.WAITING:
            raise ValueError(f"approval {approval.id} is not settled")


INTERRUPTED_RESULT = (
    f"{ERROR_PREFIX}it was cut off while it ran, and nobody knows how far it came."
    " Look at what it has done before you do it again."
)
NO_ANSWER = "There is no answer yet: the person has said something else instead."
_ENGLISH = catalog_for(Language.ENGLISH)


@dataclass(frozen=True, slots=True)
class SuspendedCalls:
    calls: ToolCallRepo
    now: Callable[[], datetime]

    async def get_answers(self, session_id: str) -> Mapping[str, CallDecision]:
        """Return the decisions for the session's next run by call ID; completed calls are not
        repeated."""
        return {
            model_call_id(call): answer_for_call(call)
            for call in await self.calls.list_suspended(session_id)
        }

    async def have_side_effects(
        self, session_id: str, *, path: str | None, since: datetime | None
    ) -> bool:
        """Return True if a call of the session may have changed something."""
        started = await self.calls.list_started(session_id, path=path, since=since)
        return any(has_side_effects(each.tool, each.kind) for each in started)

    async def get_lost_outcomes(self, tx: Transaction, session_id: str) -> Mapping[str, str]:
        """Return what the calls of the session's cut-off turn have brought, by call ID."""
        return {
            model_call_id(call): answer_for_call(call).text
            for call in await self.calls.list_lost(tx, session_id)
        }

    async def advance(
        self, tx: Transaction, session_id: str, suspended: Sequence[ToolCall] = ()
    ) -> None:
        """Mark earlier calls as delivered and suspend the session at the given ones."""
        await self.withdraw(tx, session_id)
        await self.calls.suspend(tx, session_id, [call.call_id for call in suspended])

    async def withdraw(self, tx: Transaction, session_id: str) -> None:
        """Withdraw the session's open requests and mark its calls as delivered."""
        for call in await self.calls.list_suspended(session_id, tx=tx):
            if call.state is ToolCallState.OPEN and call.approval_id:
                await withdraw_approval(
                    tx, call.approval_id, reason_key="approval.gone_on", now=self.now()
                )
            await self.calls.mark_delivered(tx, call, now=self.now())


def answer_for_call(call: ToolCallRecord) -> CallDecision:
    """Return the decision for a suspended call."""
    match call.state:
        case ToolCallState.OPEN:
            return CallDecision(verdict=CallVerdict.DENY, text=NO_ANSWER)
        case ToolCallState.ALLOWED:
            return CallDecision(verdict=CallVerdict.ALLOW)
        case ToolCallState.DENIED:
            return CallDecision(
                verdict=CallVerdict.DENY, text=call.answer or describe_reason(call.why, _ENGLISH)
            )
        case ToolCallState.ANSWERED:
            return CallDecision(verdict=CallVerdict.ANSWER, text=call.answer)
        case ToolCallState.DONE | ToolCallState.FAILED:
            failed = call.state is ToolCallState.FAILED
            return CallDecision(verdict=CallVerdict.ANSWER, text=call.outcome, has_failed=failed)
        case ToolCallState.RUNNING | ToolCallState.CUT:
            return CallDecision(
                verdict=CallVerdict.ANSWER, text=INTERRUPTED_RESULT, has_failed=True
            )


_ALREADY_MADE = (
    "[This was made already, by an earlier answer of yours that was cut off, and is not made"
    " again. What came of it follows. If it has to be done once more, call it once more.]"
)
_MAX_LISTED_CALLS = 10
_MAX_LISTED_TITLE_CHARS = 120
_LOST_CALLS_NOTE = """\
[An earlier answer of yours in this conversation was cut off; you do not remember it. It had made
these calls:
{calls}
Do not repeat what they did. The same call with the same arguments is not made again, but answered
with what came of it.]"""


_IDEMPOTENT_TOOLS = {SESSIONS_SPAWN}
"""A repeated call for the same message finds the existing sub-agent."""


def has_side_effects(tool: str, kind: str) -> bool:
    return tool not in _IDEMPOTENT_TOOLS and kind not in READ_ONLY_KINDS


class InterruptedTurnCalls:
    """Calls that the session made in a turn that was then cut off, since its transcript last grew.

    A session that resumes makes them again under their IDs. One that has forgotten them may make
    the same call under another; of these, only calls of a chat with side effects match."""

    def __init__(self, spec: WorkerSpec) -> None:
        self._spec = spec
        self._current_ids: set[int] = set()
        self._replayed_ids: set[int] = set()

    def exclude(self, record: ToolCallRecord) -> None:
        """Mark the call as part of the current turn."""
        self._current_ids.add(record.id)

    def find_match(self, lost: Sequence[ToolCallRecord], call: ToolCall) -> ToolCallRecord | None:
        """Return an identical call among these of the cut-off turn, each one only once; None for
        one that only reads and has no result: it may run again."""
        wanted = call_fingerprint(call.name, call.arguments)
        for each in lost:
            if each.command_hash != wanted or each.id in self._current_ids | self._replayed_ids:
                continue
            if self._matches(each, call):
                self._replayed_ids.add(each.id)
                return each
        return None

    def _matches(self, made: ToolCallRecord, call: ToolCall) -> bool:
        changes = has_side_effects(call.name, call.kind)
        if model_call_id(made) == call.call_id:
            return changes or made.state in {ToolCallState.DONE, ToolCallState.FAILED}
        return changes and self._spec.is_chat and not self._spec.depth


def replay_result(earlier: ToolCallRecord) -> str:
    """Return the earlier outcome for the model, as far as known."""
    match earlier.state:
        case ToolCallState.DONE:
            return f"{_ALREADY_MADE}\n\n{earlier.outcome}"
        case ToolCallState.FAILED:
            return f"{ERROR_PREFIX}{_ALREADY_MADE}\n\n{earlier.outcome}"
        case _:
            return INTERRUPTED_RESULT


def describe_lost_calls(lost: Sequence[ToolCallRecord]) -> str:
    """Return a note for the next answer; empty if no call had side effects."""
    made = [each for each in lost if has_side_effects(each.tool, each.kind)]
    lines = [
        f"- {' '.join(each.title.split())[:_MAX_LISTED_TITLE_CHARS]} ({_outcome_word(each)})"
        for each in made[-_MAX_LISTED_CALLS:]
    ]
    return _LOST_CALLS_NOTE.format(calls="\n".join(lines)) if lines else ""


def _outcome_word(made: ToolCallRecord) -> str:
    match made.state:
        case ToolCallState.DONE:
            return "done"
        case ToolCallState.FAILED:
            return "failed"
        case _:
            return "cut off while it ran: look how far it came"
