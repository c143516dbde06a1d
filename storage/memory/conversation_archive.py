"""Stores searchable transcripts of sessions and their summaries, with access control."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Select,
    and_,
    case,
    delete,
    desc,
    func,
    insert,
    literal,
    not_,
    or_,
    select,
)

from storage import schema
from storage.db import Database, Transaction, record_from, records_from
from storage.dialect import insert_or_ignore
from storage.ids import SHORT_ID_LENGTH
from storage.memory.tombstones import ForgottenTurns, TombstoneRepo
from storage.memory.withheld_turns import is_withheld_session
from storage.memory_schema import context_items, message_texts, summaries, summary_sources
from storage.records.conversation_archive import (
    ContextSummary,
    ConversationSummary,
    MessagePart,
    MessageSize,
    TranscriptMatch,
    TranscriptRole,
)
from storage.records.people import ChatId, ChatKind, PersonId
from storage.schema import helpers
from storage.search.chinese import han_spellings
from storage.tasks import TaskVisibility

_S = schema.sessions.c
_C = schema.chats.c
_H = helpers.c
_CHAT, _TASK, _SUBAGENT = "chat:", "task:", "helper:"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveAccess:
    """Who may read which sessions: those of `chat`; all private chats of `person`, if only they
    read here; tasks in `task_visibility`; and the sub-agents of all these."""

    chat: ChatId | None
    person: PersonId | None = None
    task_visibility: TaskVisibility | None = None

    @property
    def where_clause(self) -> ColumnElement[bool]:
        """A condition on `sessions`, by their keys."""
        found: list[ColumnElement[bool]] = [_S.key == f"{_CHAT}{self.chat}"]
        sent: list[ColumnElement[bool]] = [and_(_H.task_id.is_(None), _H.chat_id == self.chat)]
        if self.person is not None:
            own = and_(_C.person_id == self.person, _C.kind == ChatKind.PRIVATE.value)
            found.append(_S.key.in_(select(literal(_CHAT) + _C.id).where(own)))
            sent.append(and_(_H.task_id.is_(None), _H.chat_id.in_(select(_C.id).where(own))))
        if self.task_visibility is not None:
            task = func.substr(_S.key, len(_TASK) + 1, SHORT_ID_LENGTH)
            seen = select(schema.tasks.c.id).where(self.task_visibility.where_clause)
            found.append(and_(_S.key.startswith(_TASK, autoescape=True), task.in_(seen)))
            sent.append(_H.task_id.in_(seen))
        found.append(_S.key.in_(select(literal(_SUBAGENT) + _H.id).where(or_(*sent))))
        # Words that must not be kept are not found while their conversation goes on.
        return and_(or_(*found), not_(is_withheld_session()))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """A half-open time range, `since` included and `before` excluded; None is unlimited."""

    since: datetime | None = None
    before: datetime | None = None

    def where_clauses(self, column: ColumnElement[Any]) -> Iterator[ColumnElement[bool]]:
        if self.since is not None:
            yield column >= self.since
        if self.before is not None:
            yield column < self.before


def time_cuts_query(
    at: Column[Any], access: ArchiveAccess, time_range: TimeRange, size: int
) -> Select[Any]:
    """Times that split `time_range` into ranges of about `size` rows each, newest first. `at` is a
    column of a table with a `session_id`."""
    number = func.row_number().over(order_by=at.desc()).label("number")
    rows = (
        select(at.label("at"), number)
        .join(schema.sessions, _S.id == at.table.c.session_id)
        .where(access.where_clause, *time_range.where_clauses(at))
        .subquery()
    )
    return select(rows.c.at).where(rows.c.number % size == 0).order_by(rows.c.number)


def split_time_range(time_range: TimeRange, cuts: Sequence[datetime]) -> Sequence[TimeRange]:
    """Disjoint ranges between these cuts, newest first."""
    whole = dict.fromkeys(cuts)
    return [
        TimeRange(since=since, before=before)
        for since, before in zip(
            (*whole, time_range.since), (time_range.before, *whole), strict=True
        )
    ]


def count_matches(text: ColumnElement[str], words: Sequence[str]) -> ColumnElement[int]:
    """How many of these words the text contains."""
    count: ColumnElement[int] = literal(0)
    for found in contains_words(text, words):
        count += case((found, 1), else_=0)
    return count


def contains_words(text: ColumnElement[str], words: Sequence[str]) -> list[ColumnElement[bool]]:
    """One case-insensitive condition for each word, in simplified or traditional characters."""
    return [
        or_(*(text.icontains(each, autoescape=True) for each in han_spellings(word)))
        for word in words
    ]


_M = schema.messages.c
_T = message_texts.c
_KEY_SEPARATOR = re.compile("[:/]")
"""Ends the task id in a session key."""

_LAST_INDEXED = (
    select(func.coalesce(func.max(_T.message), 0)).where(_T.session_id == _S.id).scalar_subquery()
)
_LAST_MESSAGE = (
    select(func.coalesce(func.max(_M.seq), 0)).where(_M.session_id == _S.id).scalar_subquery()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawMessage:
    """A message in its backend's own format, usually not indexed yet."""

    message: int
    content: Any
    at: datetime


class ArchiveRepo:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._tombstones = TombstoneRepo(db)

    async def list_unindexed_sessions(self, access: ArchiveAccess | None = None) -> Sequence[str]:
        """Sessions with unindexed messages, limited to `access` if given."""
        query = select(_S.id).where(_LAST_MESSAGE > _LAST_INDEXED)
        if access is not None:
            query = query.where(access.where_clause)
        return list(await self._db.fetch_column(query.order_by(_S.last_used_at.desc())))

    async def list_unindexed_messages(self, session_id: str, limit: int) -> Sequence[RawMessage]:
        """The session's first unindexed messages, in order."""
        known = select(func.coalesce(func.max(_T.message), 0)).where(_T.session_id == session_id)
        query = (
            select(_M.seq, _M.content, _M.at)
            .where(_M.session_id == session_id, _M.seq > known.scalar_subquery())
            .order_by(_M.seq)
            .limit(limit)
        )
        rows = await self._db.fetch_all(query)
        return [RawMessage(message=row.seq, content=row.content, at=row.at) for row in rows]

    async def find_message(self, session_id: str, number: int) -> RawMessage | None:
        """The message as stored, or None."""
        query = select(_M.seq, _M.content, _M.at)
        query = query.where(_M.session_id == session_id, _M.seq == number)
        row = await self._db.fetch_one(query)
        return None if row is None else RawMessage(message=row.seq, content=row.content, at=row.at)

    async def save_parts(
        self, tx: Transaction, session_id: str, parts: Sequence[MessagePart]
    ) -> None:
        """Save a message's parts; saving them again changes nothing. Every message needs at least
        one."""
        rows = [
            {
                "session_id": session_id,
                "message": part.message,
                "ordinal": part.ordinal,
                "role": part.role.value,
                "text": part.text,
                "tokens": part.tokens,
                "at": part.at,
            }
            for part in parts
        ]
        if rows:
            await tx.execute(insert_or_ignore(self._db.dialect, message_texts), rows)

    async def list_sizes(self, session_id: str, *, after: int = 0) -> Sequence[MessageSize]:
        """Sizes of all messages numbered above `after`, in order."""
        query = (
            select(_T.message, _T.role, _T.tokens)
            .where(_T.session_id == session_id, _T.message > after)
            .order_by(_T.message, _T.ordinal)
        )
        found: dict[int, tuple[set[TranscriptRole], int]] = {}
        async with self._db.read_once() as view:
            for row in await view.execute(query):
                roles, tokens = found.get(row.message, (set(), 0))
                found[row.message] = ({*roles, TranscriptRole(row.role)}, tokens + row.tokens)
        return [
            MessageSize(message=n, roles=frozenset(roles), tokens=tokens)
            for n, (roles, tokens) in found.items()
        ]

    async def list_parts(self, session_id: str, first: int, last: int) -> Sequence[MessagePart]:
        """The parts of messages `first` to `last`, in order."""
        query = (
            select(message_texts)
            .where(_T.session_id == session_id, _T.message.between(first, last))
            .order_by(_T.message, _T.ordinal)
        )
        return records_from(MessagePart, await self._db.fetch_all(query))

    async def list_last_parts(
        self, session_id: str, roles: Sequence[TranscriptRole], limit: int
    ) -> Sequence[MessagePart]:
        """The last parts of these roles that have text, in order."""
        query = (
            select(message_texts)
            .where(_T.session_id == session_id, _has_role(roles), _T.text != "")
            .order_by(_T.message.desc(), _T.ordinal.desc())
            .limit(limit)
        )
        rows = await self._db.fetch_all(query)
        return records_from(MessagePart, reversed(rows))

    async def search_all_words(
        self,
        access: ArchiveAccess,
        words: Sequence[str],
        time_range: TimeRange,
        limit: int,
        *,
        roles: Sequence[TranscriptRole] = tuple(TranscriptRole),
    ) -> Sequence[TranscriptMatch]:
        """Parts that contain all these words, newest first."""
        query = (
            _select_matches(access, time_range, roles)
            .where(*contains_words(_T.text, words))
            .limit(limit)
        )
        return records_from(TranscriptMatch, await self._db.fetch_all(query))

    async def search_any_word(
        self,
        access: ArchiveAccess,
        words: Sequence[str],
        time_range: TimeRange,
        limit: int,
        *,
        min_hits: int,
        roles: Sequence[TranscriptRole] = tuple(TranscriptRole),
    ) -> Sequence[tuple[int, TranscriptMatch]]:
        """Parts with at least `min_hits` of these words and their number of hits, most hits
        first."""
        count = count_matches(_T.text, words)
        query = _select_matches(access, time_range, roles).add_columns(count.label("hits"))
        newest = (_T.at.desc(), _T.session_id, _T.message.desc())
        # Ordered by the column's name, so that it is not computed twice.
        query = query.where(count >= min_hits).order_by(None).order_by(desc("hits"), *newest)
        rows = await self._db.fetch_all(query.limit(limit))
        return [(row.hits, record_from(TranscriptMatch, row)) for row in rows]

    async def split_time(
        self, access: ArchiveAccess, time_range: TimeRange, size: int
    ) -> Sequence[TimeRange]:
        """Split a time range into ranges of about `size` parts, newest first. Cutting by time keeps
        them stable while messages arrive."""
        cuts = await self._db.fetch_column(time_cuts_query(_T.at, access, time_range, size))
        return split_time_range(time_range, cuts)

    async def can_read(self, access: ArchiveAccess, session_id: str) -> bool:
        query = select(_S.id).where(_S.id == session_id, access.where_clause)
        return await self._db.fetch_value(query) is not None

    async def previous_session_id(self, session_id: str) -> str:
        """The key's previous session; empty if there is none."""
        this = select(_S.key, _S.started_at).where(_S.id == session_id).subquery()
        query = (
            select(_S.id)
            .join(this, _S.key == this.c.key)
            .where(_S.id != session_id, _S.started_at <= this.c.started_at)
            .order_by(_S.started_at.desc(), _S.id.desc())
            .limit(1)
        )
        return await self._db.fetch_value(query) or ""

    async def get_forgotten_turns(self, session_id: str) -> ForgottenTurns:
        """Forgotten turns of the session's chat or task."""
        key = await self._db.fetch_value(select(_S.key).where(_S.id == session_id)) or ""
        kind, _, name = key.partition(":")
        return await self._tombstones.get_forgotten_turns(f"{kind}:{_KEY_SEPARATOR.split(name)[0]}")


def _select_matches(
    access: ArchiveAccess, time_range: TimeRange, roles: Sequence[TranscriptRole]
) -> Select[Any]:
    return (
        select(message_texts, _S.key)
        .join(schema.sessions, _S.id == _T.session_id)
        .where(
            access.where_clause, _has_role(roles), _T.text != "", *time_range.where_clauses(_T.at)
        )
        .order_by(_T.at.desc(), _T.session_id, _T.message.desc(), _T.ordinal.desc())
    )


def _has_role(roles: Sequence[TranscriptRole]) -> ColumnElement[bool]:
    return _T.role.in_([role.value for role in roles])


_CONTEXT = context_items.c
_SUMMARY = summaries.c
_SOURCE = summary_sources.c


class SummaryRepo:
    """Retention alone deletes summaries and messages; their sources may be gone before them."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def list_context(
        self, session_id: str, *, tx: Transaction | None = None
    ) -> Sequence[ContextSummary]:
        """The summaries that are part of the model's context, in order."""
        query = (
            select(_CONTEXT.ordinal, _CONTEXT.through, *summaries.c)
            .join(summaries, _SUMMARY.id == _CONTEXT.summary_id)
            .where(_CONTEXT.session_id == session_id)
            .order_by(_CONTEXT.ordinal)
        )
        rows = await self._db.fetch_all(query, tx=tx)
        return [
            record_from(ContextSummary, row, summary=record_from(ConversationSummary, row))
            for row in rows
        ]

    async def add_leaf(
        self, tx: Transaction, summary: ConversationSummary, messages: Sequence[int]
    ) -> None:
        """Add a summary that replaces these messages, the first ones not summarized yet."""
        sources = [{"message": each} for each in messages]
        await self._add(tx, summary, sources)
        last = select(func.coalesce(func.max(_CONTEXT.ordinal), -1) + 1)
        ordinal = await tx.scalar(last.where(_CONTEXT.session_id == summary.session_id))
        await self._add_to_context(tx, summary, ordinal or 0, messages[-1])

    async def add_condensed(
        self, tx: Transaction, summary: ConversationSummary, parts: Sequence[ContextSummary]
    ) -> None:
        """Add a summary that replaces these adjacent summaries."""
        await self._add(tx, summary, [{"part": each.summary.id} for each in parts])
        gone = [each.ordinal for each in parts]
        mine = _CONTEXT.session_id == summary.session_id
        await tx.execute(delete(context_items).where(mine, _CONTEXT.ordinal.in_(gone)))
        await self._add_to_context(tx, summary, gone[0], parts[-1].through)

    async def find(self, summary_id: str, access: ArchiveAccess) -> ConversationSummary | None:
        """None if it does not exist or `access` does not cover it."""
        query = select(summaries).join(schema.sessions, schema.sessions.c.id == _SUMMARY.session_id)
        row = await self._db.fetch_one(query.where(_SUMMARY.id == summary_id, access.where_clause))
        return record_from(ConversationSummary, row)

    async def list_parts(self, summary_id: str) -> Sequence[ConversationSummary]:
        """The summaries it condenses, oldest first."""
        query = (
            select(summaries)
            .join(summary_sources, _SOURCE.part == _SUMMARY.id)
            .where(_SOURCE.summary_id == summary_id)
            .order_by(_SOURCE.ordinal)
        )
        return await self._fetch(query)

    async def list_parents(self, summary_id: str) -> Sequence[ConversationSummary]:
        """The summaries that condense it."""
        query = select(summaries).join(summary_sources, _SOURCE.summary_id == _SUMMARY.id)
        return await self._fetch(query.where(_SOURCE.part == summary_id).order_by(_SUMMARY.id))

    async def list_message_numbers(self, summary_id: str) -> Sequence[int]:
        """The numbers of the messages it summarizes, in order."""
        query = select(_SOURCE.message).where(
            _SOURCE.summary_id == summary_id, _SOURCE.message.is_not(None)
        )
        return list(await self._db.fetch_column(query.order_by(_SOURCE.ordinal)))

    async def split_time(
        self, access: ArchiveAccess, time_range: TimeRange, size: int
    ) -> Sequence[TimeRange]:
        """Split a time range into ranges of about `size` summaries, newest first."""
        cuts = await self._db.fetch_column(
            time_cuts_query(_SUMMARY.latest_at, access, time_range, size)
        )
        return split_time_range(time_range, cuts)

    async def search_all_words(
        self, access: ArchiveAccess, words: Sequence[str], time_range: TimeRange, limit: int
    ) -> Sequence[ConversationSummary]:
        """Summaries with all these words, newest first."""
        query = (
            select(summaries)
            .join(schema.sessions, schema.sessions.c.id == _SUMMARY.session_id)
            .where(
                access.where_clause,
                *contains_words(_SUMMARY.content, words),
                *time_range.where_clauses(_SUMMARY.latest_at),
            )
            .order_by(_SUMMARY.latest_at.desc(), _SUMMARY.id)
            .limit(limit)
        )
        return await self._fetch(query)

    async def search_any_word(
        self,
        access: ArchiveAccess,
        words: Sequence[str],
        time_range: TimeRange,
        limit: int,
        *,
        min_hits: int,
    ) -> Sequence[tuple[int, ConversationSummary]]:
        """Summaries with at least `min_hits` of these words and their number of hits, most hits
        first."""
        count = count_matches(_SUMMARY.content, words)
        query = (
            select(summaries, count.label("hits"))
            .join(schema.sessions, schema.sessions.c.id == _SUMMARY.session_id)
            .where(
                access.where_clause,
                count >= min_hits,
                *time_range.where_clauses(_SUMMARY.latest_at),
            )
            .order_by(desc("hits"), _SUMMARY.latest_at.desc(), _SUMMARY.id)
            .limit(limit)
        )
        return [
            (row.hits, record_from(ConversationSummary, row))
            for row in await self._db.fetch_all(query)
        ]

    async def _add(
        self, tx: Transaction, summary: ConversationSummary, sources: list[dict[str, Any]]
    ) -> None:
        values = {name: getattr(summary, name) for name in summaries.c.keys()}  # noqa: SIM118 - columns, not a dict
        await tx.execute(insert(summaries).values(values))
        empty = {"message": None, "part": None}
        rows = [
            {**empty, **source, "summary_id": summary.id, "ordinal": n}
            for n, source in enumerate(sources)
        ]
        await tx.execute(insert(summary_sources), rows)

    async def _add_to_context(
        self, tx: Transaction, summary: ConversationSummary, ordinal: int, through: int
    ) -> None:
        values = {
            "session_id": summary.session_id,
            "ordinal": ordinal,
            "summary_id": summary.id,
            "through": through,
            "tokens": summary.tokens,
        }
        await tx.execute(insert(context_items).values(values))

    async def _fetch(self, query: Any) -> Sequence[ConversationSummary]:
        return records_from(ConversationSummary, await self._db.fetch_all(query))
