"""Summaries of a session, what each was made of, and which of them a model sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, delete, desc, func, insert, select

from storage import schema
from storage.db import Database, Transaction
from storage.memory.archive.hearing import (
    Hearing,
    Spell,
    cut_at,
    has_all,
    how_many,
    stretches_of,
)
from storage.memory.tables import context_items, summaries, summary_sources
from storage.records.memory.archive import Item, Summary

_C = context_items.c
_U = summaries.c
_O = summary_sources.c


class SummaryRepo:
    """Nothing is ever deleted but places in the context: a summary stays, and so do messages."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def items(self, session_id: str, *, tx: Transaction | None = None) -> Sequence[Item]:
        """The summaries that a model sees, in their order; none where nothing is summarised."""
        query = (
            select(_C.ordinal, _C.through, *summaries.c)
            .join(summaries, _U.id == _C.summary_id)
            .where(_C.session_id == session_id)
            .order_by(_C.ordinal)
        )
        async with self._db.read(tx) as view:
            rows = (await view.execute(query)).all()
        return [
            Item(ordinal=row.ordinal, summary=_summary(row), through=row.through) for row in rows
        ]

    async def add_leaf(self, tx: Transaction, summary: Summary, messages: Sequence[int]) -> None:
        """It takes the place of these messages, the first that nothing stood for yet."""
        sources = [{"message": each} for each in messages]
        await self._add(tx, summary, sources)
        last = select(func.coalesce(func.max(_C.ordinal), -1) + 1)
        ordinal = await tx.scalar(last.where(_C.session_id == summary.session_id))
        await self._place(tx, summary, ordinal or 0, messages[-1])

    async def fold(self, tx: Transaction, summary: Summary, parts: Sequence[Item]) -> None:
        """It takes the place of these, which are neighbours."""
        await self._add(tx, summary, [{"part": each.summary.id} for each in parts])
        gone = [each.ordinal for each in parts]
        mine = _C.session_id == summary.session_id
        await tx.execute(delete(context_items).where(mine, _C.ordinal.in_(gone)))
        await self._place(tx, summary, gone[0], parts[-1].through)

    async def get(self, summary_id: str, hearing: Hearing) -> Summary | None:
        """None also where this listener may not hear it."""
        query = select(summaries).join(schema.sessions, schema.sessions.c.id == _U.session_id)
        async with self._db.read() as view:
            row = (
                await view.execute(query.where(_U.id == summary_id, hearing.clause))
            ).one_or_none()
        return None if row is None else _summary(row)

    async def parts(self, summary_id: str) -> Sequence[Summary]:
        """The summaries that were folded into it, the oldest first."""
        query = (
            select(summaries)
            .join(summary_sources, _O.part == _U.id)
            .where(_O.summary_id == summary_id)
            .order_by(_O.ordinal)
        )
        return await self._all(query)

    async def wholes(self, summary_id: str) -> Sequence[Summary]:
        """The summaries that it was folded into."""
        query = select(summaries).join(summary_sources, _O.summary_id == _U.id)
        return await self._all(query.where(_O.part == summary_id).order_by(_U.id))

    async def messages(self, summary_id: str) -> Sequence[int]:
        """The numbers of the messages that it was made of, in order."""
        query = select(_O.message).where(_O.summary_id == summary_id, _O.message.is_not(None))
        async with self._db.read() as view:
            return list((await view.scalars(query.order_by(_O.ordinal))).all())

    async def stretches(self, hearing: Hearing, spell: Spell, size: int) -> Sequence[Spell]:
        """All of that time in stretches of about so many summaries, the newest first."""
        async with self._db.read() as view:
            cuts = (await view.scalars(stretches_of(_U.latest_at, hearing, spell, size))).all()
        return cut_at(spell, cuts)

    async def search(
        self, hearing: Hearing, words: Sequence[str], spell: Spell, limit: int
    ) -> Sequence[Summary]:
        """Those with all of these words, the newest first."""
        query = (
            select(summaries)
            .join(schema.sessions, schema.sessions.c.id == _U.session_id)
            .where(hearing.clause, *has_all(_U.content, words), *spell.clauses(_U.latest_at))
            .order_by(_U.latest_at.desc(), _U.id)
            .limit(limit)
        )
        return await self._all(query)

    async def search_most(
        self, hearing: Hearing, words: Sequence[str], spell: Spell, limit: int, *, least: int
    ) -> Sequence[tuple[int, Summary]]:
        """Those with at least that many of these words, and how many: those with most first."""
        count = how_many(_U.content, words)
        query = (
            select(summaries, count.label("hits"))
            .join(schema.sessions, schema.sessions.c.id == _U.session_id)
            .where(hearing.clause, count >= least, *spell.clauses(_U.latest_at))
            .order_by(desc("hits"), _U.latest_at.desc(), _U.id)
            .limit(limit)
        )
        async with self._db.read() as view:
            return [(row.hits, _summary(row)) for row in await view.execute(query)]

    async def _add(self, tx: Transaction, summary: Summary, sources: list[dict[str, Any]]) -> None:
        values = {name: getattr(summary, name) for name in summaries.c.keys()}  # noqa: SIM118 - columns, not a dict
        await tx.execute(insert(summaries).values(values))
        empty = {"message": None, "part": None}
        rows = [
            {**empty, **source, "summary_id": summary.id, "ordinal": n}
            for n, source in enumerate(sources)
        ]
        await tx.execute(insert(summary_sources), rows)

    async def _place(self, tx: Transaction, summary: Summary, ordinal: int, through: int) -> None:
        values = {
            "session_id": summary.session_id,
            "ordinal": ordinal,
            "summary_id": summary.id,
            "through": through,
            "tokens": summary.tokens,
        }
        await tx.execute(insert(context_items).values(values))

    async def _all(self, query: Any) -> list[Summary]:
        async with self._db.read() as view:
            return [_summary(row) for row in await view.execute(query)]


def _summary(row: Row[Any]) -> Summary:
    return Summary(
        id=row.id,
        session_id=row.session_id,
        depth=row.depth,
        content=row.content,
        tokens=row.tokens,
        earliest_at=row.earliest_at,
        latest_at=row.latest_at,
        descendants=row.descendants,
        descendant_tokens=row.descendant_tokens,
        source_tokens=row.source_tokens,
        model=row.model,
        created_at=row.created_at,
    )
