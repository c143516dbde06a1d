"""Reads figures for monitoring."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from storage import schema
from storage.db import Database, record_from
from storage.memory.cells import IS_WAITING_JOB
from storage.memory_schema import memory_jobs
from storage.records.approvals import ApprovalState
from storage.records.messages import OutboxState
from storage.records.system import StoreFigures
from storage.records.tasks import TaskStatus, UsageTotals
from storage.usage import USAGE_SUMS

_T = schema.tasks.c
_A = schema.approvals.c
_OUT = schema.outbox.c
_COUNT = sa.func.count()
_NOW = sa.bindparam("now", type_=_A.expires_at.type)
_WAITING = _A.state == ApprovalState.WAITING

_TASKS = sa.select(_T.status, _COUNT).where(_T.deleted_at.is_(None)).group_by(_T.status)
_FIRST_USE = sa.func.min(schema.usage.c.id)
_MODELS = (
    sa.select(schema.usage.c.model, *USAGE_SUMS).group_by(schema.usage.c.model).order_by(_FIRST_USE)
)
_APPROVALS = sa.select(_COUNT).where(_WAITING, _A.expires_at > _NOW)
_OUTBOX = sa.select(_COUNT, sa.func.min(_OUT.updated_at)).where(
    _OUT.state == OutboxState.QUEUED.value
)
_DUE: Mapping[str, sa.Select[Any]] = {
    "schedule": sa.select(_COUNT).where(
        sa.text("next_due IS NOT NULL"), schema.schedules.c.next_due <= _NOW
    ),
    "schedule_retry": sa.select(_COUNT).where(
        sa.text("retry_at IS NOT NULL"), schema.firings.c.retry_at <= _NOW
    ),
    "task": sa.select(_COUNT).where(sa.text("wake_at IS NOT NULL"), _T.wake_at <= _NOW),
    "approval": sa.select(_COUNT).where(_WAITING, _A.expires_at <= _NOW),
    "memory": sa.select(_COUNT).where(IS_WAITING_JOB, memory_jobs.c.due_at <= _NOW),
}


class FigureRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def read(self, *, now: datetime) -> StoreFigures:
        values = {"now": now}
        async with self._db.read() as view:
            models = (await view.execute(_MODELS)).all()
            waiting, since = (await view.execute(_OUTBOX)).one()
            return StoreFigures(
                tasks={TaskStatus(name): n for name, n in await view.execute(_TASKS)},
                models=[(row.model, record_from(UsageTotals, row)) for row in models],
                waiting_approvals=(await view.execute(_APPROVALS, values)).scalar_one(),
                queued_messages=waiting,
                outbox_since=since,
                due={
                    kind: (await view.execute(query, values)).scalar_one()
                    for kind, query in _DUE.items()
                },
            )
