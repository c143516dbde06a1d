"""Stores versions of texts, which of them each task and attempt used, and the signals that lead to
new ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from storage import autonomy_schema, schema
from storage.db import Database, Transaction, record_from, records_from, row_from
from storage.dialect import insert_or_ignore
from storage.errors import ConcurrentUpdate, NotFound
from storage.records.prompt_versions import (
    CycleOutcome,
    NewPromptVersion,
    PromptKind,
    PromptRef,
    PromptVersion,
    SignalKind,
    SignalRecord,
    TrialTask,
    UsedVersion,
    VersionState,
    text_hash,
)
from storage.records.tasks import TaskId, TaskStatus

# --- versions, and who used them

_V = autonomy_schema.prompt_versions.c
_A = autonomy_schema.attempt_versions.c
_T = schema.tasks.c
_U = schema.usage.c
_N = schema.node_attempts.c

_ALL = sa.select(autonomy_schema.prompt_versions).order_by(_V.kind, _V.name, _V.number)
_OF_SUBJECT = _ALL.where(_V.kind == sa.bindparam("kind"), _V.name == sa.bindparam("name"))
_IN_EFFECT = _OF_SUBJECT.where(_V.state.in_([VersionState.TRIAL.value, VersionState.ACTIVE.value]))
_WRITTEN = _OF_SUBJECT.where(_V.state.in_([VersionState.SAVING.value, VersionState.WRITTEN.value]))


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
        return await self._add(tx, new, VersionState.DRAFT, now=now)

    async def add_saving(
        self, tx: Transaction, new: NewPromptVersion, *, now: datetime
    ) -> PromptVersion:
        """A text that is about to be written to its file. Raises ConcurrentUpdate if another
        process has added a version."""
        return await self._add(tx, new, VersionState.SAVING, now=now)

    async def _add(
        self, tx: Transaction, new: NewPromptVersion, state: VersionState, *, now: datetime
    ) -> PromptVersion:
        newest = sa.select(sa.func.coalesce(sa.func.max(_V.number), 0)).where(
            _V.kind == new.kind.value, _V.name == new.name
        )
        number = 1 + int((await tx.execute(newest)).scalar_one())
        values = row_from(new) | {
            "number": number,
            "hash": text_hash(new.content),
            "state": state.value,
            "created_at": now,
        }
        done = await tx.execute(
            insert_or_ignore(tx.dialect.name, autonomy_schema.prompt_versions).values(values)
        )
        if not done.rowcount:
            raise ConcurrentUpdate
        query = _OF_SUBJECT.where(_V.number == number)
        subject = {"kind": new.kind.value, "name": new.name}
        return record_from(PromptVersion, (await tx.execute(query, subject)).one())

    async def list_written(
        self, ref: PromptRef, *, tx: Transaction | None = None
    ) -> Sequence[PromptVersion]:
        """The text of the file, and texts that were about to be written to it, oldest first."""
        subject = {"kind": ref.kind.value, "name": ref.name}
        if tx is not None:
            return records_from(PromptVersion, (await tx.execute(_WRITTEN, subject)).all())
        return records_from(PromptVersion, await self._db.fetch_all(_WRITTEN, subject))

    async def list_written_names(self, kind: PromptKind) -> Sequence[str]:
        """The texts of this kind whose files were there when they were last looked at."""
        states = [VersionState.SAVING.value, VersionState.WRITTEN.value]
        query = sa.select(_V.name).distinct().where(_V.kind == kind.value, _V.state.in_(states))
        return [row.name for row in await self._db.fetch_all(query)]

    async def confirm_written(
        self, tx: Transaction, version: PromptVersion, *, now: datetime
    ) -> None:
        """The file has this text now; the one it had is retired."""
        for each in await self.list_written(version.ref, tx=tx):
            if each.id != version.id and each.state is VersionState.WRITTEN:
                await self.retire(tx, each, "replaced", now=now)
        await _move(tx, version, state=VersionState.WRITTEN, active_since=now)

    async def delete(self, tx: Transaction, version: PromptVersion) -> None:
        """One that no work was done with."""
        await tx.execute(sa.delete(autonomy_schema.prompt_versions).where(_V.id == version.id))

    async def prune(
        self, tx: Transaction, ref: PromptRef, *, most: int, most_characters: int
    ) -> None:
        """Delete the oldest retired versions beyond so many versions or characters. Work that was
        done with one keeps its number."""
        query = (
            sa.select(_V.id, _V.state, sa.func.length(_V.content).label("length"))
            .where(_V.kind == ref.kind.value, _V.name == ref.name)
            .order_by(_V.number.desc())
        )
        total, gone = 0, []
        for n, row in enumerate((await tx.execute(query)).all()):
            total += row.length
            if row.state == VersionState.RETIRED and (n >= most or total > most_characters):
                gone.append(row.id)
        if not gone:
            return
        used = sa.update(autonomy_schema.attempt_versions).where(_A.version_id.in_(gone))
        await tx.execute(used.values(version_id=None))
        await tx.execute(sa.delete(autonomy_schema.prompt_versions).where(_V.id.in_(gone)))

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


# --- signals, and the latest tasks that they are found in

_S = autonomy_schema.evolution_signals.c
_G = schema.task_graphs.c
_JUDGED = (TaskStatus.COMPLETED.value, TaskStatus.FAILED.value, TaskStatus.BLOCKED.value)
_MAX_ATTEMPTS = 2_000
_MAX_ERROR = 1_000
"""Characters of an error: it may be as long as a tool or a model likes."""

_NEWEST = (
    sa.select(
        _T.id,
        _T.status,
        sa.func.substr(_T.status_reason, 1, _MAX_ERROR).label("status_reason"),
        _T.persona,
        _T.created_at,
    )
    .where(_T.status.in_(_JUDGED), ~_T.outside)
    .order_by(_T.created_at.desc(), _T.id)
    .limit(sa.bindparam("count"))
)
_ATTEMPTS = (
    sa.select(
        _N.task_id,
        _N.path,
        _N.attempt,
        _N.started_at,
        _N.ended_at,
        sa.func.substr(_N.error, 1, _MAX_ERROR).label("error"),
    )
    .where(_N.task_id.in_(sa.bindparam("ids", expanding=True)))
    .order_by(_N.started_at.desc())
    .limit(_MAX_ATTEMPTS)
)
_COSTS = (
    sa.select(_U.task_id, sa.func.coalesce(sa.func.sum(_U.cost_micros), 0))
    .where(_U.task_id.in_(sa.bindparam("ids", expanding=True)))
    .group_by(_U.task_id)
)
_USED = sa.select(_A.task_id, _A.path, _A.attempt, _A.kind, _A.name).where(
    _A.task_id.in_(sa.bindparam("ids", expanding=True)),
    _A.kind.in_([PromptKind.SKILL.value, PromptKind.WORKFLOW.value]),
)
_PLANS = (
    sa.select(_G.task_id, _G.body)
    .where(_G.task_id.in_(sa.bindparam("ids", expanding=True)))
    .order_by(_G.version)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFacts:
    """One attempt of a step. `seconds` is 0 while it runs; `error` is a text for people; `skills`
    are those that it loaded."""

    path: str
    persona: str
    attempt: int
    seconds: float
    error: str
    skills: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """A task that ended or is blocked. `persona` is its own, empty for the default; `workflow` is
    the named one it runs, empty for none; `micros` is its cost in micro-dollars."""

    task_id: TaskId
    status: TaskStatus
    reason: str
    persona: str
    micros: int
    attempts: Sequence[AttemptFacts]
    created_at: datetime
    workflow: str = ""

    @property
    def seconds(self) -> float:
        """Time at work."""
        return sum(each.seconds for each in self.attempts)

    @property
    def succeeded(self) -> bool:
        return self.status is TaskStatus.COMPLETED


class EvolutionRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def list_recent_tasks(self, count: int) -> Sequence[TaskFacts]:
        """The tasks created last that ended or are blocked, newest first. Cancelled ones tell
        nothing."""
        async with self._db.read() as view:
            tasks = (await view.execute(_NEWEST, {"count": count})).all()
            ids = [row.id for row in tasks]
            listed = {"ids": ids}
            attempts = (await view.execute(_ATTEMPTS, listed)).all()
            costs = (await view.execute(_COSTS, listed)).all()
            plans = (await view.execute(_PLANS, listed)).all()
            used = (await view.execute(_USED, listed)).all()
        spent = {task: int(micros) for task, micros in costs}
        personas = {row.task_id: _step_personas(row.body) for row in plans}
        workflows: dict[str, str] = {}
        skills: dict[tuple[str, str, int], list[str]] = defaultdict(list)
        for task, path, attempt, kind, name in used:
            if kind == PromptKind.SKILL:
                skills[task, path, attempt].append(name)
            else:
                workflows[task] = name
        by_task: dict[str, list[AttemptFacts]] = defaultdict(list)
        for row in attempts:
            took = (row.ended_at - row.started_at).total_seconds() if row.ended_at else 0.0
            by_task[row.task_id].append(
                AttemptFacts(
                    path=row.path,
                    persona=personas.get(row.task_id, {}).get(row.path.rsplit("/", 1)[-1], ""),
                    attempt=row.attempt,
                    seconds=max(0.0, took),
                    error=row.error,
                    skills=tuple(skills.get((row.task_id, row.path, row.attempt), ())),
                )
            )
        return [
            TaskFacts(
                task_id=TaskId(row.id),
                status=TaskStatus(row.status),
                reason=row.status_reason,
                persona=row.persona,
                micros=spent.get(row.id, 0),
                attempts=by_task[row.id],
                created_at=row.created_at,
                workflow=workflows.get(row.id, ""),
            )
            for row in tasks
        ]

    async def add_signal(
        self,
        tx: Transaction,
        kind: SignalKind,
        name: str,
        figures: Mapping[str, Any],
        *,
        now: datetime,
    ) -> int:
        """Store that a signal fired, before anything is done about it. Returns its id."""
        done = await tx.execute(
            sa.insert(autonomy_schema.evolution_signals).values(
                kind=kind.value,
                name=name,
                figures=dict(figures),
                outcome=CycleOutcome.STARTED.value,
                fired_at=now,
            )
        )
        assert done.inserted_primary_key is not None
        return int(done.inserted_primary_key[0])

    async def set_outcome(
        self, tx: Transaction, signal_id: int, outcome: CycleOutcome, note: str = ""
    ) -> None:
        await tx.execute(
            sa.update(autonomy_schema.evolution_signals)
            .where(_S.id == signal_id)
            .values(outcome=outcome.value, note=note)
        )

    async def list_fired_since(self, since: datetime) -> Sequence[SignalRecord]:
        query = (
            sa.select(autonomy_schema.evolution_signals).where(_S.fired_at > since).order_by(_S.id)
        )
        return records_from(SignalRecord, await self._db.fetch_all(query))

    async def list_recent(self, limit: int) -> Sequence[SignalRecord]:
        """The newest signals, newest first."""
        query = sa.select(autonomy_schema.evolution_signals).order_by(_S.id.desc()).limit(limit)
        return [record_from(SignalRecord, row) for row in await self._db.fetch_all(query)]


def _step_personas(body: Any) -> Mapping[str, str]:
    """Personas of a plan's steps by node, those inside loops too."""
    found: dict[str, str] = {}
    waiting: list[Any] = [body]
    while waiting:
        match waiting.pop():
            case {"id": str(node), "persona": str(persona), **rest}:
                found[node] = persona
                waiting += rest.values()
            case dict(inner):
                waiting += inner.values()
            case list(items):
                waiting += items
            case _:
                pass
    return found
