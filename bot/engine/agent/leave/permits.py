"""Leave to use tools: judged by the rules, remembered in the store, asked of people."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from bot.engine.agent.leave.again import Earlier, told_of
from bot.engine.agent.leave.asking import Asker
from bot.engine.agent.leave.bell import Bell
from bot.engine.agent.leave.pending import answer_to
from bot.engine.agent.personas.persona import Persona
from bot.engine.agent.policy.judge import Grant, GrantScope, Judge, Ruling, Verdict
from bot.engine.agent.workbench import Job
from bot.engine.llm.answers import PROPOSE_TASK
from bot.engine.llm.calls import CallKind, Leave, Permission, Permit, ToolCall, exact_hash
from cards.reasons import because
from storage.agents.calls import CallRepo
from storage.agents.grants import GrantRepo
from storage.db import Database, Transaction
from storage.errors import StoreUnavailable
from storage.records.approvals import Approval
from storage.records.tools import CallRecord, CallState, NewCall
from storage.work.tasks import TaskRepo

log = logging.getLogger(__name__)

_FREE = {PROPOSE_TASK}
"""They only ask the person."""
_MOST_KEPT = 40_000
_STORE_REST = 5.0
_TITLE = 300

_LATER = Permission(leave=Leave.LATER)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaves:
    """Satisfies `workbench.Permits`. `mask` takes secrets out of what is kept and shown;
    `sandboxed` tells whether commands are held in; `show` puts a request before those who decide,
    and `bell` rings when one of them has."""

    db: Database
    calls: CallRepo
    grants: GrantRepo
    tasks: TaskRepo
    asker: Asker
    judge: Judge
    mask: Callable[[str], str]
    sandboxed: Callable[[], Awaitable[bool]]
    bell: Bell
    show: Callable[[Approval], Awaitable[None]]
    now: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]]

    def permit(self, job: Job, persona: Persona) -> Permit:
        return _JobPermit(self, job, persona)


def afresh(permit: Permit | None) -> Permit | None:
    """For another try of the same turn: what the one before made counts as made before."""
    return permit.afresh() if isinstance(permit, _JobPermit) else permit


class _JobPermit:
    """Leave for one job; see `calls.Permit`."""

    def __init__(self, house: Leaves, job: Job, persona: Persona) -> None:
        self._house = house
        self._job = job
        self._persona = persona
        self._rows: dict[str, int] = {}
        self._earlier = Earlier(house.calls, job)

    async def __call__(self, call: ToolCall, *, patience: float = 0.0) -> Permission:
        if call.name in _FREE:
            return Permission(leave=Leave.ALLOW)
        record, permission = await self._kept(lambda: self._enter(call))
        self._rows[call.call_id] = record.id
        self._earlier.mark(record)
        if permission.leave is not Leave.LATER or patience <= 0:
            return permission
        return await self._wait(record.id, patience)

    def afresh(self) -> _JobPermit:
        return _JobPermit(self._house, self._job, self._persona)

    async def ended(self, call_id: str, *, good: bool, outcome: str, size: int = 0) -> None:
        house = self._house
        row = self._rows.get(call_id)
        if row is None:
            return
        kept = house.mask(outcome)[:_MOST_KEPT]
        size = size or len(outcome.encode("utf-8", "replace"))

        async def note() -> None:
            async with house.db.write() as tx:
                await house.calls.end(tx, row, good=good, outcome=kept, size=size, now=house.now())

        await self._kept(note)

    async def _enter(self, call: ToolCall) -> tuple[CallRecord, Permission]:
        """Its row and what is known about it, in one transaction."""
        house, session = self._house, self._job.session.id
        async with house.db.write() as tx:
            known = await house.calls.under_way(session, call.call_id, tx=tx)
            if known is not None:
                return known, await self._of_known(tx, known)
            if (made := await self._earlier.made(tx, call)) is not None:
                return await self._as_told(tx, call, made)
            ruling = await self._ruling(tx, call)
            if ruling.verdict is not Verdict.ASK:
                good = ruling.verdict is Verdict.ALLOW
                state = CallState.RUNNING if good else CallState.DENIED
                record = await house.calls.add(tx, self._new(call, ruling, state), now=house.now())
                leave = Leave.ALLOW if good else Leave.DENY
                return record, Permission(leave=leave, text="" if good else ruling.why.in_english())
            return await self._as_asked(tx, call, ruling)

    async def _as_told(
        self, tx: Transaction, call: ToolCall, made: CallRecord
    ) -> tuple[CallRecord, Permission]:
        """Its turn was cut off, and wants now again what it has made."""
        house, now = self._house, self._house.now()
        ruling = Ruling(verdict=Verdict.ALLOW, why=because("made_before"))
        record = await house.calls.add(tx, self._new(call, ruling, CallState.OPEN), now=now)
        if made.state is CallState.RUNNING:
            await house.calls.cut(tx, made.id, now=now)
        text = told_of(made)
        record = await house.calls.told(tx, record.id, text, now=now)
        return record, Permission(leave=Leave.ANSWER, text=text)

    async def _as_asked(
        self, tx: Transaction, call: ToolCall, ruling: Ruling
    ) -> tuple[CallRecord, Permission]:
        """Somebody may have decided about exactly this while its worker was dead."""
        house, now = self._house, self._house.now()
        new = self._new(call, ruling, CallState.OPEN)
        before = await house.calls.undelivered(
            tx,
            task_id=new.task_id,
            path=new.path,
            session_id=new.session_id,
            exact=new.command_hash,
        )
        record = await house.calls.add(tx, new, now=now)
        if before is None:
            return record, _LATER
        await house.calls.ask(tx, record.id, before.approval_id)
        if before.state is not CallState.OPEN:
            await house.calls.decide(tx, record, before.state, before.answer)
        await house.calls.cut(tx, before.id, now=now)
        record = await house.calls.get(record.id, tx=tx)
        return record, await self._of_known(tx, record)

    async def _of_known(self, tx: Transaction, record: CallRecord) -> Permission:
        if record.state is CallState.OPEN:
            return _LATER
        if record.state is CallState.ALLOWED:
            await self._house.calls.begin(tx, record, now=self._house.now())
        return answer_to(record)

    async def _ruling(self, tx: Transaction, call: ToolCall) -> Ruling:
        job = self._job
        if call.kind is CallKind.ASK:
            return Ruling(verdict=Verdict.ASK, why=because("person_asked"))
        held = await self._house.grants.binding(task=job.account.task, chat=job.account.chat, tx=tx)
        return self._house.judge.judge(
            call,
            workspace=job.workspace,
            grants=[
                Grant(scope=GrantScope(each.scope), tool=each.tool, pattern=each.pattern)
                for each in held
            ],
            mode=job.mode,
            sandboxed=await self._house.sandboxed(),
            persona=self._persona,
        )

    def _new(self, call: ToolCall, ruling: Ruling, state: CallState) -> NewCall:
        job, mask = self._job, self._house.mask
        return NewCall(
            session_id=job.session.id,
            call_id=call.call_id,
            task_id=job.account.task,
            path=job.path,
            chat_id=job.account.chat,
            person_id=job.account.person,
            backend=job.session.backend,
            tool=call.name,
            kind=call.kind.value,
            title=mask(call.title)[:_TITLE],
            detail=mask(call.detail),
            arguments=_masked(dict(call.arguments), mask),
            command_hash=exact_hash(call.name, call.arguments),
            verdict=ruling.verdict.value,
            why=ruling.why.packed(),
            pattern=ruling.pattern,
            state=state,
        )

    async def _wait(self, row: int, patience: float) -> Permission:
        """Ask at once, and wait for as long as its process can."""
        house = self._house
        task = self._job.account.task
        about = await house.tasks.get(task) if task is not None else None
        async with house.db.write() as tx:
            record = await house.calls.get(row, tx=tx)
            if record.state is not CallState.OPEN:
                return await self._of_known(tx, record)
            approval = await house.asker.ask(tx, record, about)
        await house.show(approval)
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._decided(row)
        async with house.db.write() as tx:
            return await self._of_known(tx, await house.calls.get(row, tx=tx))

    async def _decided(self, row: int) -> None:
        while True:
            rung = self._house.bell.next()
            if (await self._house.calls.get(row)).state is not CallState.OPEN:
                return
            await rung.wait()

    async def _kept(self, write: Callable[[], Awaitable[_T]]) -> _T:
        """A full disk is waited for: no call is made that is not kept."""
        while True:
            try:
                return await write()
            except StoreUnavailable as error:
                log.warning("a tool waits for the store: %s", error)
                await self._house.sleep(_STORE_REST)


def _masked(value: Any, mask: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, Mapping):
        return {str(key): _masked(each, mask) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(each, mask) for each in value]
    return value
