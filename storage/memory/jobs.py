"""What is to be done with what was said: written with it, done later, once."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, func, insert, select, update

from storage.db import Database, Transaction
from storage.memory.tables import memory_jobs
from storage.records.memory.entries import Entry, EntryId, Scope
from storage.records.memory.jobs import Job, JobState

_J = memory_jobs.c
_EXTRACT = "extract"
_WHY = 300
_BEGUN = "begun"
KEPT = timedelta(days=14)
"""What nobody could do for so long is not done any more."""


class JobRepo:
    """Whatever changes something is part of a larger transaction."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def gather(
        self,
        tx: Transaction,
        cell: Entry,
        *,
        enough: int,
        now: datetime,
        due_at: datetime,
    ) -> bool:
        """Add a cell to those of its thread that wait for more. True if they are enough now: then
        they are due at that time."""
        source = f"open:{cell.scope}:{cell.thread}"
        row = (await tx.execute(select(memory_jobs).where(_J.source == source))).one_or_none()
        cells = [*(row.payload["cells"] if row is not None else ()), cell.id]
        values: dict[str, Any] = {
            "source": source,
            "payload": {"scope": str(cell.scope), "thread": cell.thread, "cells": cells},
            "state": JobState.GATHERING.value,
            "due_at": due_at,
        }
        full = len(cells) >= enough
        if full:
            # By its first cell: no span of a conversation is ever worked on twice.
            values |= {"source": f"{_EXTRACT}:{cells[0]}", "state": JobState.WAITING.value}
        if row is None:
            new = {**values, "kind": _EXTRACT, "created_at": now}
            await tx.execute(insert(memory_jobs).values(new))
        else:
            await tx.execute(update(memory_jobs).where(_J.id == row.id).values(values))
        return full

    async def seal(self, tx: Transaction, *, idle_since: datetime, least: int) -> None:
        """A conversation in which nothing was said for long is over: what has gathered is enough,
        if it is worth a call at all."""
        idle = (_J.state == JobState.GATHERING.value) & (_J.due_at < idle_since)
        for row in (await tx.execute(select(memory_jobs).where(idle))).all():
            cells = row.payload["cells"]
            if len(cells) >= least:
                full = {"source": f"{_EXTRACT}:{cells[0]}", "state": JobState.WAITING.value}
                await tx.execute(update(memory_jobs).where(_J.id == row.id).values(full))

    async def next(self) -> Job | None:
        """The one whose time comes first."""
        query = (
            select(memory_jobs)
            .where(_J.state == JobState.WAITING.value, _J.kind == _EXTRACT)
            .order_by(_J.due_at, _J.id)
            .limit(1)
        )
        async with self._db.read() as view:
            row = (await view.execute(query)).one_or_none()
        return None if row is None else _job(row)

    async def begin(self, tx: Transaction, job: Job, *, again_at: datetime) -> bool:
        """Count a try; it is due again then, should nothing come of it. False if it waits no
        more."""
        waits = (_J.id == job.id) & (_J.state == JobState.WAITING.value) & (_J.tries == job.tries)
        begun = {"tries": job.tries + 1, "due_at": again_at, "why": _BEGUN}
        return bool((await tx.execute(update(memory_jobs).where(waits).values(begun))).rowcount)

    async def later(
        self, tx: Transaction, job: Job, *, at: datetime, why: str, counted: bool = True
    ) -> None:
        """Once more then. What was nobody's fault is not `counted` as a try."""
        values: dict[str, Any] = {"due_at": at, "why": why[:_WHY]}
        if not counted:
            values["tries"] = job.tries
        await self._set(tx, job, values)

    async def end(
        self, tx: Transaction, job: Job, state: JobState, *, now: datetime, why: str = ""
    ) -> None:
        await self._set(tx, job, {"state": state.value, "ended_at": now, "why": why[:_WHY]})

    async def take_up(self, tx: Transaction, *, now: datetime) -> None:
        """What was begun and nothing came of: its program has died."""
        begun = (_J.state == JobState.WAITING.value) & (_J.why == _BEGUN)
        await tx.execute(update(memory_jobs).where(begun).values(due_at=now))

    async def drop_old(self, tx: Transaction, *, now: datetime) -> None:
        """Give up what nobody could do, and forget what was done long ago."""
        old = {"state": JobState.FAILED.value, "ended_at": now, "why": "too old"}
        waits = (_J.state == JobState.WAITING.value) & (_J.created_at < now - KEPT)
        await tx.execute(update(memory_jobs).where(waits).values(old))
        await tx.execute(memory_jobs.delete().where(_J.ended_at < now - KEPT))

    async def count(self, *states: JobState) -> int:
        query = select(func.count()).where(_J.state.in_([each.value for each in states]))
        async with self._db.read() as view:
            return int(await view.scalar(query) or 0)

    async def _set(self, tx: Transaction, job: Job, values: dict[str, Any]) -> None:
        await tx.execute(update(memory_jobs).where(_J.id == job.id).values(values))


def _job(row: Row[Any]) -> Job:
    return Job(
        id=row.id,
        scope=Scope.of(row.payload["scope"]),
        thread=row.payload["thread"],
        cells=tuple(EntryId(each) for each in row.payload["cells"]),
        state=JobState(row.state),
        tries=row.tries,
        due_at=row.due_at,
        why=row.why,
    )
