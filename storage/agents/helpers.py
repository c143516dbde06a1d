"""Helpers on disk: accepted once, run, ended, and handed over once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, delete, func, literal, select, update

from storage import schema
from storage.agents.tables import helpers, tool_calls
from storage.db import Database, Transaction
from storage.dialect import insert_or_ignore
from storage.errors import NotFound
from storage.records.helpers import Helper, NewHelper
from storage.records.helping import HelperLine, HelperStatus
from storage.records.people import ChatId, PersonId
from storage.records.tasks import TaskId
from storage.records.tools import CallState

_H = helpers.c
_C = tool_calls.c
_OPEN = _H.status.in_([HelperStatus.ACCEPTED.value, HelperStatus.RUNNING.value])
_TEXTS = ("label", "prompt", "persona", "path", "depth")

_HARMLESS_KINDS = ("read", "search", "fetch", "think", "ask")
"""Of calls: made again they do no harm."""
_HARMLESS_TOOLS = ("sessions_spawn",)


class HelperRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(self, tx: Transaction, new: NewHelper, *, id: str, now: datetime) -> Helper:
        """Keep it, unless its source has asked before: then the helper of that time."""
        values = {each.name: getattr(new, each.name) for each in fields(NewHelper)}
        values |= {"id": id, "status": HelperStatus.ACCEPTED.value, "created_at": now}
        await tx.execute(insert_or_ignore(tx.dialect.name, helpers).values(values))
        return (await self._where(_H.source == new.source, tx=tx))[0]

    async def same(self, tx: Transaction, new: NewHelper) -> Helper | None:
        """One that the same parent has sent off with the same words: asked for again after a
        crash, it goes on. In a chat only while its result is not told, or the turn that sent it
        off is lost and being made again."""
        exact = [_H[name] == getattr(new, name) for name in _TEXTS]
        if new.task_id is None:
            session = schema.sessions.c
            kept = select(session.last_used_at).where(session.id == new.parent_session)
            again = (_H.turn == new.turn) & (_H.turn != "")
            lost = again | (_H.created_at > kept.scalar_subquery())
            whose = (_H.parent_session == new.parent_session) & (_H.delivered_at.is_(None) | lost)
        else:
            whose = (_H.task_id == new.task_id) & (_H.status != HelperStatus.FAILED.value)
        found = await self._where(whose, *exact, tx=tx)
        return found[-1] if found else None

    async def get(self, helper_id: str, *, tx: Transaction | None = None) -> Helper:
        found = await self._where(_H.id == helper_id, tx=tx)
        if not found:
            raise NotFound("helper", helper_id)
        return found[0]

    async def open_ones(self) -> Sequence[Helper]:
        """Accepted or running, oldest first."""
        return await self._where(_OPEN)

    async def lines(self, task_id: TaskId) -> tuple[HelperLine, ...]:
        """What a card shows of the task's: read whenever it is drawn, so without their results."""
        query = select(_H.label, _H.status).where(_H.task_id == task_id)
        async with self._db.read() as view:
            rows = (await view.execute(query.order_by(_H.created_at, _H.id))).all()
        return tuple(HelperLine(label=row.label, status=HelperStatus(row.status)) for row in rows)

    async def count_open(
        self,
        tx: Transaction,
        *,
        task: TaskId | None = None,
        parent: str = "",
        chat: ChatId | None = None,
    ) -> int:
        """Of a task at any depth; of a parent's session; of a chat's own talk."""
        whose = self._whose(task, parent, chat)
        return await tx.scalar(select(func.count()).where(_OPEN, whose)) or 0

    async def count(self, tx: Transaction, *, parent: str) -> int:
        """All that this session has ever sent off."""
        return await tx.scalar(select(func.count()).where(_H.parent_session == parent)) or 0

    async def undelivered(
        self, tx: Transaction, *, parent: str = "", chat: ChatId | None = None
    ) -> Sequence[Helper]:
        """Those that have ended, of which nobody has been told."""
        whose = self._whose(None, parent, chat)
        return await self._where(~_OPEN, _H.delivered_at.is_(None), whose, tx=tx)

    async def owed(self) -> Sequence[Helper]:
        """One for each chat that has still to hear of helpers of its own talk."""
        mine = _H.delivered_at.is_(None) & _H.task_id.is_(None) & (_H.depth == 1)
        ended = await self._where(~_OPEN, mine)
        return tuple({each.chat_id: each for each in ended}.values())

    async def awaits_leave(self, tx: Transaction, chat_id: ChatId) -> bool:
        """Whether the chat's talk has stopped at a call that somebody decides about."""
        talk = schema.sessions.c
        query = (
            select(_C.id)
            .join(schema.sessions, talk.id == _C.session_id)
            .where(_C.suspended, talk.key == f"chat:{chat_id}", talk.closed_at.is_(None))
            .limit(1)
        )
        return await tx.scalar(query) is not None

    async def begin(
        self, tx: Transaction, helper_id: str, *, session_id: str, now: datetime
    ) -> bool:
        """False if it has ended."""
        begun = await tx.execute(
            update(helpers)
            .where(_H.id == helper_id, _OPEN)
            .values(
                status=HelperStatus.RUNNING.value,
                session_id=session_id,
                started_at=func.coalesce(_H.started_at, literal(now, _H.started_at.type)),
            )
        )
        return begun.rowcount == 1

    async def put_back(self, tx: Transaction, helper_id: str) -> None:
        """It may begin anew."""
        await tx.execute(
            update(helpers)
            .where(_H.id == helper_id, _OPEN)
            .values(status=HelperStatus.ACCEPTED.value)
        )

    async def end(
        self, tx: Transaction, helper_id: str, status: HelperStatus, result: str, *, now: datetime
    ) -> bool:
        """False if it had ended before: then that counts."""
        ended = await tx.execute(
            update(helpers)
            .where(_H.id == helper_id, _OPEN)
            .values(status=status.value, result=result, ended_at=now)
        )
        return ended.rowcount == 1

    async def deliver(self, tx: Transaction, told: Sequence[Helper], *, now: datetime) -> None:
        """Their parent has it now. The conversations of those that keep none are forgotten."""
        ids = [each.id for each in told]
        await tx.execute(update(helpers).where(_H.id.in_(ids)).values(delivered_at=now))
        gone = [each.session_id for each in told if each.session_id and not each.keep]
        said = schema.messages.c.session_id.in_(gone)
        await tx.execute(delete(schema.messages).where(said))

    async def has_acted(self, session_id: str) -> str:
        """The first call since this session's last turn that was begun and may have changed
        something, as people see it; empty if there was none."""
        query = (
            select(_C.title)
            .join(schema.sessions, schema.sessions.c.id == _C.session_id)
            .where(
                _C.session_id == session_id,
                _C.asked_at >= schema.sessions.c.last_used_at,
                _C.started_at.is_not(None),
                _C.kind.not_in(_HARMLESS_KINDS),
                _C.tool.not_in(_HARMLESS_TOOLS),
            )
            .order_by(_C.id)
            .limit(1)
        )
        async with self._db.read() as view:
            return await view.scalar(query) or ""

    async def last_call(self, tx: Transaction, session_id: str, exact: str) -> str:
        """The number of the call under way of exactly this tool and arguments; empty where no
        calls are kept."""
        query = (
            select(_C.call_id)
            .where(
                _C.session_id == session_id,
                _C.command_hash == exact,
                _C.state == CallState.RUNNING.value,
            )
            .order_by(_C.id.desc())
            .limit(1)
        )
        return await tx.scalar(query) or ""

    async def parent_of(self, helper: Helper) -> Helper | None:
        """The helper that has sent this one off, where it was one."""
        found = await self._where(_H.session_id == helper.parent_session)
        return found[0] if found else None

    async def cut_calls(self, tx: Transaction, session_id: str, *, now: datetime) -> None:
        """Its process died: nobody knows how far came what it was making."""
        await tx.execute(
            update(tool_calls)
            .where(_C.session_id == session_id, _C.state == CallState.RUNNING.value)
            .values(state=CallState.CUT.value, ended_at=now)
        )

    async def unasked(self, tx: Transaction, session_id: str) -> Sequence[tuple[int, str]]:
        """Calls of this session that wait for a person: their rows, and the requests."""
        query = select(_C.id, _C.approval_id).where(
            _C.session_id == session_id, _C.state == CallState.OPEN.value
        )
        return [(row.id, row.approval_id or "") for row in await tx.execute(query)]

    def _whose(self, task: TaskId | None, parent: str, chat: ChatId | None) -> ColumnElement[bool]:
        if task is not None:
            return _H.task_id == task
        if parent:
            return _H.parent_session == parent
        return (_H.chat_id == chat) & _H.task_id.is_(None) & (_H.depth == 1)

    async def _where(
        self, *conditions: ColumnElement[bool], tx: Transaction | None = None
    ) -> Sequence[Helper]:
        query = select(helpers).where(*conditions).order_by(_H.created_at, _H.id)
        async with self._db.read(tx) as view:
            rows = (await view.execute(query)).all()
        return tuple(map(_helper, rows))


def _helper(row: Row[Any]) -> Helper:
    return Helper(
        id=row.id,
        source=row.source,
        parent_session=row.parent_session,
        session_id=row.session_id,
        task_id=TaskId(row.task_id) if row.task_id else None,
        path=row.path,
        chat_id=ChatId(row.chat_id),
        person_id=PersonId(row.person_id),
        depth=row.depth,
        label=row.label,
        prompt=row.prompt,
        persona=row.persona,
        keep=row.keep,
        status=HelperStatus(row.status),
        result=row.result,
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        delivered_at=row.delivered_at,
    )
