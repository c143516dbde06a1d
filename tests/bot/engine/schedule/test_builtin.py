"""The program's own schedules follow their settings and what owners did with them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.engine.schedule.builtin import OFF_BY_SETTING, BuiltinSchedule, BuiltinSchedules
from storage.errors import NotFound
from storage.records.people import ChatId, PersonId
from storage.records.schedules import CronTiming, Interval, ScheduleKind, ScheduleState
from tests.bot.engine.schedule.schedule_world import UTC_NAME, ScheduleWorld, schedule_world
from tests.engine_harness import BOSS, CHAT, START

HOUR = timedelta(hours=1)


async def started(
    here: ScheduleWorld, timing: Any = HOUR, *, ids: Callable[[], str] | None = None
) -> BuiltinSchedules:
    """The program after a start with this setting."""

    async def get_anchor() -> tuple[PersonId, ChatId]:
        return BOSS.id, CHAT.id

    made = BuiltinSchedules(
        db=here.engine.db,
        schedules=here.schedules,
        due_times=here.due_times,
        wanted=(BuiltinSchedule(name="check", kind=ScheduleKind.CHECK, timing=timing),),
        get_anchor=get_anchor,
        zone=UTC_NAME,
        now=here.now,
        new_id=ids or here.service.new_id,
        on_change=lambda: here.wakes.append("builtin"),
    )
    async with AsyncExitStack() as stack:
        await made.start(stack)
    return made


async def test_it_is_created_once_and_not_among_those_of_people(tmp_path: Path) -> None:
    async with schedule_world(tmp_path) as here:
        first = await (await started(here)).get("check")
        here.advance(minutes=20)
        again = await (await started(here)).get("check")

        assert again == first
        assert again.state is ScheduleState.ACTIVE
        assert again.next_due == START + HOUR, "a restart does not begin the interval again"
        assert await here.service.list(by=BOSS, chat=CHAT.id) == []


async def test_a_taken_id_is_not_used_again(tmp_path: Path) -> None:
    async with schedule_world(tmp_path) as here:
        taken = await here.add()
        ids = iter([taken.id, "free01"])
        made = await started(here, ids=lambda: next(ids))
        assert (await made.get("check")).id == "free01"


async def test_a_changed_setting_changes_timing_and_due_time(tmp_path: Path) -> None:
    async with schedule_world(tmp_path) as here:
        await started(here)
        here.advance(minutes=10)
        half = await (await started(here, HOUR / 2)).get("check")
        assert isinstance(half.timing, Interval)
        assert half.next_due == START + timedelta(minutes=40)

        daily = await (await started(here, CronTiming(expression="0 20 * * *"))).get("check")
        assert daily.next_due == START.replace(hour=20)


async def test_it_is_off_while_a_setting_says_so(tmp_path: Path) -> None:
    async with schedule_world(tmp_path) as here:
        with pytest.raises(NotFound):
            await (await started(here, None)).get("check")

        await started(here)
        off = await started(here, None)
        assert (await off.get("check")).reason == OFF_BY_SETTING
        assert (await off.switch("check", on=True)).next_due is None

        on = await (await started(here)).get("check")
        assert (on.state, on.reason, on.next_due) == (ScheduleState.ACTIVE, "", START + HOUR)


async def test_one_that_an_owner_paused_stays_paused(tmp_path: Path) -> None:
    async with schedule_world(tmp_path) as here:
        made = await started(here)
        await made.switch("check", on=False)
        await started(here, None)
        again = await started(here, HOUR / 2)

        paused = await again.get("check")
        assert paused.state is ScheduleState.PAUSED
        assert paused.next_due is None

        here.advance(hours=5)
        resumed = await again.switch("check", on=True)
        assert resumed.state is ScheduleState.ACTIVE
        assert resumed.next_due is not None
        assert resumed.next_due > here.now()
        assert here.wakes[-2:] == ["builtin", "builtin"]
