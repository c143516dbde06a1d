"""A month of schedules in one run: firings, model calls, tokens and costs are exactly what they
must be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import sqlalchemy as sa

from bot.engine.llm.backend import RunRequest, RunResult
from bot.engine.timing import WeekdayCalendar
from storage import schema
from storage.records.schedules import (
    CronTiming,
    DayFilter,
    FiringState,
    Schedule,
    TaskBody,
)
from storage.records.tasks import TaskStatus
from storage.usage import UsageFilter, UsageRepo
from tests.bot.engine.schedule.schedule_world import ScheduleWorld, every, schedule_world, upcoming
from tests.engine_harness import START, FakeBackend
from tests.thoroughness import sampled
from tests.waiting import wait_until

MONTH = timedelta(days=sampled(30, 9))
"""The gate runs the beginning of it."""
BERLIN = "Europe/Berlin"
JOB = TaskBody(instruction="Send the news")


PRICE = Decimal("0.0125")
"""Dollars a call."""


class PricedBackend(FakeBackend):
    async def respond(self, request: RunRequest) -> RunResult:
        done = await super().respond(request)
        return replace(done, usage=replace(done.usage, cost=PRICE))


async def test_a_month_fires_calls_and_costs_exactly_what_it_must(tmp_path: Path) -> None:
    async with schedule_world(tmp_path, start_dispatcher=True, backend=PricedBackend()) as here:
        jobs = [
            await here.add(CronTiming(expression="30 8 * * 1-5"), JOB, zone=BERLIN),
            await here.add(CronTiming(expression="0 9 * * *", days=DayFilter.FREE), JOB),
            await here.add(CronTiming(expression="0 18 L * *"), JOB, zone="Asia/Shanghai"),
        ]
        working = CronTiming(expression="0 9 * * *; 30 11 * * *", days=DayFilter.WORKING, nth=-1)
        reminders = [
            await here.add(every(hours=5)),
            await here.add(every(days=7)),
            await here.add(working),
        ]
        assert reminders[-1].timing == working
        end = here.time + MONTH
        while (due := await here.firer.next_due()) is not None and due <= end:
            here.time = due
            await here.firer.run_due()
            await wait_until(lambda: _all_ended(here))
            for each in await here.schedules.list_started():
                assert each.firing.task_id is not None
                task = await here.engine.store.tasks.get(each.firing.task_id)
                await here.firer.settle_task(task)

        count = 0
        for schedule in (*jobs, *reminders):
            fired = await here.firings(schedule)
            assert [each.due_at for each in fired] == _expected(schedule, len(fired) + 5)
            count += len(fired) if schedule in jobs else 0
            done = FiringState.DONE if schedule in jobs else FiringState.SENT
            assert {each.state for each in fired} <= {done}
        assert count == sampled(22 + 8 + 1, 7 + 2)
        # A plan and three steps each; 15 tokens a call.
        assert len(here.engine.backend.requests) == 4 * count
        spent = await UsageRepo(here.engine.db).sum(UsageFilter())
        assert spent.input_tokens + spent.output_tokens == 15 * 4 * count
        assert (spent.cost_micros, spent.unpriced) == (12_500 * 4 * count, 0)


def _expected(schedule: Schedule, count: int) -> Sequence[object]:
    times = upcoming(
        schedule.timing,
        after=START,
        zone=ZoneInfo(schedule.zone),
        calendar=WeekdayCalendar(),
        count=count,
    )
    return [each for each in times if each <= START + MONTH]


async def _all_ended(here: ScheduleWorld) -> bool:
    unfinished = schema.tasks.c.status != TaskStatus.COMPLETED
    counted = sa.select(sa.func.count()).select_from(schema.tasks).where(unfinished)
    return not await here.engine.db.fetch_value(counted)
