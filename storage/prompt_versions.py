"""Stores versions of texts and which of them each task and attempt used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from storage import autonomy_schema, schema
from storage.db import Database, Transaction, record_from, records_from, row_from
from storage.dialect import insert_or_ignore
from storage.errors import ConcurrentUpdate, NotFound
from storage.records.prompt_versions import (
    NewPromptVersion,
    PromptRef,
    PromptVersion,
    TrialTask,
    UsedVersion,
    VersionState,
    text_hash,
)
from storage.records.tasks import TaskId, TaskStatus

_V = autonomy_schema.prompt_versions.c
_A = autonomy_schema.attempt_versions.c
_T = schema.tasks.c
_U = schema.usage.c
_N = schema.node_attempts.c

_ALL = sa.select(autonomy_schema.prompt_versions).order_by(_V.kind, _V.name, _V.number)
_OF_SUBJECT = _ALL.where(_V.kind == sa.bindparam("kind"), _V.name == sa.bindparam("name"))
_IN_EFFECT = _OF_SUBJECT.where(_V.state.in_([VersionState.TRIAL.value, VersionState.ACTIVE.value]))


class PromptVersionRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def list_all(self) -> Sequence[PromptVersion]:
        return records_from(PromptVersion, await self._db.fetch_all(_ALL))

    async def list_of(
        self, ref: PromptRef, *, tx: Transaction | None = None
    ) -> Sequence[PromptVersion]:
        """All versions of one text, oldest first."""
        subject = {"kind": ref.kind.value, "name": ref.name}
        if tx is not None:
            return records_from(PromptVersion, (await tx.execute(_OF_SUBJECT, subject)).all())
        return records_from(PromptVersion, await self._db.fetch_all(_OF_SUBJECT, subject))

    async def list_in_effect(self, ref: PromptRef) -> Sequence[PromptVersion]:
        """Those on trial or active, at most one of each."""
        subject = {"kind": ref.kind.value, "name": ref.name}
        return records_from(PromptVersion, await self._db.fetch_all(_IN_EFFECT, subject))

    async def list_in_state(self, *states: VersionState) -> Sequence[PromptVersion]:
        query = _ALL.where(_V.state.in_([each.value for each in states]))
        return records_from(PromptVersion, await self._db.fetch_all(query))

    async def get(self, tx: Transaction, version_id: int) -> PromptVersion:
        query = sa.select(autonomy_schema.prompt_versions).where(_V.id == version_id)
        row = (await tx.execute(query)).one_or_none()
        if row is None:
            raise NotFound("prompt version", str(version_id))
        return record_from(PromptVersion, row)

    async def add_draft(
        self, tx: Transaction, new: NewPromptVersion, *, now: datetime
    ) -> PromptVersion:
        """Raises ConcurrentUpdate if another change of the same text is open."""
        known = await self.list_of(new.ref, tx=tx)
        values = row_from(new) | {
            "number": 1 + max((each.number for each in known), default=0),
            "hash": text_hash(new.content),
            "state": VersionState.DRAFT.value,
            "created_at": now,
        }
        done = await tx.execute(
            insert_or_ignore(tx.dialect.name, autonomy_schema.prompt_versions).values(values)
        )
        if not done.rowcount:
            raise ConcurrentUpdate
        return (await self.list_of(new.ref, tx=tx))[-1]

    async def start_trial(self, tx: Transaction, version: PromptVersion, *, now: datetime) -> None:
        """Use it for its share of the tasks that are created from now on."""
        await _move(tx, version, state=VersionState.TRIAL, trial_since=now)

    async def activate(self, tx: Transaction, version: PromptVersion, *, now: datetime) -> None:
        """Use it for all; the one used so far is retired."""
        for each in await self.list_of(version.ref, tx=tx):
            if each.state is VersionState.ACTIVE:
                await self.retire(tx, each, "replaced", now=now)
        await _move(tx, version, state=VersionState.ACTIVE, active_since=now, ended_at=None)

    async def retire(
        self, tx: Transaction, version: PromptVersion, reason: str, *, now: datetime
    ) -> None:
        """Raises ConcurrentUpdate if its state has changed since it was read."""
        await _move(tx, version, state=VersionState.RETIRED, end_reason=reason, ended_at=now)

    async def record_use(
        self,
        tx: Transaction,
        task_id: TaskId,
        used: Sequence[UsedVersion],
        *,
        path: str = "",
        attempt: int = 0,
    ) -> None:
        """Store the versions that an attempt uses, or without a path the whole task. A repeat
        replaces nothing."""
        rows = [
            row_from(each) | {"task_id": task_id, "path": path, "attempt": attempt} for each in used
        ]
        if rows:
            statement = insert_or_ignore(tx.dialect.name, autonomy_schema.attempt_versions)
            await tx.execute(statement, rows)

    async def record_attempt(
        self, task_id: TaskId, path: str, attempt: int, used: Sequence[UsedVersion]
    ) -> None:
        """Like `record_use`, in a transaction of its own."""
        if used:
            async with self._db.write() as tx:
                await self.record_use(tx, task_id, used, path=path, attempt=attempt)

    async def list_used(self, task_id: TaskId) -> Sequence[tuple[str, int, UsedVersion]]:
        """Path and number of each attempt of a task with a version it used; an empty path for the
        whole task."""
        query = (
            sa.select(autonomy_schema.attempt_versions)
            .where(_A.task_id == task_id)
            .order_by(_A.path, _A.attempt, _A.name)
        )
        return [
            (row.path, row.attempt, record_from(UsedVersion, row))
            for row in await self._db.fetch_all(query)
        ]

    async def list_trial_tasks(
        self, version: PromptVersion, *, tx: Transaction | None = None
    ) -> Sequence[TrialTask]:
        """The tasks created since the trial began that used any version of its subject."""
        if version.trial_since is None:
            return ()
        cost = (
            sa.select(sa.func.coalesce(sa.func.sum(_U.cost_micros), 0))
            .where(_U.task_id == _T.id)
            .scalar_subquery()
        )
        # Time at work: a task that waited for a person was not slow.
        took = sa.type_coerce(_N.ended_at, sa.BigInteger) - sa.type_coerce(
            _N.started_at, sa.BigInteger
        )
        worked = (
            sa.select(sa.func.coalesce(sa.func.sum(took), 0))
            .where(_N.task_id == _T.id, _N.ended_at.is_not(None))
            .scalar_subquery()
        )
        query = (
            sa.select(
                _T.id,
                _T.status,
                _A.number,
                cost.label("micros"),
                worked.label("worked"),
            )
            .join(autonomy_schema.attempt_versions, _A.task_id == _T.id)
            .where(
                _A.kind == version.kind.value,
                _A.name == version.name,
                _T.created_at >= version.trial_since,
            )
            .order_by(_T.created_at, _T.id)
        )
        if tx is None:
            rows = await self._db.fetch_all(query)
        else:
            rows = list((await tx.execute(query)).all())
        numbers: dict[str, set[int]] = defaultdict(set)
        for row in rows:
            numbers[row.id].add(row.number)
        return [
            TrialTask(
                task_id=TaskId(row.id),
                status=TaskStatus(row.status),
                numbers=sorted(numbers[row.id]),
                micros=int(row.micros),
                seconds=int(row.worked or 0) / 1_000_000,
            )
            for row in {row.id: row for row in rows}.values()
        ]


async def _move(tx: Transaction, version: PromptVersion, **changes: Any) -> None:
    """Change a version only if its state is the one it was read with."""
    statement = (
        sa.update(autonomy_schema.prompt_versions)
        .where(_V.id == version.id, _V.state == version.state.value)
        .values(changes)
    )
    if not (await tx.execute(statement)).rowcount:
        raise ConcurrentUpdate
