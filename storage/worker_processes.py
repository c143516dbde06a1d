"""Stores the processes that share a store, their heartbeats, and which of them holds a service."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from storage import schema
from storage.db import Database, Transaction, record_from, records_from, row_from
from storage.dialect import store_time, upsert
from storage.process_schema import service_leases, workers
from storage.records.processes import DEAD_AFTER, PLACE, ProcessSituation, WorkerProcess

_W, _L = workers.c, service_leases.c


class WorkerProcessRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def register(self, tx: Transaction, process: WorkerProcess) -> datetime:
        """Its times are those of the store's clock; returns what that says."""
        values = row_from(process)
        place = upsert(tx.dialect.name, workers, tuple(values), ("id",))
        await tx.execute(place.values(values))
        now = store_time(tx.dialect.name, process.seen_at)
        placed = sa.update(workers).where(_W.id == process.id).values(started_at=now, seen_at=now)
        at: datetime = (await tx.execute(placed.returning(_W.seen_at))).scalar_one()
        return at

    async def set_abilities(
        self, tx: Transaction, process_id: str, abilities: Mapping[str, Any]
    ) -> None:
        told = sa.update(workers).where(_W.id == process_id).values(abilities=dict(abilities))
        await tx.execute(told)

    async def beat(
        self, tx: Transaction, process_id: str, *, now: datetime
    ) -> tuple[datetime, bool] | None:
        """Store a heartbeat; returns its time by the store's clock and whether the process must
        drain, None if others took it for dead."""
        beaten = (
            sa.update(workers)
            .where(_W.id == process_id)
            .values(seen_at=store_time(tx.dialect.name, now))
            .returning(_W.seen_at, _W.draining)
        )
        found = (await tx.execute(beaten)).one_or_none()
        return None if found is None else (found.seen_at, found.draining)

    async def remove(self, tx: Transaction, process_ids: Collection[str]) -> None:
        """Remove processes that have ended, with the services they held."""
        await tx.execute(sa.delete(service_leases).where(_L.holder.in_(process_ids)))
        await tx.execute(sa.delete(workers).where(_W.id.in_(process_ids)))

    async def remove_dead(
        self, tx: Transaction, *, now: datetime, except_id: str
    ) -> Sequence[WorkerProcess]:
        """Forget processes without a heartbeat; returns them."""
        micros = int(DEAD_AFTER.total_seconds() * 1_000_000)
        oldest = sa.type_coerce(store_time(tx.dialect.name, now), sa.BigInteger) - micros
        silent = sa.select(workers).where(
            sa.type_coerce(_W.seen_at, sa.BigInteger) < oldest, _W.id != except_id
        )
        dead = records_from(WorkerProcess, (await tx.execute(silent)).all())
        if dead:
            await self.remove(tx, [each.id for each in dead])
        return dead

    async def remove_predecessors(self, tx: Transaction, place: str) -> Sequence[WorkerProcess]:
        """Forget the processes in this place; returns them. The caller has it now."""
        there = records_from(WorkerProcess, (await tx.execute(sa.select(workers))).all())
        ended = [each for each in there if each.abilities.get(PLACE) == place]
        if ended:
            await self.remove(tx, [each.id for each in ended])
        return ended

    async def remove_all(self, tx: Transaction) -> None:
        """For a store with one process at a time, at its start."""
        await tx.execute(sa.delete(service_leases))
        await tx.execute(sa.delete(workers))

    async def list_ids(self, tx: Transaction) -> frozenset[str]:
        return frozenset((await tx.scalars(sa.select(_W.id))).all())

    async def count_slots(self, tx: Transaction) -> int:
        """The slots of all processes that take tasks."""
        counted = sa.select(sa.func.coalesce(sa.func.sum(_W.slots), 0)).where(~_W.draining)
        return int(await tx.scalar(counted) or 0)

    async def drain(self, tx: Transaction, name: str) -> int:
        """Keep the processes with this name from starting anything more; returns their number."""
        told = sa.update(workers).where(_W.name == name).values(draining=True)
        return (await tx.execute(told)).rowcount

    async def take_lease(
        self, tx: Transaction, service: str, holder: str, *, now: datetime
    ) -> bool:
        """Hold a service, unless a living process holds it. Dead ones must be removed before."""
        held = await self.find_living_holder(service, tx)
        if held is not None:
            return held == holder
        values = {
            "service": service,
            "holder": holder,
            "taken_at": store_time(tx.dialect.name, now),
        }
        place = upsert(tx.dialect.name, service_leases, tuple(values), ("service",))
        await tx.execute(place.values(values))
        return True

    async def find_living_holder(self, service: str, tx: Transaction | None = None) -> str | None:
        held = sa.select(_L.holder).join(workers, _W.id == _L.holder).where(_L.service == service)
        found: str | None = await self._db.fetch_value(held, tx=tx)
        return found

    async def list_situations(self, *, now: datetime) -> Sequence[ProcessSituation]:
        """All processes by name, with the running tasks and the services of each."""
        async with self._db.read() as view:
            store_now = sa.select(store_time(view.dialect.name, now).label("at"))
            at: datetime = (await view.execute(store_now)).scalar_one()
            rows = await view.execute(sa.select(workers).order_by(_W.name, _W.started_at))
            found = records_from(WorkerProcess, rows.all())
            t = schema.tasks.c
            running = sa.select(t.owner, t.id, t.title).where(t.status == "running", ~t.outside)
            tasks = (await view.execute(running.order_by(t.started_at))).all()
            leases = (await view.execute(sa.select(_L.holder, _L.service))).all()
        return [
            ProcessSituation(
                process=each,
                tasks=tuple((row.id, row.title) for row in tasks if row.owner == each.id),
                services=tuple(sorted(row.service for row in leases if row.holder == each.id)),
                store_now=at,
            )
            for each in found
        ]

    async def find(self, process_id: str) -> WorkerProcess | None:
        query = sa.select(workers).where(_W.id == process_id)
        return record_from(WorkerProcess, await self._db.fetch_one(query))


# --- the tables of Procrastinate, if the store has them

_HAS_TICKETS = sa.text("SELECT to_regclass('procrastinate_jobs') IS NOT NULL")
# Its own query for stalled jobs forgets those whose worker it has forgotten.
_DROP_ORPHANS = sa.text(
    "DELETE FROM procrastinate_jobs WHERE queue_name = 'shiftboss' AND status = 'doing'"
    " AND (worker_id IS NULL OR worker_id IN (SELECT id FROM procrastinate_workers"
    " WHERE last_heartbeat < now() - interval '10 seconds'))"
)

_TELL = sa.text("SELECT pg_notify(:where, :what)")


async def has_ticket_tables(tx: Transaction) -> bool:
    return bool(await tx.scalar(_HAS_TICKETS))


async def drop_orphaned_tickets(tx: Transaction) -> None:
    """Remove tickets that dead workers of Procrastinate hold."""
    await tx.execute(_DROP_ORPHANS)


async def tell_of_tickets(tx: Transaction, queue: str) -> None:
    """Have the workers of Procrastinate look for tickets of this queue."""
    told = {"where": f"procrastinate_queue_v1#{queue}", "what": '{"type": "job_inserted"}'}
    await tx.execute(_TELL, told)
