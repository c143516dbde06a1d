"""Costs by period, model, purpose, chat, person and task, and what the caps still allow."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from bot.app.costs import CostService
from bot.engine.agent.budget import Caps
from storage.budgets import BudgetRepo
from storage.records.money import Cap, Scope
from storage.records.status import CostQuery, Period
from storage.usage import Bill, UsageRepo
from tests.engine_world import BOSS, CHAT, GROUP, MATE, START, Engine, engine

ZONE = ZoneInfo("Asia/Shanghai")
CAPS = {
    Scope.TASK: Cap(micros=5_000_000),
    Scope.PERSON: Cap(tokens=10_000),
    Scope.DAY: Cap(micros=25_000_000),
}
"""The fifth of January 2026 is a Monday."""


@asynccontextmanager
async def costs(
    home: Path, caps: dict[Scope, Cap] | None = None
) -> AsyncGenerator[tuple[Engine, CostService], None]:
    async with engine(home, running=False) as world:
        of = CAPS if caps is None else caps
        usage, grants = UsageRepo(world.db), BudgetRepo(world.db)
        yield world, CostService(usage, grants, Caps(zone=ZONE, of=of), world.clock)


async def spend(world: Engine, model: str = "opus", **changes: Any) -> None:
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
        await UsageRepo(world.db).add(tx, Bill(**(facts | changes)))


async def test_periods_begin_where_the_boss_lives(tmp_path: Path) -> None:
    """START is 17:00 in Shanghai: the day before ended seventeen hours ago."""
    async with costs(tmp_path) as (world, service):
        await spend(world)
        await spend(world, at=START - timedelta(hours=16))
        await spend(world, at=START - timedelta(hours=18))
        await spend(world, at=START - timedelta(days=30))
        report = await service.report(by=BOSS, chat=CHAT.id)
        asked = [
            (await service.report(by=BOSS, chat=CHAT.id, query=query)).whole.calls
            for query in (
                CostQuery(period=Period.TODAY),
                CostQuery(period=Period.DAYS, days=2),
                CostQuery(period=Period.ALL),
            )
        ]

    assert (report.today.calls, report.week.calls, report.month.calls) == (2, 2, 3)
    assert asked == [2, 3, 4]


async def test_it_is_broken_down_dearest_first_with_what_the_cache_did(tmp_path: Path) -> None:
    async with costs(tmp_path) as (world, service):
        await spend(world, "haiku", cost_micros=10, purpose="plan")
        await spend(world, "opus")
        await spend(world, "opus", chat_id=GROUP.id, person_id=MATE.id)
        report = await service.report(by=BOSS, chat=CHAT.id, query=CostQuery(named=True))

    assert [line.name for line in report.models] == ["opus", "haiku"]
    assert [(line.name, line.spent.calls) for line in report.purposes] == [("step", 2), ("plan", 1)]
    assert {line.name for line in report.people} == {"Boss", "Mate"}
    assert {line.name for line in report.chats} == {"web Boss", "web Team"}
    assert (report.whole.cache_read_tokens, report.whole.cache_write_tokens) == (1_800, 600)


async def test_one_model_can_be_asked_for_by_a_part_of_its_name(tmp_path: Path) -> None:
    async with costs(tmp_path) as (world, service):
        await spend(world, "claude-opus-5-5")
        await spend(world, "gpt_5%")
        query = CostQuery(model="OPUS")
        report = await service.report(by=BOSS, chat=CHAT.id, query=query)
        percent = await service.report(by=BOSS, chat=CHAT.id, query=CostQuery(model="%"))

    assert [line.name for line in report.models] == ["claude-opus-5-5"]
    assert (report.whole.calls, report.today.calls) == (1, 1)
    assert [line.name for line in percent.models] == ["gpt_5%"]


async def test_a_member_sees_what_they_and_their_chat_spent_and_no_names(tmp_path: Path) -> None:
    async with costs(tmp_path) as (world, service):
        await spend(world)
        await spend(world, person_id=MATE.id, chat_id=GROUP.id)
        report = await service.report(by=MATE, chat=GROUP.id, query=CostQuery(named=True))

    assert report.whole.calls == 1
    assert (report.people, report.chats) == ((), ())
    assert [each.scope for each in report.caps] == [Scope.PERSON]


async def test_the_caps_of_today_tell_what_is_left(tmp_path: Path) -> None:
    async with costs(tmp_path) as (world, service):
        await spend(world)
        await spend(world, at=START - timedelta(days=1))
        report = await service.report(by=BOSS, chat=CHAT.id)

    left = {each.scope: each.left for each in report.caps}
    assert left == {
        Scope.PERSON: Cap(micros=0, tokens=10_000 - 1_100),
        Scope.DAY: Cap(micros=23_000_000),
    }


async def test_a_model_that_a_cap_on_money_cannot_see_is_named(tmp_path: Path) -> None:
    async with costs(tmp_path) as (world, service):
        await spend(world, "local-model", cost_micros=None)
        seen = await service.report(by=BOSS, chat=CHAT.id)
    async with costs(tmp_path, {Scope.DAY: Cap(tokens=5)}) as (_, service):
        by_tokens = await service.report(by=BOSS, chat=CHAT.id)

    assert seen.unseen == ("local-model",)
    assert seen.month.unpriced == 1
    assert by_tokens.unseen == ()


async def test_a_task_has_its_own_sum_and_its_own_cap(tmp_path: Path) -> None:
    async with costs(tmp_path) as (world, service):
        task = await world.add("write a book")
        await spend(world, task_id=task.id)
        await spend(world, task_id=task.id, at=START - timedelta(days=400), purpose="plan")
        await spend(world)
        cost = await service.of_task(task)

    assert cost.whole.calls == 2
    assert {line.name for line in cost.purposes} == {"plan", "step"}
    assert [each.left for each in cost.caps] == [Cap(micros=1_000_000)]
