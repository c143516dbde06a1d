"""Costs by period, model, purpose, chat, person and task, and what the caps still allow."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from bot.engine.agent.budget import SpendingCaps
from bot.engine.agent.cost_reports import CostReportService
from storage.records.usage import BudgetScope, CostPeriod, CostQuery, SpendingCap, UsageRecord
from storage.usage import BudgetRepo, UsageRepo
from tests.engine_harness import BOSS, CHAT, GROUP, MATE, START, EngineHarness, run_engine

ZONE = ZoneInfo("Asia/Shanghai")
CAPS = {
    BudgetScope.TASK: SpendingCap(micros=5_000_000),
    BudgetScope.PERSON: SpendingCap(tokens=10_000),
    BudgetScope.DAY: SpendingCap(micros=25_000_000),
}
"""The fifth of January 2026 is a Monday."""


@asynccontextmanager
async def cost_service(
    home: Path, caps: dict[BudgetScope, SpendingCap] | None = None
) -> AsyncGenerator[tuple[EngineHarness, CostReportService], None]:
    async with run_engine(home, start_dispatcher=False) as world:
        of = CAPS if caps is None else caps
        usage, grants = UsageRepo(world.db), BudgetRepo(world.db)
        yield (
            world,
            CostReportService(usage, grants, SpendingCaps(zone=ZONE, by_scope=of), world.clock),
        )


async def record_usage(world: EngineHarness, model: str = "opus", **changes: Any) -> None:
    facts: dict[str, Any] = {
        "at": START,
        "purpose": "step",
        "backend": "anthropic",
        "model": model,
        "person_id": BOSS.id,
        "chat_id": CHAT.id,
        "task_id": None,
        "requests": 1,
        "input_tokens": 1_000,
        "output_tokens": 100,
        "cache_read_tokens": 600,
        "cache_write_tokens": 200,
        "cost_micros": 2_000_000,
    }
    async with world.db.write() as tx:
        await UsageRepo(world.db).add(tx, UsageRecord(**(facts | changes)))


async def test_periods_begin_where_the_boss_lives(tmp_path: Path) -> None:
    """START is 17:00 in Shanghai: the day before ended seventeen hours ago."""
    async with cost_service(tmp_path) as (world, service):
        await record_usage(world)
        await record_usage(world, at=START - timedelta(hours=16))
        await record_usage(world, at=START - timedelta(hours=18))
        await record_usage(world, at=START - timedelta(days=30))
        report = await service.report(by=BOSS, chat=CHAT.id)
        asked = [
            (await service.report(by=BOSS, chat=CHAT.id, query=query)).total.calls
            for query in (
                CostQuery(period=CostPeriod.TODAY),
                CostQuery(period=CostPeriod.DAYS, days=2),
                CostQuery(period=CostPeriod.ALL),
            )
        ]

    assert (report.today.calls, report.week.calls, report.month.calls) == (2, 2, 3)
    assert asked == [2, 3, 4]


async def test_it_is_broken_down_dearest_first_with_what_the_cache_did(tmp_path: Path) -> None:
    async with cost_service(tmp_path) as (world, service):
        await record_usage(world, "haiku", cost_micros=10, purpose="plan")
        await record_usage(world, "opus")
        await record_usage(world, "opus", chat_id=GROUP.id, person_id=MATE.id)
        report = await service.report(
            by=BOSS, chat=CHAT.id, query=CostQuery(lists_chats_and_people=True)
        )

    assert [line.name for line in report.models] == ["opus", "haiku"]
    assert [(line.name, line.spent.calls) for line in report.purposes] == [("step", 2), ("plan", 1)]
    assert {line.name for line in report.people} == {"Boss", "Mate"}
    assert {line.name for line in report.chats} == {"web Boss", "web Team"}
    assert (report.total.cache_read_tokens, report.total.cache_write_tokens) == (1_800, 600)


async def test_one_model_can_be_asked_for_by_a_part_of_its_name(tmp_path: Path) -> None:
    async with cost_service(tmp_path) as (world, service):
        await record_usage(world, "claude-opus-5-5")
        await record_usage(world, "gpt_5%")
        query = CostQuery(model="OPUS")
        report = await service.report(by=BOSS, chat=CHAT.id, query=query)
        percent = await service.report(by=BOSS, chat=CHAT.id, query=CostQuery(model="%"))

    assert [line.name for line in report.models] == ["claude-opus-5-5"]
    assert (report.total.calls, report.today.calls) == (1, 1)
    assert [line.name for line in percent.models] == ["gpt_5%"]


async def test_a_member_sees_what_they_and_their_chat_spent_and_no_names(tmp_path: Path) -> None:
    async with cost_service(tmp_path) as (world, service):
        await record_usage(world)
        await record_usage(world, person_id=MATE.id, chat_id=GROUP.id)
        report = await service.report(
            by=MATE, chat=GROUP.id, query=CostQuery(lists_chats_and_people=True)
        )

    assert report.total.calls == 1
    assert (report.people, report.chats) == ((), ())
    assert [each.scope for each in report.caps] == [BudgetScope.PERSON]


async def test_the_caps_of_today_tell_what_is_left(tmp_path: Path) -> None:
    async with cost_service(tmp_path) as (world, service):
        await record_usage(world)
        await record_usage(world, at=START - timedelta(days=1))
        report = await service.report(by=BOSS, chat=CHAT.id)

    left = {each.scope: each.remaining for each in report.caps}
    assert left == {
        BudgetScope.PERSON: SpendingCap(micros=0, tokens=10_000 - 1_100),
        BudgetScope.DAY: SpendingCap(micros=23_000_000),
    }


async def test_a_model_that_a_cap_on_money_cannot_see_is_named(tmp_path: Path) -> None:
    async with cost_service(tmp_path) as (world, service):
        await record_usage(world, "local-model", cost_micros=None)
        seen = await service.report(by=BOSS, chat=CHAT.id)
    async with cost_service(tmp_path, {BudgetScope.DAY: SpendingCap(tokens=5)}) as (_, service):
        by_tokens = await service.report(by=BOSS, chat=CHAT.id)

    assert seen.unpriced_models == ("local-model",)
    assert seen.month.unpriced == 1
    assert by_tokens.unpriced_models == ()


async def test_a_task_has_its_own_sum_and_its_own_cap(tmp_path: Path) -> None:
    async with cost_service(tmp_path) as (world, service):
        task = await world.create_task("write a book")
        await record_usage(world, task_id=task.id)
        await record_usage(world, task_id=task.id, at=START - timedelta(days=400), purpose="plan")
        await record_usage(world)
        cost = await service.report_task(task)

    assert cost.total.calls == 2
    assert {line.name for line in cost.purposes} == {"plan", "step"}
    assert [each.remaining for each in cost.caps] == [SpendingCap(micros=1_000_000)]
