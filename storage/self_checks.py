"""Stores runs of the self-check and the problems that owners are told of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from storage.autonomy_schema import incidents, self_check_runs
from storage.db import Database, Transaction
from storage.errors import NotFound
from storage.records.self_checks import (
    HealthReport,
    Incident,
    NewIncident,
    RepairOutcome,
    dump_finding,
    dump_results,
    load_finding,
    load_results,
)
from storage.rows import record_from

_R = self_check_runs.c
_I = incidents.c


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
        """Store what has changed about it."""
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
