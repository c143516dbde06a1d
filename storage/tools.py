"""Stores tool calls, each before it is made, and standing permissions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Integer,
    Row,
    Select,
    Update,
    bindparam,
    func,
    insert,
    select,
    update,
)

from storage.db import Database, Transaction, record_from, row_from
from storage.dialect import PreparedWrite
from storage.errors import NotFound
from storage.records.approvals import (
    NewToolCall,
    StandingPermission,
    StandingPermissionScope,
    ToolCallRecord,
    ToolCallState,
)
from storage.records.people import ChatId, PersonId
from storage.records.tasks import TaskId
from storage.schema import sessions, tool_calls, tool_grants

_C = tool_calls.c
_LAST_GROWN = select(sessions.c.last_used_at)
_REPEAT_SUFFIX = "#again-"
"""Some services number calls per answer, so ids repeat within a session."""

_END_CALL = PreparedWrite(
    lambda _: (
        update(tool_calls)
        .where(_C.id == bindparam("which"), _C.state == ToolCallState.RUNNING.value)
        .values(
            state=bindparam("ending"),
            outcome=bindparam("result"),
            size=bindparam("result_size"),
            ended_at=bindparam("now"),
        )
    )
)

_IS_LOST = (
    (_C.asked_at > _LAST_GROWN.where(sessions.c.id == _C.session_id).scalar_subquery())
    & _C.started_at.is_not(None)
    & _C.state.in_(
        [
            each.value
            for each in (
                ToolCallState.RUNNING,
                ToolCallState.DONE,
                ToolCallState.FAILED,
                ToolCallState.CUT,
            )
        ]
    )
    & ~_C.suspended
)
_EARLIER_CALLS = (
    select(tool_calls, _IS_LOST.label("is_lost"))
    .where(
        _C.session_id == bindparam("session"),
        _IS_LOST
        | (_C.call_id == bindparam("call"))
        | (func.substr(_C.call_id, 1, bindparam("length", type_=Integer)) == bindparam("again")),
    )
    .order_by(_C.id)
)
_ADD_CALL = insert(tool_calls).returning(_C.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierCalls:
    """The calls of a session that a request may repeat. `suspended` is the suspended call with its
    id; `lost` are those started since the session's transcript last grew, oldest first: their turn
    was cut off; `same_ids` is how many have its id."""

    suspended: ToolCallRecord | None
    lost: Sequence[ToolCallRecord]
    same_ids: int


_UNDELIVERED_STATES = (
    ToolCallState.OPEN,
    ToolCallState.ALLOWED,
    ToolCallState.DENIED,
    ToolCallState.ANSWERED,
)


class ToolCallRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(
        self, tx: Transaction, new: NewToolCall, *, now: datetime, same_ids: int | None = None
    ) -> ToolCallRecord:
        """Add a call, already started if it is allowed. A call id reused in the session gets a
        suffix; `same_ids` is as in `EarlierCalls`, if known."""
        if same_ids is None:
            same_ids = (await self.find_earlier(tx, new.session_id, new.call_id)).same_ids
        values = row_from(new) | {
            "call_id": f"{new.call_id}{_REPEAT_SUFFIX}{same_ids}" if same_ids else new.call_id,
            "asked_at": now,
            "started_at": now if new.state is ToolCallState.RUNNING else None,
            "ended_at": now if new.state is ToolCallState.DENIED else None,
        }
        row_id = await tx.scalar(_ADD_CALL, values)
        return ToolCallRecord(
            **values,
            id=int(row_id or 0),
            suspended=False,
            approval_id="",
            answer="",
            outcome="",
            size=0,
        )

    async def find_earlier(self, tx: Transaction, session_id: str, call_id: str) -> EarlierCalls:
        """Find the calls that a request with this id may repeat, in one query: it stands before
        every call."""
        again = f"{call_id}{_REPEAT_SUFFIX}"
        binds = {"session": session_id, "call": call_id, "again": again, "length": len(again)}
        rows = (await tx.execute(_EARLIER_CALLS, binds)).all()
        same = [row for row in rows if row.call_id == call_id or row.call_id.startswith(again)]
        suspended = [row for row in same if row.suspended]
        return EarlierCalls(
            suspended=_record(suspended[-1]) if suspended else None,
            lost=tuple(_record(row) for row in rows if row.is_lost),
            same_ids=len(same),
        )

    async def get(self, row_id: int, *, tx: Transaction | None = None) -> ToolCallRecord:
        found = await self._select(_C.id == row_id, tx=tx)
        if not found:
            raise NotFound("call", str(row_id))
        return found[0]

    async def find_undelivered(
        self,
        tx: Transaction,
        *,
        task_id: TaskId | None,
        path: str,
        session_id: str,
        command_hash: str,
        effect_hash: str,
    ) -> ToolCallRecord | None:
        """An earlier identical request that a person was asked about, whose result reached no
        worker because its process died."""
        whose = _C.session_id == session_id
        if task_id is not None:
            whose = (_C.task_id == task_id) & (_C.path == path)
        found = await self._select(
            whose,
            _C.command_hash == command_hash,
            _C.effect_hash == effect_hash,
            _C.state.in_([each.value for each in _UNDELIVERED_STATES]),
            _C.approval_id.is_not(None),
            _C.started_at.is_(None),
            _C.ended_at.is_(None),
            ~_C.suspended,
            tx=tx,
        )
        return found[-1] if found else None

    async def list_suspended(
        self, session_id: str, *, tx: Transaction | None = None
    ) -> Sequence[ToolCallRecord]:
        """The calls at the end of the session's transcript, oldest first."""
        return await self._select(_C.session_id == session_id, _C.suspended, tx=tx)

    async def list_suspended_of_step(
        self, task_id: TaskId, path: str, *, tx: Transaction | None = None
    ) -> Sequence[ToolCallRecord]:
        """Like `list_suspended`, for a task's step, in any session."""
        return await self._select(_C.task_id == task_id, _C.path == path, _C.suspended, tx=tx)

    async def find_last_of_step(self, task_id: TaskId, path: str) -> ToolCallRecord | None:
        """The newest call of a task's step."""
        last = select(func.max(_C.id)).where(_C.task_id == task_id, _C.path == path)
        found = await self._select(_C.id == last.scalar_subquery())
        return found[0] if found else None

    async def list_suspended_of_chats(self) -> Sequence[ToolCallRecord]:
        """Like `list_suspended`, for all sessions outside tasks."""
        return await self._select(_C.suspended, _C.task_id.is_(None))

    async def list_lost(self, tx: Transaction | None, session_id: str) -> Sequence[ToolCallRecord]:
        """Calls started since the session's transcript last grew, oldest first: their turn was cut
        off."""
        return await self._select(_C.session_id == session_id, _IS_LOST, tx=tx)

    async def list_started(
        self, session_id: str, *, path: str | None = None, since: datetime | None = None
    ) -> Sequence[ToolCallRecord]:
        """The session's calls that were started, of one step if `path` is given."""
        conditions = [_C.session_id == session_id, _C.started_at.is_not(None)]
        if path is not None:
            conditions.append(_C.path == path)
        if since is not None:
            conditions.append(_C.asked_at >= since)
        return await self._select(*conditions)

    async def mark_answered(
        self, tx: Transaction, row_id: int, answer: str, *, now: datetime
    ) -> ToolCallRecord:
        """Record an answer from known data in place of a call."""
        values = {"state": ToolCallState.ANSWERED.value, "answer": answer, "ended_at": now}
        await tx.execute(_update_call(row_id).values(**values))
        return await self.get(row_id, tx=tx)

    async def list_by_approval(self, tx: Transaction, approval_id: str) -> Sequence[ToolCallRecord]:
        """The calls this approval decides."""
        return await self._select(_C.approval_id == approval_id, tx=tx)

    async def list_by_task(self, task_id: TaskId, limit: int) -> Sequence[ToolCallRecord]:
        """The newest `limit` calls of the task, oldest first."""
        query = select(tool_calls).where(_C.task_id == task_id).order_by(_C.id.desc()).limit(limit)
        return tuple(map(_record, reversed(await self._db.fetch_all(query))))

    async def suspend(self, tx: Transaction, session_id: str, call_ids: Sequence[str]) -> None:
        """Mark these as the end of the session's transcript."""
        for call_id in call_ids:
            found = await self._select(
                _C.session_id == session_id, _has_call_id(call_id), _C.ended_at.is_(None), tx=tx
            )
            if found:
                await tx.execute(_update_call(found[-1].id).values(suspended=True))

    async def mark_delivered(self, tx: Transaction, call: ToolCallRecord, *, now: datetime) -> None:
        """Mark the call's result as delivered; a call neither decided nor made is cut off."""
        state = call.state
        if state in {ToolCallState.OPEN, ToolCallState.ALLOWED, ToolCallState.RUNNING}:
            state = ToolCallState.CUT
        await tx.execute(
            _update_call(call.id).values(
                suspended=False, state=state.value, ended_at=call.ended_at or now
            )
        )

    async def bind_approval(self, tx: Transaction, call_id: int, approval_id: str) -> None:
        """Link the call to its approval request."""
        await tx.execute(_update_call(call_id).values(approval_id=approval_id))

    async def decide(
        self, tx: Transaction, call: ToolCallRecord, state: ToolCallState, answer: str = ""
    ) -> None:
        """Only an OPEN call is decided."""
        await tx.execute(
            _update_call(call.id)
            .where(_C.state == ToolCallState.OPEN.value)
            .values(state=state.value, answer=answer)
        )

    async def mark_started(self, tx: Transaction, call: ToolCallRecord, *, now: datetime) -> bool:
        """Mark the call started, at most once. False if it already was."""
        begun = await tx.execute(
            _update_call(call.id)
            .where(_C.state == ToolCallState.ALLOWED.value)
            .values(state=ToolCallState.RUNNING.value, started_at=now)
        )
        return begun.rowcount == 1

    async def mark_ended(
        self,
        tx: Transaction,
        row_id: int,
        *,
        succeeded: bool,
        outcome: str,
        size: int,
        now: datetime,
    ) -> None:
        state = ToolCallState.DONE if succeeded else ToolCallState.FAILED
        values = {
            "which": row_id,
            "ending": state.value,
            "result": outcome,
            "result_size": size,
            "now": now,
        }
        await _END_CALL.send(tx, values)

    async def mark_cut_off(self, tx: Transaction, row_id: int, *, now: datetime) -> None:
        await tx.execute(_update_call(row_id).values(state=ToolCallState.CUT.value, ended_at=now))

    async def cut_off_chat_calls(self, tx: Transaction, *, now: datetime) -> None:
        """Cut off running calls outside tasks, which never survive a process."""
        await _cut_off_where(tx, _C.task_id.is_(None), now=now)

    async def _select(
        self, *conditions: ColumnElement[bool], tx: Transaction | None = None
    ) -> Sequence[ToolCallRecord]:
        query = select(tool_calls).where(*conditions).order_by(_C.id)
        return tuple(map(_record, await self._db.fetch_all(query, tx=tx)))


async def cut_off_task_calls(tx: Transaction, task_id: TaskId, *, now: datetime) -> None:
    """Cut off the task's running calls: its worker died and their effect is unknown."""
    await _cut_off_where(tx, _C.task_id == task_id, now=now)


async def cut_off_session_calls(tx: Transaction, session_id: str, *, now: datetime) -> None:
    """The same for the calls of one session."""
    await _cut_off_where(tx, _C.session_id == session_id, now=now)


async def list_running_kinds(tx: Transaction, task_id: TaskId, path: str) -> Sequence[str]:
    """The kinds of a step's calls that were running."""
    running = (_C.task_id == task_id, _C.path == path, _C.state == ToolCallState.RUNNING.value)
    return (await tx.execute(select(_C.kind).where(*running))).scalars().all()


async def _cut_off_where(tx: Transaction, whose: ColumnElement[bool], *, now: datetime) -> None:
    # Nobody has been asked about these yet: the worker's next try asks by a call of its own.
    unasked = (_C.state == ToolCallState.OPEN.value) & _C.approval_id.is_(None) & ~_C.suspended
    await tx.execute(
        update(tool_calls)
        .where(whose, (_C.state == ToolCallState.RUNNING.value) | unasked)
        .values(state=ToolCallState.CUT.value, ended_at=now)
    )


def _update_call(row_id: int) -> Update:
    return update(tool_calls).where(_C.id == row_id)


def _has_call_id(call_id: str) -> ColumnElement[bool]:
    return (_C.call_id == call_id) | _C.call_id.startswith(
        f"{call_id}{_REPEAT_SUFFIX}", autoescape=True
    )


def model_call_id(call: ToolCallRecord) -> str:
    """The call's id as its model knows it."""
    return call.call_id.partition(_REPEAT_SUFFIX)[0]


def _record(row: Row[Any]) -> ToolCallRecord:
    return record_from(ToolCallRecord, row, approval_id=row.approval_id or "")


_G = tool_grants.c
_GRANTS = select(tool_grants).where(_G.revoked_at.is_(None)).order_by(_G.id)
_APPLICABLE_GRANTS = _GRANTS.where(
    (_G.scope == StandingPermissionScope.ALWAYS.value)
    | ((_G.scope == StandingPermissionScope.TASK.value) & (_G.subject == bindparam("task")))
    | ((_G.scope == StandingPermissionScope.CHAT.value) & (_G.subject == bindparam("chat")))
)


class PermissionGrantRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(
        self,
        tx: Transaction,
        *,
        scope: StandingPermissionScope,
        subject: str,
        tool: str,
        pattern: str,
        approval_id: str,
        by: PersonId,
        now: datetime,
    ) -> None:
        await tx.execute(
            insert(tool_grants).values(
                scope=scope.value,
                subject=subject,
                tool=tool,
                pattern=pattern,
                approval_id=approval_id,
                granted_by=by,
                at=now,
            )
        )

    async def list_applicable(
        self, *, task: TaskId | None, chat: ChatId | None, tx: Transaction | None = None
    ) -> Sequence[StandingPermission]:
        """Permissions that apply to this task, in this chat, and always."""
        return await self._read(_APPLICABLE_GRANTS, {"task": task, "chat": chat}, tx=tx)

    async def list_all(self) -> Sequence[StandingPermission]:
        return await self._read(_GRANTS, {})

    async def revoke(self, grant_id: int, *, now: datetime) -> bool:
        """False if it was not in force."""
        async with self._db.write() as tx:
            ended = await tx.execute(
                update(tool_grants)
                .where(_G.id == grant_id, _G.revoked_at.is_(None))
                .values(revoked_at=now)
            )
        return ended.rowcount == 1

    async def _read(
        self, query: Select[Any], binds: Mapping[str, Any], *, tx: Transaction | None = None
    ) -> Sequence[StandingPermission]:
        return tuple(
            record_from(StandingPermission, row, approval_id=row.approval_id or "")
            for row in await self._db.fetch_all(query, binds, tx=tx)
        )
