"""Stores which turns of a chat must not be kept, and erases them when their conversation ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from storage import schema
from storage.db import Database, Transaction
from storage.dialect import upsert
from storage.memory_schema import context_items, message_texts, summaries, summary_sources
from storage.messages.inbox import inbox_row_from
from storage.records.messages import InboxId, InboxRow, InboxState, OutboxState
from storage.records.people import ChatId

_PREFIX = "withheld:"
_CHAT = "chat:"
_WORDLESS: Mapping[str, Mapping[str, Any]] = {
    "message": {"text": "…", "attachments": []},
    "press": {"value": "", "form": {}},
}
_MAX_LOOKED_AT = 30
_S, _I, _O = schema.sessions.c, schema.inbox.c, schema.outbox.c
_H, _N = schema.helpers.c, schema.marks.c
_UNSETTLED = (InboxState.NEW.value, InboxState.HELD.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class WithheldTurns:
    """The inbox rows of a chat that must not be kept, and the spans of its conversations that have
    them, the last one open: what is answered later may repeat the words."""

    chat: ChatId
    inbox: tuple[int, ...]
    spans: tuple[tuple[datetime, datetime | None], ...]

    def has_message(self, source: str) -> bool:
        """Whether the event of this name must not be kept."""
        return source in {f"inbox:{each}" for each in self.inbox}

    def during(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
        """Whether this time lies in one of the spans."""
        return sa.or_(
            sa.false(),
            *(
                column >= since if until is None else column.between(since, until)
                for since, until in self.spans
            ),
        )


def is_withheld_session() -> sa.ColumnElement[bool]:
    """A condition on `sessions`: an open conversation with words that must not be kept, or one of
    its sub-agents."""
    names = sa.select(sa.func.substr(_N.name, len(_PREFIX) + 1)).where(
        _N.name.startswith(_PREFIX, autoescape=True)
    )
    open_chat = _S.closed_at.is_(None) & sa.func.substr(_S.key, len(_CHAT) + 1).in_(names)
    parent = schema.sessions.alias()
    inside = sa.select(_H.session_id).join(parent, parent.c.id == _H.parent_session)
    inside = inside.where(
        parent.c.closed_at.is_(None), sa.func.substr(parent.c.key, len(_CHAT) + 1).in_(names)
    )
    return open_chat | _S.id.in_(inside)


class WithheldTurnRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(
        self,
        tx: Transaction,
        chat: ChatId,
        rows: Iterable[InboxRow],
        span: tuple[datetime, datetime | None],
    ) -> None:
        """Withhold these messages of the chat, and what was said in this time."""
        known = await self.get(chat, tx=tx)
        inbox = {*(known.inbox if known else ()), *(row.id for row in rows)}
        spans = {*(known.spans if known else ()), span}
        started = [since for since, until in spans if until is None]
        kept = {each for each in spans if each[1] is not None}
        kept |= {(min(started), None)} if started else set()
        await _save(tx, WithheldTurns(chat=chat, inbox=tuple(sorted(inbox)), spans=tuple(kept)))

    async def get(self, chat: ChatId, *, tx: Transaction | None = None) -> WithheldTurns | None:
        query = sa.select(_N.value).where(_N.name == f"{_PREFIX}{chat}")
        return _from_value(chat, await self._db.fetch_value(query, tx=tx))

    async def list_all(self) -> Sequence[WithheldTurns]:
        query = sa.select(schema.marks).where(_N.name.startswith(_PREFIX, autoescape=True))
        rows = await self._db.fetch_all(query)
        found = [_from_value(ChatId(row.name.removeprefix(_PREFIX)), row.value) for row in rows]
        return [each for each in found if each is not None]

    async def erase(self, tx: Transaction, turns: WithheldTurns) -> bool:
        """Erase what is left of an ended conversation and drop the note of it. False, with the note
        kept, while something is on its way."""
        done = await _erase(tx, turns)
        if done:
            await tx.execute(sa.delete(schema.marks).where(_N.name == f"{_PREFIX}{turns.chat}"))
        return done

    async def get_message(self, tx: Transaction, number: int) -> InboxRow | None:
        row = (await tx.execute(sa.select(schema.inbox).where(_I.id == number))).one_or_none()
        return None if row is None else inbox_row_from(row)

    async def list_messages(
        self, tx: Transaction, chat: ChatId, *, since: datetime
    ) -> Sequence[InboxRow]:
        query = sa.select(schema.inbox).where(_I.chat_id == chat, _I.received_at >= since)
        return [inbox_row_from(row) for row in await tx.execute(query)]

    async def list_before(self, tx: Transaction, row: InboxRow) -> Sequence[InboxRow]:
        """The messages of this sender before this one, newest first."""
        query = (
            sa.select(schema.inbox)
            .where(
                _I.chat_id == row.chat_id,
                _I.id < row.id,
                _I.incoming["kind"].as_string() == "message",
                _I.incoming["sender"]["external_id"].as_string() == row.incoming.sender.external_id,
            )
            .order_by(_I.id.desc())
            .limit(_MAX_LOOKED_AT)
        )
        return [inbox_row_from(each) for each in await tx.execute(query)]

    async def find_replied_to(
        self, tx: Transaction, chat: ChatId, message_id: str
    ) -> InboxRow | None:
        """The message with this id on its platform, or the one that this message answers."""
        said = sa.select(schema.inbox).where(
            _I.chat_id == chat, _I.incoming["message_id"].as_string() == message_id
        )
        row = (await tx.execute(said.limit(1))).one_or_none()
        if row is not None:
            return inbox_row_from(row)
        placed = schema.placements.c
        card = sa.select(_O.key).join(schema.placements, placed.outbox_id == _O.id)
        key = await tx.scalar(card.where(placed.chat_id == chat, placed.message_id == message_id))
        number = (key or "").removeprefix("reply:")
        return await self.get_message(tx, int(number)) if number.isdecimal() else None

    async def list_joined(self, tx: Transaction, row: InboxRow) -> Sequence[InboxRow]:
        """The messages that were answered together with this one."""
        query = sa.select(schema.inbox).where(
            _I.chat_id == row.chat_id, _I.outcome == f"joined {row.id}"
        )
        return [inbox_row_from(each) for each in await tx.execute(query)]


async def erase_ended_conversation(tx: Transaction, session_key: str) -> None:
    """Erase what must not outlive the conversation of this key, in the transaction that ends it.
    The note of it stays until the database file is clean too."""
    if not session_key.startswith(_CHAT):
        return
    chat = ChatId(session_key.removeprefix(_CHAT))
    value = await tx.scalar(sa.select(_N.value).where(_N.name == f"{_PREFIX}{chat}"))
    turns = _from_value(chat, value)
    if turns is not None:
        await _erase(tx, turns)


async def _erase(tx: Transaction, turns: WithheldTurns) -> bool:
    mine = [*await tx.scalars(sa.select(_S.id).where(_S.key == f"{_CHAT}{turns.chat}"))]
    subagents = (
        await tx.execute(
            sa.select(_H.id, _H.session_id).where(
                _H.parent_session.in_(mine), turns.during(_H.created_at)
            )
        )
    ).all()
    inside = [*mine, *(row.session_id for row in subagents if row.session_id)]
    await _erase_transcripts(tx, turns, inside)
    silent = {"label": "", "prompt": "", "result": ""}
    helper_ids = [row.id for row in subagents]
    await tx.execute(sa.update(schema.helpers).where(_H.id.in_(helper_ids)).values(silent))
    await _erase_messages(tx, turns.inbox)
    cards = _O.chat_id == turns.chat, _O.key.startswith("reply:"), turns.during(_O.created_at)
    await _delete_cards(tx, cards)
    names = [f"chat.answer.{turns.chat}", f"unanswered:{turns.chat}"]
    await tx.execute(sa.delete(schema.marks).where(_N.name.in_(names)))
    waits = sa.select(_I.id).where(_I.id.in_(turns.inbox), _I.state.in_(_UNSETTLED))
    queued = sa.select(_O.id).where(*cards, _O.state == OutboxState.QUEUED.value)
    return await tx.scalar(waits.limit(1)) is None and await tx.scalar(queued.limit(1)) is None


async def _erase_transcripts(
    tx: Transaction, turns: WithheldTurns, sessions: Collection[str]
) -> None:
    for table in (schema.messages, message_texts):
        here = table.c.session_id.in_(sessions)
        await tx.execute(sa.delete(table).where(here, turns.during(table.c.at)))
    first = min(since for since, _ in turns.spans)
    told = sa.select(summaries.c.id).where(
        summaries.c.session_id.in_(sessions), summaries.c.latest_at >= first
    )
    ids = [*await tx.scalars(told)]
    either = summary_sources.c.summary_id.in_(ids) | summary_sources.c.part.in_(ids)
    await tx.execute(sa.delete(summary_sources).where(either))
    await tx.execute(sa.delete(context_items).where(context_items.c.summary_id.in_(ids)))
    await tx.execute(sa.delete(summaries).where(summaries.c.id.in_(ids)))
    calls = schema.tool_calls
    gone = {"title": "", "detail": "", "arguments": {}, "answer": "", "outcome": ""}
    here = calls.c.session_id.in_(sessions)
    await tx.execute(sa.update(calls).where(here, turns.during(calls.c.asked_at)).values(gone))


async def _erase_messages(tx: Transaction, numbers: Sequence[int]) -> None:
    query = sa.select(_I.id, _I.incoming).where(_I.id.in_(numbers), _I.state.not_in(_UNSETTLED))
    for row in (await tx.execute(query)).all():
        empty = {**row.incoming, **_WORDLESS.get(row.incoming["kind"], {})}
        await tx.execute(sa.update(schema.inbox).where(_I.id == row.id).values(incoming=empty))


async def _delete_cards(tx: Transaction, which: Sequence[sa.ColumnElement[bool]]) -> None:
    """Delete answers that were delivered, with their buttons."""
    query = sa.select(_O.id, _O.key).where(*which, _O.state != OutboxState.QUEUED.value)
    rows = (await tx.execute(query)).all()
    ids, keys = [row.id for row in rows], [row.key for row in rows]
    placed, actions = schema.placements, schema.actions
    await tx.execute(sa.delete(placed).where(placed.c.outbox_id.in_(ids)))
    await tx.execute(sa.delete(actions).where(actions.c.card_key.in_(keys)))
    await tx.execute(sa.delete(schema.outbox).where(_O.id.in_(ids)))


async def _save(tx: Transaction, turns: WithheldTurns) -> None:
    spans = [
        [since.isoformat(), None if until is None else until.isoformat()]
        for since, until in sorted(turns.spans, key=lambda each: each[0])
    ]
    values = {
        "name": f"{_PREFIX}{turns.chat}",
        "value": {"inbox": list(turns.inbox), "spans": spans},
    }
    await tx.execute(upsert(tx.dialect.name, schema.marks, values, ("name",)), values)


def _from_value(chat: ChatId, value: Any) -> WithheldTurns | None:
    if value is None:
        return None
    spans = tuple(
        (datetime.fromisoformat(since), None if until is None else datetime.fromisoformat(until))
        for since, until in value["spans"]
    )
    return WithheldTurns(chat=chat, inbox=tuple(map(InboxId, value["inbox"])), spans=spans)
