"""What model calls used, and what that cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, FromClause, case, func, insert, literal, or_, select

from storage import schema
from storage.db import Database, Transaction
from storage.dialect import FixedWrite
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
    func.coalesce(func.sum(_U.cache_read_tokens), 0).label("cache_read_tokens"),
    func.coalesce(func.sum(_U.cache_write_tokens), 0).label("cache_write_tokens"),
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


_BILL = tuple(each.name for each in fields(Bill))
_ADD = FixedWrite(lambda _: insert(schema.usage), *_BILL)


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledId:
    """A bill as its row tells it from all others: no two calls of one account end in the same
    microsecond with the same use."""

    at: datetime
    tokens: int
    task_id: str | None
    person_id: str | None
    chat_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Which usage is meant: since then, of that task, with that in the model's name; where a
    person is given, theirs and that chat's only."""

    since: datetime | None = None
    task: TaskId | None = None
    person: PersonId | None = None
    chat: ChatId | None = None
    model: str = ""


class UsageRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(self, tx: Transaction, bill: Bill) -> BilledId:
        await _ADD.send(tx, {name: getattr(bill, name) for name in _BILL})
        return BilledId(
            at=bill.at,
            tokens=bill.input_tokens + bill.output_tokens,
            task_id=bill.task_id,
            person_id=bill.person_id,
            chat_id=bill.chat_id,
        )

    async def stored(self, bills: Sequence[BilledId]) -> frozenset[BilledId]:
        """Those of them that are in the store by now."""
        if not bills:
            return frozenset()
        tokens = (_U.input_tokens + _U.output_tokens).label("tokens")
        query = select(_U.at, tokens, _U.task_id, _U.person_id, _U.chat_id)
        query = query.where(_U.at.in_([each.at for each in bills]))
        async with self._db.read() as connection:
            rows = (await connection.execute(query)).all()
        return frozenset(bills) & {BilledId(**row._asdict()) for row in rows}

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

    async def sum(self, span: Span) -> Spent:
        async with self._db.read() as connection:
            return _spent((await connection.execute(select(*_SUMS).where(*_within(span)))).one())

    async def by_model(self, span: Span) -> Sequence[CostLine]:
        """Dearest first, as the others are."""
        return await self._by(_U.model, schema.usage, span)

    async def by_purpose(self, span: Span) -> Sequence[CostLine]:
        return await self._by(_U.purpose, schema.usage, span)

    async def by_person(self, span: Span) -> Sequence[CostLine]:
        people = schema.people
        joined = schema.usage.outerjoin(people, people.c.id == _U.person_id)
        return await self._by(people.c.name, joined, span)

    async def by_chat(self, span: Span) -> Sequence[CostLine]:
        """A chat by its title, or whom it is with, and its channel."""
        chats, people = schema.chats, schema.people
        joined = schema.usage.outerjoin(chats, chats.c.id == _U.chat_id).outerjoin(
            people, people.c.id == chats.c.person_id
        )
        title = func.coalesce(func.nullif(chats.c.title, ""), people.c.name, "")
        return await self._by(chats.c.channel + literal(" ") + title, joined, span)

    async def _by(
        self, name: ColumnElement[str], source: FromClause, span: Span
    ) -> Sequence[CostLine]:
        what = func.coalesce(name, "").label("name")
        query = (
            select(what, *_SUMS)
            .select_from(source)
            .where(*_within(span))
            .group_by(what)
            .order_by(func.coalesce(func.sum(_U.cost_micros), 0).desc(), what)
        )
        async with self._db.read() as connection:
            rows = (await connection.execute(query)).all()
        return tuple(CostLine(name=row.name.strip(), spent=_spent(row)) for row in rows)


def _within(span: Span) -> Iterator[ColumnElement[bool]]:
    if span.since is not None:
        yield _U.at >= span.since
    if span.task is not None:
        yield _U.task_id == span.task
    if span.person is not None:
        yield or_(_U.person_id == span.person, _U.chat_id == span.chat)
    if span.model:
        yield func.lower(_U.model).contains(span.model.lower(), autoescape=True)


def _spent(row: Any) -> Spent:
    return Spent(
        calls=row.calls,
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        cost_micros=row.cost_micros,
        unpriced=row.unpriced,
        cache_read_tokens=row.cache_read_tokens,
        cache_write_tokens=row.cache_write_tokens,
    )
