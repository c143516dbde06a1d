"""What model calls used, and what that cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, case, func, insert, or_, select, true

from storage import schema
from storage.db import Database, Transaction
from storage.records.money import Scope
from storage.records.people import ChatId, PersonId
from storage.records.status import CostLine
from storage.records.tasks import Spent, TaskId

_U = schema.usage.c
_SUMS = (
    func.coalesce(func.sum(_U.requests), 0).label("calls"),
    func.coalesce(func.sum(_U.input_tokens), 0).label("input_tokens"),
    func.coalesce(func.sum(_U.output_tokens), 0).label("output_tokens"),
    func.coalesce(func.sum(_U.cost_micros), 0).label("cost_micros"),
    func.coalesce(func.sum(case((_U.cost_micros.is_(None), 1), else_=0)), 0).label("unpriced"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """One run of a model. `cost_micros` is US dollars in millionths, None where no price is
    known."""

    at: datetime
    purpose: str
    backend: str
    model: str
    person_id: PersonId | None
    chat_id: ChatId | None
    task_id: TaskId | None
    requests: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_micros: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledId:
    """A bill's row, told from another that took its number after it was rolled back."""

    id: int
    at: datetime
    tokens: int


class UsageRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(self, tx: Transaction, bill: Bill) -> BilledId:
        values = {name: getattr(bill, name) for name in bill.__dataclass_fields__}
        added = await tx.execute(insert(schema.usage).values(values).returning(_U.id))
        tokens = bill.input_tokens + bill.output_tokens
        return BilledId(id=added.scalar_one(), at=bill.at, tokens=tokens)

    async def stored(self, bills: Sequence[BilledId]) -> frozenset[BilledId]:
        """Those of them that are in the store by now."""
        if not bills:
            return frozenset()
        tokens = (_U.input_tokens + _U.output_tokens).label("tokens")
        query = select(_U.id, _U.at, tokens).where(_U.id.in_([each.id for each in bills]))
        async with self._db.read() as connection:
            rows = (await connection.execute(query)).all()
        found = {BilledId(id=row.id, at=row.at, tokens=row.tokens) for row in rows}
        return frozenset(each for each in bills if each in found)

    async def charged(self, scope: Scope, subject: str, since: datetime | None) -> Spent:
        """All that counts against a cap of that scope; without `since`, ever."""
        whom = {Scope.TASK: _U.task_id, Scope.PERSON: _U.person_id, Scope.CHAT: _U.chat_id}
        query = select(*_SUMS)
        if scope in whom:
            query = query.where(whom[scope] == subject)
        if since is not None:
            query = query.where(_U.at >= since)
        async with self._db.read() as connection:
            return _spent((await connection.execute(query)).one())

    async def of_task(self, task_id: TaskId) -> Spent:
        async with self._db.read() as connection:
            row = (await connection.execute(select(*_SUMS).where(_U.task_id == task_id))).one()
        return _spent(row)

    async def since(self, when: datetime, person: PersonId | None, chat: ChatId | None) -> Spent:
        """All since then; where a person is given, theirs and that chat's only."""
        query = select(*_SUMS).where(_U.at >= when, _sight(person, chat))
        async with self._db.read() as connection:
            return _spent((await connection.execute(query)).one())

    async def by_model(
        self, when: datetime, person: PersonId | None, chat: ChatId | None
    ) -> Sequence[CostLine]:
        """The same by model, dearest first."""
        query = (
            select(_U.model, *_SUMS)
            .where(_U.at >= when, _sight(person, chat))
            .group_by(_U.model)
            .order_by(func.coalesce(func.sum(_U.cost_micros), 0).desc(), _U.model)
        )
        async with self._db.read() as connection:
            rows = (await connection.execute(query)).all()
        return tuple(CostLine(model=row.model, spent=_spent(row)) for row in rows)


def _sight(person: PersonId | None, chat: ChatId | None) -> ColumnElement[bool]:
    if person is None:
        return true()
    return or_(_U.person_id == person, _U.chat_id == chat)


def _spent(row: Any) -> Spent:
    return Spent(
        calls=row.calls,
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        cost_micros=row.cost_micros,
        unpriced=row.unpriced,
    )
