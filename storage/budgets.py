"""What people allowed beyond a cap, and how they are asked for more."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import func, select, update

from storage import schema
from storage.approvals import approval_about
from storage.db import Database, Transaction
from storage.dialect import insert_or_ignore
from storage.errors import NotFound
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.money import Cap, Grant, Scope

_G = schema.budget_grants.c


class BudgetRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def granted(self, scope: Scope, subject: str, day: str) -> Cap:
        """All that was allowed beyond this cap."""
        async with self._db.read() as view:
            return await granted(view, scope, subject, day)


async def granted(view: Transaction, scope: Scope, subject: str, day: str) -> Cap:
    """All that was allowed beyond this cap, seen through a transaction."""
    sums = select(
        func.coalesce(func.sum(_G.micros), 0).label("micros"),
        func.coalesce(func.sum(_G.tokens), 0).label("tokens"),
    ).where(_G.scope == scope.value, _G.subject == subject, _G.day == day)
    row = (await view.execute(sums)).one()
    return Cap(micros=int(row.micros), tokens=int(row.tokens))


async def largest_grant(view: Transaction, scope: Scope, subject: str, day: str) -> Cap:
    """The most that was allowed at once."""
    most = select(
        func.coalesce(func.max(_G.micros), 0).label("micros"),
        func.coalesce(func.max(_G.tokens), 0).label("tokens"),
    ).where(_G.scope == scope.value, _G.subject == subject, _G.day == day)
    row = (await view.execute(most)).one()
    return Cap(micros=int(row.micros), tokens=int(row.tokens))


async def add_grant(tx: Transaction, grant: Grant, *, now: datetime) -> None:
    """Once for each approval, however often it is told."""
    values = {
        "approval_id": grant.approval_id,
        "scope": grant.scope.value,
        "subject": grant.subject,
        "day": grant.day,
        "micros": grant.cap.micros,
        "tokens": grant.cap.tokens,
        "at": now,
    }
    await tx.execute(insert_or_ignore(tx.dialect.name, schema.budget_grants).values(values))


async def asked_for(tx: Transaction, about: str, *, now: datetime) -> Approval | None:
    """The request that waits for this cap, if one does."""
    try:
        newest = await approval_about(tx, ApprovalKind.BUDGET, about, now=now)
    except NotFound:
        return None
    return newest if newest.state is ApprovalState.WAITING else None


async def amend(tx: Transaction, approval_id: str, payload: Mapping[str, Any]) -> None:
    """Other facts for a request that waits."""
    rows = schema.approvals
    await tx.execute(update(rows).where(rows.c.id == approval_id).values(payload=dict(payload)))
