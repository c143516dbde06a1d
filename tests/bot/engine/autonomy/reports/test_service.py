"""Scheduled reports: when they come, to whom, and when they do not."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import pytest_asyncio
import sqlalchemy as sa

from bot.engine.schedule.firing import ServiceFailure
from bot.engine.timing import DayHours
from cards.model import ImageBlock
from storage import schema
from storage.records.autonomy import ReportPeriod
from storage.records.people import Language, PersonId
from storage.records.schedules import CronTiming, ScheduleState, ServiceBody
from tests.bot.engine.autonomy.reports.report_world import NOW, ReportWorld, report_world
from tests.engine_harness import BOSS, CHAT, GROUP, MATE

EVENING = CronTiming(expression="0 18 * * *")
NIGHT = CronTiming(expression="30 23 * * *")


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncGenerator[ReportWorld, None]:
    async with report_world(tmp_path) as made:
        yield made


async def test_a_time_is_changed_turned_off_and_on_again_on_one_row(world: ReportWorld) -> None:
    service = world.service
    by = {"title": "Daily report", "by": BOSS, "chat": CHAT.id}

    first = await service.schedule(ReportPeriod.DAY, EVENING, **by)  # type: ignore[arg-type]
    moved = await service.schedule(ReportPeriod.DAY, NIGHT, **by)  # type: ignore[arg-type]
    assert first.next_due == NOW.replace(hour=18)
    assert (moved.id, moved.next_due) == (first.id, NOW.replace(hour=23, minute=30))
    assert moved.body == ServiceBody(name="report", options={"period": "day"})

    assert [each.id for each in await service.stop(by=BOSS, chat=CHAT.id)] == [first.id]
    assert (await world.schedules.get(first.id)).state is ScheduleState.ENDED
    assert await service.stop(by=BOSS, chat=CHAT.id) == []

    again = await service.schedule(ReportPeriod.DAY, EVENING, **by)  # type: ignore[arg-type]
    assert (again.id, again.state) == (first.id, ScheduleState.ACTIVE)


async def test_nobody_turns_off_anothers_reports(world: ReportWorld) -> None:
    mine = await world.service.schedule(
        ReportPeriod.WEEK, EVENING, title="Weekly report", by=BOSS, chat=GROUP.id
    )

    assert await world.service.stop(by=MATE, chat=GROUP.id) == []
    assert await world.service.stop(by=BOSS, chat=CHAT.id) == []

    assert (await world.schedules.get(mine.id)).state is ScheduleState.ACTIVE


async def test_quiet_hours_put_a_report_off(tmp_path: Path) -> None:
    zone = ZoneInfo("Asia/Shanghai")
    quiet = DayHours(start=time(23), end=time(8), zone=zone)
    async with report_world(tmp_path, zone=zone, quiet_hours=quiet) as world:
        made = await world.service.schedule(
            ReportPeriod.DAY, NIGHT, title="Daily report", by=BOSS, chat=CHAT.id
        )

    assert made.next_due == datetime(2026, 1, 6, 0, 0, tzinfo=UTC), "8:00 in Shanghai"


async def test_a_due_report_is_sent_once_and_says_how_to_stop_it(world: ReportWorld) -> None:
    made = await world.service.schedule(
        ReportPeriod.DAY, EVENING, title="Daily report", by=BOSS, chat=CHAT.id
    )
    await world.add_task(title="Sweep", ended=NOW.replace(hour=17), micros=10_000)
    due = NOW.replace(hour=18)

    await world.service.run_scheduled(made, due)
    await world.service.run_scheduled(made, due)

    (text,) = world.sent.texts
    assert "Sweep" in text
    assert "/report off" in text


async def test_a_day_without_events_is_not_told_unless_somebody_asks(world: ReportWorld) -> None:
    made = await world.service.schedule(
        ReportPeriod.DAY, EVENING, title="Daily report", by=BOSS, chat=CHAT.id
    )
    await world.add_task(status="blocked", ended=NOW - timedelta(days=3))

    await world.service.run_scheduled(made, NOW.replace(hour=18))
    assert world.sent.texts == []

    await world.service.run_scheduled(made, NOW.replace(hour=18, second=7))
    (text,) = world.sent.texts
    assert "Nothing happened" in text


async def test_rights_are_those_of_the_time_of_sending(world: ReportWorld) -> None:
    made = await world.service.schedule(
        ReportPeriod.DAY, EVENING, title="Daily report", by=BOSS, chat=GROUP.id
    )
    await world.add_task(title="Private plan")
    await world.add_task(title="Group work", chat=GROUP.id)

    await world.service.run_scheduled(made, NOW.replace(hour=18))

    (text,) = world.sent.texts
    assert "Group work" in text
    assert "Private plan" not in text


async def test_a_person_who_is_gone_gets_no_report(world: ReportWorld) -> None:
    made = await world.service.schedule(
        ReportPeriod.DAY, EVENING, title="Daily report", by=BOSS, chat=CHAT.id
    )
    gone = type(made)(
        **{
            **{name: getattr(made, name) for name in made.__dataclass_fields__},
            "owner_id": PersonId("gone"),
        }
    )

    with pytest.raises(ServiceFailure):
        await world.service.run_scheduled(gone, NOW)

    assert world.sent.texts == []


async def test_pictures_are_stored_for_enough_steps_only(world: ReportWorld) -> None:
    task = await world.add_task()
    for n in range(19):
        await world.add_run(task, f"s{n}")
    few = await world.service.draw(await world.report(ReportPeriod.WEEK), Language.ENGLISH)
    assert (few.heat, few.cost) == ("", "")

    await world.add_run(task, "s19")
    await world.add_usage(5_000)
    await world.add_usage(5_000, at=NOW - timedelta(days=2))
    report = await world.report(ReportPeriod.WEEK)
    pictures = await world.service.draw(report, Language.ENGLISH)
    again = await world.service.draw(report, Language.ENGLISH)

    assert pictures == again, "the same figures are the same file"
    for path in (pictures.heat, pictures.cost):
        assert (world.home / path).read_bytes().startswith(b"\x89PNG")


async def test_a_full_disk_costs_only_the_pictures(world: ReportWorld) -> None:
    task = await world.add_task()
    for n in range(25):
        await world.add_run(task, f"s{n}")
    (world.home / "files").write_text("in the way")

    pictures = await world.service.draw(await world.report(ReportPeriod.WEEK), Language.ENGLISH)

    assert pictures.heat == ""


async def test_a_weekly_report_has_its_pictures_with_their_content_in_words(
    world: ReportWorld,
) -> None:
    made = await world.service.schedule(
        ReportPeriod.WEEK, EVENING, title="Weekly report", by=BOSS, chat=CHAT.id
    )
    task = await world.add_task()
    for n in range(25):
        await world.add_run(task, f"s{n}", start=NOW - timedelta(hours=1))

    await world.service.run_scheduled(made, NOW)

    ((_, card),) = world.sent.by_key.values()
    (picture,) = [block for block in card.blocks if isinstance(block, ImageBlock)]
    assert "25 steps" in picture.alt
    assert "Mon at 8:00" in picture.alt


async def test_deleted_tasks_are_not_told(world: ReportWorld) -> None:
    task = await world.add_task()
    gone = sa.update(schema.tasks).where(schema.tasks.c.id == task).values(deleted_at=NOW)
    await world.execute(gone)

    assert (await world.report()).ended == ()
