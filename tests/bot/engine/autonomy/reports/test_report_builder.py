"""Figures of reports, from rows with known answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest_asyncio
import sqlalchemy as sa

from storage import schema
from storage.records.autonomy import FindingKind, ReportPeriod
from storage.records.people import ChatId
from storage.records.schedules import CronTiming
from storage.records.tasks import TaskStatus
from tests.bot.engine.autonomy.reports.report_world import NOW, ReportWorld, report_world
from tests.engine_harness import BOSS, CHAT, GROUP, MATE, THREAD

LONG_AGO = NOW - timedelta(days=20)


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncGenerator[ReportWorld, None]:
    async with report_world(tmp_path) as made:
        yield made


async def test_an_empty_store_is_quiet(world: ReportWorld) -> None:
    for period in ReportPeriod:
        report = await world.report(period)
        assert report.is_quiet
        assert report.findings == ()
        assert report.waiting == ()


async def test_tasks_are_counted_by_how_they_ended_and_against_the_day_before(
    world: ReportWorld,
) -> None:
    first = await world.add_task(title="A", micros=20_000, seconds=120)
    second = await world.add_task(title="B", status="failed", ended=NOW - timedelta(hours=23))
    await world.add_task(status="cancelled", ended=NOW - timedelta(minutes=1))
    await world.add_task(ended=NOW - timedelta(hours=25), micros=10_000)
    await world.add_task(ended=LONG_AGO)
    await world.add_task(ended=NOW + timedelta(seconds=1))

    report = await world.report()

    assert report.counts == {
        TaskStatus.COMPLETED: 1,
        TaskStatus.FAILED: 1,
        TaskStatus.CANCELLED: 1,
    }
    assert report.before == {TaskStatus.COMPLETED: 1}
    assert [each.id for each in report.ended][1:] == [first, second]
    assert report.costs == {first: 20_000}
    assert (report.spent.cost_micros, report.spent_before.cost_micros) == (20_000, 10_000)
    assert [each.id for each in report.costliest] == [first]


async def test_what_waits_is_listed_whenever_it_began(world: ReportWorld) -> None:
    blocked = await world.add_task(status="blocked", ended=LONG_AGO)
    paused = await world.add_task(status="paused", ended=LONG_AGO)
    await world.add_task(status="running")
    approval = {
        "id": "ap1",
        "kind": "question",
        "chat_id": CHAT.id,
        "title": "Which colour?",
        "approvers": [],
        "state": "waiting",
        "created_at": LONG_AGO,
        "expires_at": NOW + timedelta(days=1),
    }
    await world.execute(sa.insert(schema.approvals).values(approval))
    over = {**approval, "id": "ap2", "expires_at": NOW - timedelta(days=1)}
    await world.execute(sa.insert(schema.approvals).values(over))

    report = await world.report()

    assert {(each.kind, each.id) for each in report.waiting} == {
        ("question", "ap1"),
        ("blocked", blocked),
        ("paused", paused),
    }
    assert report.waiting_count == 3
    assert report.running == 1


async def test_members_see_their_own_and_groups_the_groups(world: ReportWorld) -> None:
    mine = await world.add_task(by=MATE.id, chat=ChatId("g1"), micros=1_000)
    boss = await world.add_task(by=BOSS.id, micros=2_000)
    thread = await world.add_task(by=BOSS.id, chat=THREAD.id, micros=4_000)
    await world.add_task(by=BOSS.id, status="blocked", title="Secret plan")

    def told(report: object) -> set[str]:
        return {each.id for each in report.ended}  # type: ignore[attr-defined]

    of_boss = await world.report(by=BOSS)
    of_mate = await world.report(by=MATE, chat=GROUP.id)
    in_group = await world.report(by=BOSS, chat=GROUP.id)

    assert told(of_boss) == {mine, boss, thread}
    assert of_boss.spent.cost_micros == 7_000
    assert told(of_mate) == told(in_group) == {mine, thread}
    assert of_mate.spent.cost_micros == in_group.spent.cost_micros == 5_000
    assert of_mate.waiting == in_group.waiting == ()


async def test_a_member_in_private_sees_only_their_own(world: ReportWorld) -> None:
    private = ChatId("m1")
    row = {
        "id": private,
        "channel": "telegram",
        "external_id": "77",
        "kind": "private",
        "title": "",
        "settings": {},
        "person_id": MATE.id,
        "created_at": NOW,
    }
    await world.execute(sa.insert(schema.chats).values(row))
    own = await world.add_task(by=MATE.id, chat=private, micros=1_000)
    await world.add_task(by=BOSS.id, title="Secret", micros=2_000)
    await world.add_run("t00002", "s1")
    seen = await world.service.access.visibility_for(MATE, CHAT.id)

    report = await world.service.builder.build(
        ReportPeriod.DAY,
        seen=type(seen)(sees_all=False, person=MATE.id, chat=private),
        until=NOW,
    )

    assert [each.id for each in report.ended] == [own]
    assert report.spent.cost_micros == 1_000
    assert report.step_count == 0


async def test_days_are_local_and_a_day_of_a_clock_change_has_25_hours(tmp_path: Path) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    until = datetime(2026, 10, 25, 17, 0, tzinfo=UTC)  # 18:00, after the change of this morning
    async with report_world(tmp_path, zone=berlin) as world:
        world.time = until
        inside = await world.add_task(ended=until - timedelta(hours=24, minutes=30))
        await world.add_task(ended=until - timedelta(hours=25, minutes=1))
        late = datetime(2026, 10, 24, 22, 30, tzinfo=UTC)  # 00:30 of the 25th
        await world.add_usage(5_000, at=late)
        await world.add_run(inside, "s1", start=late)

        report = await world.report()

    assert [each.id for each in report.ended] == [inside]
    assert until - report.since == timedelta(hours=25)
    today = report.days[-1]
    assert (today.day.isoformat(), today.micros) == ("2026-10-25", 5_000)
    assert report.heat[6][0] == 1, "Sunday, hour 0"
    assert report.hours[0] == 1


async def test_half_hour_zones_fill_the_right_hour(tmp_path: Path) -> None:
    async with report_world(tmp_path, zone=ZoneInfo("Asia/Kathmandu")) as world:
        task = await world.add_task()
        # 05:44 UTC is 11:29 in Kathmandu, 06:20 is 12:05.
        for n, minute in enumerate((44, 80)):
            start = NOW.replace(hour=5, minute=0) + timedelta(minutes=minute)
            await world.add_run(task, f"s{n}", start=start)

        report = await world.report()

    assert (report.hours[11], report.hours[12]) == (1, 1)


async def test_schedules_tell_what_fired_failed_and_comes_next(world: ReportWorld) -> None:
    timing = CronTiming(expression="0 18 * * *")
    mine = await world.service.schedule(
        ReportPeriod.DAY, timing, title="Daily report", by=BOSS, chat=CHAT.id
    )
    row = {
        "id": "job1",
        "kind": "job",
        "state": "active",
        "title": "News",
        "timing": {"cron": "0 9 * * *", "days": "any"},
        "zone": "UTC",
        "body": {"kind": "task", "instruction": "x"},
        "owner_id": BOSS.id,
        "chat_id": CHAT.id,
        "source": "message:1",
        "use_memory": True,
        "missed": "once",
        "retries": 0,
        "retry_seconds": 0,
        "respects_quiet_hours": False,
        "next_due": NOW + timedelta(hours=2),
        "created_at": NOW,
    }
    await world.execute(sa.insert(schema.schedules).values(row))
    for n, (schedule, state) in enumerate(
        (("job1", "done"), ("job1", "failed"), ("job1", "skipped"), (mine.id, "done"))
    ):
        firing = {
            "schedule_id": schedule,
            "due_at": NOW - timedelta(hours=n + 1),
            "state": state,
            "fired_at": NOW - timedelta(hours=n + 1),
        }
        await world.execute(sa.insert(schema.firings).values(firing))

    figures = (await world.report()).schedules

    assert (figures.fired, figures.failures, figures.failed) == (1, 1, ("News",))
    assert figures.upcoming == (("News", NOW + timedelta(hours=2)),)


async def test_failing_and_slow_steps_need_three_runs(world: ReportWorld) -> None:
    for n in range(3):
        task = await world.add_task(steps=("Build", "Test"), seconds=40)
        if n:
            await world.add_run(task, "s0", status="failed", seconds=20)
        if n == 2:
            await world.add_run(task, "s1", seconds=600)
    for _ in range(2):
        task = await world.add_task(steps=("Rare",))
        await world.add_run(task, "s0", status="failed", seconds=900)

    report = await world.report()

    (failing,) = report.failing_steps
    assert (failing.title, failing.runs, failing.failed, failing.success_percent) == (
        "Build",
        3,
        2,
        33,
    )
    (slow,) = report.slow_steps
    assert (slow.title, slow.longest_seconds, round(slow.mean_seconds)) == ("Test", 600, 213)
    assert slow.slowest_task == "t00003"


async def test_changes_are_told_only_beyond_their_thresholds(world: ReportWorld) -> None:
    before = NOW - timedelta(hours=30)
    for _ in range(6):
        await world.add_task(ended=before, seconds=100, micros=10_000)
    for _ in range(5):
        await world.add_task(seconds=131, micros=10_000)
    await world.add_task(status="failed", seconds=131, micros=50_000)

    found = {each.kind: each.figures for each in (await world.report()).findings}

    assert found[FindingKind.SUCCESS] == {"percent": 83, "percent_before": 100}
    assert found[FindingKind.DURATION]["percent"] == 31
    assert found[FindingKind.COST] == {"percent": 67, "micros": 100_000, "micros_before": 60_000}


async def test_small_samples_and_small_changes_say_nothing(world: ReportWorld) -> None:
    before = NOW - timedelta(hours=30)
    for _ in range(4):
        await world.add_task(ended=before, seconds=10, micros=10_000)
        await world.add_task(status="failed", seconds=900, micros=90_000)
    assert (await world.report()).findings == ()

    for _ in range(40):
        await world.add_task(ended=NOW - timedelta(days=9), seconds=100, micros=10_000)
        await world.add_task(ended=NOW - timedelta(days=3), seconds=125, micros=14_000)
    kinds = [each.kind for each in (await world.report(ReportPeriod.WEEK)).findings]
    assert FindingKind.DURATION not in kinds
    assert FindingKind.DEGRADED not in kinds


async def test_a_task_that_got_worse_than_similar_ones_is_named(world: ReportWorld) -> None:
    steps = ("Collect", "Write")
    for n in range(3):
        await world.add_task(
            title="Fix the login",
            ended=NOW - timedelta(days=3 + n),
            seconds=100,
            micros=100_000,
            steps=steps,
        )
    worse = await world.add_task(title="Fix the logout", seconds=190, micros=120_000, steps=steps)
    await world.add_task(title="Something else", seconds=9_000)

    (found,) = (await world.report()).findings

    assert (found.kind, found.task_id) == (FindingKind.DEGRADED, worse)
    assert found.figures["time_percent"] == 90
    assert found.figures["cost_percent"] == 0, "a fifth more is within the limits"
    assert found.figures["number"] == 3


async def test_tips_name_their_figures(world: ReportWorld) -> None:
    for _ in range(5):
        task = await world.add_task(title="Commit the docs", steps=("Draft", "Check"))
        await world.add_attempt(task, "s0", 1, micros=60_000)
        await world.add_attempt(task, "s1", 1, micros=10_000)
        await world.add_run(task, "s9", status="skipped")
    await world.add_run("t00001", "s0", attempt=3)
    await world.add_attempt("t00001", "s0", 1, micros=60_000, error="crash", call_status="failed")
    await world.add_attempt("t00001", "s0", 2, micros=5_000, error="asks", call_status="left")
    await world.add_attempt("t00001", "s0", 3, micros=60_000)

    report = await world.report()
    tips = {each.kind: each for each in report.findings}

    assert set(tips) == {FindingKind.COSTLY_STEP, FindingKind.RETRY_WASTE, FindingKind.BATCH}
    costly = tips[FindingKind.COSTLY_STEP]
    assert (costly.subject, costly.figures["micros"]) == ("Draft", 365_000)
    assert costly.figures["percent"] == 88
    waste = tips[FindingKind.RETRY_WASTE]
    assert (waste.figures["micros"], waste.figures["saved_micros"]) == (60_000, 42_000)
    assert waste.figures["number"] == 1, "an attempt that waited for an answer is not wasted"
    assert tips[FindingKind.BATCH].figures["number"] == 5
