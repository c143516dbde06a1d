"""Stores runs of the heartbeat, and finds the owner's chat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from storage import schema
from storage.autonomy_schema import heartbeat_runs
from storage.db import Database, Transaction, record_from
from storage.key_value import KeyValueStore
from storage.records.autonomy import (
    HeartbeatClaim,
    HeartbeatOutcome,
    HeartbeatRun,
    WakeReason,
    merge_reasons,
)
from storage.records.people import ChatId, ChatKind, PersonRole

_R = heartbeat_runs.c

_LAST_OWNER_CHAT = (
    sa.select(schema.chats.c.id)
    .join(schema.inbox, schema.inbox.c.chat_id == schema.chats.c.id)
    .join(schema.people, schema.people.c.id == schema.chats.c.person_id)
    .where(
        schema.chats.c.kind == ChatKind.PRIVATE.value,
        schema.people.c.role == PersonRole.OWNER.value,
        # Commands of the shell and of programs, and notes of the program itself, do not say where
        # somebody reads.
        schema.inbox.c.outcome != "shell",
        ~sa.func.coalesce(schema.inbox.c.incoming["quiet"].as_boolean(), sa.false()),
        sa.func.coalesce(schema.inbox.c.incoming["told"].as_string(), "") == "",
    )
    .order_by(schema.inbox.c.id.desc())
    .limit(1)
)


class HeartbeatRepo:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._key_values = KeyValueStore(db)

    async def add(
        self,
        tx: Transaction,
        reasons: Sequence[WakeReason],
        outcome: HeartbeatOutcome,
        *,
        now: datetime,
        session_id: str = "",
        text: str = "",
        note: str = "",
    ) -> HeartbeatRun:
        """Add a run: one that begins, or one that is over already."""
        values = {
            "reasons": [each.value for each in reasons],
            "outcome": outcome,
            "started_at": now,
            "ended_at": None if outcome is HeartbeatOutcome.RUNNING else now,
            "session_id": session_id,
            "text": text,
            "claims": [],
            "to_tick": [],
            "note": note,
        }
        query = sa.insert(heartbeat_runs).values(values).returning(heartbeat_runs)
        return _run((await tx.execute(query)).one())

    async def settle(
        self,
        tx: Transaction,
        run: HeartbeatRun,
        outcome: HeartbeatOutcome,
        *,
        now: datetime,
        text: str = "",
        claims: Sequence[HeartbeatClaim] = (),
        to_tick: Sequence[str] = (),
        note: str = "",
    ) -> None:
        """Record how a run ended, once."""
        values = {
            "outcome": outcome,
            "ended_at": now,
            "text": text,
            "claims": [asdict(each) for each in claims],
            "to_tick": list(to_tick),
            "note": note,
        }
        await tx.execute(
            sa.update(heartbeat_runs)
            .where(_R.id == run.id, _R.outcome == HeartbeatOutcome.RUNNING)
            .values(values)
        )

    async def cut_off(self, *, now: datetime, note: str) -> None:
        """Mark runs that were interrupted by the end of the process as failed."""
        async with self._db.write() as tx:
            await tx.execute(
                sa.update(heartbeat_runs)
                .where(_R.outcome == HeartbeatOutcome.RUNNING)
                .values(outcome=HeartbeatOutcome.FAILED, ended_at=now, note=note)
            )

    async def was_told(self, tx: Transaction, text: str, *, since: datetime) -> bool:
        """Whether the owner has received this message since that time."""
        query = sa.select(_R.id).where(_R.ended_at > since, _R.text == text).limit(1)
        return await tx.scalar(query) is not None

    async def is_stopped_by_cap(self, *, since: datetime) -> bool:
        """Whether the newest run since then ended at a spending cap."""
        query = sa.select(_R.outcome).where(_R.started_at >= since).order_by(_R.id.desc()).limit(1)
        return bool(await self._db.fetch_value(query) == HeartbeatOutcome.CAP_REACHED)

    async def mark_known(
        self, tx: Transaction, run: HeartbeatRun, *, chat: ChatId, session_id: str
    ) -> None:
        """Record that this session of a chat knows the messages of all runs up to this one."""
        await self._key_values.write(tx, _known(chat), {"session": session_id, "run": run.id})

    async def list_unknown(
        self, *, chat: ChatId, session_id: str, since: datetime, limit: int
    ) -> Sequence[HeartbeatRun]:
        """The newest runs since then with a message to this chat that the session does not know,
        the oldest first."""
        known = await self._key_values.get(_known(chat)) or {}
        last = known["run"] if known.get("session") == session_id else 0
        message = schema.outbox.c
        key = sa.literal("heartbeat:", sa.String) + sa.cast(_R.id, sa.String)
        query = (
            sa.select(heartbeat_runs)
            .join(schema.outbox, message.key == key)
            .where(_R.id > last, _R.ended_at > since, _R.text != "", message.chat_id == chat)
            .order_by(_R.id.desc())
            .limit(limit)
        )
        return [_run(row) for row in reversed(await self._db.fetch_all(query))]

    async def list_told(self, *, since: datetime, limit: int) -> Sequence[str]:
        query = (
            sa.select(_R.text)
            .where(_R.ended_at > since, _R.text != "")
            .order_by(_R.id.desc())
            .limit(limit)
        )
        return await self._db.fetch_column(query)

    async def list_recent(self, limit: int) -> Sequence[HeartbeatRun]:
        """The newest runs, newest first."""
        query = sa.select(heartbeat_runs).order_by(_R.id.desc()).limit(limit)
        return [_run(row) for row in await self._db.fetch_all(query)]

    async def list_unticked(self) -> Sequence[HeartbeatRun]:
        """Runs with lines that may not be ticked yet."""
        query = sa.select(heartbeat_runs).where(sa.func.json_array_length(_R.to_tick) > 0)
        return [_run(row) for row in await self._db.fetch_all(query)]

    async def mark_ticked(self, run_id: int) -> None:
        async with self._db.write() as tx:
            await tx.execute(sa.update(heartbeat_runs).where(_R.id == run_id).values(to_tick=[]))

    async def find_owner_chat(self) -> ChatId | None:
        """The private chat of an owner's newest message; None if no owner has written."""
        found = await self._db.fetch_value(_LAST_OWNER_CHAT)
        return None if found is None else ChatId(found)


def _known(chat: ChatId) -> str:
    """The keys of the session of this chat that was last informed of a run, and of that run."""
    return f"heartbeat.known:{chat}"


def _run(row: sa.Row[Any]) -> HeartbeatRun:
    return record_from(
        HeartbeatRun,
        row,
        reasons=merge_reasons(row.reasons),
        claims=tuple(HeartbeatClaim(**each) for each in row.claims),
        to_tick=tuple(row.to_tick),
    )
