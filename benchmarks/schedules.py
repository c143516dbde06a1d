"""Ten thousand schedules that wait, and how late the next one fires."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from benchmarks.figures import Figure, Measurement, Scale, at_most
from benchmarks.measurements import cpu_seconds, p50, p95
from benchmarks.running_program import both_channels
from storage import schema
from storage.records.schedules import OneTime, Schedule
from tests.bot.engine.schedule.schedule_world import ScheduleWorld, new_schedule, schedule_world
from tests.due_timer import run_timer
from tests.engine_harness import BOSS, CHAT
from tests.waiting import wait_until

_ROWS = 10_000
_FIRINGS = 100
_SPACING = timedelta(milliseconds=150)
_SETTLING_SECONDS = 25.0
_WATCHED_SECONDS = 60.0


async def measure(scale: Scale) -> list[Measurement]:
    """With 10,000 schedules in the store that are due within a year: the CPU of the idle program
    with Telegram and Feishu, 25 s after its start, when it looks less often at files that nobody
    changes, and how long after its due time each of 100 reminders is in the
    outbox, in the process's own timer."""
    rows = scale.pick(_ROWS, 200)
    lags = await _lags(rows, scale.pick(_FIRINGS, 3))
    return [
        Figure(f"firing with {rows:,} schedules, late by p50", p50(lags), "ms"),
        Figure(
            f"firing with {rows:,} schedules, late by p95",
            p95(lags),
            "ms",
            at_most(100),
        ),
        await _idle_cpu(rows, scale),
    ]


async def _lags(rows: int, count: int) -> Sequence[float]:
    """Milliseconds from a due time to the commit of its firing."""
    with tempfile.TemporaryDirectory() as home:
        async with schedule_world(Path(home)) as here:
            here.time = datetime.now(UTC)
            seed = await _remind(here, timedelta(days=200))
            first = timedelta(seconds=5)
            due = [await _remind(here, first + n * _SPACING) for n in range(count)]
            which = sa.select(schema.schedules).where(schema.schedules.c.id == seed.id)
            async with here.engine.db.write() as tx:
                made = (await tx.execute(which)).one()._asdict()
                await tx.execute(sa.insert(schema.schedules), _copies(made, rows))
            here.clock = lambda: datetime.now(UTC)
            async with run_timer(here.firer, now=here.now):
                await asyncio.sleep((first + count * _SPACING).total_seconds())
                await wait_until(lambda: _all_fired(here, count))
            assert not await here.firings(seed)
            fired = [(await here.firings(each))[0] for each in due]
    return [(each.fired_at - each.due_at).total_seconds() * 1000 for each in fired]


async def _remind(here: ScheduleWorld, delay: timedelta) -> Schedule:
    made = await here.service.propose(new_schedule(OneTime(at=here.time + delay)))
    return (await here.service.confirm(made.schedule.id, by=BOSS, chat=CHAT.id)).schedule


async def _all_fired(here: ScheduleWorld, count: int) -> bool:
    fired = sa.select(sa.func.count()).select_from(schema.firings)
    return bool(await here.engine.db.fetch_value(fired) == count)


def _copies(row: dict[str, Any], count: int) -> list[dict[str, Any]]:
    year = timedelta(days=300) / count
    return [
        {
            **row,
            "id": f"c{n}",
            "source": f"copy:{n}",
            "next_due": row["next_due"] + n * year,
        }
        for n in range(count)
    ]


async def _idle_cpu(rows: int, scale: Scale) -> Figure:
    watched = scale.pick(_WATCHED_SECONDS, 0.1)
    with tempfile.TemporaryDirectory() as home:
        async with both_channels(Path(home), SHIFTBOSS_OWNERS="telegram:1") as running:
            await running.program.stop()
            await asyncio.to_thread(_fill, Path(home) / "shiftboss.db", rows)
            await running.program.start()
            await asyncio.sleep(scale.pick(_SETTLING_SECONDS, 0.0))
            before = cpu_seconds(running.program.pid)
            await asyncio.sleep(watched)
            share = 100 * (cpu_seconds(running.program.pid) - before) / watched
    name = f"idle CPU with {rows:,} schedules over {watched:g} s"
    return Figure(name, share, "% of a core", at_most(0.3))


def _fill(store: Path, rows: int) -> None:
    later = datetime.now(UTC) + timedelta(days=100)
    with closing(sqlite3.connect(store)) as db, db:
        person = db.execute("SELECT id FROM people LIMIT 1").fetchone()[0]
        chat = db.execute("SELECT id FROM chats LIMIT 1").fetchone()
        chat_id = chat[0] if chat else "bench"
        if not chat:
            db.execute(
                "INSERT INTO chats (id, channel, external_id, thread, kind, title, settings,"
                " created_at) VALUES ('bench', 'telegram', '1', '', 'private', '', '{}', 0)"
            )
        db.executemany(
            "INSERT INTO schedules (id, kind, state, title, timing, zone, body, owner_id, chat_id,"
            " source, use_memory, missed, retries, retry_seconds, respects_quiet_hours, next_due,"
            " created_at) VALUES (?, 'reminder', 'active', 'x', ?, 'UTC', ?, ?, ?, ?, 1, 'once', 0,"
            " 0, 0, ?, 0)",
            (
                (
                    f"b{n}",
                    '{"cron":"0 9 * * *","days":"any"}',
                    '{"kind":"message","text":"x"}',
                    person,
                    chat_id,
                    f"bench:{n}",
                    round((later + timedelta(minutes=n)).timestamp() * 1_000_000),
                )
                for n in range(rows)
            ),
        )
