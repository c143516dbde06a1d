"""Stores runs of the self-check and the problems that owners are told of, and finds what has waited
too long or is out of step."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from storage import schema
from storage.autonomy_schema import incidents, self_check_runs
from storage.db import Database, Transaction, record_from, records_from
from storage.errors import NotFound
from storage.key_value import KeyValueStore
from storage.records.autonomy import (
    HealthReport,
    Incident,
    NewIncident,
    RepairOutcome,
    dump_finding,
    dump_results,
    load_finding,
    load_results,
)
from storage.records.messages import InboxState, OutboxState
from storage.records.tasks import NodeStatus, Task, TaskStatus
from storage.restore import RESTORED_ERROR

_R = self_check_runs.c
_I = incidents.c
_T = schema.tasks.c
_OUT = schema.outbox.c
_IN = schema.inbox.c
_FINAL = tuple(each.value for each in TaskStatus if each.is_final)
_RETRIED = "self-check:retried"
_MAX_RETRIED = 500


class SelfCheckRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def add_run(self, tx: Transaction, report: HealthReport) -> int:
        """Store a run and return its number."""
        values = {
            "at": report.at,
            "score": report.score,
            "results": dump_results(report.results),
            "repairs": [asdict(each) for each in report.repairs],
        }
        query = sa.insert(self_check_runs).values(values).returning(_R.id)
        return int((await tx.execute(query)).scalar_one())

    async def list_runs(self, limit: int) -> Sequence[HealthReport]:
        """The newest first."""
        query = sa.select(self_check_runs).order_by(_R.id.desc()).limit(limit)
        return [_report(row) for row in await self._db.fetch_all(query)]

    async def list_open(self, tx: Transaction | None = None) -> Sequence[Incident]:
        """Problems that last, the oldest first."""
        query = sa.select(incidents).where(_I.ended_at.is_(None)).order_by(_I.id)
        return [_incident(row) for row in await self._db.fetch_all(query, tx=tx)]

    async def list_incidents(self, limit: int) -> Sequence[Incident]:
        """The newest first."""
        query = sa.select(incidents).order_by(_I.id.desc()).limit(limit)
        return [_incident(row) for row in await self._db.fetch_all(query)]

    async def find_ended(self, tx: Transaction, key: str, *, since: datetime) -> Incident | None:
        """The last incident of this problem, if it ended after `since`."""
        query = (
            sa.select(incidents)
            .where(_I.key == key, _I.ended_at >= since)
            .order_by(_I.id.desc())
            .limit(1)
        )
        row = (await tx.execute(query)).one_or_none()
        return None if row is None else _incident(row)

    async def get(self, incident_id: int, *, tx: Transaction | None = None) -> Incident:
        query = sa.select(incidents).where(_I.id == incident_id)
        row = await self._db.fetch_one(query, tx=tx)
        if row is None:
            raise NotFound("incident", str(incident_id))
        return _incident(row)

    async def open(self, tx: Transaction, new: NewIncident, *, now: datetime) -> Incident:
        values = {
            "key": new.key,
            "check_name": new.check_name,
            "finding": dump_finding(new.finding),
            "opened_at": now,
        }
        query = sa.insert(incidents).values(values).returning(incidents)
        row: sa.Row[Any] = (await tx.execute(query)).one()
        return _incident(row)

    async def update(self, tx: Transaction, incident: Incident) -> None:
        """Store the changed fields of an incident."""
        values = {
            "finding": dump_finding(incident.finding),
            "absent_since": incident.absent_since,
            "ended_at": incident.ended_at,
            "reopened": incident.reopened,
            "task_id": incident.task_id,
        }
        await tx.execute(sa.update(incidents).where(_I.id == incident.id).values(values))


def _report(row: sa.Row[Any]) -> HealthReport:
    return HealthReport(
        at=row.at,
        results=load_results(row.results),
        repairs=tuple(RepairOutcome(**each) for each in row.repairs),
    )


def _incident(row: sa.Row[Any]) -> Incident:
    return record_from(Incident, row, finding=load_finding(row.finding))


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """`count` rows have waited too long, the first of them since `oldest`."""

    count: int
    oldest: datetime | None


class HealthFigures:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._key_values = KeyValueStore(db)

    async def list_without_lease(self, before: datetime) -> Sequence[Task]:
        """Tasks that are marked as running although their lease ended before."""
        query = (
            sa.select(schema.tasks)
            .where(
                _T.status == TaskStatus.RUNNING,
                ~_T.outside,
                _T.deleted_at.is_(None),
                _T.lease_until.is_(None) | (_T.lease_until < before),
            )
            .order_by(_T.id)
        )
        return records_from(Task, await self._db.fetch_all(query))

    async def count_overslept(self, before: datetime) -> int:
        """Count waiting tasks whose wake time has passed."""
        query = sa.select(sa.func.count()).where(
            _T.status == TaskStatus.WAITING, _T.wake_at < before, _T.deleted_at.is_(None)
        )
        return int(await self._db.fetch_value(query) or 0)

    async def find_standing_queue(self, before: datetime) -> Backlog:
        """Queued tasks that nothing blocks although no task is running."""
        running = sa.exists().where(_T.status == TaskStatus.RUNNING, ~_T.outside)
        waits = sa.and_(
            _T.status == TaskStatus.PENDING,
            ~_T.outside,
            _T.deleted_at.is_(None),
            _T.wake_at.is_(None),
            _T.waiting_since < before,
        )
        query = sa.select(sa.func.count(), sa.func.min(_T.waiting_since)).where(
            waits, ~sa.select(running).scalar_subquery()
        )
        return await self._backlog(query)

    async def count_orphaned_steps(self) -> int:
        """Count running steps of tasks that have ended."""
        runs = schema.node_runs.c
        query = (
            sa.select(sa.func.count())
            .select_from(schema.node_runs.join(schema.tasks, _T.id == runs.task_id))
            .where(runs.status == NodeStatus.RUNNING.value, _T.status.in_(_FINAL))
        )
        return int(await self._db.fetch_value(query) or 0)

    async def find_unhandled(self, before: datetime) -> Backlog:
        """Messages that came before and have no answer yet."""
        return await self._backlog(
            sa.select(sa.func.count(), sa.func.min(_IN.received_at)).where(
                _IN.state == InboxState.NEW.value, _IN.received_at < before
            )
        )

    async def find_unsent(self, before: datetime) -> Backlog:
        """Messages that were due before and are not sent yet."""
        return await self._backlog(
            sa.select(sa.func.count(), sa.func.min(_OUT.updated_at)).where(
                _OUT.state == OutboxState.QUEUED.value, _OUT.updated_at < before
            )
        )

    async def count_dead_letters(self, since: datetime) -> int:
        """Messages given up since then."""
        query = sa.select(sa.func.count()).where(self._is_dead(since))
        return int(await self._db.fetch_value(query) or 0)

    async def retry_dead_letters(self, since: datetime, *, now: datetime) -> int:
        """Send again what was given up since then in chats that have received something later.
        Each message gets one more try, ever; returns how many do now."""
        later = schema.outbox.alias("later")
        is_back = sa.exists().where(
            later.c.chat_id == _OUT.chat_id,
            later.c.state == OutboxState.SHOWN.value,
            later.c.updated_at > _OUT.updated_at,
        )
        query = sa.select(_OUT.id).where(self._is_dead(since), is_back).order_by(_OUT.id)
        async with self._db.write() as tx:
            retried: Collection[int] = await self._key_values.read(tx, _RETRIED) or ()
            found = [each for each in await tx.scalars(query) if each not in retried]
            if not found:
                return 0
            await tx.execute(
                sa.update(schema.outbox)
                .where(_OUT.id.in_(found))
                .values(
                    state=OutboxState.QUEUED.value,
                    attempts=0,
                    due_at=now,
                    updated_at=now,
                    tried_revision=0,
                )
            )
            kept = [*retried, *found][-_MAX_RETRIED:]
            await self._key_values.write(tx, _RETRIED, kept)
        return len(found)

    async def newest_time(self) -> datetime | None:
        """The newest time at which something was received, created or paid for."""
        columns = (_IN.received_at, _T.created_at, schema.usage.c.at)
        newest = [sa.select(sa.func.max(each).label("at")) for each in columns]
        times = await self._db.fetch_column(sa.union_all(*newest))
        return max((each for each in times if each), default=None)

    async def schema_revision(self) -> str:
        return str(await self._db.fetch_value(sa.text("SELECT version_num FROM alembic_version")))

    @staticmethod
    def _is_dead(since: datetime) -> sa.ColumnElement[bool]:
        return sa.and_(
            _OUT.state == OutboxState.DEAD.value,
            _OUT.updated_at >= since,
            _OUT.error != RESTORED_ERROR,
        )

    async def _backlog(self, query: sa.Select[int, Any]) -> Backlog:
        row = await self._db.fetch_one(query)
        assert row is not None
        return Backlog(count=row[0], oldest=row[1])
