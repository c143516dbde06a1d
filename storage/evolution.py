"""Stores the signals that fired, and reads the latest tasks that they are found in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from storage import autonomy_schema, schema
from storage.db import Database, Transaction, record_from, records_from
from storage.records.prompt_versions import CycleOutcome, PromptKind, SignalKind, SignalRecord
from storage.records.tasks import TaskId, TaskStatus

_S = autonomy_schema.evolution_signals.c
_A = autonomy_schema.attempt_versions.c
_T = schema.tasks.c
_U = schema.usage.c
_N = schema.node_attempts.c
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
