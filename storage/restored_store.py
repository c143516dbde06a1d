"""Makes a database from a backup safe to start: work that was unfinished when the backup was taken
is neither sent nor done again."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from storage import schema, web_schema
from storage.db import Database, Transaction
from storage.dialect import migration_engine
from storage.key_value import KeyValueStore
from storage.migrate import sqlite_url
from storage.records.approvals import ApprovalState
from storage.records.messages import InboxState, OutboxState
from storage.records.people import ChatId, ChatKind
from storage.records.schedules import FiringState
from storage.records.system import RestoreRecord
from storage.records.tasks import EventKind, SubagentStatus, TaskControl, TaskStatus

RESTORED_ERROR = "restored from a backup"
"""The error of messages that a restore left unsent: they may have been sent before."""
_MARK = "store.restored"
_NEVER = datetime.fromtimestamp(0, UTC)
_DROPPED = "dropped"
_QUOTE_CHARS, _MAX_QUOTES = 200, 20
_UNFINISHED = ("accepted", "running")
# Requests are settled by their own expiry, which also updates the cards that show these buttons.
_DECISIONS = ("decide", "answer")


async def find_restore(key_values: KeyValueStore) -> RestoreRecord | None:
    """The last restore of this store, None if there never was one."""
    return _parse(await key_values.get(_MARK))


async def list_chats_with_held(db: Database) -> Sequence[ChatId]:
    """Chats with messages that wait for a decision."""
    inbox = schema.inbox
    held = sa.select(inbox.c.chat_id).where(inbox.c.state == InboxState.HELD.value).distinct()
    return [ChatId(each) for each in await db.fetch_column(held)]


async def mark_restore_told(
    key_values: KeyValueStore, tx: Transaction, record: RestoreRecord
) -> None:
    await key_values.write(tx, _MARK, _dump(replace(record, is_told=True)))


def settle_restored(
    database: Path, *, backup_at: datetime, now: datetime, reason: str
) -> RestoreRecord:
    """Settle everything that is open, in one transaction. Blocking. `reason` is shown on tasks.

    Cards to be sent count as not sent. Messages that wait are held, to be offered; presses
    that wait are dropped. Queued tasks
    and those that wait for a time are paused; running ones become work that was interrupted long
    ago, which the next start offers. What schedules should have done since the backup is left out.
    Requests have expired, and the next start offers to ask again.
    Buttons of earlier cards no longer work. Browsers have to sign in again; API tokens are void.
    """
    engine = migration_engine(sqlite_url(database))
    try:
        with engine.begin() as tx:
            messages, presses = _settle_inbox(tx, now)
            record = RestoreRecord(
                id=secrets.token_hex(4),
                backup_at=backup_at,
                restored_at=now,
                unsent=_settle_outbox(tx, now),
                unhandled_count=len(messages),
                unhandled=messages[:_MAX_QUOTES],
                presses=presses,
                tasks=_settle_tasks(tx, now, reason),
                approvals=_settle_approvals(tx, now),
            )
            _settle_subagents(tx, now, reason)
            _settle_schedules(tx, now)
            tx.execute(sa.delete(web_schema.web_sessions))
            tx.execute(sa.delete(web_schema.web_keys))
            marks = schema.marks
            tx.execute(sa.delete(marks).where(marks.c.name == _MARK))
            tx.execute(sa.insert(marks).values(name=_MARK, value=_dump(record)))
    finally:
        engine.dispose()
    return record


def _settle_outbox(tx: sa.Connection, now: datetime) -> int:
    outbox, events = schema.outbox, schema.events
    queued = outbox.c.state == OutboxState.QUEUED.value
    gone = sa.update(outbox).where(queued)
    unsent = tx.execute(
        gone.values(state=OutboxState.DEAD.value, tried_revision=0, error=RESTORED_ERROR)
    ).rowcount
    untold = sa.update(events).where(events.c.told_at.is_(None)).values(told_at=now)
    return int(unsent + tx.execute(untold).rowcount)


def _settle_inbox(tx: sa.Connection, now: datetime) -> tuple[Sequence[str], int]:
    """Hold the messages of people, and drop everything else. Returns quotes of the messages, and
    the number of presses."""
    inbox, chats = schema.inbox, schema.chats
    waits = inbox.c.state == InboxState.NEW.value
    rows = tx.execute(
        sa.select(inbox.c.id, inbox.c.incoming, chats.c.person_id, chats.c.kind)
        .join(chats, chats.c.id == inbox.c.chat_id)
        .where(waits)
        .order_by(inbox.c.id)
    ).all()
    held = [row for row in rows if _can_be_offered(row)]
    hold = sa.update(inbox).where(inbox.c.id == sa.bindparam("which"))
    for row in held:
        tx.execute(hold.values(state=InboxState.HELD.value, attempts=0), {"which": row.id})
    tx.execute(
        sa.update(inbox)
        .where(waits)
        .values(
            state=InboxState.FAILED.value,
            error=RESTORED_ERROR,
            outcome=_DROPPED,
            handled_at=now,
        )
    )
    presses = sum(row.incoming.get("kind") == "press" for row in rows)
    return [_quote(row.incoming) for row in held], presses


def _can_be_offered(row: Any) -> bool:
    """A message of a person with access."""
    said = row.incoming
    known = row.person_id is not None or row.kind != ChatKind.PRIVATE.value
    return known and said.get("kind") == "message" and not said.get("told")


def _quote(incoming: Any) -> str:
    sender = incoming["sender"].get("name") or incoming["sender"]["external_id"]
    text = " ".join(str(incoming.get("text", "")).split())[:_QUOTE_CHARS]
    return f"{sender}: {text or '📎'}"


def _settle_tasks(tx: sa.Connection, now: datetime, reason: str) -> Sequence[tuple[str, str]]:
    tasks, events = schema.tasks, schema.events
    running = tasks.c.status == TaskStatus.RUNNING.value
    parked = (tasks.c.status == TaskStatus.PENDING.value) | (
        (tasks.c.status == TaskStatus.WAITING.value) & tasks.c.wake_at.is_not(None)
    )
    named = tx.execute(
        sa.select(tasks.c.id, tasks.c.title, running.label("runs"))
        .where(running | parked, tasks.c.deleted_at.is_(None))
        .order_by(tasks.c.created_at, tasks.c.id)
    ).all()
    tx.execute(sa.update(tasks).where(running).values(lease_until=_NEVER, wake_at=None))
    tx.execute(
        sa.update(tasks)
        .where(parked)
        .values(
            status=TaskStatus.PAUSED.value,
            status_reason=reason,
            control=TaskControl.RUN.value,
            wake_at=None,
        )
    )
    told = [
        {"task_id": row.id, "kind": EventKind.PAUSED.value, "text": reason, "at": now}
        for row in named
        if not row.runs
    ]
    if told:
        tx.execute(sa.insert(events), told)
    return [(row.id, row.title) for row in named]


def _settle_approvals(tx: sa.Connection, now: datetime) -> int:
    approvals, actions = schema.approvals, schema.actions
    waiting = approvals.c.state == ApprovalState.WAITING.value
    late = sa.update(approvals).where(waiting, approvals.c.expires_at > now)
    tx.execute(late.values(expires_at=now))
    old = actions.c.action["kind"].as_string().not_in(_DECISIONS)
    tx.execute(sa.update(actions).where(~actions.c.retired, old).values(retired=True))
    return int(tx.scalar(sa.select(sa.func.count()).select_from(approvals).where(waiting)) or 0)


def _settle_subagents(tx: sa.Connection, now: datetime, reason: str) -> None:
    helpers = schema.helpers
    tx.execute(
        sa.update(helpers)
        .where(helpers.c.status.in_(_UNFINISHED))
        .values(status=SubagentStatus.FAILED.value, result=reason, ended_at=now)
    )
    # A chat would get their results as an answer at once; a task reads them when it is resumed.
    talk = helpers.c.task_id.is_(None) & helpers.c.delivered_at.is_(None)
    tx.execute(sa.update(helpers).where(talk).values(delivered_at=now))


def _settle_schedules(tx: sa.Connection, now: datetime) -> None:
    schedules, firings = schema.schedules, schema.firings
    # The next start computes the due times to come.
    tx.execute(sa.update(schedules).where(schedules.c.next_due <= now).values(next_due=None))
    retries = sa.update(firings).where(firings.c.retry_at.is_not(None))
    tx.execute(retries.values(retry_at=None, state=FiringState.FAILED.value, ended_at=now))


def _dump(record: RestoreRecord) -> dict[str, Any]:
    times = {name: getattr(record, name).isoformat() for name in ("backup_at", "restored_at")}
    return asdict(record) | times


def _parse(value: Any) -> RestoreRecord | None:
    if value is None:
        return None
    times = {name: datetime.fromisoformat(value[name]) for name in ("backup_at", "restored_at")}
    tasks = [(str(task), str(title)) for task, title in value["tasks"]]
    return RestoreRecord(**value | times | {"tasks": tasks})
