"""Authorizes tool calls by policy, stored permissions and people's approvals."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from bot.engine.llm.answer_schemas import PROPOSE_TASK
from bot.engine.llm.backend import McpServer
from bot.engine.llm.tool_calls import (
    ERROR_PREFIX,
    READ_ONLY_KINDS,
    CallAuthorizer,
    CallDecision,
    CallKind,
    CallVerdict,
    ToolCall,
    call_fingerprint,
)
from bot.engine.permissions.call_effects import CallSnapshot, take_snapshot
from bot.engine.permissions.policy import PermissionPolicy, PolicyDecision, PolicyVerdict
from bot.engine.permissions.requests import (
    ApprovalRequester,
    DecisionSignal,
    InterruptedTurnCalls,
    answer_for_call,
    replay_result,
)
from bot.engine.sandbox.process_halt import halted_processes
from bot.engine.sandbox.spec import Sandbox, SandboxKind
from bot.engine.workers.mcp_config import acts_as_app
from bot.engine.workers.personas import Persona
from bot.engine.workers.spec import WorkerSpec
from cards.permission_reasons import build_reason
from storage.approvals import find_approval, withdraw_approval
from storage.db import Database, Transaction, retry_until_stored
from storage.people import current_person_id, owner_ids
from storage.records.approvals import (
    Approval,
    NewToolCall,
    StandingPermission,
    ToolCallRecord,
    ToolCallState,
)
from storage.records.tasks import TaskId
from storage.tasks import TaskRepo
from storage.tools import PermissionGrantRepo, ToolCallRepo, model_call_id

log = logging.getLogger(__name__)

_UNCHECKED_TOOLS = {PROPOSE_TASK}
"""These only ask the person."""
_MAX_STORED_CHARS = 40_000
_MAX_TITLE_CHARS = 300

_MAX_SHOWN_SCRIPTS = 900
"""Characters of a command with its scripts: longer scripts would push its end off the card."""
_EFFECT_CHANGED = (
    f"{ERROR_PREFIX}not made: since a person was asked, something that this call names has changed"
    " (a file, a folder, or where a link leads). If it is still right, make the call again: the"
    " person is asked again, about what is there now."
)
_NOT_HALTED = (
    f"{ERROR_PREFIX}not made: another program that works in this folder could not be halted, so"
    " what was approved may change meanwhile. Make the call again later."
)
_LOCAL_KINDS = {CallKind.EXECUTE, CallKind.EDIT, CallKind.DELETE, CallKind.MOVE}
_PENDING = CallDecision(verdict=CallVerdict.PENDING)


@dataclass(slots=True, kw_only=True, eq=False)
class PermissionService:
    """Satisfies `agent.worker_context.AuthorizerFactory`. `policy` is replaced when the settings
    change. `servers` are the MCP servers that all workers share.

    `trusts_sandbox` allows commands that our own sandbox confines without asking. `mask` removes
    secrets from stored and shown texts. `show_request` sends the approval card, and
    `signal` notifies of decisions."""

    db: Database
    calls: ToolCallRepo
    grants: PermissionGrantRepo
    tasks: TaskRepo
    requester: ApprovalRequester
    policy: PermissionPolicy
    mask: Callable[[str], str]
    sandbox: Callable[[], Awaitable[Sandbox]]
    servers: Callable[[], Awaitable[Sequence[McpServer]]]
    trusts_sandbox: bool
    signal: DecisionSignal
    show_request: Callable[[Approval], Awaitable[None]]
    now: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]]

    def create_authorizer(self, spec: WorkerSpec, persona: Persona) -> CallAuthorizer:
        return _WorkerAuthorizer(self, spec, persona)


class _WorkerAuthorizer:
    """Authorizes one worker's calls; satisfies `llm.tool_calls.CallAuthorizer`."""

    def __init__(self, service: PermissionService, spec: WorkerSpec, persona: Persona) -> None:
        self._service = service
        self._spec = spec
        self._persona = persona
        self._call_rows: dict[str, int] = {}
        self._awaited_rows: set[int] = set()
        self._refusals: dict[str, CallDecision] = {}
        self._interrupted_calls = InterruptedTurnCalls(spec)

    async def __call__(self, call: ToolCall, *, wait_seconds: float = 0.0) -> CallDecision:
        if call.name in _UNCHECKED_TOOLS:
            return CallDecision(verdict=CallVerdict.ALLOW)
        if (refusal := self._refusals.get(_exact_hash(call))) is not None:
            return refusal
        seen = await self._take_snapshot(call)
        # No call runs without a record.
        record, permission = await retry_until_stored(
            lambda: self._register(call, seen), self._service.sleep, "a tool"
        )
        self._call_rows[call.call_id] = record.id
        self._interrupted_calls.exclude(record)
        if permission.verdict is not CallVerdict.PENDING or wait_seconds <= 0:
            return permission
        return await self._wait_for_decision(call, record.id, wait_seconds)

    async def _take_snapshot(self, call: ToolCall) -> CallSnapshot:
        if call.kind in READ_ONLY_KINDS:
            return CallSnapshot()
        return await asyncio.to_thread(take_snapshot, call, self._spec.workspace)

    def restart(self) -> _WorkerAuthorizer:
        return _WorkerAuthorizer(self._service, self._spec, self._persona)

    async def record_outcome(
        self, call_id: str, *, succeeded: bool, outcome: str, size: int = 0
    ) -> None:
        service = self._service
        row = self._call_rows.get(call_id)
        if row is None:
            return
        kept = service.mask(outcome)[:_MAX_STORED_CHARS]
        size = size or len(outcome.encode("utf-8", "replace"))

        withdrawn = await self._withdraw_question(row)

        async def note(tx: Transaction) -> None:
            await service.calls.mark_ended(
                tx, row, succeeded=succeeded, outcome=kept, size=size, now=service.now()
            )

        await retry_until_stored(
            lambda: service.db.write_together(note), service.sleep, "the result of a tool"
        )
        if withdrawn is not None:
            await service.show_request(withdrawn)

    async def _withdraw_question(self, row: int) -> Approval | None:
        """Withdraw the request of a call that has ended undecided; None if there is none."""
        if row not in self._awaited_rows:
            return None
        service, now = self._service, self._service.now()
        self._awaited_rows.discard(row)
        async with service.db.write() as tx:
            record = await service.calls.get(row, tx=tx)
            if record.state is not ToolCallState.OPEN or not record.approval_id:
                return None
            await withdraw_approval(tx, record.approval_id, reason_key="approval.gone_on", now=now)
            return await find_approval(tx, record.approval_id, now=now)

    async def _register(
        self, call: ToolCall, seen: CallSnapshot
    ) -> tuple[ToolCallRecord, CallDecision]:
        """Record the call and its decision in one transaction."""
        service, session = self._service, self._spec.session.id
        async with service.db.write() as tx:
            earlier = await service.calls.find_earlier(tx, session, call.call_id)
            if (known := earlier.suspended) is not None:
                return known, await self._answer_known(tx, call, known, seen)
            if (made := self._interrupted_calls.find_match(earlier.lost, call)) is not None:
                if model_call_id(made) == call.call_id:
                    # The session ends with this very call.
                    return await self._answer_interrupted(tx, made)
                return await self._replay(tx, call, made)
            ruling = await self._evaluate(tx, call, seen)
            if ruling.verdict is not PolicyVerdict.ASK:
                good = ruling.verdict is PolicyVerdict.ALLOW
                state = ToolCallState.RUNNING if good else ToolCallState.DENIED
                record = await service.calls.add(
                    tx,
                    self._new_call(call, ruling, state),
                    now=service.now(),
                    same_ids=earlier.same_ids,
                )
                if good:
                    allowed = CallDecision(verdict=CallVerdict.ALLOW)
                    if ruling.files:
                        hold = partial(self._hold_effect, call, record.id, files=ruling.files)
                        allowed = replace(allowed, hold_effect=hold)
                    return record, allowed
                return record, CallDecision(
                    verdict=CallVerdict.DENY, text=ruling.reason.describe_in_english()
                )
            return await self._request_approval(tx, call, ruling, seen)

    async def _replay(
        self, tx: Transaction, call: ToolCall, made: ToolCallRecord
    ) -> tuple[ToolCallRecord, CallDecision]:
        """Answer a call that an interrupted turn has already made."""
        service, now = self._service, self._service.now()
        ruling = PolicyDecision(verdict=PolicyVerdict.ALLOW, reason=build_reason("made_before"))
        record = await service.calls.add(
            tx, self._new_call(call, ruling, ToolCallState.OPEN), now=now
        )
        if made.state is ToolCallState.RUNNING:
            await service.calls.mark_cut_off(tx, made.id, now=now)
        text = replay_result(made)
        record = await service.calls.mark_answered(tx, record.id, text, now=now)
        failed = made.state is not ToolCallState.DONE
        return record, CallDecision(verdict=CallVerdict.ANSWER, text=text, has_failed=failed)

    async def _answer_interrupted(
        self, tx: Transaction, made: ToolCallRecord
    ) -> tuple[ToolCallRecord, CallDecision]:
        if made.state is ToolCallState.RUNNING:
            await self._service.calls.mark_cut_off(tx, made.id, now=self._service.now())
        return made, answer_for_call(made)

    async def _request_approval(
        self, tx: Transaction, call: ToolCall, ruling: PolicyDecision, seen: CallSnapshot
    ) -> tuple[ToolCallRecord, CallDecision]:
        """Take over a decision made on the same call while the worker was not running."""
        service, now = self._service, self._service.now()
        sandbox = (await service.sandbox()).kind
        limits = ("many_files",) if seen.is_cut else ()
        if call.kind is CallKind.EXECUTE and sandbox is SandboxKind.LANDLOCK:
            limits = (*limits, "landlock")
        ruling = replace(ruling, reason=replace(ruling.reason, limits=limits))
        new = replace(self._new_call(call, ruling, ToolCallState.OPEN), effect_hash=seen.hash)
        if seen.scripts and len(new.detail) + len(seen.scripts) <= _MAX_SHOWN_SCRIPTS:
            new = replace(new, detail=f"{new.detail}\n\n{service.mask(seen.scripts)}")
        before = await service.calls.find_undelivered(
            tx,
            task_id=new.task_id,
            path=new.path,
            session_id=new.session_id,
            command_hash=new.command_hash,
            effect_hash=seen.hash,
        )
        record = await service.calls.add(tx, new, now=now)
        if before is None:
            return record, _PENDING
        await service.calls.bind_approval(tx, record.id, before.approval_id)
        if before.state is not ToolCallState.OPEN:
            await service.calls.decide(tx, record, before.state, before.answer)
        await service.calls.mark_cut_off(tx, before.id, now=now)
        record = await service.calls.get(record.id, tx=tx)
        return record, await self._answer_known(tx, call, record, seen)

    async def _answer_known(
        self, tx: Transaction, call: ToolCall, record: ToolCallRecord, seen: CallSnapshot
    ) -> CallDecision:
        """An approval covers what would have run or changed when it was asked for, nothing else."""
        service = self._service
        if record.state is ToolCallState.OPEN:
            return _PENDING
        if record.state is ToolCallState.ALLOWED:
            if record.effect_hash and record.effect_hash != seen.hash:
                log.warning("call %s is not made: what it would do has changed", record.id)
                record = await service.calls.mark_answered(
                    tx, record.id, _EFFECT_CHANGED, now=service.now()
                )
                return answer_for_call(record)
            await service.calls.mark_started(tx, record, now=service.now())
            if record.effect_hash:
                hold = partial(self._hold_effect, call, record.id, effect=record.effect_hash)
                return replace(answer_for_call(record), hold_effect=hold)
        return answer_for_call(record)

    @asynccontextmanager
    async def _hold_effect(
        self, call: ToolCall, row: int, *, effect: str = "", files: str = ""
    ) -> AsyncGenerator[str, None]:
        """Keep what a person has seen as it is from the last look until the call has ended."""
        if call.kind not in _LOCAL_KINDS:
            # A server has to run to answer.
            yield await self._find_change(call, row, effect, files)
            return
        async with halted_processes(self._spec.workspace) as are_halted:
            if are_halted:
                yield await self._find_change(call, row, effect, files)
            else:
                log.warning("call %s is not made: others cannot be halted", row)
                yield _NOT_HALTED

    async def _find_change(self, call: ToolCall, row: int, effect: str, files: str) -> str:
        seen = await self._take_snapshot(call)
        if effect in {"", seen.hash} and files in {"", seen.files}:
            return ""
        log.warning("call %s is not made: what it would do has changed as it waited", row)
        return _EFFECT_CHANGED

    async def _evaluate(
        self, tx: Transaction, call: ToolCall, seen: CallSnapshot
    ) -> PolicyDecision:
        job = self._spec
        if call.kind is CallKind.ASK:
            return PolicyDecision(verdict=PolicyVerdict.ASK, reason=build_reason("person_asked"))
        sandbox = (await self._service.sandbox()).kind
        person = job.account.person
        return self._service.policy.evaluate(
            call,
            workspace=job.workspace,
            grants=await self._service.grants.list_applicable(
                task=job.account.task, chat=job.account.chat, tx=tx
            ),
            mode=job.mode,
            is_sandboxed=sandbox.confines,
            # Landlock lets a command change control files inside the workspace.
            is_trusted=self._service.trusts_sandbox and sandbox is SandboxKind.BUBBLEWRAP,
            for_owner=person is not None
            and await current_person_id(tx, person) in await owner_ids(tx),
            with_app_rights=await self._reaches_app(call),
            persona=self._persona,
            files=seen.files,
        )

    async def _reaches_app(self, call: ToolCall) -> bool:
        """Return True for a tool of a server that is given the rights of Shiftboss's own app."""
        if not call.name.startswith("mcp__"):
            return False
        servers = (*self._persona.servers, *await self._service.servers())
        return any(
            call.name.startswith(f"mcp__{each.name}__") for each in servers if acts_as_app(each)
        )

    def _new_call(
        self, call: ToolCall, ruling: PolicyDecision, state: ToolCallState
    ) -> NewToolCall:
        job, mask = self._spec, self._service.mask
        return NewToolCall(
            session_id=job.session.id,
            call_id=call.call_id,
            task_id=job.account.task,
            path=job.step_path,
            chat_id=job.account.chat,
            person_id=job.account.person,
            backend=job.session.backend,
            tool=call.name,
            kind=call.kind.value,
            title=mask(call.title)[:_MAX_TITLE_CHARS],
            detail=mask(call.detail),
            arguments=_mask_deep(dict(call.arguments), mask),
            command_hash=_exact_hash(call),
            verdict=ruling.verdict.value,
            why=ruling.reason.to_json(),
            pattern=ruling.pattern,
            state=state,
        )

    async def _wait_for_decision(self, call: ToolCall, row: int, patience: float) -> CallDecision:
        """Request an approval and wait up to `patience` seconds."""
        service, seen = self._service, await self._take_snapshot(call)
        task = self._spec.account.task
        about = await service.tasks.get(task) if task is not None else None
        async with service.db.write() as tx:
            record = await service.calls.get(row, tx=tx)
            if record.state is not ToolCallState.OPEN:
                return await self._answer_known(tx, call, record, seen)
            approval = await service.requester.request(tx, record, about)
        self._awaited_rows.add(row)
        await service.show_request(approval)
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._until_decided(row)
        seen = await self._take_snapshot(call)
        async with service.db.write() as tx:
            record = await service.calls.get(row, tx=tx)
            decision = await self._answer_known(tx, call, record, seen)
            if decision.verdict is CallVerdict.DENY:
                # It holds for the rest of this run; in a later one the person may be asked again.
                await service.calls.mark_delivered(tx, record, now=service.now())
                self._refusals[_exact_hash(call)] = decision
        return decision

    async def _until_decided(self, row: int) -> None:
        while True:
            rung = self._service.signal.next_event()
            if (await self._service.calls.get(row)).state is not ToolCallState.OPEN:
                return
            await rung.wait()


def _exact_hash(call: ToolCall) -> str:
    return call_fingerprint(call.name, call.arguments)


def _mask_deep(value: Any, mask: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, Mapping):
        return {str(key): _mask_deep(each, mask) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_mask_deep(each, mask) for each in value]
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingPermissionService:
    """Implements `handlers.ports_workers.ToolPort`."""

    grants: PermissionGrantRepo
    calls: ToolCallRepo
    mask: Callable[[str], str]
    now: Callable[[], datetime]

    async def list_grants(self) -> Sequence[StandingPermission]:
        granted = await self.grants.list_all()
        return tuple(replace(each, pattern=self.mask(each.pattern)) for each in granted)

    async def revoke(self, number: int) -> bool:
        return await self.grants.revoke(number, now=self.now())

    async def list_calls(self, task_id: TaskId, limit: int) -> Sequence[ToolCallRecord]:
        return await self.calls.list_by_task(task_id, limit)
