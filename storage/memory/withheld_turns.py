"""Stores which turns of a chat must not be kept, and erases them when their conversation ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

import sqlalchemy as sa

from storage import schema
from storage.db import Database, Transaction
from storage.dialect import upsert
from storage.memory_schema import context_items, message_texts, summaries, summary_sources
from storage.messages.inbox import inbox_row_from
from storage.messages.outbox import NEWEST_ERASED
from storage.records.messages import (
    InboxId,
    InboxRow,
    InboxState,
    IncomingMessage,
    OutboxState,
)
from storage.records.people import ChatId
from storage.records.schedules import ScheduleState
from storage.records.tasks import TaskId, TaskStatus

_PREFIX = "withheld:"
_CHAT = "chat:"
ERASED_TEXT = "…"
_WORDLESS: Mapping[str, Mapping[str, Any]] = {
    "message": {"text": ERASED_TEXT, "attachments": []},
    "press": {"value": "", "form": {}},
}
_WORDLESS_BODY = {"text": ERASED_TEXT, "instruction": ERASED_TEXT, "inputs": {}}
_SILENT_SUBAGENT = {"label": "", "prompt": "", "result": ""}
_SILENT_CALL = {
    **dict.fromkeys(("title", "detail", "why", "pattern", "answer", "outcome"), ""),
    "arguments": {},
}
_MAX_LOOKED_AT = 30
_UPLOADS = "files/inbox/"
_UPLOAD_DEPTH = 3
_TASK_FOLDERS = ("work", "files/tasks", "files/logs")
_S, _I, _O = schema.sessions.c, schema.inbox.c, schema.outbox.c
_H, _N = schema.helpers.c, schema.marks.c
_T = schema.tasks.c
_UNSETTLED = (InboxState.NEW.value, InboxState.HELD.value)
_GIVES_WORDS = (
    *("message", "inject", "replan", "rerun", "log", "amend", "stage", "block", "interrupt"),
    *("done", "subtask", "subtasks"),
)
_FINAL = tuple(each.value for each in TaskStatus if each.is_final)


@dataclass(frozen=True, slots=True, kw_only=True)
class WithheldTurns:
    """The inbox rows of a chat that must not be kept, and the time spans of the conversations that
    contain them; the last span may be open. Later answers may repeat the words."""

    chat: ChatId
    inbox: tuple[int, ...]
    spans: tuple[tuple[datetime, datetime | None], ...]
    uploads: tuple[str, ...] = ()

    def has_message(self, source: str) -> bool:
        """Whether the event with this name must not be kept."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CliSession:
    """A session that a coding CLI keeps itself, under `id`."""

    backend: str
    id: str
    started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class WithheldTraces:
    """Traces of the messages outside the database; they were worked on in these `windows`."""

    turns: WithheldTurns
    tasks: Sequence[TaskId]
    windows: Sequence[tuple[datetime, datetime]]
    cli_sessions: Sequence[CliSession]

    @property
    def since(self) -> datetime:
        return min(since for since, _ in self.turns.spans)

    @property
    def folders(self) -> Sequence[str]:
        """Folders of the data directory that are theirs alone."""
        of_tasks = [f"{place}/{task}" for task in self.tasks for place in _TASK_FOLDERS]
        return [*(f"{_UPLOADS}{each}" for each in self.turns.inbox), *self.turns.uploads, *of_tasks]

    def to_json(self) -> Mapping[str, Any]:
        return {
            "turns": {"chat": self.turns.chat, **_to_value(self.turns)},
            "tasks": [*self.tasks],
            "windows": [[since.isoformat(), until.isoformat()] for since, until in self.windows],
            "cli_sessions": [
                [each.backend, each.id, each.started_at.isoformat()] for each in self.cli_sessions
            ],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WithheldTraces:
        at = datetime.fromisoformat
        turns = _from_value(ChatId(data["turns"]["chat"]), data["turns"])
        assert turns is not None
        return cls(
            turns=turns,
            tasks=[TaskId(each) for each in data["tasks"]],
            windows=[(at(since), at(until)) for since, until in data["windows"]],
            cli_sessions=[
                CliSession(backend=backend, id=session, started_at=at(started))
                for backend, session, started in data["cli_sessions"]
            ],
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
        """Withhold these messages of the chat, and everything said in this time span."""
        known = await self.get(chat, tx=tx)
        rows = list(rows)
        inbox = {*(known.inbox if known else ()), *(row.id for row in rows)}
        uploads = {*(known.uploads if known else ()), *_list_uploads(rows)}
        spans = {*(known.spans if known else ()), span}
        started = [since for since, until in spans if until is None]
        kept = {each for each in spans if each[1] is not None}
        kept |= {(min(started), None)} if started else set()
        turns = WithheldTurns(
            chat=chat,
            inbox=tuple(sorted(inbox)),
            spans=tuple(kept),
            uploads=tuple(sorted(uploads)),
        )
        await _save(tx, turns)

    async def release(self, tx: Transaction, chat: ChatId, rows: Iterable[InboxRow]) -> None:
        """Withhold these messages no more. While others are withheld, their time still is."""
        known = await self.get(chat, tx=tx)
        left = {*(known.inbox if known else ())} - {row.id for row in rows}
        if known is not None and left:
            await _save(tx, replace(known, inbox=tuple(sorted(left))))
        else:
            await tx.execute(sa.delete(schema.marks).where(_N.name == f"{_PREFIX}{chat}"))

    async def get(self, chat: ChatId, *, tx: Transaction | None = None) -> WithheldTurns | None:
        query = sa.select(_N.value).where(_N.name == f"{_PREFIX}{chat}")
        return _from_value(chat, await self._db.fetch_value(query, tx=tx))

    async def list_all(self) -> Sequence[WithheldTurns]:
        query = sa.select(schema.marks).where(_N.name.startswith(_PREFIX, autoescape=True))
        rows = await self._db.fetch_all(query)
        found = [_from_value(ChatId(row.name.removeprefix(_PREFIX)), row.value) for row in rows]
        return [each for each in found if each is not None]

    async def erase(self, tx: Transaction, turns: WithheldTurns) -> bool:
        """Erase the remains of an ended conversation. False while a delivery is in progress, or a
        task that was started from the words has not ended."""
        return await _erase(tx, turns)

    async def drop(self, tx: Transaction, turns: WithheldTurns) -> None:
        """Delete the record of words that are erased everywhere, unless more were withheld
        meanwhile."""
        if await self.get(turns.chat, tx=tx) == turns:
            await tx.execute(sa.delete(schema.marks).where(_N.name == f"{_PREFIX}{turns.chat}"))

    async def find_traces(self, turns: WithheldTurns) -> WithheldTraces:
        started = sa.select(_T.id).where(_uses_words(turns))
        tasks = [TaskId(each) for each in await self._db.fetch_column(started)]
        handled = sa.select(_I.received_at, sa.func.coalesce(_I.handled_at, _I.received_at))
        windows = await self._db.fetch_all(handled.where(_I.id.in_(turns.inbox)))
        helped = sa.select(_H.session_id).where(_H.task_id.in_(tasks) | (_H.chat_id == turns.chat))
        owners = [f"{_CHAT}{turns.chat}", *(f"task:{each}" for each in tasks)]
        steps = [_S.key.startswith(f"task:{each}{end}") for each in tasks for end in ":/"]
        spoken = sa.select(_S.backend, _S.external_id, _S.started_at).where(
            sa.or_(_S.key.in_(owners), _S.id.in_(helped), *steps),
            _S.external_id != "",
            _S.closed_at.is_not(None) | ~_S.key.startswith(_CHAT),
            _S.last_used_at >= min(since for since, _ in turns.spans),
        )
        return WithheldTraces(
            turns=turns,
            tasks=tasks,
            windows=[(row[0], row[1]) for row in windows],
            cli_sessions=[
                CliSession(backend=row[0], id=row[1], started_at=row[2])
                for row in await self._db.fetch_all(spoken)
            ],
        )

    async def has_task_since(self, turns: WithheldTurns, since: datetime) -> bool:
        """Whether a task that was started from these messages has ended since then."""
        ended = sa.select(_T.id).where(_uses_words(turns), _T.ended_at >= since)
        return await self._db.fetch_value(ended.limit(1)) is not None

    async def is_task(self, tx: Transaction, task: TaskId) -> bool:
        """Whether the task was started from withheld words, or was given some, in any chat."""
        for turns in await self.list_all():
            told = _is_started_by(turns) | _is_told_by(turns)
            found = sa.select(_T.id).where(_T.id == task, told)
            if await tx.scalar(found) is not None:
                return True
        return False

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

    async def list_versions(self, tx: Transaction, row: InboxRow) -> Sequence[InboxRow]:
        """This message as it was before and after its edits."""
        said = row.incoming
        if not isinstance(said, IncomingMessage) or not said.message_id:
            return [row]
        message_id = _I.incoming["message_id"].as_string()
        query = sa.select(schema.inbox).where(
            _I.chat_id == row.chat_id,
            _I.incoming["kind"].as_string() == "message",
            message_id == said.message_id,
            (_I.id == row.id) | _I.incoming["edited"].as_boolean() | sa.literal(said.edited),
        )
        return [inbox_row_from(each) for each in await tx.execute(query)]

    async def list_joined(self, tx: Transaction, row: InboxRow) -> Sequence[InboxRow]:
        """The messages that were answered together with this one."""
        query = sa.select(schema.inbox).where(
            _I.chat_id == row.chat_id, _I.outcome == f"joined {row.id}"
        )
        return [inbox_row_from(each) for each in await tx.execute(query)]


async def erase_ended_conversation(tx: Transaction, session_key: str, *, now: datetime) -> None:
    """Erase what must not outlive the conversation of this key, in the transaction that ends it.
    The note of it, which ends here, stays until the files are clean too."""
    if not session_key.startswith(_CHAT):
        return
    chat = ChatId(session_key.removeprefix(_CHAT))
    value = await tx.scalar(sa.select(_N.value).where(_N.name == f"{_PREFIX}{chat}"))
    turns = _from_value(chat, value)
    if turns is not None:
        # A message that is to be answered in the next session goes on.
        answered = sa.select(_I.id).where(
            _I.id.in_(turns.inbox),
            _I.state.in_(_UNSETTLED),
            _I.incoming["text"].as_string().not_like("/%"),
        )
        if await tx.scalar(answered.limit(1)) is None:
            ended = tuple((since, now if until is None else until) for since, until in turns.spans)
            turns = replace(turns, spans=ended)
            await _save(tx, turns)
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
    await _erase_transcripts(tx, inside, turns)
    helper_ids = [row.id for row in subagents]
    await tx.execute(
        sa.update(schema.helpers).where(_H.id.in_(helper_ids)).values(_SILENT_SUBAGENT)
    )
    await _erase_messages(tx, turns.inbox)
    cards = _O.chat_id == turns.chat, _O.key.startswith("reply:"), turns.during(_O.created_at)
    await _delete_cards(tx, cards)
    names = [f"chat.answer.{turns.chat}", f"unanswered:{turns.chat}"]
    await tx.execute(sa.delete(schema.marks).where(_N.name.in_(names)))
    tasks_ended = await _erase_tasks(tx, turns)
    await _erase_schedules(tx, turns)
    waits = sa.select(_I.id).where(_I.id.in_(turns.inbox), _I.state.in_(_UNSETTLED))
    queued = sa.select(_O.id).where(*cards, _O.state == OutboxState.QUEUED.value)
    settled = await tx.scalar(waits.limit(1)) is None and await tx.scalar(queued.limit(1)) is None
    return settled and tasks_ended


def _task_sources(turns: WithheldTurns) -> sa.CompoundSelect[Any]:
    """Sources of tasks: of a command, also when it is sent again, and of a proposal's button."""
    said = sa.select(_I.id, _I.chat_id, _I.incoming["message_id"].as_string().label("message"))
    rows = said.where(_I.id.in_(turns.inbox)).subquery().c
    number = sa.cast(rows.id, sa.String)
    return sa.union_all(
        sa.select(sa.literal("inbox:") + number),
        sa.select(sa.literal("start:reply:") + number),
        sa.select(sa.literal("message:") + rows.chat_id + ":" + rows.message),
    )


def _uses_words(turns: WithheldTurns) -> sa.ColumnElement[bool]:
    """Whether a task goes with these messages: it was started from them, or was given their words
    and is one of their chat. Others' work is not erased because of what it was told elsewhere."""
    return _is_started_by(turns) | (_is_told_by(turns) & (_T.chat_id == turns.chat))


def _is_started_by(turns: WithheldTurns) -> sa.ColumnElement[bool]:
    return _T.source.in_(_task_sources(turns))


def _is_told_by(turns: WithheldTurns) -> sa.ColumnElement[bool]:
    """Whether a task was given words of these messages by a command, a decision or an answer."""
    commands, asked = schema.commands.c, schema.approvals.c
    told = sa.select(commands.task_id).where(
        commands.source.in_(_task_sources(turns)), commands.kind.in_(_GIVES_WORDS)
    )
    answered = sa.select(asked.task_id).where(
        asked.decided_for.in_(_task_sources(turns)), asked.reason != ""
    )
    return _T.id.in_(told) | _T.id.in_(answered)


async def _erase_tasks(tx: Transaction, turns: WithheldTurns) -> bool:
    """Erase the words of tasks that were started from these messages, and hide them; of those that
    were only told some, title and instruction stay. A task needs its words until it ends: False
    while one has not."""
    query = sa.select(_T.id, _T.status).where(_uses_words(turns))
    rows = (await tx.execute(query)).all()
    ids = [row.id for row in rows if row.status in _FINAL]
    if not ids:
        return not rows
    gone = {"title": "…", "instruction": "…", "summary": "", "status_reason": "", "stage": ""}
    hidden = sa.func.coalesce(_T.deleted_at, _T.ended_at)
    blank: tuple[tuple[sa.Table, Mapping[str, Any]], ...] = (
        (schema.node_runs, {"output": {}, "error": ""}),
        (schema.node_attempts, {"error": ""}),
        (schema.commands, {"payload": {}}),
        (schema.events, {"text": ""}),
        (schema.approvals, {"title": "…", "detail": "", "payload": {}, "reason": ""}),
        (schema.helpers, _SILENT_SUBAGENT),
        (schema.tool_calls, _SILENT_CALL),
    )
    for table, values in blank:
        await tx.execute(sa.update(table).where(table.c.task_id.in_(ids)).values(values))
    for table in (schema.task_logs, schema.task_graphs, schema.spans):
        await tx.execute(sa.delete(table).where(table.c.task_id.in_(ids)))
    keys = [_S.key == f"task:{each}" for each in ids]
    keys += [_S.key.startswith(f"task:{each}{end}") for each in ids for end in ":/"]
    inside = [*await tx.scalars(sa.select(_S.id).where(sa.or_(*keys)))]
    sent = sa.select(_H.session_id).where(_H.task_id.in_(ids), _H.session_id != "")
    await _erase_transcripts(tx, [*inside, *await tx.scalars(sent)])
    asked = await tx.scalars(
        sa.select(schema.approvals.c.id).where(schema.approvals.c.task_id.in_(ids))
    )
    subjects = [*(f"task:{each}" for each in ids), *(f"approval:{each}" for each in asked)]
    cards = [_O.key == each for each in subjects]
    cards += [_O.key.startswith(f"{each}:") for each in subjects]
    shown = sa.or_(*cards)
    await _delete_cards(tx, (shown,))
    given = {name: gone[name] for name in ("summary", "status_reason", "stage")}
    await tx.execute(sa.update(schema.tasks).where(_T.id.in_(ids)).values(given))
    amended = sa.select(schema.commands.c.task_id).where(
        schema.commands.c.source.in_(_task_sources(turns)), schema.commands.c.kind == "amend"
    )
    mine = _is_started_by(turns) | _T.id.in_(amended)
    values = {**gone, "files": [], "deleted_at": hidden}
    await tx.execute(sa.update(schema.tasks).where(_T.id.in_(ids), mine).values(values))
    queued = sa.select(_O.id).where(shown, _O.state == OutboxState.QUEUED.value)
    return len(ids) == len(rows) and await tx.scalar(queued.limit(1)) is None


async def _erase_schedules(tx: Transaction, turns: WithheldTurns) -> None:
    """Erase the words of reminders and jobs that these messages asked for. One that was agreed to
    needs them until it has ended. A proposal ends with the conversation that has its button."""
    chosen, firings = schema.schedules.c, schema.firings
    idle = ScheduleState.PROPOSED.value, ScheduleState.ENDED.value
    query = sa.select(chosen.id, chosen.body).where(
        chosen.source.in_(_task_sources(turns)), chosen.state.in_(idle)
    )
    for row in (await tx.execute(query)).all():
        body = {name: _WORDLESS_BODY.get(name, kept) for name, kept in row.body.items()}
        values = {"title": ERASED_TEXT, "body": body, "reason": "", "next_due": None}
        values["state"] = ScheduleState.ENDED.value
        await tx.execute(sa.update(schema.schedules).where(chosen.id == row.id).values(values))
        fired = [*await tx.scalars(sa.select(firings.c.id).where(firings.c.schedule_id == row.id))]
        await tx.execute(sa.update(firings).where(firings.c.id.in_(fired)).values(note=""))
        shown = [_O.key == f"firing:{each}" for each in fired]
        await _delete_cards(tx, [sa.or_(sa.false(), *shown)])


async def _erase_transcripts(
    tx: Transaction, sessions: Collection[str], turns: WithheldTurns | None = None
) -> None:
    """Erase the transcripts of these sessions, or only the parts about these turns."""
    for table in (schema.messages, message_texts):
        here = table.c.session_id.in_(sessions)
        when = sa.true() if turns is None else turns.during(table.c.at)
        await tx.execute(sa.delete(table).where(here, when))
    told = sa.select(summaries.c.id).where(summaries.c.session_id.in_(sessions))
    if turns is not None:
        told = told.where(summaries.c.latest_at >= min(since for since, _ in turns.spans))
    ids = [*await tx.scalars(told)]
    either = summary_sources.c.summary_id.in_(ids) | summary_sources.c.part.in_(ids)
    await tx.execute(sa.delete(summary_sources).where(either))
    await tx.execute(sa.delete(context_items).where(context_items.c.summary_id.in_(ids)))
    await tx.execute(sa.delete(summaries).where(summaries.c.id.in_(ids)))
    calls = schema.tool_calls
    here = calls.c.session_id.in_(sessions)
    when = sa.true() if turns is None else turns.during(calls.c.asked_at)
    await tx.execute(sa.update(calls).where(here, when).values(_SILENT_CALL))


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
    erased = await tx.scalar(sa.select(_N.value).where(_N.name == NEWEST_ERASED))
    if max(ids, default=0) > (erased or 0):
        newest = {"name": NEWEST_ERASED, "value": max(ids)}
        await tx.execute(upsert(tx.dialect.name, schema.marks, newest, ("name",)), newest)


def _list_uploads(rows: Iterable[InboxRow]) -> Iterator[str]:
    """Where the web chat has kept the files of these messages."""
    for row in rows:
        if isinstance(row.incoming, IncomingMessage):
            for file in row.incoming.attachments:
                path = PurePosixPath(file.reference.get("path", "")).parts
                inside = "/".join(path[:2]) == _UPLOADS.rstrip("/") and ".." not in path
                if inside and len(path) > _UPLOAD_DEPTH:
                    yield "/".join(path[:-1])


async def _save(tx: Transaction, turns: WithheldTurns) -> None:
    values = {"name": f"{_PREFIX}{turns.chat}", "value": _to_value(turns)}
    await tx.execute(upsert(tx.dialect.name, schema.marks, values, ("name",)), values)


def _to_value(turns: WithheldTurns) -> dict[str, Any]:
    spans = [
        [since.isoformat(), None if until is None else until.isoformat()]
        for since, until in sorted(turns.spans, key=lambda each: each[0])
    ]
    return {"inbox": list(turns.inbox), "spans": spans, "uploads": list(turns.uploads)}


def _from_value(chat: ChatId, value: Any) -> WithheldTurns | None:
    if value is None:
        return None
    spans = tuple(
        (datetime.fromisoformat(since), None if until is None else datetime.fromisoformat(until))
        for since, until in value["spans"]
    )
    return WithheldTurns(
        chat=chat,
        inbox=tuple(map(InboxId, value["inbox"])),
        spans=spans,
        uploads=tuple(value.get("uploads", ())),
    )
