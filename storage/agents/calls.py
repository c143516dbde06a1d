"""Calls of tools: each is a row before it is made, and what comes of it is kept with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, Update, insert, select, update

from storage.agents.tables import tool_calls
from storage.db import Database, Transaction
from storage.errors import NotFound
from storage.records.tasks import TaskId
from storage.records.tools import CallFacts, CallRecord, CallState, NewCall
from storage.sessions import Session

_C = tool_calls.c
_FACTS = tuple(each.name for each in fields(CallFacts))
_AGAIN = "#again-"
"""Services that number the calls of each answer from one repeat themselves in a session."""

_UNDECIDED = (CallState.OPEN, CallState.ALLOWED, CallState.DENIED, CallState.ANSWERED)


class CallRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(self, tx: Transaction, new: NewCall, *, now: datetime) -> CallRecord:
        """Keep a new call, begun where it is allowed at once. A number that its session has used
        for another call is told apart."""
        used = await tx.scalars(
            select(_C.call_id).where(_C.session_id == new.session_id, _named(new.call_id))
        )
        times = len(used.all())
        values = {
            **{name: getattr(new, name) for name in _FACTS},
            "call_id": new.call_id if not times else f"{new.call_id}{_AGAIN}{times}",
            "arguments": dict(new.arguments),
            "state": new.state.value,
            "asked_at": now,
            "started_at": now if new.state is CallState.RUNNING else None,
            "ended_at": now if new.state is CallState.DENIED else None,
        }
        row_id = await tx.scalar(insert(tool_calls).values(**values).returning(_C.id))
        return await self.get(int(row_id or 0), tx=tx)

    async def get(self, row_id: int, *, tx: Transaction | None = None) -> CallRecord:
        found = await self._where(_C.id == row_id, tx=tx)
        if not found:
            raise NotFound("call", str(row_id))
        return found[0]

    async def under_way(
        self, session_id: str, call_id: str, *, tx: Transaction | None = None
    ) -> CallRecord | None:
        """The suspended call of this number that its session is about to be answered."""
        found = await self._where(_C.session_id == session_id, _named(call_id), _C.suspended, tx=tx)
        return found[-1] if found else None

    async def undelivered(
        self, tx: Transaction, *, task_id: TaskId | None, path: str, session_id: str, exact: str
    ) -> CallRecord | None:
        """An earlier wish for exactly this, about which somebody was asked, and of which no
        worker has heard more: its process died."""
        whose = _C.session_id == session_id
        if task_id is not None:
            whose = (_C.task_id == task_id) & (_C.path == path)
        found = await self._where(
            whose,
            _C.command_hash == exact,
            _C.state.in_([each.value for each in _UNDECIDED]),
            _C.approval_id.is_not(None),
            _C.started_at.is_(None),
            _C.ended_at.is_(None),
            ~_C.suspended,
            tx=tx,
        )
        return found[-1] if found else None

    async def suspended(
        self, session_id: str, *, tx: Transaction | None = None
    ) -> Sequence[CallRecord]:
        """The calls with which the session's transcript ends, oldest first."""
        return await self._where(_C.session_id == session_id, _C.suspended, tx=tx)

    async def suspended_at(
        self, task_id: TaskId, path: str, *, tx: Transaction | None = None
    ) -> Sequence[CallRecord]:
        """The same of a task's step, whoever does it."""
        return await self._where(_C.task_id == task_id, _C.path == path, _C.suspended, tx=tx)

    async def suspended_talks(self) -> Sequence[CallRecord]:
        """The same of all talk."""
        return await self._where(_C.suspended, _C.task_id.is_(None))

    async def lost(self, tx: Transaction | None, session: Session) -> Sequence[CallRecord]:
        """Those that were begun since the session's transcript last went on, oldest first: their
        turn was cut off, and nothing remembers them."""
        states = (CallState.RUNNING, CallState.DONE, CallState.FAILED, CallState.CUT)
        return await self._where(
            _C.session_id == session.id,
            _C.asked_at > session.last_used_at,
            _C.started_at.is_not(None),
            _C.state.in_([each.value for each in states]),
            ~_C.suspended,
            tx=tx,
        )

    async def told(self, tx: Transaction, row_id: int, answer: str, *, now: datetime) -> CallRecord:
        """It was not made, but answered with what is known."""
        values = {"state": CallState.ANSWERED.value, "answer": answer, "ended_at": now}
        await tx.execute(_change(row_id).values(**values))
        return await self.get(row_id, tx=tx)

    async def of_approval(self, tx: Transaction, approval_id: str) -> Sequence[CallRecord]:
        """Those that this decision is about."""
        return await self._where(_C.approval_id == approval_id, tx=tx)

    async def of_task(self, task_id: TaskId, limit: int) -> Sequence[CallRecord]:
        """The newest `limit` of the task's, oldest of them first."""
        query = select(tool_calls).where(_C.task_id == task_id).order_by(_C.id.desc()).limit(limit)
        async with self._db.read() as view:
            rows = (await view.execute(query)).all()
        return tuple(_record(row) for row in reversed(rows))

    async def suspend(self, tx: Transaction, session_id: str, call_ids: Sequence[str]) -> None:
        """The session's transcript now ends with these."""
        for call_id in call_ids:
            found = await self._where(
                _C.session_id == session_id, _named(call_id), _C.ended_at.is_(None), tx=tx
            )
            if found:
                await tx.execute(_change(found[-1].id).values(suspended=True))

    async def deliver(self, tx: Transaction, call: CallRecord, *, now: datetime) -> None:
        """Its worker has been answered; what was neither decided nor made is cut off."""
        state = call.state
        if state in {CallState.OPEN, CallState.ALLOWED, CallState.RUNNING}:
            state = CallState.CUT
        await tx.execute(
            _change(call.id).values(
                suspended=False, state=state.value, ended_at=call.ended_at or now
            )
        )

    async def ask(self, tx: Transaction, call_id: int, approval_id: str) -> None:
        """Bind it to the request that asks about it."""
        await tx.execute(_change(call_id).values(approval_id=approval_id))

    async def decide(
        self, tx: Transaction, call: CallRecord, state: CallState, answer: str = ""
    ) -> None:
        """Only what is open is decided."""
        await tx.execute(
            _change(call.id)
            .where(_C.state == CallState.OPEN.value)
            .values(state=state.value, answer=answer)
        )

    async def begin(self, tx: Transaction, call: CallRecord, *, now: datetime) -> bool:
        """The call is about to be made: once only. False if that is so already."""
        begun = await tx.execute(
            _change(call.id)
            .where(_C.state == CallState.ALLOWED.value)
            .values(state=CallState.RUNNING.value, started_at=now)
        )
        return begun.rowcount == 1

    async def end(
        self, tx: Transaction, row_id: int, *, good: bool, outcome: str, size: int, now: datetime
    ) -> None:
        state = CallState.DONE if good else CallState.FAILED
        await tx.execute(
            _change(row_id)
            .where(_C.state == CallState.RUNNING.value)
            .values(state=state.value, outcome=outcome, size=size, ended_at=now)
        )

    async def cut(self, tx: Transaction, row_id: int, *, now: datetime) -> None:
        await tx.execute(_change(row_id).values(state=CallState.CUT.value, ended_at=now))

    async def cut_talks(self, tx: Transaction, *, now: datetime) -> None:
        """No talk goes on over the end of a process: what it was making is cut off."""
        await _cut_where(tx, _C.task_id.is_(None), now=now)

    async def _where(
        self, *conditions: ColumnElement[bool], tx: Transaction | None = None
    ) -> Sequence[CallRecord]:
        query = select(tool_calls).where(*conditions).order_by(_C.id)
        async with self._db.read(tx) as view:
            rows = (await view.execute(query)).all()
        return tuple(_record(row) for row in rows)


async def cut_off(tx: Transaction, task_id: TaskId, *, now: datetime) -> None:
    """The task's worker died: nobody knows how far came what it was making."""
    await _cut_where(tx, _C.task_id == task_id, now=now)


async def _cut_where(tx: Transaction, whose: ColumnElement[bool], *, now: datetime) -> None:
    unasked = (_C.state == CallState.OPEN.value) & _C.approval_id.is_(None) & ~_C.suspended
    await tx.execute(
        update(tool_calls)
        .where(whose, (_C.state == CallState.RUNNING.value) | unasked)
        .values(state=CallState.CUT.value, ended_at=now)
    )


def _change(row_id: int) -> Update:
    return update(tool_calls).where(_C.id == row_id)


def _named(call_id: str) -> ColumnElement[bool]:
    return (_C.call_id == call_id) | _C.call_id.startswith(f"{call_id}{_AGAIN}", autoescape=True)


def number_of(call: CallRecord) -> str:
    """The number by which its model knows the call."""
    return call.call_id.partition(_AGAIN)[0]


def _record(row: Row[Any]) -> CallRecord:
    """Its fields and the table's columns have the same names."""
    told = {"state": CallState(row.state), "approval_id": row.approval_id or ""}
    return CallRecord(**{**row._asdict(), **told})
