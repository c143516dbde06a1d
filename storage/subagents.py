"""Stores sub-agents: accepted, run, ended and delivered once each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, delete, func, literal, select, update

from storage import schema
from storage.db import Database, Transaction, records_from, row_from
from storage.dialect import insert_or_ignore
from storage.errors import NotFound
from storage.process_schema import workers
from storage.records.approvals import ToolCallState
from storage.records.people import ChatId
from storage.records.tasks import SubagentLine, SubagentStatus, TaskId
from storage.records.workers import NewSubagent, Subagent
from storage.schema import helpers, tool_calls

_H = helpers.c
_C = tool_calls.c
_UNFINISHED = _H.status.in_([SubagentStatus.ACCEPTED.value, SubagentStatus.RUNNING.value])
_IDENTITY_FIELDS = ("label", "prompt", "persona", "path", "depth")

_READ_ONLY_KINDS = ("read", "search", "fetch", "think", "ask")
"""Calls that can be repeated safely."""
_READ_ONLY_TOOLS = ("sessions_spawn",)


class SubagentRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(self, tx: Transaction, new: NewSubagent, *, id: str, now: datetime) -> Subagent:
        """Add a sub-agent, or return the existing one of this source."""
        values = row_from(new) | {"id": id, "status": SubagentStatus.ACCEPTED, "created_at": now}
        await tx.execute(insert_or_ignore(tx.dialect.name, helpers).values(values))
        return (await self._select(_H.source == new.source, tx=tx))[0]

    async def find_equal(self, tx: Transaction, new: NewSubagent) -> Subagent | None:
        """A sub-agent that the same parent started with the same request, to continue after a
        crash. In a chat only while its result is undelivered or the turn that started it is being
        repeated."""
        exact = [_H[name] == getattr(new, name) for name in _IDENTITY_FIELDS]
        if new.task_id is None:
            session = schema.sessions.c
            kept = select(session.last_used_at).where(session.id == new.parent_session)
            again = (_H.turn == new.turn) & (_H.turn != "")
            lost = again | (_H.created_at > kept.scalar_subquery())
            whose = (_H.parent_session == new.parent_session) & (_H.delivered_at.is_(None) | lost)
        else:
            whose = (_H.task_id == new.task_id) & (_H.status != SubagentStatus.FAILED.value)
        found = await self._select(whose, *exact, tx=tx)
        return found[-1] if found else None

    async def get(self, subagent_id: str, *, tx: Transaction | None = None) -> Subagent:
        found = await self._select(_H.id == subagent_id, tx=tx)
        if not found:
            raise NotFound("helper", subagent_id)
        return found[0]

    async def list_unfinished(self) -> Sequence[Subagent]:
        """Accepted or running, oldest first."""
        return await self._select(_UNFINISHED)

    async def list_lines(self, task_id: TaskId) -> tuple[SubagentLine, ...]:
        """The task's sub-agents for its card, read without their results because cards are drawn
        often."""
        query = select(_H.label, _H.status).where(_H.task_id == task_id)
        ordered = query.order_by(_H.created_at, _H.id)
        return records_from(SubagentLine, await self._db.fetch_all(ordered))

    async def count_unfinished(
        self,
        tx: Transaction,
        *,
        task: TaskId | None = None,
        parent: str = "",
        chat: ChatId | None = None,
    ) -> int:
        """Count by task at any depth, by parent session, or by chat outside tasks."""
        whose = self._owned_by(task, parent, chat)
        return await tx.scalar(select(func.count()).where(_UNFINISHED, whose)) or 0

    async def count(self, tx: Transaction, *, parent: str) -> int:
        """How many sub-agents this session has ever started."""
        return await tx.scalar(select(func.count()).where(_H.parent_session == parent)) or 0

    async def list_undelivered(
        self, tx: Transaction, *, parent: str = "", chat: ChatId | None = None
    ) -> Sequence[Subagent]:
        """Those that ended and whose result was not delivered."""
        whose = self._owned_by(None, parent, chat)
        return await self._select(~_UNFINISHED, _H.delivered_at.is_(None), whose, tx=tx)

    async def list_chats_owed_results(self) -> Sequence[Subagent]:
        """One for each chat with undelivered results outside tasks."""
        mine = _H.delivered_at.is_(None) & _H.task_id.is_(None) & (_H.depth == 1)
        ended = await self._select(~_UNFINISHED, mine)
        return tuple({each.chat_id: each for each in ended}.values())

    async def chat_awaits_approval(self, tx: Transaction, chat_id: ChatId) -> bool:
        """Whether the chat's session is suspended at a call that awaits approval."""
        talk = schema.sessions.c
        query = (
            select(_C.id)
            .join(schema.sessions, talk.id == _C.session_id)
            .where(_C.suspended, talk.key == f"chat:{chat_id}", talk.closed_at.is_(None))
            .limit(1)
        )
        return await tx.scalar(query) is not None

    async def mark_running(
        self, tx: Transaction, subagent_id: str, *, session_id: str, now: datetime
    ) -> bool:
        """False if it has ended."""
        started = func.coalesce(_H.started_at, literal(now, _H.started_at.type))
        return await _update_unfinished(
            tx,
            subagent_id,
            status=SubagentStatus.RUNNING,
            session_id=session_id,
            started_at=started,
        )

    async def claim(self, tx: Transaction, subagent_id: str, holder: str) -> bool:
        """False if it has ended or a living process runs it."""
        living = select(workers.c.id)
        free = _H.holder.in_(["", holder]) | _H.holder.not_in(living)
        claimed = update(helpers).where(_H.id == subagent_id, _UNFINISHED, free)
        return (await tx.execute(claimed.values(holder=holder))).rowcount == 1

    async def requeue(self, tx: Transaction, subagent_id: str) -> None:
        """Reset it, so that it can start again."""
        await _update_unfinished(tx, subagent_id, status=SubagentStatus.ACCEPTED)

    async def mark_ended(
        self,
        tx: Transaction,
        subagent_id: str,
        status: SubagentStatus,
        result: str,
        *,
        now: datetime,
    ) -> bool:
        """False if it had already ended: the first result stands."""
        return await _update_unfinished(tx, subagent_id, status=status, result=result, ended_at=now)

    async def mark_delivered(
        self, tx: Transaction, subagents: Sequence[Subagent], *, now: datetime
    ) -> None:
        """Mark results as delivered and delete conversations that need not be retained."""
        ids = [each.id for each in subagents]
        await tx.execute(update(helpers).where(_H.id.in_(ids)).values(delivered_at=now))
        gone = [each.session_id for each in subagents if each.session_id and not each.keep]
        said = schema.messages.c.session_id.in_(gone)
        await tx.execute(delete(schema.messages).where(said))

    async def first_side_effect(self, session_id: str) -> str:
        """The title of the first call since the session's last turn that may have changed
        something; empty if there was none, or if that turn is stored and can continue."""
        query = (
            select(_C.title)
            .join(schema.sessions, schema.sessions.c.id == _C.session_id)
            .where(
                _C.session_id == session_id,
                schema.sessions.c.open_turn == "",
                _C.asked_at >= schema.sessions.c.last_used_at,
                _C.started_at.is_not(None),
                _C.kind.not_in(_READ_ONLY_KINDS),
                _C.tool.not_in(_READ_ONLY_TOOLS),
            )
            .order_by(_C.id)
            .limit(1)
        )
        return await self._db.fetch_value(query) or ""

    async def last_running_call_id(
        self, tx: Transaction, session_id: str, command_hash: str
    ) -> str:
        """The id of the running call with exactly this tool and arguments; empty if none is
        recorded."""
        query = (
            select(_C.call_id)
            .where(
                _C.session_id == session_id,
                _C.command_hash == command_hash,
                _C.state == ToolCallState.RUNNING.value,
            )
            .order_by(_C.id.desc())
            .limit(1)
        )
        return await tx.scalar(query) or ""

    async def find_parent(self, subagent: Subagent) -> Subagent | None:
        """The sub-agent that started this one, if any."""
        found = await self._select(_H.session_id == subagent.parent_session)
        return found[0] if found else None

    async def list_open_calls(self, tx: Transaction, session_id: str) -> Sequence[tuple[int, str]]:
        """Calls of this session that await a person: their row ids and approval ids."""
        query = select(_C.id, _C.approval_id).where(
            _C.session_id == session_id, _C.state == ToolCallState.OPEN.value
        )
        return [(row.id, row.approval_id or "") for row in await tx.execute(query)]

    def _owned_by(
        self, task: TaskId | None, parent: str, chat: ChatId | None
    ) -> ColumnElement[bool]:
        if task is not None:
            return _H.task_id == task
        if parent:
            return _H.parent_session == parent
        return (_H.chat_id == chat) & _H.task_id.is_(None) & (_H.depth == 1)

    async def _select(
        self, *conditions: ColumnElement[bool], tx: Transaction | None = None
    ) -> Sequence[Subagent]:
        query = select(helpers).where(*conditions).order_by(_H.created_at, _H.id)
        return records_from(Subagent, await self._db.fetch_all(query, tx=tx))


async def _update_unfinished(tx: Transaction, subagent_id: str, **values: Any) -> bool:
    changed = update(helpers).where(_H.id == subagent_id, _UNFINISHED).values(values)
    return (await tx.execute(changed)).rowcount == 1
