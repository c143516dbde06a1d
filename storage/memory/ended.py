"""Which tasks have come to an end since somebody last looked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select

from storage.agents.tables import tool_calls
from storage.db import Database, Transaction
from storage.marks import Marks
from storage.records.tasks import EventKind, TaskId
from storage.records.tools import CallState
from storage.schema import events

_E = events.c
_C = tool_calls.c
_LOAD = "skill_load"
_MOST_LOADED = 200
_MARK = "memory:tasks"
_ENDS = (EventKind.COMPLETED.value, EventKind.FAILED.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """`event` numbers the end itself: a task that is tried again ends again."""

    event: int
    task: TaskId
    at: datetime


class EndedTasks:
    def __init__(self, db: Database, marks: Marks) -> None:
        self._db = db
        self._marks = marks

    async def begin(self) -> None:
        """What ended before anybody looked for the first time is left alone."""
        async with self._db.write() as tx:
            if await self._marks.read(tx, _MARK) is None:
                newest = await tx.scalar(select(func.max(_E.id)))
                await self._marks.write(tx, _MARK, newest or 0)

    async def next(self, limit: int = 20) -> Sequence[Ended]:
        """The oldest that nobody has looked at."""
        seen = await self._marks.get(_MARK)
        query = (
            select(_E.id, _E.task_id, _E.at)
            .where(_E.id > (seen or 0), _E.kind.in_(_ENDS))
            .order_by(_E.id)
            .limit(limit)
        )
        async with self._db.read() as view:
            rows = (await view.execute(query)).all()
        return tuple(Ended(event=row.id, task=TaskId(row.task_id), at=row.at) for row in rows)

    async def skills(self, task: TaskId) -> Sequence[str]:
        """Those that were loaded for it, the first first. Of a coding CLI, which reads them as
        files, nothing is known."""
        query = (
            select(_C.arguments)
            .where(_C.task_id == task, _C.tool == _LOAD, _C.state == CallState.DONE.value)
            .order_by(_C.id)
            .limit(_MOST_LOADED)
        )
        async with self._db.read() as view:
            loaded = (await view.execute(query)).scalars().all()
        names = (each.get("name") for each in loaded if isinstance(each, dict))
        return tuple(dict.fromkeys(str(each).strip().casefold() for each in names if each))

    async def seen(self, tx: Transaction, ended: Ended) -> None:
        """In the transaction that makes something of it."""
        await self._marks.write(tx, _MARK, ended.event)
